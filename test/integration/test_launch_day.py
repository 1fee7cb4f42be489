"""The burst that took the service down, within what the weights leave: split by memory, and survived.

The memory of the CPU device is enforced by the allocator, so that the naive way really fails.
"""

from __future__ import annotations

import numpy as np
import pytest

from harness import NAIVE, Server, Watch, burst_lengths, failures, random_ids, row, rows_of, run

# A row of 512 takes 7 MB, two do not fit 80 % of this: memory is what limits batches, however long they take.
OVER_THE_WEIGHTS = 16_000_000
OUT_OF_MEMORY = 3  # headroom_naive_batch's exit code
CLIENT_BATCH = 16  # so many of the long rows come as one request


@pytest.fixture(scope="module")
def limit(minilm_at_rest):
    return minilm_at_rest + OVER_THE_WEIGHTS


def test_one_padded_batch_of_the_burst_runs_out_of_memory(minilm, limit, figure):
    naive = run(NAIVE, minilm.file, "cpu", limit, 64, 512)
    figure(naive.stdout.strip())
    assert naive.returncode == OUT_OF_MEMORY, naive.stderr
    assert naive.stdout.startswith("out of memory")
    # It is the size that is at fault, not the program.
    small = run(NAIVE, minilm.file, "cpu", limit, 2, 512)
    assert small.returncode == 0, small.stdout + small.stderr


def test_the_burst_is_split_by_memory_and_answered(minilm, limit, random, reference, figure):
    lengths = burst_lengths(random)
    requests = [row(random_ids(random, length)) for length in lengths]
    long_rows = [i for i, length in enumerate(lengths) if length == 512][:CLIENT_BATCH]
    together = {"input_ids": np.concatenate([requests[i]["input_ids"] for i in long_rows])}
    singles = [request for i, request in enumerate(requests) if i not in long_rows]

    with Server(minilm.repository, *minilm.options(limit)) as server:
        with Watch(server) as watch:
            answers = server.infer_all("minilm", [together, *singles], at_once=len(requests))
        page = server.metrics()

    assert failures(answers) == []
    budget = page.total("headroom_memory_budget_bytes")
    peak = watch.highest("headroom_memory_peak_bytes")
    splits = page.total("headroom_batch_splits_total", model="minilm", reason="memory")
    figure(f"limit {limit:,}, budget {budget:,.0f}, peak {peak:,.0f} ({100 * peak / budget:.1f} %) over {len(watch.pages)}"
           f" scrapes, {splits:.0f} splits by memory, {page.total('headroom_batches_total', model='minilm'):.0f} batches")
    assert budget == pytest.approx(0.8 * OVER_THE_WEIGHTS, abs=1024)
    assert len(watch.pages) > 5
    for seen in watch.pages:
        assert seen.total("headroom_memory_peak_bytes") <= seen.total("headroom_memory_budget_bytes")
        assert seen.total("headroom_memory_reserved_bytes") <= seen.total("headroom_memory_budget_bytes")
        assert seen.total("headroom_out_of_memory_total") == 0
    assert splits > 0
    assert peak > 0.5 * budget, "the burst was far from the budget and shows nothing"
    assert page.total("headroom_batch_rows_sum", model="minilm") == len(requests)
    assert page.total("headroom_memory_reserved_bytes") == 0

    got = np.concatenate([answer["embedding"] for answer in answers])
    order = [requests[i] for i in long_rows] + singles
    for i in [0, 1, CLIENT_BATCH - 1, *random.integers(CLIENT_BATCH, len(order), size=12)]:
        assert float(got[i] @ reference(order[i])) >= 0.99999, f"row {i} of length {order[i]['input_ids'].shape[1]}"


def test_what_alone_does_not_fit_is_refused_and_the_rest_is_served(minilm, minilm_at_rest):
    """5 MB over the weights: a row of 512 takes 7 MB, one of 256 half of that."""
    with Server(minilm.repository, *minilm.options(minilm_at_rest + 5_000_000)) as server:
        too_long, fits = server.infer_all("minilm", [rows_of(1, [2000] * 512), rows_of(8, [2000] * 256)], at_once=2)
        assert "RESOURCE_EXHAUSTED" in str(too_long)
        assert failures([fits]) == []
        assert server.metrics().total("headroom_out_of_memory_total") == 0
