"""Two replicas under load, one of which is ended again and again, and a client with a stated retry policy: is a call lost?

    restarts.py --repository DIR --model NAME [--signal TERM|KILL] [--through direct|nginx|haproxy] [--rounds 50]

Starts both servers itself (on the CPU, each run made longer by --delay-ms, so that the load takes the device and not the cores),
finds out how much they answer, sends --load of that open-loop, and ends one replica after the other, each time until the process
has gone, is started again and is ready. `direct` balances in the client, by deploy/client-service-config.json; the proxies run with
the configurations of deploy/, their addresses replaced. Prints one JSON object; exit code 1 where a call was lost, an answer was
wrong, or an end was not as it should be (TERM: exit code 0 within the time to drain).
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import dataclasses
import json
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import grpc
import numpy as np

import open_loop

ROOT = Path(__file__).resolve().parents[1]
DEPLOY = ROOT / "deploy"
START_SECONDS = 300.0
SETTLED_SECONDS = 120.0
HEALTH = "/grpc.health.v1.Health/Check"
SERVING = b"\x08\x01"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


@dataclasses.dataclass
class Replica:
    command: list[str]
    log: Path
    grpc_port: int
    http_port: int
    process: subprocess.Popen | None = None

    def start(self) -> None:
        words = [*self.command, "--grpc-address", f"127.0.0.1:{self.grpc_port}", "--http-address", f"127.0.0.1:{self.http_port}"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    async def until_ready(self) -> None:
        until = time.monotonic() + START_SECONDS
        while True:
            if self.process.poll() is not None:
                raise SystemExit(f"a replica ended by itself with {self.process.returncode}:\n{self.log.read_text()[-3000:]}")
            async with grpc.aio.insecure_channel(f"127.0.0.1:{self.grpc_port}") as channel:
                try:
                    if await channel.unary_unary(HEALTH)(b"", timeout=1) == SERVING:
                        return
                except grpc.aio.AioRpcError:
                    pass
            if time.monotonic() > until:
                raise SystemExit(f"a replica did not become ready:\n{self.log.read_text()[-3000:]}")
            await asyncio.sleep(0.05)

    async def end(self, number: int) -> tuple[float, int]:
        """Seconds until the process has gone, and its exit code."""
        began = time.monotonic()
        self.process.send_signal(number)
        while self.process.poll() is None:
            await asyncio.sleep(0.005)
        return time.monotonic() - began, self.process.returncode


def start_proxy(kind: str, replicas: list[Replica], folder: Path) -> tuple[subprocess.Popen, int]:
    port = free_port()
    name = {"nginx": "nginx.conf", "haproxy": "haproxy.cfg"}[kind]
    text = (DEPLOY / name).read_text()
    for number, replica in enumerate(replicas, 1):
        name_and_address = f"server headroom-{number} 127.0.0.1:{replica.grpc_port} port {replica.http_port}"
        text = text.replace(f"server headroom-{number} headroom-{number}:8001", name_and_address)
        text = text.replace(f"server headroom-{number}:8001", f"server 127.0.0.1:{replica.grpc_port}")
    text = text.replace("listen 8000", f"listen 127.0.0.1:{port}").replace("bind :8000", f"bind 127.0.0.1:{port}")
    file = folder / name
    file.write_text(text)
    if kind == "nginx":
        command = ["nginx", "-c", file, "-g", f"daemon off; pid {folder}/nginx.pid; error_log {folder}/nginx.log;"]
    else:
        command = ["haproxy", "-db", "-f", file]
    with (folder / f"{kind}.out").open("wb") as out:
        process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    return process, port


class Client:
    """Sends calls that are prepared beforehand, and judges how they end."""

    def __init__(self, target: str, options: argparse.Namespace):
        config = json.loads((DEPLOY / f"client-service-config{'' if options.through == 'direct' else '-proxy'}.json").read_text())
        if options.no_retries:
            del config["methodConfig"][0]["retryPolicy"]
        self.channel = grpc.aio.insecure_channel(
            target,
            options=[
                ("grpc.service_config", json.dumps(config)),
                # What gRPC keeps of a call to send it again: 256 KiB by default, and larger calls are not sent again.
                ("grpc.per_rpc_retry_buffer_size", 16 << 20),
                ("grpc.initial_reconnect_backoff_ms", 100),
                ("grpc.max_reconnect_backoff_ms", 1000),
                ("grpc.max_receive_message_length", open_loop.MESSAGE_BYTES),
                ("grpc.max_send_message_length", open_loop.MESSAGE_BYTES),
            ],
        )
        self.infer = self.channel.unary_unary(
            open_loop.SERVICE + "ModelInfer", response_deserializer=open_loop.service_pb2.ModelInferResponse.FromString
        )
        self.model: open_loop.Model | None = None
        self.messages: list[tuple[open_loop.Call, bytes]] = []
        self.length = options.length
        self.inside = 0
        self.ended: collections.Counter[str] = collections.Counter()
        self.faults: list[str] = []
        self.latencies: list[float] = []

    async def prepare(self, name: str, seed: int) -> None:
        self.model = await open_loop.Model.ask(self.channel, name, 999)
        random = np.random.default_rng(seed)
        for _ in range(16):
            call = open_loop.Call(at=0, length=self.length)
            self.messages.append((call, self.model.request(call, random)))

    async def send(self, number: int) -> None:
        call, message = self.messages[number % len(self.messages)]
        began = time.monotonic()
        self.inside += 1
        try:
            answer = await self.infer(message)
            fault = self.model.fault_of(dataclasses.replace(call, answer=answer))
            self.ended["OK" if not fault else "WRONG"] += 1
            if fault:
                self.faults.append(fault)
        except grpc.aio.AioRpcError as error:
            self.ended[error.code().name] += 1
            self.faults.append(f"{error.code().name}: {error.details()}")
        finally:
            self.inside -= 1
            self.latencies.append(time.monotonic() - began)

    async def capacity(self, at_once: int, seconds: float) -> float:
        """Calls a second with so many under way."""
        until = time.monotonic() + seconds
        done = 0

        async def sender() -> None:
            nonlocal done
            while time.monotonic() < until:
                await self.send(done)
                done += 1

        began = time.monotonic()
        await asyncio.gather(*(sender() for _ in range(at_once)))
        return done / (time.monotonic() - began)

    async def load(self, rate: float, over: asyncio.Event) -> None:
        """Open-loop: each call at its time, however many are under way."""
        tasks: set[asyncio.Task] = set()
        began = time.monotonic()
        sent = 0
        while not over.is_set():
            due = int((time.monotonic() - began) * rate)
            while sent < due:
                task = asyncio.create_task(self.send(sent))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
                sent += 1
            await asyncio.sleep(1 / rate)
        await asyncio.gather(*tasks)


async def run(options: argparse.Namespace) -> dict:
    folder = Path(tempfile.mkdtemp(prefix="headroom-restarts-"))
    serve = [str(options.program), "serve", "--model-repository", str(options.repository)]
    serve += ["--device", "cpu", "--memory-limit", "1GiB"]
    serve += ["--workers", "1", "--drain-seconds", str(options.drain_seconds), "--settle-seconds", str(options.settle_seconds)]
    if options.delay_ms:
        serve += ["--fault", f"delay_ms={options.delay_ms}"]
    replicas = [Replica(serve, folder / f"replica-{n}.log", free_port(), free_port()) for n in (1, 2)]
    proxy = None
    number = {"TERM": signal.SIGTERM, "KILL": signal.SIGKILL}[options.signal]
    ends: list[tuple[float, int]] = []
    try:
        for replica in replicas:
            replica.start()
        for replica in replicas:
            await replica.until_ready()
        target = "ipv4:" + ",".join(f"127.0.0.1:{replica.grpc_port}" for replica in replicas)
        if options.through != "direct":
            proxy, port = start_proxy(options.through, replicas, folder)
            target = f"127.0.0.1:{port}"
            await asyncio.sleep(1.5)  # its first checks
        client = Client(target, options)
        await client.prepare(options.model, options.seed)
        capacity = await client.capacity(options.at_once, 4.0)
        lost_before = len(client.faults)
        rate = options.load * capacity
        over = asyncio.Event()
        load = asyncio.create_task(client.load(rate, over))
        await asyncio.sleep(1.0)
        began = time.monotonic()
        for turn in range(options.rounds):
            if time.monotonic() - began > options.most_seconds:
                break  # the report says how many rounds there were
            replica = replicas[turn % 2]
            ends.append(await replica.end(number))
            replica.start()
            await replica.until_ready()
            # What piled up is answered before the next end, as it is where replicas are restarted one after the other.
            until = time.monotonic() + SETTLED_SECONDS
            while client.inside > max(8, rate * 0.2) and time.monotonic() < until:
                await asyncio.sleep(0.05)
            await asyncio.sleep(options.pause)
        over.set()
        await load
        await client.channel.close()
    finally:
        if proxy is not None:
            proxy.terminate()
            proxy.wait()
        for replica in replicas:
            if replica.process is not None and replica.process.poll() is None:
                replica.process.terminate()
                replica.process.wait()
    right = 0 if options.signal == "TERM" else -signal.SIGKILL
    grace = options.settle_seconds + options.drain_seconds + 1
    faults = [f"an end: exit code {code} after {took:.1f} s" for took, code in ends if code != right or took > grace]
    latencies = np.array(client.latencies)
    return {
        "signal": options.signal,
        "through": options.through,
        "rounds": len(ends),
        "message_bytes": len(client.messages[0][1]),
        "capacity": round(capacity, 1),
        "rate": round(rate, 1),
        "calls": int(sum(client.ended.values())),
        "ended": dict(client.ended),
        "lost": len(client.faults) - lost_before,
        "end_seconds": {"p50": round(float(np.median([s for s, _ in ends])), 3), "max": round(max(s for s, _ in ends), 3)},
        "latency_seconds": {"p50": round(float(np.median(latencies)), 3), "max": round(float(latencies.max()), 3)},
        "faults": collections.Counter(faults + client.faults).most_common(5),
        "folder": str(folder),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=Path, default=ROOT / "build" / "release" / "headroom_faulty")
    parser.add_argument("--repository", type=Path, required=True)
    parser.add_argument("--model", default="P", help="one of the toys whose answers are worked out by hand")
    parser.add_argument("--signal", choices=("TERM", "KILL"), default="TERM")
    parser.add_argument("--through", choices=("direct", "nginx", "haproxy"), default="direct")
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--most-seconds", type=float, default=float("inf"), help="begin no round after so long")
    parser.add_argument("--load", type=float, default=0.8, help="of what both replicas answer")
    parser.add_argument("--length", type=int, default=16, help="tokens of a row, 8 bytes each: 131072 make a tensor of 1 MiB")
    parser.add_argument("--delay-ms", type=int, default=20, help="what each run takes longer; 0: a program without faults")
    parser.add_argument("--at-once", type=int, default=64, help="calls under way while the capacity is measured")
    parser.add_argument("--drain-seconds", type=int, default=30)
    parser.add_argument("--settle-seconds", type=int, default=0)
    parser.add_argument("--pause", type=float, default=0.3, help="seconds between a recovery and the next end")
    parser.add_argument("--no-retries", action="store_true", help="without the client's retry policy")
    parser.add_argument("--seed", type=int, default=1)
    result = asyncio.run(run(parser.parse_args()))
    print(json.dumps(result, indent=2))
    return 1 if result["lost"] or result["faults"] else 0


if __name__ == "__main__":
    sys.exit(main())
