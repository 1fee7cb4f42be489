"""The host's memory runs out: while a message is parsed, while its rows are queued, while a batch is put together.

The fault makes every large allocation of the program fail; in each test one step alone needs one that is large.
"""

from __future__ import annotations

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from harness import FAULTY, Server, eventually, row, rows_of

KIB = 1 << 10


def start(repository, limit: int, *more: object) -> Server:
    options = ["--device", "cpu", "--workers", 1, "--memory-limit", "512MiB", "--fault", f"host_alloc_fails_over={limit}", *more]
    return Server(repository, *options, program=(FAULTY,))


def refusal(server: Server, model: str, inputs: dict) -> str:
    with pytest.raises(InferenceServerException) as error:
        server.infer(model, inputs)
    assert str(error.value.status()) == "StatusCode.RESOURCE_EXHAUSTED"
    return error.value.message()


def goes_on(server: Server) -> bool:
    return server.infer("P", row([1, 2, 3]))["row"][0, :2].tolist() == [3, 6] and server.process.poll() is None


def test_while_a_message_is_parsed(toys):
    with start(toys("P", buckets=[1 << 16], padding="MULTIPLE_OF_8"), 256 * KIB) as server:
        assert "no memory left" in refusal(server, "P", row(np.ones(1 << 16)))  # 512 KiB
        assert goes_on(server)
        page = server.metrics()
        assert page.total("headroom_requests_total", model="P", outcome="over_budget") == 1
        assert page.total("headroom_requests_total", model="P", outcome="ok") == 1
        assert page.total("headroom_requests_received_total", model="P") == 2


def test_while_rows_are_queued(toys):
    # 4,000 rows are 32 KB of ids and 128 KB of rows, and the queue makes room for twice as many as come: 192 KB.
    with start(toys("P", buckets=[32], max_queue_size=5000), 160 * KIB) as server:
        assert "no memory left" in refusal(server, "P", rows_of(4000, [7]))
        assert goes_on(server)
        page = server.metrics()
        assert page.total("headroom_queue_rows", model="P") == 0
        assert page.total("headroom_requests_total", model="P", outcome="over_budget") == 1
        assert page.total("headroom_requests_received_total", model="P") == 2


def test_while_a_batch_is_put_together(toys):
    # A row of 8,192 is 64 KiB. While the first runs the others wait; 7 are put together in 448 KiB, halves of them in 256.
    with start(toys("P", buckets=[1 << 13], max_batch_size=8), 300 * KIB, "--fault", "delay_ms=500") as server:
        calls = [server.send("P", row(np.ones(8192)))]
        assert eventually(lambda: server.metrics().total("headroom_memory_reserved_bytes") > 0)
        calls += [server.send("P", row(np.ones(8192))) for _ in range(7)]
        assert [call.result()["row"][0, 0] for call in calls] == [8192] * 8
        assert server.metrics().total("headroom_out_of_memory_total", model="P") >= 1
        assert goes_on(server)
