"""What a server does with more load than it can take: goodput at 1, 2, 3 and 10 times its capacity, fairness between callers and between
models, the cost of a refusal. Open-loop, on a server of its own whose device is slowed by a fault, so that the sender does not take the
server's processors.

    bench/overload.py --server build/release/headroom_faulty [--seconds 60] [--arms goodput,callers,models,cost,late]

Goodput is what is answered right and within its deadline, counted from the time at which the call should have been sent.

    goodput   calls with a deadline, at each of --factors times the capacity that was measured before; after each, that calls at half
              the capacity are served as if nothing had been
    callers   ten callers, one of whom asks ten times as much as any other; together twice the capacity. Jain's index of what each got
              over what a fair server would have given it (max-min)
    models    two models on the device, one asked for ten times as much as the other; each could have more than half of it
    cost      what a refusal costs the server's processors, beside a call that does nothing (ServerLive), sent as fast
    late      deadlines of 50 ms, at the capacity: no row starts after its deadline

Ends with a table on stderr and one JSON object on stdout. Exit code: 0, or 1 where a call was a fault.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import grpc
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

import open_loop  # noqa: E402
from open_loop import Call, Model, Sender  # noqa: E402
from soak import Metrics, Server  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]
CALLER_KEY = "x-caller"
LENGTH = 16
REST_SECONDS = 2.0


class NamedSender(Sender):
    """Says who each call is from, and can tell one deadline a run."""

    def __init__(self, model: Model, channels: list[grpc.aio.Channel], deadline: float | None, callers: list[int] | None) -> None:
        super().__init__(argparse.Namespace(deadline_ms=1000 * (deadline or 0), client_key=""), model, channels)
        self._callers = callers

    def _metadata(self, call: Call, number: int) -> list[tuple[str, str]] | None:
        return None if self._callers is None else [(CALLER_KEY, f"caller-{self._callers[number]}")]


def poisson(random: np.random.Generator, rate: float, seconds: float) -> np.ndarray:
    times = np.cumsum(random.exponential(1 / rate, size=int(rate * seconds * 1.5) + 50))
    return times[times < seconds]


def jain(values: list[float]) -> float:
    return sum(values) ** 2 / (len(values) * sum(value * value for value in values)) if any(values) else 0.0


def max_min(demands: list[float], capacity: float) -> list[float]:
    """What each would get from a fair server."""
    shares = [0.0] * len(demands)
    left, open_ = capacity, sorted(range(len(demands)), key=lambda i: demands[i])
    while open_:
        i = open_.pop(0)
        shares[i] = min(demands[i], left / (len(open_) + 1))
        left -= shares[i]
    return shares


def processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Overload:
    def __init__(self, options: argparse.Namespace, server: Server) -> None:
        self.options, self.server = options, server
        self.random = np.random.default_rng(open_loop.seed_of(options))
        self.faults = 0
        self.channels: list[grpc.aio.Channel] = []
        self.models: dict[str, Model] = {}

    async def send(self, model: str, calls: list[Call], deadline: float | None, callers: list[int] | None = None) -> list[Call]:
        await NamedSender(self.models[model], self.channels, deadline, callers).run(calls, self.random)
        self.faults += sum(bool(call.fault) for call in calls)
        return calls

    def in_time(self, calls: list[Call], deadline: float) -> list[Call]:
        return [call for call in calls if call.status == "OK" and call.ended - call.at <= deadline]

    async def capacity(self, model: str, seconds: float = 6.0) -> float:
        """Answers a second when there is always somebody waiting."""
        calls = [Call(at=0.0, length=LENGTH) for _ in range(int(self.options.batch_rows / self.options.delay_ms * 1000 * seconds))]
        await self.send(model, calls, None)
        ends = sorted(call.ended for call in calls if call.status == "OK")
        # Without the first batch and the last ones, when the workers were not full.
        return (len(ends) * 0.8 - 1) / (ends[int(len(ends) * 0.9)] - ends[int(len(ends) * 0.1)])

    async def goodput(self, model: str, capacity: float) -> list[dict]:
        told = []
        deadline = self.options.deadline_ms / 1000
        for factor in self.options.factors:
            processor = processor_seconds(self.server.process.pid)
            times = poisson(self.random, factor * capacity, self.options.seconds)
            calls = await self.send(model, [Call(at=float(at), length=LENGTH) for at in times], deadline)
            processor = processor_seconds(self.server.process.pid) - processor
            resident = self.server.resident()
            await asyncio.sleep(REST_SECONDS)
            after = await self.send(
                model, [Call(at=float(at), length=LENGTH) for at in poisson(self.random, 0.5 * capacity, 5.0)], deadline
            )
            answered = [call for call in calls if call.status == "OK"]
            refused = [call for call in calls if call.status != "OK"]
            told.append(
                {
                    "factor": factor,
                    "offered_per_second": round(len(calls) / self.options.seconds, 1),
                    "goodput_per_second": round(len(self.in_time(calls, deadline)) / self.options.seconds, 2),
                    "answered_late": len(answered) - len(self.in_time(calls, deadline)),
                    "accepted_ms": open_loop.percentiles([call.ended - call.at for call in answered]),
                    "refused": len(refused),
                    "refusal_ms": open_loop.percentiles([call.ended - call.sent for call in refused]),
                    "by_status": open_loop.report("", calls, argparse.Namespace())["by_status"],
                    "sender_lag_ms": open_loop.percentiles([call.sent - call.at for call in calls]),
                    "server_processor_us_per_call": round(1e6 * processor / len(calls), 1),
                    "resident_mb": round(resident / 1e6, 1),
                    "after": {
                        "sent": len(after),
                        "in_time": len(self.in_time(after, deadline)),
                        "ms": open_loop.percentiles([call.ended - call.at for call in after if call.status == "OK"]),
                    },
                }
            )
            print(f"overload: {json.dumps(told[-1])}", file=sys.stderr, flush=True)
        best = max(arm["goodput_per_second"] for arm in told)
        for arm in told:
            arm["share_of_peak"] = round(arm["goodput_per_second"] / best, 4)
        return told

    async def callers(self, model: str, capacity: float) -> dict:
        deadline = self.options.deadline_ms / 1000
        unit = 2 * capacity / 19
        rates = [10 * unit] + [unit] * 9
        arrivals = sorted((float(at), who) for who, rate in enumerate(rates) for at in poisson(self.random, rate, self.options.seconds))
        calls = [Call(at=at, length=LENGTH) for at, _ in arrivals]
        await self.send(model, calls, deadline, [who for _, who in arrivals])
        got = [0.0] * len(rates)
        for call, (_, who) in zip(calls, arrivals):
            got[who] += bool(self.in_time([call], deadline)) / self.options.seconds
        fair = max_min(rates, sum(got))
        return {
            "asked_per_second": [round(rate, 2) for rate in rates],
            "got_per_second": [round(value, 2) for value in got],
            "fair_per_second": [round(value, 2) for value in fair],
            "jain": round(jain([g / f for g, f in zip(got, fair)]), 4),
        }

    async def two_models(self, capacity: float) -> dict:
        deadline = self.options.deadline_ms / 1000
        rates = {"P": 6 * capacity, "Q": 0.6 * capacity}
        runs = {
            name: [Call(at=float(at), length=LENGTH) for at in poisson(self.random, rate, self.options.seconds)]
            for name, rate in rates.items()
        }
        await asyncio.gather(*(self.send(name, calls, deadline) for name, calls in runs.items()))
        got = {name: len(self.in_time(calls, deadline)) / self.options.seconds for name, calls in runs.items()}
        fair = max_min(list(rates.values()), sum(got.values()))
        return {
            "asked_per_second": {name: round(rate, 1) for name, rate in rates.items()},
            "got_per_second": {name: round(value, 1) for name, value in got.items()},
            "jain": round(jain([value / f for value, f in zip(got.values(), fair)]), 4),
        }

    async def cost(self, model: str) -> dict:
        """Each kind of call in turns of a second, so that what else happens on the machine meets both alike."""
        live = self.channels[0].unary_unary(open_loop.SERVICE + "ServerLive")
        infer = self.channels[0].unary_unary(open_loop.SERVICE + "ModelInfer")
        request = self.models[model].request(Call(at=0.0, length=LENGTH), self.random)
        plug = asyncio.create_task(
            self.send(model, [Call(at=0.0, length=LENGTH) for _ in range(40 * self.options.batch_rows)], None)
        )
        await asyncio.sleep(1.0)
        spent: dict[str, list[float]] = {"refusal": [], "nothing": []}
        refused = 0

        async def burst(method: grpc.aio.UnaryUnaryMultiCallable, body: bytes, count: int, deadline: float) -> int:
            async def one() -> int:
                try:
                    await method(body, timeout=deadline)
                except grpc.aio.AioRpcError as error:
                    return int("foreseen" in (error.details() or ""))
                return 0

            return sum(await asyncio.gather(*(one() for _ in range(count))))

        for _ in range(6):
            for name in spent:
                before = processor_seconds(self.server.process.pid)
                for _ in range(15):
                    if name == "refusal":
                        refused += await burst(infer, request, 50, 0.3)
                    else:
                        await burst(live, b"", 50, 5.0)
                spent[name].append(1e6 * (processor_seconds(self.server.process.pid) - before) / 750)
        plug.cancel()
        await asyncio.gather(plug, return_exceptions=True)
        await asyncio.sleep(6.0)
        medians = {name: round(float(np.median(values)), 1) for name, values in spent.items()}
        return {"us_per_call": medians, "refused": refused, "of": 6 * 750}

    async def late(self, model: str, capacity: float) -> dict:
        calls = [Call(at=float(at), length=LENGTH) for at in poisson(self.random, capacity, self.options.seconds / 2)]
        await self.send(model, calls, 0.05 + self.options.delay_ms / 1000)
        return {"sent": len(calls), "late_starts": Metrics(self.server.http).total("headroom_late_starts_total")}

    async def run(self) -> dict:
        settings = [("grpc.use_local_subchannel_pool", 1)]
        self.channels = [grpc.aio.insecure_channel(self.server.grpc, options=settings) for _ in range(4)]
        told: dict = {}
        try:
            for name in ("P", "Q"):
                self.models[name] = await Model.ask(self.channels[0], name, 999)
            capacity = told["capacity_per_second"] = round(await self.capacity("P"), 2)
            print(f"overload: capacity {capacity}/s", file=sys.stderr, flush=True)
            arms = self.options.arms
            if "goodput" in arms:
                told["goodput"] = await self.goodput("P", capacity)
            if "callers" in arms:
                told["callers"] = await self.callers("P", capacity)
            if "models" in arms:
                told["models"] = await self.two_models(capacity)
            if "cost" in arms:
                told["cost"] = await self.cost("P")
            if "late" in arms:
                told["late"] = await self.late("P", capacity)
        finally:
            for channel in self.channels:
                await channel.close()
        told["faults"] = self.faults
        return told


def make_repository(folder: Path, options: argparse.Namespace) -> None:
    subprocess.run([sys.executable, str(ROOT / "test/models/make_models.py"), str(folder), "P"], check=True, stdout=subprocess.DEVNULL)
    config = (folder / "P/config.pbtxt").read_text()
    lines = [line for line in config.splitlines() if not line.startswith("max_batch_size")]
    for name in ("P", "Q"):
        (folder / name / "1").mkdir(parents=True, exist_ok=True)
        (folder / name / "1/model.pt").write_bytes((folder / "P/1/model.pt").read_bytes())
        text = "\n".join(lines).replace('name: "P"', f'name: "{name}"', 1)
        (folder / name / "config.pbtxt").write_text(f"{text}\nmax_batch_size: {options.batch_rows}\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", default=str(ROOT / "build/release/headroom_faulty"), help="with fault injection [%(default)s]")
    parser.add_argument("--seconds", type=float, default=60, help="of each arm [%(default)s]")
    parser.add_argument("--factors", type=lambda text: [float(f) for f in text.split(",")], default=[1.0, 2.0, 3.0, 10.0])
    parser.add_argument("--arms", type=lambda text: text.split(","), default=["goodput", "callers", "models", "cost", "late"])
    parser.add_argument("--deadline-ms", type=float, default=1000, help="[%(default)s]")
    parser.add_argument("--delay-ms", type=int, default=100, help="that a batch takes longer [%(default)s]")
    parser.add_argument("--batch-rows", type=int, default=8, help="[%(default)s]")
    parser.add_argument("--seed", type=int, default=None)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        repository = Path(scratch) / "repository"
        make_repository(repository, options)
        options.repository = str(repository)
        options.server_options = ["--device", "cpu", "--workers", "1", "--fault", f"delay_ms={options.delay_ms}"]
        options.server_options += ["--caller-metadata-key", CALLER_KEY]
        server = Server(options, Path(scratch))
        try:
            began = time.monotonic()
            told = asyncio.run(Overload(options, server).run())
            told["seconds"] = round(time.monotonic() - began, 1)
        finally:
            code = server.end()
        told["exit_code"] = code
    for name in ("callers", "models", "cost", "late"):
        if name in told:
            print(f"overload: {name}: {json.dumps(told[name])}", file=sys.stderr)
    print(json.dumps(told))
    return 1 if told["faults"] or code != 0 else 0


if __name__ == "__main__":
    open_loop.run_program(main)
