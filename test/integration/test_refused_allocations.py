"""Out of memory at every tensor allocation of the running server in turn."""

from __future__ import annotations

import numpy as np
import pytest

from harness import FAULTY, Server, row


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
