"""What a server does when it cannot write its log, keep its measurements, or take a connection: it serves, and recovers."""

from __future__ import annotations

import fcntl
import json
import os
import resource
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from harness import FAULTY, Server, eventually, row

POISON = 13


class Starved(Server):
    """A server whose standard error is what the test says, under limits of its own."""

    def __init__(self, repository: Path, *options: object, stderr: int | None = None, limits: dict[int, int] | None = None):
        options = ("--device", "cpu", "--memory-limit", "256MiB", "--fault", f"throw_on_id={POISON}", *options)
        super().__init__(repository, *options, program=(FAULTY,))
        self.stderr, self.limits = stderr, limits or {}

    def spawn(self) -> Starved:
        command = [*self.program, "serve", "--model-repository", self.repository, "--grpc-address", f"{self.host}:0"]
        command += ["--http-address", f"{self.host}:0", "--ready-file", self.ready_file, *self.options]

        def limit() -> None:
            for kind, most in self.limits.items():
                resource.setrlimit(kind, (most, most))

        log = self.stderr
        if log is None:
            log = os.open(Path(self.scratch.name) / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.process = subprocess.Popen(
            [str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log, preexec_fn=limit
        )
        if self.stderr is None:
            os.close(log)
        return self

    def log(self) -> str:
        return super().log() if self.stderr is None else ""


@pytest.fixture
def repository(toys: Callable[..., Path]) -> Path:
    return toys("P", buckets=[32])


def fail_often(server: Server, times: int) -> None:
    """Calls that the server logs, each."""
    for _ in range(times):
        assert server.send("P", row([POISON])).refusal() == "INTERNAL"


def serves(server: Server, count: int = 10) -> None:
    for n in range(20, 20 + count):
        assert server.infer("P", row([n]))["row"][0][1] == n


def test_a_log_that_nobody_reads(repository):
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    with Starved(repository, stderr=writer) as server:
        os.close(writer)
        fail_often(server, 100)  # many times what the pipe holds
        serves(server)
        # Somebody reads again: what was lost is told.
        os.set_blocking(reader, False)
        text = b""

        def read_all() -> bool:
            nonlocal text
            try:
                while piece := os.read(reader, 65536):
                    text += piece
            except BlockingIOError:
                pass
            fail_often(server, 1)
            return b"log lines were lost because nobody read them" in text

        assert eventually(read_all)
        fail_often(server, 100)
        serves(server)
        server.terminate()
        assert server.exit_code() == 0
    os.close(reader)


def test_a_log_on_a_full_disk(repository):
    full = os.open("/dev/full", os.O_WRONLY)
    with Starved(repository, stderr=full) as server:
        fail_often(server, 20)
        serves(server)
        server.terminate()
        assert server.exit_code() == 0
    os.close(full)


def test_a_disk_that_is_full_for_a_while(repository):
    # A file that may not grow beyond this stands for the disk; emptying it makes room.
    with Starved(repository, limits={resource.RLIMIT_FSIZE: 8192}) as server:
        fail_often(server, 100)
        serves(server)
        log = Path(server.scratch.name) / "log"
        assert log.stat().st_size <= 8192
        os.truncate(log, 0)
        fail_often(server, 1)
        assert eventually(lambda: "log lines were lost" in server.log())
        serves(server)
        server.terminate()
        assert server.exit_code() == 0
        assert "ended" in server.log()


def test_measurements_that_cannot_be_kept(repository, tmp_path):
    cache = tmp_path / "cache"
    cache.mkdir()
    # Room for the ready file, and for nothing else. The log goes where there is always room.
    nowhere = os.open("/dev/null", os.O_WRONLY)
    options = ("--calibration-cache", cache)
    with Starved(repository, *options, stderr=nowhere, limits={resource.RLIMIT_FSIZE: 200}) as server:
        assert server.ready_file.stat().st_size < 200
        serves(server)
        server.terminate()
        assert server.exit_code() == 0
    os.close(nowhere)
    assert not list(cache.iterdir()), "half a file would be in the way of the next start"
    with Starved(repository, *options) as server:
        serves(server)
    assert len(list(cache.iterdir())) == 1


def test_no_descriptors_left(repository):
    with Starved(repository, limits={resource.RLIMIT_NOFILE: 128}) as server:
        serves(server)
        grpc, http = (address.rpartition(":")[::2] for address in (server.grpc, server.http))
        idle = [socket.create_connection((host, int(port)), 10) for host, port in [grpc] * 100]
        assert eventually(lambda: server.metrics().total("headroom_grpc_connections_refused_total") > 20)
        # Whoever is connected is served, all the while.
        serves(server)
        for connection in idle:
            connection.close()
        assert eventually(lambda: server.metrics().total("headroom_grpc_connections") < 10)
        # And so is whoever comes now, at both doors.
        with Reconnected(server) as again:
            serves(again, 3)
        assert server.metrics().total("headroom_ready") == 1
        host, port = http
        probes = [socket.create_connection((host, int(port)), 10) for _ in range(100)]
        serves(server)
        for connection in probes:
            connection.close()
        assert eventually(lambda: answers(server))
        server.terminate()
        assert server.exit_code() == 0


def answers(server: Server) -> bool:
    try:
        return server.metrics().total("headroom_ready") == 1
    except OSError:
        return False


class Reconnected:
    """The same server by a connection of its own."""

    def __init__(self, server: Server) -> None:
        self.server = Server(server.repository)
        self.server.grpc, self.server.http = server.grpc, server.http

    def __enter__(self) -> Server:
        # Another channel of gRPC's would share the connection with the first one's.
        import tritonclient.grpc as triton

        self.server._client = triton.InferenceServerClient(
            self.server.grpc, channel_args=[("grpc.use_local_subchannel_pool", 1)]
        )
        return self.server

    def __exit__(self, *_: object) -> None:
        self.server._client.close()
        self.server.scratch.cleanup()


def test_the_log_is_json_line_by_line_whatever_was_lost(repository):
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    with Starved(repository, "--log-format", "json", stderr=writer) as server:
        os.close(writer)
        fail_often(server, 60)
        first = os.read(reader, 65536)
        fail_often(server, 3)
        server.terminate()
        assert server.exit_code() == 0
        rest = b""
        while piece := os.read(reader, 65536):
            rest += piece
    os.close(reader)
    # A line that was cut ends in a line break; each of the others stands for itself.
    lines = (first + rest).decode().splitlines()
    whole = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]
    assert len(whole) >= len(lines) - 2
    assert any("lost" in line["message"] for line in whole)
