"""No client sees an out-of-memory error while its request alone fits: with a wrong estimate, a shrinking device, runs that fail.

What a client would see is in the answers; that the events really happened is in the metrics.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from harness import FAULTY, Server, Watch, burst_lengths, eventually, failures, random_ids, row

MIB = 1 << 20


def rows_for_big(random: np.random.Generator, count: int) -> list[dict]:
    return [row(random.integers(1, 1000, random.integers(33, 65))) for _ in range(count)]


def check_big(requests: list[dict], answers: list) -> None:
    assert failures(answers) == []
    for request, answer in zip(requests, answers, strict=True):
        ids = request["input_ids"][0]
        assert list(answer["row"][0][:2]) == [len(ids), ids.sum()]


def test_an_estimator_that_is_short_by_30_percent_harms_no_client(toys: Callable[..., Path], random, figure):
    repository = toys("big", buckets=[64], max_batch_size=16)
    options = ["--device", "cpu", "--memory-limit", "48MiB", "--workers", 2, "--fault", "estimate_percent=70"]
    rounds, each = 6, 40
    with Server(repository, *options, program=(FAULTY,)) as server:
        seen = []
        for _ in range(rounds):
            requests = rows_for_big(random, each)
            check_big(requests, server.infer_all("big", requests, at_once=each))
            page = server.metrics()
            seen.append((page.total("headroom_out_of_memory_total"), page.total("headroom_memory_underestimates_total"),
                         page.total("headroom_batches_total")))
        figure(f"after each {each} rows: (out of memory, under-estimates, batches) {seen}")
    assert seen[0][0] + seen[0][1] > 0, "the estimate was not short: this shows nothing"
    assert seen[-1][0] == seen[0][0], "the margin did not settle within the first round"
    # A margin that follows the largest ratio seen is passed by a hair where a larger one comes, ever more seldom.
    assert seen[-1][1] - seen[2][1] <= 1, "the margin does not settle"


def test_the_launch_day_burst_with_an_estimator_that_is_short_by_30_percent(minilm, minilm_at_rest, random, figure):
    requests = [row(random_ids(random, length)) for length in burst_lengths(random)]
    # Not with the calibration that others keep: what is measured here is wrong on purpose, and is kept under its own key.
    options = [*minilm.options(minilm_at_rest + 60_000_000), "--fault", "estimate_percent=70"]
    with Server(minilm.repository, *options, program=(FAULTY,)) as server:
        answers = server.infer_all("minilm", requests, at_once=len(requests))
        page = server.metrics()
    figure(f"{page.total('headroom_out_of_memory_total'):.0f} out of memory, "
           f"{page.total('headroom_memory_underestimates_total'):.0f} under-estimates, "
           f"{page.total('headroom_batches_total'):.0f} batches")
    assert failures(answers) == []
    assert page.total("headroom_memory_underestimates_total") + page.total("headroom_out_of_memory_total") > 0


def test_memory_that_is_taken_and_comes_back_is_waited_for(toys: Callable[..., Path], random, figure):
    repository = toys("big", buckets=[64], max_batch_size=16)
    # From readiness to 2.5 s nothing fits, and later once more for a second.
    fault = f"free_bytes={64 * MIB},4096@0,{64 * MIB}@2500,4096@3500,{64 * MIB}@4500"
    with Server(repository, "--device", "cpu", "--memory-limit", "1GiB", "--fault", fault, program=(FAULTY,)) as server:
        began = time.monotonic()
        requests, calls = [], []
        while time.monotonic() - began < 6:
            requests.append(rows_for_big(random, 1)[0])
            calls.append(server.send("big", requests[-1], deadline=60))
            time.sleep(0.02)
        answers = [call.result() for call in calls]
        answered_at = sorted(call.done_at - began for call in calls)
        page = server.metrics()
        assert eventually(lambda: server.metrics().total("headroom_memory_reserved_bytes") == 0)
    check_big(requests, answers)
    assert page.total("headroom_requests_total", outcome="over_budget") == 0
    # The server's time began a little earlier: with its readiness.
    short = [t for t in answered_at if t < 1.5]
    figure(f"answers: {len(short)} in the first 1.5 s, {sum(2 <= t < 3.5 for t in answered_at)} from 2 s to 3.5 s, of {len(calls)}")
    assert short == [], "memory was not short: this shows nothing"


def test_versions_are_swapped_under_traffic_and_each_request_is_answered_once(toys: Callable[..., Path], figure):
    repository = toys("P", buckets=[32])
    stop = threading.Event()
    answers: list = []
    with Server(repository, "--device", "cpu", "--memory-limit", "256MiB", "--model-control", "on") as server:

        def client() -> None:
            while not stop.is_set():
                answers.append(server.send("P", row([1, 2, 3])).result())

        clients = [threading.Thread(target=client) for _ in range(8)]
        for thread in clients:
            thread.start()
        try:
            for version in range(2, 8):
                toys("P", buckets=[32], version=version)
                server.client.load_model("P")
                assert server.client.get_model_metadata("P").versions == [str(version)]
        finally:
            stop.set()
            for thread in clients:
                thread.join()
        page = server.metrics()
        rest = eventually(lambda: server.metrics().total("headroom_memory_reserved_bytes") == 0)
    figure(f"{len(answers)} calls over 6 swaps")
    assert rest and len(answers) > 50
    for answer in answers:
        assert list(answer["row"][0][:2]) == [3, 6]
    assert page.total("headroom_requests_total", outcome="ok") == len(answers)
    assert page.total("headroom_model_loads_total") == 7


def test_runs_that_fail_now_and_then_reach_no_client(toys: Callable[..., Path], random):
    repository = toys("big", buckets=[64], max_batch_size=16)
    options = ["--device", "cpu", "--memory-limit", "64MiB", "--workers", 2, "--fault", "oom_every=5"]
    with Server(repository, *options, program=(FAULTY,)) as server:
        requests = rows_for_big(random, 150)
        with Watch(server) as watch:
            check_big(requests, server.infer_all("big", requests, at_once=50))
        page = server.metrics()
        assert page.total("headroom_memory_reserved_bytes") == 0
    assert page.total("headroom_out_of_memory_total") > 3
    for seen in watch.pages:
        assert seen.total("headroom_memory_reserved_bytes") <= seen.total("headroom_memory_budget_bytes")
