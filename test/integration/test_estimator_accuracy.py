"""The measurements of bench/ in a short form: the estimator on shapes that calibration has not seen, on the CPU and, within a budget
and on a cache that is left as it is, on dry cards; and how much of a budget is used."""

from __future__ import annotations

import json
import sys

import pytest

from harness import BUILD, DRY, ROOT, run

ACCURACY = BUILD / "headroom_estimator_accuracy"


def figures_of(done):
    assert done.stdout, done.stderr
    return json.loads(done.stdout)["figures"]


@pytest.mark.parametrize("kind", ["attn", "big"])
@pytest.mark.parametrize("padding", ["bucket", "multiple_of_8"])
def test_unseen_shapes_take_what_was_estimated(toys, kind, padding, seed, figure):
    module = toys(kind) / kind / "1" / "model.pt"
    told = figures_of(run(ACCURACY, "shapes", "--model", module, "--padding", padding, "--limit", "64MiB", "--shapes", 150, "--seed", seed))
    figure(f"p50 {100 * told['error_p50']:.2f} %, p99 {100 * told['error_p99']:.2f} %, worst {told['worst']}")
    assert told["shapes"] >= 100
    assert told["under_estimates_beyond_margin"] == 0
    assert told["error_p50"] <= 0.01
    # Of smaller peaks the allowance for rounding, some KiB, is a large share.
    assert told["shapes_from_1_mib"] >= 50 and told["error_p99_from_1_mib"] <= 0.05


@pytest.mark.parametrize(("card", "rows", "workers"), [("1GiB", 512, 1), ("1GiB", 512, 2), ("16GiB", 4096, 1)])
def test_no_sequence_of_batches_runs_out_of_memory(minilm, card, rows, workers, seed, figure):
    told = figures_of(run(DRY, "--card", card, "--", ACCURACY, "sequences", "--model", minilm.file, "--device", "cuda:0", "--highest-id",
                          30521, "--max-rows", rows, "--workers", workers, "--sequences", 20, "--seed", seed))
    figure(f"{told['runs']} runs, held {told['peak_held_over_rest_bytes']:,} of {told['budget_bytes']:,}")
    assert told["runs"] >= 300
    assert told["out_of_memory"] == 0 and told["first"] == ""
    assert 0.8 < told["peak_held_over_rest_bytes"] / told["budget_bytes"] <= 1, "the batches were far from the budget and show nothing"


def test_the_budget_is_used(minilm, figure):
    # One worker: two reserve the peaks of two batches, which the batches rarely reach at the same moment. Room for 14 rows, a batch of
    # 26 ms: memory is what limits it, and not the time that it takes, whatever the machine did while latencies were measured.
    done = run(sys.executable, ROOT / "bench" / "budget_use.py", "--server", BUILD / "headroom", "--repository", minilm.repository, "--padding",
               "BUCKET", "--buckets", 8, "--length", 8, "--rows", 256, "--bursts", 1, "--", "--device", "cpu", "--memory-limit", 92_560_000,
               "--calibration-cache", minilm.cache, "--workers", 1)
    figure(done.stdout.strip())
    assert done.returncode == 0, done.stdout + done.stderr
