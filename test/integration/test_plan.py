"""`headroom plan` against what is measured, at points that calibration did not use; and the calibration that is kept."""

from __future__ import annotations

import json

import pytest

from harness import HEADROOM, Server, rows_of, run

OVER_THE_WEIGHTS = [25_000_000, 41_000_000, 63_000_000]
CLOSE = 1.02


def plan(repository, *options):
    done = run(HEADROOM, "plan", "--model-repository", repository, *options)
    assert done.returncode == 0, done.stderr
    return done


def calibrated_rows(cache):
    """Which numbers of rows were measured at each bucket of MiniLM on the CPU, by the file that keeps them."""
    texts = [file.read_text() for file in cache.glob("minilm-*")]
    # Not those of a dry card, nor one that was measured wrongly on purpose.
    (kept,) = [text for text in texts if "step=8" in text and "cpu" in text and "measured at" not in text]
    rows, length = {}, 0
    for line in kept.splitlines():
        words = line.split()
        if words[0] == "length":
            length = int(words[1])
        elif words[0] == "point":
            rows.setdefault(length, set()).add(int(words[1]))
    return rows


@pytest.mark.parametrize("over", OVER_THE_WEIGHTS)
def test_the_largest_batches_take_what_was_estimated(minilm, minilm_at_rest, over, figure):
    done = plan(minilm.repository, *minilm.options(minilm_at_rest + over), "--json")
    assert "calibration kept" in done.stderr
    (model,) = json.loads(done.stdout)["models"]
    (device,) = model["devices"]
    assert (model["name"], device["device"]) == ("minilm", "cpu")
    assert device["budget_bytes"] == pytest.approx(0.8 * over, abs=1024)
    used = calibrated_rows(minilm.cache)
    new = [bucket for bucket in device["buckets"] if bucket["largest_batch"] not in used[bucket["bucket"]]]
    assert len(new) >= 3, f"calibration used {used}, the plan has {device['buckets']}"
    ratios = {b["bucket"]: b["estimated_peak_bytes"] / b["measured_peak_bytes"] for b in new}
    shown = ", ".join(f"{b['largest_batch']}x{b['bucket']} {100 * (ratios[b['bucket']] - 1):+.3f} %" for b in new)
    figure(f"estimated over measured: {shown}")
    assert all(1 <= ratio <= CLOSE for ratio in ratios.values()), ratios
    assert all(0 < b["estimated_peak_bytes"] <= device["budget_bytes"] for b in device["buckets"])


# Rows and lengths inside buckets, as padding AUTO has them on the CPU.
INSIDE = [(3, 24), (20, 40), (7, 72), (11, 88), (5, 104), (3, 168), (9, 200), (6, 232), (7, 320), (5, 360), (9, 440), (7, 488)]


def test_lengths_inside_buckets_take_what_was_estimated(minilm_server, figure):
    """The batches of a request are all of one length, so that the histogram of actual by estimated grows by their own ratios."""

    def figures():
        page = minilm_server.metrics()
        return [page.total(f"headroom_memory_estimate_ratio_{part}", model="minilm") for part in ("count", "sum")]

    errors = {}
    for rows, length in INSIDE:
        before = figures()
        explained = minilm_server.infer("minilm", rows_of(rows, [2000] * length), explain=True).parameters
        after = figures()
        assert explained["padded_length"] == length
        assert explained["estimated_bytes"] > 0
        batches = after[0] - before[0]
        assert 1 <= batches <= rows
        errors[f"{rows}x{length} in {batches:.0f}"] = batches / (after[1] - before[1]) - 1
    figure("estimated over actual: " + ", ".join(f"{shape} {100 * error:+.3f} %" for shape, error in errors.items()))
    # The sum of a histogram is printed with a dozen digits.
    assert all(-1e-9 <= error <= CLOSE - 1 for error in errors.values()), errors


def test_the_table_for_people(minilm, minilm_at_rest):
    table = plan(minilm.repository, *minilm.options(minilm_at_rest + OVER_THE_WEIGHTS[0])).stdout
    head, at_rest, columns, *buckets = table.splitlines()
    assert "minilm" in head and "cpu" in head and "MiB" in head
    assert "weights" in at_rest and "MiB" in at_rest
    assert "largest batch" in columns and "rows/s" in columns
    assert [int(line.split()[0]) for line in buckets] == [32, 64, 128, 256, 512]
    assert all("MiB" in line and "ms" in line for line in buckets)


def test_a_second_start_is_quick_and_says_why(minilm, minilm_server, minilm_at_rest, figure):
    assert "calibrating" in minilm_server.log() and "calibration kept" not in minilm_server.log()
    with Server(minilm.repository, *minilm.options(minilm_at_rest + 60_000_000)) as again:
        figure(f"first start {minilm_server.start_seconds:.1f} s, with a kept calibration {again.start_seconds:.1f} s")
        assert "calibration kept" in again.log() and "calibrating" not in again.log()
        assert again.start_seconds < minilm_server.start_seconds / 2


def test_another_model_file_or_a_larger_limit_is_measured_anew(toys, tmp_path):
    def log_of_plan(limit="64MiB"):
        return plan(repository, "--device", "cpu", "--memory-limit", limit, "--calibration-cache", tmp_path).stderr

    repository = toys("big", buckets=[32, 128], max_batch_size=256)
    assert "calibrating" in log_of_plan()
    assert "calibration kept" in log_of_plan()
    assert "calibration kept" in log_of_plan("32MiB")
    # What did not fit before may fit now.
    assert "calibrating" in log_of_plan("80MiB")
    # The same name, inputs and sizes, but another content.
    toys("P", name="big", buckets=[32, 128], max_batch_size=256)
    assert "calibrating" in log_of_plan()
