"""Runs a server for a day (or, with --short, for half a minute) under traffic that is not kind to it, and looks at its memory whenever
nothing runs.

    bench/soak.py --repository build/models --model minilm --rate 16 --hours 24 -- --memory-limit 1GiB
    bench/soak.py --repository DIR --model P --short

What follows "--" are options of the server. A round is: the long tail with bursts, cancelled calls, malformed ones and jitter, at
--rate; then a trace at --speed times what its own times say; then rest. At rest, in every round:

- nothing is reserved (headroom_memory_reserved_bytes), nothing waits (headroom_queue_rows), every model is ready;
- each request received was answered: headroom_requests_received_total is the sum of headroom_requests_total over its outcomes;
- what batches may hold (headroom_memory_budget_bytes), and what is in tensors where a gauge tells it, is what it was before.

And on the whole: no call was a fault (see bench/open_loop.py), resident memory grew by no more than --growth bytes a call and a slack
from the first round's rest to the last one's, and the server ends with 0 when it is told to. What the first round warms is not growth.

Ends with a table on stderr and one JSON object on stdout. Exit code 0, or 1 where something of this did not hold.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import numpy as np
from prometheus_client.parser import text_string_to_metric_families

HERE = Path(__file__).resolve().parent
START_SECONDS = 600
EXIT_SECONDS = 60
REST_SECONDS = 30  # in which what is at rest must have come to rest
BUDGET_SHARE = 0.01  # by which the budget may differ from what it was
SLACK_BYTES = 32 << 20  # of resident memory: arenas of the C library, threads that start late


class Metrics:
    def __init__(self, address: str) -> None:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as reply:
            families = text_string_to_metric_families(reply.read().decode())
            self.samples = [sample for family in families for sample in family.samples]

    def total(self, name: str, **labels: str) -> float | None:
        values = [s.value for s in self.samples if s.name == name and labels.items() <= s.labels.items()]
        return sum(values) if values else None


class Server:
    def __init__(self, options: argparse.Namespace, scratch: Path) -> None:
        ready = scratch / "ready.json"
        command = [options.server, "serve", "--model-repository", options.repository, "--grpc-address", "127.0.0.1:0"]
        command += ["--http-address", "127.0.0.1:0", "--ready-file", ready, *options.server_options]
        self.log = scratch / "server.log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        until = time.monotonic() + START_SECONDS
        while not ready.exists():
            if self.process.poll() is not None or time.monotonic() > until:
                self.process.kill()
                raise SystemExit("soak: the server did not become ready:\n" + self.log.read_text(errors="replace")[-2000:])
            time.sleep(0.05)
        addresses = json.loads(ready.read_text())
        self.grpc, self.http = addresses["grpc"], addresses["http"]

    def resident(self) -> int:
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) << 10
        raise SystemExit("soak: the server has no resident memory: it is gone")

    def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


def write_trace(path: Path, random: np.random.Generator, rate: float, seconds: float) -> None:
    """Bursty arrivals and lengths with a long tail, as traces of real services have: many come at once, then nobody does."""
    at = np.cumsum(random.gamma(0.1, 10 / rate, size=max(10, int(rate * seconds))))
    lengths = np.clip(random.lognormal(4.5, 1.3, size=len(at)), 1, 7500).astype(int)
    with open(path, "w") as file:
        file.write("arrival_seconds,length\n")
        file.writelines(f"{a:.3f},{n}\n" for a, n in zip(at[at < seconds], lengths))


class Soak:
    def __init__(self, options: argparse.Namespace, server: Server, scratch: Path) -> None:
        self.options, self.server, self.scratch = options, server, scratch
        self.random = np.random.default_rng(options.seed)
        self.faults: list[str] = []
        self.rests: list[dict] = []
        self.calls = 0

    def check(self, holds: bool, what: str) -> None:
        if not holds:
            self.faults.append(f"round {len(self.rests)}: {what}")
            print(f"soak: {self.faults[-1]}", file=sys.stderr, flush=True)

    def load(self, tool: str, *words: object) -> None:
        common = ["--address", self.server.grpc, "--model", self.options.model, "--seed", int(self.random.integers(1 << 31))]
        command = [sys.executable, HERE / tool, *words, *common]
        done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        print(done.stderr.rstrip(), file=sys.stderr, flush=True)
        if done.stdout:
            self.calls += json.loads(done.stdout)["sent"]
        self.check(done.returncode == 0, f"{tool} ended with {done.returncode}: {done.stderr.strip()[-500:]}")

    def figures(self) -> dict:
        page = Metrics(self.server.http)
        gauges = {
            "reserved": page.total("headroom_memory_reserved_bytes"),
            "waiting": page.total("headroom_queue_rows"),
            "budget": page.total("headroom_memory_budget_bytes"),
            "received": page.total("headroom_requests_received_total"),
            "answered": page.total("headroom_requests_total"),
            "ready": page.total("headroom_model_ready"),
            "out_of_memory": page.total("headroom_out_of_memory_total"),
            "resident": self.server.resident(),
        }
        # Not the process' resident size, which the allocator's habits move: that is the leak detector's to judge, over many calls.
        gauges["at_rest"] = page.total("headroom_memory_at_rest_bytes", memory="allocated")
        gauges["leaks"] = page.total("headroom_memory_leak_found")
        return gauges

    def rest(self) -> None:
        """Waits until nothing is reserved and nobody waits, and holds the figures against those of the beginning."""
        until = time.monotonic() + REST_SECONDS
        while True:
            now = self.figures()
            still = now["reserved"] == 0 and now["waiting"] == 0 and now["received"] == now["answered"]
            if still or time.monotonic() > until:
                break
            time.sleep(0.2)
        time.sleep(self.options.rest_seconds)
        now = self.figures()
        self.rests.append(now | {"calls": self.calls})
        self.check(now["reserved"] == 0, f"{now['reserved']:,.0f} bytes are reserved at rest")
        self.check(now["waiting"] == 0, f"{now['waiting']:.0f} rows wait at rest")
        self.check(now["received"] == now["answered"], f"{now['received']:.0f} requests received, {now['answered']:.0f} answered")
        first = self.rests[0]
        self.check(now["ready"] == first["ready"], "a model is not ready")
        self.check(abs(now["budget"] - first["budget"]) <= BUDGET_SHARE * first["budget"], f"the budget moved to {now['budget']:,.0f}")
        self.check(now["at_rest"] <= first["at_rest"], f"memory at rest grew from {first['at_rest']:,.0f} to {now['at_rest']:,.0f}")
        self.check(not now["leaks"], "a leak was found")

    def round(self) -> None:
        o = self.options
        self.load("long_tail.py", "--rate", o.rate, "--seconds", o.tail_seconds, "--burst-factor", 4, "--cancel-share", 0.1,
                  "--malformed-share", 0.02, "--jitter-ms", "200-500", "--client-key", "x-client-id")
        trace = o.trace or self.scratch / "trace.csv"
        if not o.trace:
            write_trace(trace, self.random, o.rate, o.trace_seconds * o.speed)
        self.load("replay.py", trace, "--speed", o.speed)
        self.rest()

    def run(self) -> None:
        self.rest()
        until = time.monotonic() + 3600 * self.options.hours
        for number in range(self.options.rounds or sys.maxsize):
            if not self.options.rounds and time.monotonic() >= until:
                break
            if self.server.process.poll() is not None:
                break
            self.round()
            print(f"soak: round {number + 1}: {self.rests[-1]}", file=sys.stderr, flush=True)
        warm, last = self.rests[min(1, len(self.rests) - 1)], self.rests[-1]
        grown, calls = last["resident"] - warm["resident"], max(1, last["calls"] - warm["calls"])
        self.growth = {"bytes": grown, "calls": calls, "bytes_a_call": round(grown / calls, 2)}
        self.check(grown <= SLACK_BYTES + self.options.growth * calls, f"resident memory grew by {grown:,} bytes in {calls} calls")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", type=Path, default=HERE.parent / "build" / "release" / "headroom", help="[%(default)s]")
    parser.add_argument("--repository", type=Path, required=True)
    parser.add_argument("--model", default="minilm", help="[%(default)s]")
    parser.add_argument("--rate", type=float, default=16, help="calls a second, about 80 %% of what is sustained [%(default)s]")
    parser.add_argument("--hours", type=float, default=24, help="[%(default)s]")
    parser.add_argument("--rounds", type=int, default=0, help="instead of --hours")
    parser.add_argument("--tail-seconds", type=float, default=1200, help="of the long tail in a round [%(default)s]")
    parser.add_argument("--trace", type=Path, help="a trace to replay; one is made up where it is not given")
    parser.add_argument("--trace-seconds", type=float, default=300, help="of the made-up trace in a round [%(default)s]")
    parser.add_argument("--speed", type=float, default=3, help="of the trace [%(default)s]")
    parser.add_argument("--rest-seconds", type=float, default=20, help="between rounds [%(default)s]")
    parser.add_argument("--growth", type=float, default=1, help="bytes of resident memory a call may cost [%(default)s]")
    parser.add_argument("--seed", type=int, default=None, help="drawn, and printed, where it is not given")
    parser.add_argument("--short", action="store_true", help="two rounds of some seconds: for a test")
    parser.add_argument("server_options", nargs="*", metavar="-- OPTION", help="of the server")
    options = parser.parse_args()
    if options.short:
        options.rounds = options.rounds or 2
        options.tail_seconds, options.trace_seconds, options.rest_seconds = 8.0, 4.0, 0.5
    if options.seed is None:
        options.seed = int.from_bytes(os.urandom(4), "little")
    return options


def main() -> int:
    options = parse()
    print(f"soak: seed {options.seed}", file=sys.stderr, flush=True)
    with contextlib.ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headroom-soak-")))
        server = Server(options, scratch)
        stack.callback(lambda: server.process.poll() is None and server.process.kill())
        soak = Soak(options, server, scratch)
        soak.growth = None
        try:
            soak.run()
            code = server.end()
            soak.check(code == 0, f"the server ended with {code}")
        except OSError as error:
            soak.check(False, f"the server does not answer: {error}")
        if soak.faults:
            print(server.log.read_text(errors="replace")[-3000:], file=sys.stderr)
    told = {"tool": "soak", "seed": options.seed, "rounds": len(soak.rests) - 1, "calls": soak.calls, "rests": soak.rests,
            "resident_growth": soak.growth, "faults": soak.faults}
    print(f"\nsoak: {told['rounds']} rounds, {soak.calls} calls, {len(soak.faults)} faults; resident memory grew by {soak.growth}",
          file=sys.stderr)
    for fault in soak.faults:
        print(f"  {fault}", file=sys.stderr)
    print(json.dumps(told), flush=True)
    return 1 if soak.faults else 0


if __name__ == "__main__":
    sys.exit(main())
