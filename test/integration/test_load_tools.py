"""The load tools of bench/: what they send, and that they cannot be content with a server that is at fault."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time

import grpc
import numpy as np
import pytest

from harness import FAULTY, ROOT, Server, eventually

BENCH = ROOT / "bench"
sys.path.insert(0, str(BENCH))

import long_tail  # noqa: E402
import open_loop  # noqa: E402
import replay  # noqa: E402



def start(tool, *words):
    command = [sys.executable, str(BENCH / tool), *(str(word) for word in words)]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def result(process):
    out, err = process.communicate(timeout=200)
    return process.returncode, json.loads(out) if out else None, err


@pytest.fixture
def repository(toys):
    return toys("P", buckets=[32, 64, 128, 256, 512])


@pytest.fixture
def server(repository):
    with Server(repository, "--device", "cpu", "--memory-limit", "256MiB") as server:
        yield server


def to(server, *words):
    return ("--address", server.grpc, "--model", "P", *words)


# What is sent


def calls_of(seed=7, **changes):
    options = {"rate": 200.0, "seconds": 100.0, "tail_weight": 0.05, "longest": 3000, "lengths": "", "burst_factor": 1.0,
               "cancel_share": 0.0, "malformed_share": 0.0, "jitter_ms": (0.0, 0.0)}
    return long_tail.make_calls(argparse.Namespace(**(options | changes)), np.random.default_rng(seed))


def test_the_same_seed_sends_the_same():
    assert calls_of(seconds=5, cancel_share=0.5) == calls_of(seconds=5, cancel_share=0.5)
    assert calls_of(seconds=5) != calls_of(seconds=5, seed=8)


def test_the_mix_has_its_tail():
    lengths = np.array([call.length for call in calls_of()])
    assert len(lengths) == pytest.approx(20_000, rel=0.05)
    assert (lengths >= 8).all() and lengths.max() == 3000
    assert (lengths > 512).mean() == pytest.approx(0.051, abs=0.01)
    assert (lengths < 128).mean() == pytest.approx(0.80, abs=0.02)
    assert (lengths == 3000).mean() == pytest.approx(0.001, abs=0.001) and (lengths == 3000).sum() >= 5
    assert max(call.length for call in calls_of(tail_weight=0)) < 512


def test_bursts_have_the_rate_on_the_whole():
    times = np.array([call.at for call in calls_of(burst_factor=8.0)])
    assert len(times) == pytest.approx(20_000, rel=0.1)
    by_second = np.bincount(times.astype(int), minlength=100)
    assert by_second.max() > 3 * np.median(by_second)


def test_shares_are_kept():
    calls = calls_of(cancel_share=0.1, malformed_share=0.02, jitter_ms=(200.0, 500.0))
    assert np.mean([call.cancel_after is not None for call in calls]) == pytest.approx(0.1, abs=0.02)
    kinds = [call.kind for call in calls if call.kind != open_loop.VALID]
    assert len(kinds) / len(calls) == pytest.approx(0.02, abs=0.005) and set(kinds) == set(open_loop.MALFORMED)
    assert {call.length for call in calls if call.kind == open_loop.OVER_LONG} == {12_000}
    assert min(call.at for call in calls) >= 0.2 and sorted(calls, key=lambda call: call.at) != calls


def test_a_table_of_quantiles_is_drawn_from(tmp_path):
    (tmp_path / "q.csv").write_text("quantile,a,b\n0,10,30\n1,20,30\n")
    lengths = [call.length for call in calls_of(tail_weight=0.0, lengths=str(tmp_path / "q.csv"))]
    assert set(lengths) == {*range(10, 21), 30}
    assert np.mean(np.array(lengths) == 30) == pytest.approx(0.5, abs=0.02)


def test_faults_of_a_trace_are_named_with_their_lines(tmp_path):
    trace = tmp_path / "trace.csv"
    trace.write_text("arrival_seconds,length\n0,5\n1,0\nx,5\n2\n")
    with pytest.raises(SystemExit) as refused:
        replay.read_trace(str(trace))
    assert [line.split(": ")[0] for line in str(refused.value).splitlines()] == [f"{trace}:3", f"{trace}:4", f"{trace}:5"]
    trace.write_text("at,length\n0,5\n")
    with pytest.raises(SystemExit, match="arrival_seconds"):
        replay.read_trace(str(trace))


# How a call is judged

JUDGED = [
    # status, text, kind, was cancelled, had a deadline, is a fault
    ("RESOURCE_EXHAUSTED", "the queue of 'P' is full", "valid", False, False, False),
    ("UNAVAILABLE", "the server is draining", "valid", False, False, False),
    ("UNAVAILABLE", "failed to connect to all addresses; last error: UNKNOWN: ipv4: Connection refused", "valid", False, False, True),
    ("UNAVAILABLE", "Socket closed", "valid", False, False, True),
    ("DEADLINE_EXCEEDED", "Deadline Exceeded", "valid", False, True, False),
    ("DEADLINE_EXCEEDED", "Deadline Exceeded", "valid", False, False, True),
    ("INVALID_ARGUMENT", "input 'input_ids': the length 3000 is over the limit of 1024", "valid", False, False, False),
    ("INVALID_ARGUMENT", "input 'input_ids' has 7 bytes and its shape needs 8", "valid", False, False, True),
    ("INVALID_ARGUMENT", "input 'input_ids' has 7 bytes and its shape needs 8", "wrong_bytes", False, False, False),
    ("CANCELLED", "", "valid", True, False, False),
    ("CANCELLED", "", "valid", False, False, True),
    ("INTERNAL", "the model failed", "valid", False, False, True),
    ("UNKNOWN", "", "valid", False, False, True),
    ("INTERNAL", "", "null", False, False, True),
    ("NOT_FOUND", "", "valid", False, False, True),
    ("OK", "", "null", False, False, True),
    ("MISSING", "", "valid", False, False, True),
]


@pytest.mark.parametrize(("status", "text", "kind", "cancelled", "deadline", "fault"), JUDGED)
def test_what_is_a_fault(status, text, kind, cancelled, deadline, fault):
    call = open_loop.Call(0.0, 9, kind=kind, cancel_after=0.1 if cancelled else None, status=status, text=text)
    model = open_loop.Model("P", "input_ids", "INT64", "row", 4, 999)
    assert bool(open_loop.judge(call, model, 1.0 if deadline else None)) is fault
    assert status in ("OK", "MISSING") or status in grpc.StatusCode.__members__


@pytest.mark.parametrize(("row", "cut", "right"), [([3, 60, 32, 1], False, True), ([3, 61, 32, 1], False, False), ([2, 60, 32, 1], False, False),
                                                   ([2, 30, 32, 1], True, True), ([2, 60, 32, 1], True, False), ([3, np.nan, 32, 1], False, False)])
def test_answers_are_worked_out_by_hand(row, cut, right):
    call = open_loop.Call(0.0, 3, status="OK", ids=np.array([10, 20, 30]))
    call.answer = open_loop.service_pb2.ModelInferResponse(model_name="P")
    call.answer.outputs.add(name="row", datatype="FP32", shape=[1, 4])
    call.answer.raw_output_contents.append(np.array(row, dtype=np.float32).tobytes())
    if cut:
        call.answer.parameters["truncated_from"].int64_param = 3
    model = open_loop.Model("P", "input_ids", "INT64", "row", 4, 999)
    assert (open_loop.judge(call, model, None) == "") is right


# Against servers


def test_a_sound_server_is_left_without_a_fault(server, figure):
    code, told, err = result(start("long_tail.py", *to(server), "--rate", 150, "--seconds", 4, "--burst-factor", 4, "--cancel-share", 0.1,
                                   "--malformed-share", 0.05, "--jitter-ms", "20-50", "--client-key", "x-client-id", "--seed", 1))
    figure(f"{told['by_status']}, latency {told['latency_ms']}, lag {told['sender_lag_ms']}")
    assert code == 0, err
    assert told["sent"] == sum(told["by_status"].values()) > 400 and told["faults"] == 0
    assert told["ok"] + told["refused_by_rule"] == told["sent"]
    assert told["by_status"]["INVALID_ARGUMENT"] > 0  # the malformed ones, and the tail: P has no tiers
    assert "seed 1" in err and "latency" in err
    page = server.metrics()
    assert eventually(lambda: server.metrics().total("headroom_requests_total") == told["sent"]), page.samples


def test_a_trace_is_replayed_at_its_speed(server, tmp_path):
    trace = tmp_path / "trace.csv"
    trace.write_text("arrival_seconds,length\n" + "".join(f"{i / 10},{20 + i}\n" for i in range(60)))
    code, told, err = result(start("replay.py", trace, "--speed", 3, *to(server)))
    assert code == 0, err
    assert told["sent"] == told["ok"] == 60
    assert told["seconds"] >= 5.9 / 3


def test_a_wrong_server_is_found_out(repository):
    with Server(repository, "--device", "cpu", "--fault", "throw_on_id=500", program=(FAULTY,)) as server:
        code, told, err = result(start("long_tail.py", *to(server), "--rate", 50, "--seconds", 2, "--tail-weight", 0))
    assert code == 1, err
    assert told["faults"] == told["by_status"]["INTERNAL"] > 0


def test_a_server_that_dies_is_found_out(repository):
    with Server(repository, "--device", "cpu") as server:
        load = start("long_tail.py", *to(server), "--rate", 100, "--seconds", 6, "--tail-weight", 0)
        assert eventually(lambda: server.metrics().total("headroom_requests_total") > 50)
        server.process.kill()
        code, told, err = result(load)
    assert code == 1, err
    assert told["faults"] > 0 and any("connection was lost" in reason for reason in told["fault_reasons"])


def test_no_server_is_code_2():
    code, told, err = result(start("replay.py", "/dev/null"))
    assert (code, told) == (2, None) and "arrival_seconds" in err
    began = time.monotonic()
    code, told, err = result(start("long_tail.py", "--address", "127.0.0.1:9", "--seconds", 1))
    assert (code, told) == (2, None) and "127.0.0.1:9" in err, err
    assert time.monotonic() - began < 60


