"""Memory that leaks is told, and memory that does not leak is not: what many calls of a small model leave behind.

The short form runs with the others. The long one takes minutes: `pytest -m slow test/integration/test_leak.py`.
"""

from __future__ import annotations

import subprocess
import threading
from dataclasses import dataclass

import pytest

from harness import FAULTY, MANY_CALLS, Page, Server

LEAK = 64
SETTLED = 500_000  # calls after which threads, malloc's arenas and tables have found their size


@dataclass
class Ran:
    """What many calls left."""

    page: Page
    log: str

    def of_resident(self, name: str) -> float:
        return self.page.total(name, device="host", memory="resident")

    def alarms(self) -> list[str]:
        return [line for line in self.log.splitlines() if "memory leaks" in line]


def serve(repository, leak: int = 0) -> Server:
    # One row a batch: every call is a run, so that every call leaks.
    options = ["--device", "cpu", "--memory-limit", "256MiB", "--workers", 2]
    if leak:
        options += ["--fault", f"leak_bytes={leak}"]
    return Server(repository, *options, program=(FAULTY,))


def call(server: Server, calls: int, in_flight: int, rate: float | None = None) -> None:
    words = [MANY_CALLS, server.grpc, "identity", calls, in_flight, *([rate] if rate else [])]
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=1200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def ran(server: Server) -> Ran:
    return Ran(server.metrics(), server.log())


def test_a_planted_leak_is_told_and_no_other(toys, figure):
    repository = toys("identity", max_batch_size=1)
    found: dict[int, Ran] = {}

    def watch(leak: int) -> None:
        with serve(repository, leak) as server:
            # The detector's power is shown at 200,000 calls by its unit test, on made-up series. A busy machine's are rougher than
            # those, hence a quarter more. At this rate the calls make about 70 samples.
            call(server, 250_000, in_flight=4, rate=7000)
            found[leak] = ran(server)

    threads = [threading.Thread(target=watch, args=[leak]) for leak in (0, LEAK)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    clean, leaking = found[0], found[LEAK]

    for which, result in (("clean", clean), ("leaking", leaking)):
        figure(f"{which}: {result.of_resident('headroom_memory_leak_bytes_per_call'):.1f} bytes a call, confidence"
               f" {result.of_resident('headroom_memory_leak_confidence_ratio'):.4f}")
    assert leaking.of_resident("headroom_memory_leak_found") == 1
    assert LEAK / 1.5 <= leaking.of_resident("headroom_memory_leak_bytes_per_call") <= LEAK * 1.5
    assert len(leaking.alarms()) == 1
    assert 0 < leaking.page.total("headroom_memory_exhaustion_seconds", device="host") < float("inf")

    assert clean.page.total("headroom_memory_leak_found") == 0
    assert clean.alarms() == []
    assert clean.page.total("headroom_memory_exhaustion_seconds", device="host") == float("inf")


@pytest.mark.slow
@pytest.mark.parametrize("leak", [0, LEAK])
def test_a_million_calls_leave_at_most_a_byte_each(toys, figure, leak):
    repository = toys("identity", max_batch_size=1)
    calls = 1_000_000
    with serve(repository, leak) as server:
        call(server, SETTLED, in_flight=16)
        before = ran(server).of_resident("headroom_memory_at_rest_bytes")
        call(server, calls, in_flight=16)
        result = ran(server)
    growth = (result.of_resident("headroom_memory_at_rest_bytes") - before) / calls
    figure(f"leak of {leak}: {growth:.2f} bytes a call, {len(result.alarms())} alarms")
    if leak:
        assert growth > 1
        assert len(result.alarms()) == 1
    else:
        assert growth <= 1
        assert result.alarms() == []
