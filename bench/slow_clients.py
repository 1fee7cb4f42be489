"""Good traffic beside clients that are slow, silent or hostile: its latency with them and without, in turns within one run.

    bench/slow_clients.py --address 127.0.0.1:8001 --model minilm --rate 20 --rounds 4 --seconds 15 --process $(pidof headroom)

In every second turn a process of its own holds idle connections, half prefaces, half messages and answers that it does not read, and
floods with pings, abandoned calls and settings. The server needs --max-connections above the idle ones. Ends with 1 where good traffic
had a fault.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import grpc  # noqa: E402
import hostile  # noqa: E402
import numpy as np  # noqa: E402
import open_loop  # noqa: E402
from open_loop import Call  # noqa: E402


def add_abuse(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--idle", type=int, default=5000, help="connections that say hello and nothing else [%(default)s]")
    parser.add_argument("--half-prefaces", type=int, default=50, help="[%(default)s]")
    parser.add_argument("--half-messages", type=int, default=50, help="[%(default)s]")
    parser.add_argument("--zero-windows", type=int, default=10, help="connections that let no answer in, 100 calls each [%(default)s]")
    parser.add_argument("--flood", type=float, default=1000, help="frames a second of each kind of flood; 0: none [%(default)s]")
    parser.add_argument("--floods", default="pings,resets,settings", help="kinds [%(default)s]")


def abuse(options: argparse.Namespace) -> int:
    """The process beside: ends when its standard input does."""
    os.set_blocking(0, False)
    idle = hostile.idle_connections(options.address, options.idle)
    wrong = b"\x0a\x01?"  # a model that there is not: an answer at once
    stuck = [hostile.half_message(options.address) for _ in range(options.half_messages)]
    stuck += [hostile.zero_window(options.address, wrong) for _ in range(options.zero_windows)]
    prefaces = [hostile.half_preface(options.address) for _ in range(options.half_prefaces)]
    kinds = [kind for kind in options.floods.split(",") if kind and options.flood > 0]
    floods = [hostile.Flood(options.address, kind, options.flood) for kind in kinds]
    print("ready", flush=True)
    gone = 0
    while True:
        with contextlib.suppress(BlockingIOError):
            if os.read(0, 1) == b"":
                break
        if floods:
            for flood in floods:
                flood.step(time.monotonic())
            time.sleep(0.005)
        else:
            time.sleep(0.05)
    gone = hostile.answer_pings(idle, 0.2)
    told = {"idle_closed": gone, "floods": {f.make.__name__: {"sent": f.sent, "closed": f.closed} for f in floods}}
    print(json.dumps(told), flush=True)
    for connection in [*idle, *stuck, *prefaces]:
        connection.close()
    return 0


def good_calls(options: argparse.Namespace, random: np.random.Generator) -> list[Call]:
    times = np.cumsum(random.exponential(1 / options.rate, size=int(options.rate * options.seconds)))
    return [Call(float(at), int(random.integers(8, options.longest + 1))) for at in times]


async def turn(options: argparse.Namespace, random: np.random.Generator) -> list[Call]:
    apart = [("grpc.use_local_subchannel_pool", 1)]
    channels = [grpc.aio.insecure_channel(options.address, options=apart) for _ in range(options.connections)]
    try:
        model = await open_loop.Model.ask(channels[0], options.model, options.highest_id)
        await asyncio.gather(*(channel.channel_ready() for channel in channels))
        calls = good_calls(options, random)
        await open_loop.Sender(options, model, channels).run(calls, random)
        return calls
    finally:
        for channel in channels:
            await channel.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    open_loop.add_options(parser)
    add_abuse(parser)
    parser.add_argument("--rate", type=open_loop.number_above_zero, default=20, help="good calls a second [%(default)s]")
    parser.add_argument("--longest", type=int, default=64, help="tokens of a good call, at most [%(default)s]")
    parser.add_argument("--seconds", type=open_loop.number_above_zero, default=15, help="of a turn [%(default)s]")
    parser.add_argument("--rounds", type=int, default=4, help="turns without and with [%(default)s]")
    parser.add_argument("--process", type=int, default=0, help="the server's, for its memory")
    parser.add_argument("--abuse", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.abuse:
        return abuse(options)
    random = np.random.default_rng(open_loop.seed_of(options))
    latency: dict[str, list[float]] = {"alone": [], "beside": []}
    told: dict[str, object] = {"turns": []}
    faults = 0
    for _ in range(options.rounds):
        for kind in latency:
            before = hostile.resident_bytes(options.process) if options.process else 0
            beside = None
            if kind == "beside":
                command = [sys.executable, __file__, "--abuse", *sys.argv[1:]]
                beside = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
                assert beside.stdout.readline() == "ready\n"
            calls = asyncio.run(turn(options, random))
            grown = (hostile.resident_bytes(options.process) - before) >> 20 if options.process else 0
            faults += sum(bool(call.fault) for call in calls)
            times = [call.ended - call.at for call in calls if call.status == "OK"]
            latency[kind] += times
            one = {"kind": kind, "ok": len(times), "grown_mib": grown, **open_loop.percentiles(times)}
            if beside is not None:
                beside.stdin.close()
                one |= json.loads(beside.stdout.readline())
                beside.wait()
            told["turns"].append(one)
            print(one, file=sys.stderr, flush=True)
    for kind, times in latency.items():
        told[kind] = open_loop.percentiles(times)
    told["faults"] = faults
    told["p99_ratio"] = round(told["beside"]["p99"] / told["alone"]["p99"], 3)
    print(json.dumps(told), flush=True)
    return 1 if faults else 0


if __name__ == "__main__":
    open_loop.run_program(main)
