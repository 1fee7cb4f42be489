"""Poison in shared batches: of requests that run together, exactly the guilty ones fail, each with its own status."""

from __future__ import annotations

import secrets

import numpy as np
import pytest
import torch
from repository_entry import Input
from tritonclient.utils import InferenceServerException

from harness import FAULTY, Inputs, Server

REQUESTS = 400
AT_ONCE = 64
POISON = 666  # the device throws on a batch that holds it
LIMIT = 1e6  # of what the toy "bounded" takes

FAULTS = ["--fault", f"throw_on_id={POISON}", "--fault", "delay_ms=10"]  # so long a run that the next batch fills meanwhile


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    from make_models import make

    repository = tmp_path_factory.mktemp("poison")
    make("P", repository, buckets=[8, 32])
    make("identity", repository, name="bounded", inputs=[Input("x", torch.float32, (16,), value_range=(-LIMIT, LIMIT))])
    with Server(repository, "--device", "cpu", "--memory-limit", "128MiB", "--workers", 2, *FAULTS, program=[FAULTY]) as server:
        yield server


def status_of(answer: object) -> str:
    if not isinstance(answer, Exception):
        return "OK"
    assert isinstance(answer, InferenceServerException), repr(answer)
    return str(answer.status()).removeprefix("StatusCode.")


def tokens(random: np.random.Generator) -> Inputs:
    ids = random.integers(0, POISON, size=(random.integers(1, 4), random.integers(1, 30)))
    mask = np.zeros_like(ids)
    for row in mask:
        row[: random.integers(1, ids.shape[1] + 1)] = 1
    return {"input_ids": ids, "attention_mask": mask}


def poisoned_tokens(kind: str, random: np.random.Generator) -> Inputs:
    """One row of the request is guilty; the whole request fails for it, and nobody else's."""
    inputs = tokens(random)
    ids, mask = inputs["input_ids"], inputs["attention_mask"]
    row = random.integers(len(ids))
    if kind == "throws":
        ids[row, 0] = POISON
    elif kind == "out of range":
        ids[row, 0] = 1000
    elif kind == "all masked":
        mask[row] = 0
    elif kind == "wrong shape":
        inputs["attention_mask"] = np.concatenate([mask, mask], axis=1)
    return inputs


def numbers(random: np.random.Generator) -> Inputs:
    return {"x": random.uniform(-600, 600, size=(random.integers(1, 4), 16)).astype(np.float32)}


def poisoned_numbers(kind: str, random: np.random.Generator) -> Inputs:
    x = numbers(random)["x"]
    place = (random.integers(len(x)), random.integers(16))
    if kind == "wrong shape":
        return {"x": x[:, :15]}
    x[place] = {"throws": POISON, "NaN": np.nan, "infinite": np.inf, "out of range": 2 * LIMIT}[kind]
    return {"x": x}


def right_tokens(inputs: Inputs, outputs: np.ndarray) -> bool:
    mask = inputs["attention_mask"]
    wanted = np.stack([mask.sum(1), (inputs["input_ids"] * mask).sum(1)], axis=1)
    return np.array_equal(outputs[:, :2], wanted)


MODELS = {
    "P": ("row", tokens, poisoned_tokens, right_tokens, ["throws", "out of range", "all masked", "wrong shape"]),
    "bounded": (
        "y",
        numbers,
        poisoned_numbers,
        lambda inputs, outputs: np.array_equal(outputs, inputs["x"]),
        ["throws", "NaN", "infinite", "out of range", "wrong shape"],
    ),
}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("share", [0.01, 0.1])
def test_exactly_the_guilty_fail(server, model, share, figure):
    output, good, poisoned, right, kinds = MODELS[model]
    retried = 0  # innocent rows that shared a batch with one that throws
    for _ in range(3):
        seed = secrets.randbelow(1_000_000)
        random = np.random.default_rng(seed)
        count = max(len(kinds), round(share * REQUESTS))
        guilty = dict(zip(random.choice(REQUESTS, count, replace=False).tolist(), kinds * count))
        requests = [poisoned(guilty[i], random) if i in guilty else good(random) for i in range(REQUESTS)]
        answers = server.infer_all(model, requests, AT_ONCE)

        wanted = ["OK" if i not in guilty else "INTERNAL" if guilty[i] == "throws" else "INVALID_ARGUMENT" for i in range(REQUESTS)]
        wrong = [
            f"request {i} ({guilty.get(i, 'good')}): {answer}" for i, answer in enumerate(answers) if status_of(answer) != wanted[i]
        ]
        assert not wrong, f"seed {seed}: {wrong[:5]}"
        innocent = [i for i in range(REQUESTS) if i not in guilty]
        wrong = [f"request {i}: {answers[i][output]}" for i in innocent if not right(requests[i], answers[i][output])]
        assert not wrong, f"seed {seed}: {wrong[:5]}"
        # Else nobody shared a batch with the guilty, and nothing was shown.
        shared = sum(answers[i].parameters["batch_rows"] > len(next(iter(requests[i].values()))) for i in innocent)
        assert shared > REQUESTS / 2, f"seed {seed}"
        again = sum(answers[i].parameters["retries"] > 0 for i in innocent)
        retried += again
        figure(f"seed {seed}: {count} of {REQUESTS} guilty, {shared} innocent in shared batches, {again} of them run again")
    assert retried > 0
