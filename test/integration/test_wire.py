"""What a client meets: rows that are given up before they run, a drain, bad neighbours, tokens cut back, other addresses."""

from __future__ import annotations

import socket

import numpy as np
import pytest

from harness import FAULTY, HEADROOM, Server, eventually, row, run

DELAY = 1.0  # seconds that each batch takes


@pytest.fixture
def slow(toys):
    """P with one worker, whose batches take their time."""
    program = (FAULTY,)
    options = ["--device", "cpu", "--memory-limit", "1GiB", "--workers", 1, "--fault", f"delay_ms={int(1000 * DELAY)}"]
    with Server(toys("P", buckets=[32], max_batch_size=4), *options, program=program) as server:
        yield server


def busy(server):
    """A request that keeps the worker busy, already running."""
    call = server.send("P", row([1, 2, 3]))
    # Reserved memory says that its batch runs.
    assert eventually(lambda: server.metrics().total("headroom_memory_reserved_bytes") > 0)
    return call


def outcomes(server):
    series = server.metrics().series("headroom_requests_total", model="P")
    return {outcome: count for (outcome,), count in series.items() if count}


def waiting(server):
    return server.metrics().total("headroom_queue_rows", model="P")


def test_a_cancelled_request_never_runs(slow):
    first = busy(slow)
    given_up, kept = slow.send("P", row([4, 5])), slow.send("P", row([6]))
    assert eventually(lambda: waiting(slow) == 2)
    given_up.cancel()
    assert eventually(lambda: waiting(slow) == 1)
    assert first.refusal() == kept.refusal() == "OK"
    assert eventually(lambda: outcomes(slow) == {"ok": 2, "cancelled": 1})
    assert slow.metrics().total("headroom_batch_rows_sum", model="P") == 2


@pytest.mark.parametrize("options", [{"timeout": 100_000}, {"deadline": 0.1}], ids=["timeout", "deadline"])
def test_an_expired_request_never_runs(slow, options):
    first = busy(slow)
    assert slow.send("P", row([4, 5]), **options).refusal() == "DEADLINE_EXCEEDED"
    assert first.refusal() == "OK"
    assert slow.send("P", row([6])).refusal() == "OK"
    # gRPC tells the server of a deadline as of a cancellation: which comes first is a race.
    assert eventually(lambda: sum(outcomes(slow).values()) == 3)
    assert outcomes(slow)["ok"] == 2 and outcomes(slow).keys() <= {"ok", "expired", "cancelled"}
    assert slow.metrics().total("headroom_batch_rows_sum", model="P") == 2


def test_a_drain_answers_what_was_admitted_and_refuses_the_rest(slow):
    admitted = [busy(slow)] + [slow.send("P", row([10, i])) for i in range(6)]
    assert eventually(lambda: waiting(slow) == 6)
    slow.terminate()
    assert eventually(lambda: "draining" in slow.log())
    assert slow.send("P", row([7])).refusal() == "UNAVAILABLE"
    assert [call.result()["row"][0, 1] for call in admitted] == [6] + [10 + i for i in range(6)]
    assert slow.exit_code() == 0


def test_bad_requests_harm_none_that_wait_with_them(slow):
    first = busy(slow)
    bad = [row([1000]), row([-1]), row([1] * 33), {"input_ids": np.ones((1, 3), np.int32)}]
    calls = []
    for i, wrong in enumerate(bad):
        calls += [slow.send("P", row([20, i])), slow.send("P", wrong)]
    assert [call.refusal() for call in calls[1::2]] == ["INVALID_ARGUMENT"] * len(bad)
    answers = [call.result()["row"][0] for call in calls[0::2]]
    assert [list(answer[:2]) for answer in answers] == [[2, 20 + i] for i in range(len(bad))]
    # The good ones ran as one batch.
    assert {answer[3] for answer in answers} == {len(bad)}
    assert first.refusal() == "OK"


def test_tokens_are_cut_back_to_each_clients_own_length(toys):
    requests = [row(np.arange(1, 1 + length)) for length in (3, 32, 5, 40, 64, 1)]
    with Server(toys("two_outputs", buckets=[32, 64]), "--device", "cpu", "--memory-limit", "1GiB") as server:
        for request, answer in zip(requests, server.infer_all("two_outputs", requests, at_once=6), strict=True):
            assert np.array_equal(answer["tokens"], 2 * request["input_ids"].astype(np.float32))
            assert answer["pooled"] == request["input_ids"].sum()


def has_ipv6():
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6 loopback")
def test_an_ipv6_address(toys):
    with Server(toys("P", buckets=[32]), "--device", "cpu", "--memory-limit", "1GiB", host="[::1]") as server:
        assert server.grpc.startswith("[::1]:") and server.http.startswith("[::1]:")
        assert list(server.infer("P", row([1, 2, 3]))["row"][0, :2]) == [3, 6]
        assert server.metrics().total("headroom_requests_total", model="P", outcome="ok") == 1
        assert run(HEADROOM, "health", "--address", server.grpc).returncode == 0


def test_the_health_command(toys):
    with Server(toys("P", buckets=[32]), "--device", "cpu", "--memory-limit", "1GiB") as server:
        healthy = run(HEADROOM, "health", "--address", server.grpc)
        assert (healthy.returncode, healthy.stderr) == (0, "")
        address = server.grpc
    gone = run(HEADROOM, "health", "--address", address, "--timeout", 20)
    assert gone.returncode == 1
    assert address in gone.stderr and len(gone.stderr.splitlines()) == 1
