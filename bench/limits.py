"""A server held against what could be had at best, in turns within one run, as ratios with 95 % intervals.

    bench/limits.py ideal --repository build/models --mix search --lengths lengths.csv --rounds 8 -- --workers 2
    bench/limits.py ideal --repository build/models --mix incident --cut 512 --groupings least-time,single
    bench/limits.py echo --repository TOYS --model identity --in-flight 64 --rounds 10

What follows "--" are options of the server, which is started for the run.

    ideal   rows a second served to a closed loop of --in-flight calls of one row, ÷ those of the same module in a process of its own
            that knows all rows beforehand (headroom_ideal: how rows are grouped is said there). Both get the same rows in a round,
            and have as many workers and threads. Told twice: by the time of day, and by processor time, the client's left out
    echo    answered calls a second of a model that does nothing ÷ those of a server that does nothing at all (headroom_echo), by the
            same closed loop; and the processor time that each takes for a call

One arm rests while the other has its turn, and who begins changes with the round. Intervals are bootstrapped over rounds. Ends with
a table on stderr and one JSON object on stdout. Exit code: 0, 1 where a call was not answered, 2 where nothing could be measured.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

import open_loop  # noqa: E402
from overload import processor_seconds  # noqa: E402
from soak import HERE, Metrics, Server  # noqa: E402

RESAMPLES = 2000
LEAST_ROUNDS = 3  # fewer say nothing about how sure a ratio is
START_SECONDS = 60


def ratio_of(of: np.ndarray, to: np.ndarray, random: np.random.Generator) -> dict[str, float]:
    """sum(of) ÷ sum(to) over rounds, each a pair, with the interval of rounds drawn from them."""
    chosen = random.integers(0, len(of), size=(RESAMPLES, len(of)))
    low, high = np.percentile(of[chosen].sum(axis=1) / to[chosen].sum(axis=1), (2.5, 97.5))
    if len(of) < LEAST_ROUNDS:
        low = high = math.nan
    return {"value": round(of.sum() / to.sum(), 4), "low": round(float(low), 4), "high": round(float(high), 4)}


class Ideal:
    """The model in a process of its own, which runs a round whenever it is told a seed."""

    def __init__(self, options: argparse.Namespace, grouping: str, stack: contextlib.ExitStack) -> None:
        self.name = f"ideal {grouping}"
        command = [options.build / "headroom_ideal", "--turns", "--model", options.repository / options.model / "1" / "model.pt"]
        command += ["--workers", options.workers, "--intra-op-threads", options.intra_op_threads, "--rows", options.calls]
        command += ["--mix", options.mix, "--cut", options.cut, "--seed", options.seed, "--grouping", grouping]
        command += ["--multiple", options.multiple, "--highest-id", options.highest_id]
        if options.lengths:
            command += ["--lengths", options.lengths]
        if options.latencies:
            command += ["--latencies", options.latencies]
        self.process = subprocess.Popen([str(word) for word in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        stack.callback(self.process.kill)
        self.told()

    def told(self) -> dict:
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("limits: the ideal could not be measured")
        return json.loads(line)

    @property
    def pid(self) -> int:
        return self.process.pid

    def turn(self, seed: int) -> dict:
        self.process.stdin.write(f"{seed}\n")
        self.process.stdin.flush()
        return self.told()


class Served:
    """A turn of the server: as many calls as the ideal has rows."""

    name = "served"

    def __init__(self, options: argparse.Namespace, server: Server) -> None:
        self.pid = server.process.pid
        self.command = [options.build / "headroom_load", "closed", "--arm", f"served={server.grpc}", "--model", options.model]
        self.command += ["--mix", options.mix, "--cut", options.cut, "--calls", options.calls, "--in-flight", options.in_flight]
        self.command += ["--highest-id", options.highest_id, "--warm-up", 0]
        if options.lengths:
            self.command += ["--lengths", options.lengths]
        if options.masks:
            self.command += ["--masks"]

    def turn(self, seed: int) -> dict:
        arm = load([*self.command, "--seed", seed])["arms"][0]
        return {"seconds": arm["seconds"], "rows": arm["answered"]}


def load(command: list) -> dict:
    done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if not done.stdout:
        raise SystemExit("limits: " + (done.stderr.strip() or "no load could be sent"))
    told = json.loads(done.stdout)
    for arm in told["arms"]:
        if arm["faults"]:
            print(done.stderr, file=sys.stderr)
            sys.exit(1)
    return told


def tokens_of(server: Server) -> tuple[float, float]:
    page = Metrics(server.http)
    return page.total("headroom_useful_tokens_total") or 0.0, page.total("headroom_padding_tokens_total") or 0.0


def against_ideal(options: argparse.Namespace, server: Server, stack: contextlib.ExitStack) -> dict:
    arms = [Served(options, server), *(Ideal(options, grouping, stack) for grouping in options.groupings.split(","))]
    rounds: dict[str, list[dict]] = {arm.name: [] for arm in arms}
    for arm in arms:
        arm.turn(options.seed)  # warms up, and is not counted
    useful, padding = tokens_of(server)
    until = time.monotonic() + options.at_most
    for number in range(options.rounds):
        if time.monotonic() > until:
            break
        first = number % len(arms)
        for arm in arms[first:] + arms[:first]:
            before = processor_seconds(arm.pid)
            told = arm.turn(options.seed + 1 + number)
            rounds[arm.name].append(told | {"processor_seconds": processor_seconds(arm.pid) - before})
        took = ", ".join(f"{name} {t[-1]['seconds']:.2f} s ({t[-1]['processor_seconds']:.2f} s of processors)" for name, t in rounds.items())
        print(f"round {number + 1}: {took}", file=sys.stderr, flush=True)
    useful, padding = (now - before for now, before in zip(tokens_of(server), (useful, padding)))
    if not all(rounds.values()):
        raise SystemExit("limits: there was no time for a round")
    rows = options.calls * len(rounds["served"])
    seconds = {name: np.array([told["seconds"] for told in of]) for name, of in rounds.items()}
    processor = {name: np.array([told["processor_seconds"] for told in of]) for name, of in rounds.items()}
    random = np.random.default_rng(options.seed)
    names = list(rounds)
    pairs = [(of, to) for i, of in enumerate(names) for to in names[i + 1 :]]

    def share(name: str, part: str, whole: str) -> float:
        return round(sum(told[part] for told in rounds[name]) / sum(told[whole] for told in rounds[name]), 4)

    return {
        "seconds": {name: [round(s, 4) for s in of] for name, of in seconds.items()},
        "rows_per_second": {name: round(rows / of.sum(), 2) for name, of in seconds.items()},
        # Rows are the same: the ratio of rates is that of times, turned over.
        "ratios": {f"{of} ÷ {to}": ratio_of(seconds[to], seconds[of], random) for of, to in pairs},
        # Says less, as a worker that waits takes no processor time, and says it more surely on a machine that others use too.
        "processor_ratios": {f"{of} ÷ {to}": ratio_of(processor[to], processor[of], random) for of, to in pairs},
        "processor_ms_per_row": {name: round(1000 * of.sum() / rows, 3) for name, of in processor.items()},
        "ideal_useful_of_computed": {name: share(name, "tokens", "computed_tokens") for name in names[1:]},
        "ideal_rows_a_batch": {name: share(name, "rows", "batches") for name in names[1:]},
        "served_useful_of_computed": round(useful / (useful + padding), 4) if useful else None,
    }


class Echo:
    def __init__(self, options: argparse.Namespace, scratch: Path) -> None:
        ready = scratch / "echo.json"
        command = [options.build / "headroom_echo", "--address", "127.0.0.1:0", "--ready-file", ready]
        command += ["--raw"] if options.raw else []
        self.process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until = time.monotonic() + START_SECONDS
        while not ready.exists():
            if self.process.poll() is not None or time.monotonic() > until:
                raise SystemExit("limits: headroom_echo does not serve")
            time.sleep(0.02)
        self.grpc = json.loads(ready.read_text())["grpc"]


def against_echo(options: argparse.Namespace, server: Server, stack: contextlib.ExitStack) -> dict:
    echo = Echo(options, Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headroom-echo-"))))
    stack.callback(echo.process.kill)
    processes = {"served": server.process.pid, "echo": echo.process.pid}
    command = [options.build / "headroom_load", "closed", "--arm", f"served={server.grpc}", "--arm", f"echo={echo.grpc}"]
    command += ["--model", options.model, "--mix", options.mix, "--in-flight", options.in_flight, "--seconds", options.seconds]
    command += ["--seed", options.seed, "--connections", options.connections, "--highest-id", options.highest_id]
    load([*command, "--rounds", 1])  # warms up, and is not counted
    before = {name: processor_seconds(pid) for name, pid in processes.items()}
    client = resource.getrusage(resource.RUSAGE_CHILDREN)
    told = load([*command, "--rounds", options.rounds])
    client_now = resource.getrusage(resource.RUSAGE_CHILDREN)
    # The calls that headroom_load warms up with are among them: some tens of many thousands.
    spent = {name: processor_seconds(pid) - before[name] for name, pid in processes.items()}
    answered = {arm["name"]: arm["answered"] for arm in told["arms"]}
    # Of the calls to both; it shares the machine, and draws the ratio of rates towards 1.
    client_spent = client_now.ru_utime + client_now.ru_stime - client.ru_utime - client.ru_stime
    return {
        "answered_per_second": {arm["name"]: arm["answered_per_second"] for arm in told["arms"]},
        "processor_us_per_call": {name: round(1e6 * spent[name] / count, 2) for name, count in answered.items()},
        "client_processor_us_per_call": round(1e6 * client_spent / sum(answered.values()), 2),
        "latency_ms": {arm["name"]: arm["latency_ms"] for arm in told["arms"]},
        "ratios": {
            f"{ratio['of']} ÷ {ratio['to']}, {ratio['measure']}": {key: ratio[key] for key in ("value", "low", "high")}
            for ratio in told["ratios"]
        },
    }


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="what", required=True)
    ideal, echo = verbs.add_parser("ideal"), verbs.add_parser("echo")
    for verb, model, mix, in_flight in ((ideal, "minilm", "search", 256), (echo, "identity", "16", 64)):
        verb.add_argument("--build", type=Path, default=HERE.parent / "build" / "release", help="where the programs are [%(default)s]")
        verb.add_argument("--repository", type=Path, required=True)
        verb.add_argument("--model", default=model, help="[%(default)s]")
        verb.add_argument("--mix", default=mix, help="lengths: search, incident, LOW-HIGH, or one length [%(default)s]")
        verb.add_argument("--in-flight", type=int, default=in_flight, help="calls of one row [%(default)s]")
        verb.add_argument("--highest-id", type=int, default=999, help="token ids are drawn from 0 to this [%(default)s]")
        verb.add_argument("--rounds", type=int, default=8, help="[%(default)s]")
        verb.add_argument("--seed", type=int, default=None, help="drawn, and printed, where it is not given")
        verb.add_argument("server_options", nargs="*", metavar="-- OPTION", help="of the server")
    ideal.add_argument("--lengths", metavar="FILE", default="", help="a table of quantiles, which the search mix needs")
    ideal.add_argument("--cut", type=int, default=512, help="tokens, to which longer rows are cut [%(default)s]")
    ideal.add_argument("--calls", type=int, default=1000, help="of a round, a row each [%(default)s]")
    ideal.add_argument("--at-most", type=float, default=math.inf, help="seconds after which no more round begins [%(default)s]")
    ideal.add_argument("--workers", type=int, default=2, help="of the server and of the ideal [%(default)s]")
    ideal.add_argument("--intra-op-threads", type=int, default=1, help="of each worker [%(default)s]")
    ideal.add_argument("--groupings", default="least-time", help="least-time, equal-length, single, an ideal each [%(default)s]")
    ideal.add_argument("--multiple", type=int, default=1, help="the ideal pads to a multiple of this [%(default)s]")
    ideal.add_argument("--latencies", metavar="FILE", default="", help="where the ideal keeps what it has measured, for other runs")
    ideal.add_argument("--masks", action="store_true", help="the served calls carry masks")
    echo.add_argument("--seconds", type=float, default=3, help="of a turn [%(default)s]")
    echo.add_argument("--connections", type=int, default=2, help="[%(default)s]")
    echo.add_argument("--raw", action="store_true", help="the echo does not take messages apart")
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error("--rounds must be at least 1")
    if options.what == "ideal":
        options.server_options = ["--workers", options.workers, "--intra-op-threads", options.intra_op_threads, *options.server_options]
    return options


def main() -> int:
    options = parse()
    options.seed = open_loop.seed_of(options)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(2))  # so that what was started is ended
    options.server = options.build / "headroom"
    with contextlib.ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headroom-limits-")))
        server = Server(options, scratch)
        stack.callback(lambda: server.process.poll() is None and server.process.kill())
        told = {"tool": "limits", "options": {name: str(value) for name, value in sorted(vars(options).items())}}
        told |= (against_ideal if options.what == "ideal" else against_echo)(options, server, stack)
        told["exit_code"] = server.end()
    for kind in ("ratios", "processor_ratios"):
        for name, ratio in told.get(kind, {}).items():
            words = f"{name}, by processor time" if kind == "processor_ratios" else name
            print(f"  {words:56}{ratio['value']:8.3f}  ({ratio['low']:.3f} to {ratio['high']:.3f})", file=sys.stderr)
    print(json.dumps(told, ensure_ascii=False).replace("NaN", "null"), flush=True)
    return 0


if __name__ == "__main__":
    open_loop.run_program(main)
