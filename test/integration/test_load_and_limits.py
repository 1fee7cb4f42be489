"""The load generator, the echo and the ideal in a short form: that they send, count and tell what they say. Their figures are bench/'s."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from harness import BUILD, ROOT, Server, run

LOAD = BUILD / "headroom_load"
IDEAL = BUILD / "headroom_ideal"
LIMITS = ROOT / "bench" / "limits.py"
LATE = 3  # what headroom_load ends with on a machine that is too busy for its sender


@pytest.fixture
def toy_server(toys):
    with Server(toys("P", "identity"), "--device", "cpu", "--memory-limit", "64MiB") as server:
        yield server


def test_an_open_loop_sends_what_arrives_and_counts_every_end(toy_server, seed, figure):
    done = run(LOAD, "open", "--arm", f"a={toy_server.grpc}", "--arm", f"b={toy_server.grpc}", "--model", "P", "--mix", "8-64", "--rate", 100,
               "--burst-factor", 3, "--seconds", 1, "--rounds", 3, "--seed", seed, "--warm-up", 4)
    assert done.returncode in (0, LATE), done.stderr
    told = json.loads(done.stdout)
    figure(f"lag p99 {[arm['sender_lag_ms']['p99'] for arm in told['arms']]} ms, scheduled first: {told['scheduled_first']}")
    assert (done.returncode == LATE) == (not told["sender_on_time"])
    first, second = told["arms"]
    assert first["sent"] == second["sent"] > 0, "the arms get the same calls"
    for arm in told["arms"]:
        assert arm["answered"] == arm["sent"] and arm["by_status"] == {"OK": arm["sent"]}
        assert 0 < arm["latency_ms"]["p50"] <= arm["latency_ms"]["p99"] <= arm["latency_ms"]["max"]
        assert len(arm["rounds"]) == 3
    for ratio in told["ratios"]:
        assert (ratio["of"], ratio["to"]) == ("a", "b") and ratio["low"] <= ratio["value"] <= ratio["high"]
    answered = 2 * (first["sent"] + 4)
    assert toy_server.metrics().total("headroom_requests_received_total", model="P") == answered, "all of them, and those of the warm-up"


def test_a_trace_is_replayed(toy_server, tmp_path):
    trace = tmp_path / "trace.csv"
    trace.write_text("arrival_seconds,length\n0,5\n0.4,600\n1.2,9\n30,7\n")
    done = run(LOAD, "open", "--arm", toy_server.grpc, "--model", "P", "--trace", trace, "--speed", 4, "--cut", 512, "--seconds", 1, "--warm-up", 0)
    assert done.returncode in (0, LATE), done.stderr
    arm = json.loads(done.stdout)["arms"][0]
    assert arm["answered"] == 3, "what comes after the first second is left out"
    assert arm["seconds"] >= 0.3
    assert toy_server.metrics().total("headroom_useful_tokens_total", model="P") == 5 + 512 + 9


def test_a_call_that_is_refused_is_no_answer(toys):
    with Server(toys("P", buckets=[32]), "--device", "cpu", "--memory-limit", "64MiB") as server:
        done = run(LOAD, "closed", "--arm", server.grpc, "--model", "P", "--mix", 64, "--calls", 10, "--in-flight", 2, "--warm-up", 0)
    arm = json.loads(done.stdout)["arms"][0]
    assert done.returncode == 1
    assert arm["answered"] == 0 and arm["faults"] == 10 and arm["by_status"] == {"INVALID_ARGUMENT": 10}


@pytest.mark.parametrize("wrong", [["open"], ["open", "--arm", "127.0.0.1:1", "--mix", "none"], ["closed", "--arm", "a", "--mix", "search"]])
def test_nothing_is_sent_where_nothing_can_be(wrong):
    done = run(LOAD, *wrong)
    assert done.returncode not in (0, 1, LATE) and done.stdout == "" and done.stderr


def test_the_ideal_runs_the_same_rows_for_the_same_seed(toys):
    module = toys("attn") / "attn" / "1" / "model.pt"
    command = [IDEAL, "--turns", "--model", module, "--mix", "incident", "--cut", "128", "--rows", "200", "--workers", "2", "--limit", "256MiB"]
    done = subprocess.run([str(word) for word in command], input="7\n8\n7\n", capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    ready, *turns = (json.loads(line) for line in done.stdout.splitlines())
    assert ready == {"ready": True}
    assert [turn["seed"] for turn in turns] == [7, 8, 7]
    assert turns[0]["tokens"] == turns[2]["tokens"] != turns[1]["tokens"]
    for turn in turns:
        assert turn["rows"] == 200 and turn["computed_tokens"] >= turn["tokens"] and turn["seconds"] > 0


def test_a_server_is_held_against_both_limits(toys, figure):
    repository = toys("attn", "identity")
    with_limit = ["--", "--device", "cpu", "--memory-limit", "64MiB"]
    ideal = run(sys.executable, LIMITS, "ideal", "--build", BUILD, "--repository", repository, "--model", "attn", "--mix", "8-64", "--calls", 100,
                "--in-flight", 16, "--rounds", 3, *with_limit)
    echo = run(sys.executable, LIMITS, "echo", "--build", BUILD, "--repository", repository, "--in-flight", 8, "--seconds", 0.2, "--rounds", 3,
               *with_limit)
    for done in (ideal, echo):
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        figure(json.dumps(told["ratios"], ensure_ascii=False))
        assert told["exit_code"] == 0
        for ratio in told["ratios"].values():
            assert 0 < ratio["low"] <= ratio["value"] <= ratio["high"]
    assert json.loads(ideal.stdout)["served_useful_of_computed"] <= 1
    assert all(spent > 0 for spent in json.loads(echo.stdout)["processor_us_per_call"].values())
