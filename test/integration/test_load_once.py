"""A model file is handed to libtorch once for each (model, version, device), counted where that is done."""

from __future__ import annotations

import numpy as np
import pytest

from harness import DRY, HEADROOM, Server, failures, row


def loads(server):
    """Loads of model files by device."""
    return {device: count for (device,), count in server.metrics().series("headroom_model_loads_total").items()}


def use(server, models):
    """Concurrent first requests of all models, the moment the server is ready, and more after them."""
    for _ in range(2):
        for model in models:
            requests = [row(np.arange(1, 2 + i % 32)) for i in range(64)]
            assert failures(server.infer_all(model, requests, at_once=64)) == []


@pytest.mark.parametrize("workers", [1, 4])
def test_on_the_cpu(toys, workers):
    repository = toys("P", "attn", buckets=[32, 64])
    toys("attn", buckets=[32, 64], version=2)  # the newest is served, and only it is loaded
    with Server(repository, "--device", "cpu", "--memory-limit", "1GiB", "--workers", workers) as server:
        assert loads(server) == {"cpu": 2}
        use(server, ["P", "attn"])
        assert loads(server) == {"cpu": 2}
        assert server.metrics().total("headroom_model_ready", model="attn", version="2") == 1


def test_on_two_dry_cards(toys):
    repository = toys("P", "attn", buckets=[32, 64])
    program = (DRY, "--card", "1GiB,2GiB", "--", HEADROOM)
    with Server(repository, "--device", "cuda:0,1", "--workers", 3, program=program) as server:
        use(server, ["P", "attn"])
        assert loads(server) == {"cuda:0": 2, "cuda:1": 2}


def test_the_log_agrees(toys):
    with Server(toys("P", buckets=[32]), "--device", "cpu", "--memory-limit", "1GiB", "--workers", 4) as server:
        use(server, ["P"])
        assert server.log().count("model loaded") == 1
