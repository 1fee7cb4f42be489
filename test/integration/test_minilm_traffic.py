"""MiniLM under the traffic of the incident: right answers, no errors, real batches."""

from __future__ import annotations

import os
import time

import numpy as np
import pytest

from harness import Server, failures, incident_lengths, random_ids, row

REQUESTS = int(os.environ.get("HEADROOM_TEST_REQUESTS", "400"))
ONE_AT_A_TIME = min(REQUESTS, 100)  # enough for its throughput
AT_ONCE = 32


@pytest.fixture(scope="module")
def traffic(seed, reference):
    """The requests, and the right answer to each."""
    random = np.random.default_rng(seed)
    requests = [row(random_ids(random, length)) for length in incident_lengths(random, REQUESTS)]
    return requests, np.stack([reference(request) for request in requests])


@pytest.fixture(params=["AUTO", "BUCKET"])
def server(request, minilm, minilm_server, tmp_path):
    if request.param == "AUTO":
        yield minilm_server
        return
    padded = minilm.changed(tmp_path, "padding: AUTO", f"padding: {request.param}")
    with Server(padded.repository, *padded.options(160 << 20)) as server:
        yield server


def timed(server, requests, at_once):
    """The answers, and how fast they came."""
    began, computed = time.monotonic(), server.cpu_seconds()
    answers = server.infer_all("minilm", requests, at_once)
    took, computed = time.monotonic() - began, server.cpu_seconds() - computed
    tokens = sum(request["input_ids"].size for request in requests)
    return answers, f"{len(requests) / took:.1f}/s ({1e6 * computed / tokens:.0f} ms of CPU for 1,000 tokens)"


def test_every_embedding_is_the_unbatched_one(server, traffic, figure):
    requests, expected = traffic
    before = server.metrics()
    answers, throughput = timed(server, requests, AT_ONCE)
    after = server.metrics()
    assert failures(answers) == []
    embeddings = np.stack([answer["embedding"][0] for answer in answers])
    assert embeddings.shape == expected.shape
    cosine = (embeddings * expected).sum(1) / np.linalg.norm(embeddings, axis=1) / np.linalg.norm(expected, axis=1)

    def grown(name, **labels):
        return after.total(name, model="minilm", **labels) - before.total(name, model="minilm", **labels)

    rows, batches = grown("headroom_batch_rows_sum"), grown("headroom_batch_rows_count")
    useful, padding = grown("headroom_useful_tokens_total"), grown("headroom_padding_tokens_total")
    _, alone = timed(server, requests[:ONE_AT_A_TIME], 1)
    figure(f"{len(requests)} requests, {AT_ONCE} at a time: {throughput} in batches of {rows / batches:.1f} rows;"
           f" one at a time {alone}; lowest cosine {cosine.min():.7f};"
           f" {100 * useful / (useful + padding):.0f} % of the tokens useful")
    assert cosine.min() >= 0.99999
    assert rows == len(requests)
    assert grown("headroom_requests_total", outcome="ok") == len(requests)
    # Long rows gain nothing by company, and short ones have little of it here.
    assert rows / batches >= 2


def test_padding_is_as_configured(server):
    answer = server.infer("minilm", row([2000] * 70), explain=True)
    bucket_only = "padding: BUCKET" in (server.repository / "minilm" / "config.pbtxt").read_text()
    assert answer.parameters["padded_length"] == (128 if bucket_only else 72)
