"""Out of memory at every tensor allocation of the running server in turn."""

from __future__ import annotations

import numpy as np
import pytest

from harness import FAULTY, Server, random_ids, row


@pytest.mark.parametrize("every", [41, 97])
def test_every_allocation_may_be_refused(toys, every, figure):
    """Batches take some ten allocations each, so that every one of them is the one refused sooner or later."""
    repository = toys("P", "big", buckets=[32, 64])
    options = ("--device", "cpu", "--memory-limit", "256MiB", "--workers", "2", "--fault", f"oom_at_allocation={every}")
    with Server(repository, *options, program=(FAULTY,)) as server:
        lengths = [1 + n % 64 for n in range(300)]
        for model in ("P", "big"):
            calls = [server.send(model, row(np.arange(length))) for length in lengths]
            answers = [call.refusal() for call in calls]
            figure(f"{model}: {answers.count('OK')} of {len(calls)} answered")
            # A row that is refused alone, and again, is refused to its client; it takes two of these faults in a row.
            assert set(answers) <= {"OK", "RESOURCE_EXHAUSTED"}
            assert answers.count("OK") > 0.95 * len(calls)
            for length, call, answer in zip(lengths, calls, answers):
                if answer == "OK":
                    assert call.result()["row"][0][:2].tolist() == [length, length * (length - 1) / 2]
        page = server.metrics()
        assert page.total("headroom_out_of_memory_total") > 0
        assert page.total("headroom_memory_reserved_bytes") == 0
        server.terminate()
        assert server.exit_code() == 0


def test_every_allocation_of_minilm_may_be_refused(minilm, minilm_at_rest, random, reference, figure):
    """A run of MiniLM takes some hundred allocations: every third or so meets a refusal, each time at another of them."""
    options = [*minilm.options(minilm_at_rest + 200_000_000), "--fault", "oom_at_allocation=997"]
    requests = [row(random_ids(random, int(random.integers(3, 120)))) for _ in range(100)]
    with Server(minilm.repository, *options, program=(FAULTY,)) as server:
        answers = server.infer_all("minilm", requests, at_once=20)
        page = server.metrics()
        assert page.total("headroom_memory_reserved_bytes") == 0
        server.terminate()
        assert server.exit_code() == 0
    good = [(request, answer) for request, answer in zip(requests, answers) if not isinstance(answer, Exception)]
    figure(f"{len(good)} of {len(requests)} answered, {page.total('headroom_out_of_memory_total'):.0f} out of memory")
    assert len(good) > 0.9 * len(requests)
    for request, answer in good:
        np.testing.assert_allclose(answer["embedding"][0], reference(request), atol=1e-4)
    assert {str(a.status()) for a in answers if isinstance(a, Exception)} <= {"StatusCode.RESOURCE_EXHAUSTED"}
    assert page.total("headroom_out_of_memory_total") > 0
