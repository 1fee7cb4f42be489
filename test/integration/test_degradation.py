"""A device whose memory is taken away leaves things out, by named levels, and says so; what is left goes on."""

from __future__ import annotations

import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from tritonclient.utils import InferenceServerException

from harness import CALL_SECONDS, EXIT_SECONDS, FAULTY, Server, eventually, row, rows_of, tensors

MIB = 1 << 20
AT_READINESS = 40 * MIB
LEVELS = {"none": 1.0, "smaller_batches": 0.45, "no_tiers": 0.3, "low_priority_refused": 0.2, "fallback_model": 0.1}


def ready_text(server: Server) -> str:
    with urllib.request.urlopen(f"http://{server.http}/readyz", timeout=EXIT_SECONDS) as reply:
        assert reply.status == 200
        return reply.read().decode().strip()


def refusal(server: Server, inputs: dict, priority: int = 0) -> str:
    """The text with which a request is refused for now; empty where it is answered."""
    try:
        server.client.infer("P", tensors(inputs), priority=priority, client_timeout=CALL_SECONDS)
    except InferenceServerException as error:
        assert str(error.status()) == "StatusCode.RESOURCE_EXHAUSTED"
        return error.message()
    return ""


@pytest.fixture
def repository(toys: Callable[..., Path]) -> Path:
    """P with a tier and priorities, and a model that may stand in for it."""
    tier = {"buckets": [32], "tiers": [(64, "SOLO")], "max_batch_size": 8}
    written = toys("P", **tier)
    toys("P", name="small", **tier)
    with open(written / "P" / "config.pbtxt", "a") as config:
        config.write('memory { fallback_model: "small" }\n')
        config.write("dynamic_batching { priority_levels: 4 default_priority_level: 1 }\n")
    return written


@pytest.fixture
def degraded(repository: Path):
    """Starts a server that finds so much memory at its start, and a share of it as soon as it is ready."""
    servers = []

    def start(share: float, later: str = "") -> Server:
        free = f"free_bytes={AT_READINESS},{int(share * AT_READINESS)}@0{later}"
        options = ["--device", "cpu", "--workers", 1, "--memory-limit", 128 * MIB, "--fault", free]
        servers.append(Server(repository, *options, program=(FAULTY,)).start())
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


@pytest.mark.parametrize("level", LEVELS)
def test_each_level_leaves_out_what_it_says(degraded, level):
    server = degraded(LEVELS[level])
    number = list(LEVELS).index(level)
    expected = "ready" if number == 0 else f"ready, degraded: {level} on cpu"
    assert eventually(lambda: ready_text(server) == expected)
    assert server.metrics().total("headroom_degradation_level", device="cpu") == number
    assert server.log().count("short of memory") == (1 if number else 0)

    # P tells the rows of its batch.
    assert server.infer("P", rows_of(8, [1, 2, 3]))["row"][:, 3].tolist() == [8 if number == 0 else 4] * 8
    assert ("rows longer than 32" in refusal(server, row([1] * 40))) == (number >= 2)
    assert refusal(server, row([1] * 32)) == ""
    assert [bool(refusal(server, row([1]), priority=p)) for p in (1, 2, 3, 4)] == [False, False, number == 3, number == 3]
    reply = server.client.infer("P", tensors(row([5, 6]))).get_response()
    if number < 4:
        assert reply.model_name == "P" and "served_by" not in reply.parameters
    else:
        # The one that stands in has no priorities, so that nobody is refused for his.
        assert reply.model_name == "small" and reply.parameters["served_by"].string_param == "small"


def test_when_the_memory_comes_back_so_does_everything(degraded):
    server = degraded(LEVELS["no_tiers"], later=f",{AT_READINESS}@3000")
    assert eventually(lambda: "no_tiers" in ready_text(server))
    assert refusal(server, row([1] * 40)) != ""
    assert eventually(lambda: ready_text(server) == "ready")
    assert server.infer("P", row([1] * 40))["row"].tolist() == [[40, 40, 40, 1]]
    assert server.metrics().total("headroom_degradation_level", device="cpu") == 0
    assert server.log().count("memory has come back") == 2  # a line for each change


def test_a_fallback_that_cannot_stand_in_stops_the_start(repository):
    with open(repository / "small" / "config.pbtxt", "a") as config:
        config.write('memory { fallback_model: "nowhere" }\n')
    server = Server(repository, "--device", "cpu", "--memory-limit", 128 * MIB).spawn()
    assert server.exit_code() not in (0, 2)
    assert "model 'small': config.pbtxt: memory.fallback_model: \"nowhere\" cannot stand in" in server.log()
    assert not server.ready_file.exists()
