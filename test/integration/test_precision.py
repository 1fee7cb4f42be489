"""A model in another number format: held against its own FP32 answers, refused beyond a bound, measured and kept apart."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
import pytest

from harness import HEADROOM, Server, failures, incident_lengths, random_ids, row, run

LIMIT = 1 << 30
BOUND = 0.9999
REQUESTS = 60


# What calibrates in seconds: these tests are not about batches.
QUICK = [("max_batch_size: 64", "max_batch_size: 4"), ("32, 64, 128, 256, 512", "32, 512"), ("padding: AUTO", "padding: BUCKET")]


@pytest.fixture
def minilm_in(minilm, tmp_path):
    """MiniLM in a precision, with a calibration cache of its own, and the options to serve it."""

    def changed(precision: str, folder: str = "repository", replaced: Sequence[tuple[str, str]] = QUICK):
        copy = minilm.changed(tmp_path / folder, "memory {", f"precision {{ {precision} }}\nmemory {{")
        config = copy.repository / "minilm" / "config.pbtxt"
        text = config.read_text()
        for old, new in replaced:
            assert old in text
            text = text.replace(old, new)
        config.write_text(text)
        cache = tmp_path / "cache"
        cache.mkdir(exist_ok=True)
        return copy.repository, ["--device", "cpu", "--memory-limit", LIMIT, "--calibration-cache", cache]

    return changed


def precision_of(server) -> str:
    (labels,) = server.metrics().series("headroom_model_precision_min_cosine", model="minilm", device="cpu")
    return labels[0]


def test_auto_takes_what_keeps_its_bound_on_real_lengths_too(minilm_in, reference, seed, figure):
    random = np.random.default_rng(seed)
    requests = [row(random_ids(random, length)) for length in incident_lengths(random, REQUESTS)]
    expected = np.stack([reference(request) for request in requests])
    repository, options = minilm_in(f"mode: AUTO min_cosine: {BOUND}", replaced=[])
    with Server(repository, *options) as server:
        answers = server.infer_all("minilm", requests, 8)
        page, chosen = server.metrics(), precision_of(server)
    assert failures(answers) == []
    embeddings = np.stack([answer["embedding"][0] for answer in answers])
    assert embeddings.dtype == np.float32
    cosine = (embeddings * expected).sum(1) / np.linalg.norm(embeddings, axis=1) / np.linalg.norm(expected, axis=1)
    at_load = page.total("headroom_model_precision_min_cosine", model="minilm")
    figure(f"precision AUTO at cosine {BOUND}: {chosen}, {at_load:.6f} at load, lowest of {REQUESTS} requests {cosine.min():.6f}")
    assert at_load >= BOUND
    # The bound is kept on made-up rows; others are allowed a little more.
    assert cosine.min() >= 1 - 2 * (1 - BOUND)
    if chosen == "FP32":
        assert cosine.min() >= 0.999999
    assert page.total("headroom_model_loads_total") == 1


@pytest.mark.parametrize("mode", ["BF16", "AUTOCAST"])
def test_a_bound_that_is_not_kept_stops_the_start(minilm_in, mode):
    repository, options = minilm_in(f"mode: {mode} max_error: 1e-9")
    done = run(HEADROOM, "serve", "--model-repository", repository, *options, "--grpc-address", "127.0.0.1:0")
    assert done.returncode == 1
    assert f"model 'minilm': in {mode} its answers are further from those in FP32" in done.stderr
    assert "max_error 1e-09" in done.stderr


def test_a_calibration_is_never_taken_from_another_precision(minilm_in, tmp_path):
    for folder, precision, kept in [
        ("a", "mode: BF16", 1),
        ("b", "mode: FP32", 2),
        ("c", "mode: BF16 min_cosine: 0.999", 2),
    ]:
        repository, options = minilm_in(precision, folder)
        done = run(HEADROOM, "plan", "--model-repository", repository, *options)
        assert done.returncode == 0, done.stderr
        files = list((tmp_path / "cache").iterdir())
        assert len(files) == kept
    assert "calibration kept" in done.stderr
    texts = [file.read_text() for file in files]
    assert sum("precision=BF16" in text for text in texts) == 1


def test_half_precision_halves_the_memory_at_rest(minilm_in, figure):
    at_rest = {}
    for mode in ["FP32", "BF16"]:
        repository, options = minilm_in(f"mode: {mode}", mode)
        with Server(repository, *options) as server:
            at_rest[mode] = LIMIT - server.metrics().total("headroom_memory_budget_bytes") / 0.8
    figure(f"MiniLM at rest: {at_rest['FP32'] / 2**20:.0f} MiB in FP32, {at_rest['BF16'] / 2**20:.0f} MiB in BF16")
    assert at_rest["BF16"] < 0.55 * at_rest["FP32"]


def test_a_row_alone_is_spread_over_idle_processors(minilm_in, seed):
    request = row(random_ids(np.random.default_rng(seed), 400))
    repository, options = minilm_in("mode: FP32")

    def wide(most):
        with Server(repository, *options, "--max-intra-op-threads", most) as server:
            answers = [server.infer("minilm", request) for _ in range(3)]
            return server.metrics().total("headroom_wide_runs_total"), answers

    many, spread = wide(2)
    none, single = wide(1)
    assert many == (3 if len(os.sched_getaffinity(0)) > 1 else 0)
    assert none == 0
    np.testing.assert_allclose(spread[0]["embedding"], single[0]["embedding"], rtol=0, atol=1e-5)
