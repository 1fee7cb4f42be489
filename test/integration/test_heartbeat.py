"""A device that fails while nobody calls is found all the same."""

from __future__ import annotations

from harness import FAULTY, Server

DEVICE_LOST = 3  # the exit code


def test_a_device_that_stops_telling_its_memory_ends_an_idle_server(toys):
    options = ["--device", "cpu", "--memory-limit", "256MiB", "--fault", "memory_query_fails_after=3"]
    with Server(toys("P", buckets=[32]), *options, program=(FAULTY,)) as server:
        # It was ready; not one call is made.
        assert server.exit_code() == DEVICE_LOST
        said = [line for line in server.log().splitlines() if "a device was lost" in line]
        assert len(said) == 1 and "device=cpu" in said[0]
