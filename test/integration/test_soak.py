"""The soak of bench/ in its short form: two rounds of seconds instead of a day of them."""

from __future__ import annotations

import json
import sys

from harness import FAULTY, HEADROOM, ROOT, run


def soak(repository, server, *options):
    return run(sys.executable, ROOT / "bench" / "soak.py", "--short", "--server", server, "--repository", repository, "--model", "P",
               "--rate", 100, *options)


def test_memory_at_rest_is_what_it_was(toys, figure):
    repository = toys("P", buckets=[32, 64, 128, 256, 512])
    done = soak(repository, HEADROOM, "--", "--device", "cpu", "--memory-limit", "256MiB")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    figure(f"{told['calls']} calls, resident {told['resident_growth']}")
    assert told["faults"] == [] and told["rounds"] == 2 and told["calls"] > 1000
    assert all(rest["reserved"] == 0 and rest["received"] == rest["answered"] for rest in told["rests"])
    assert told["rests"][-1]["received"] >= 0.99 * told["calls"]


def test_a_server_at_fault_does_not_pass(toys):
    repository = toys("P", buckets=[32, 64, 128, 256, 512])
    done = soak(repository, FAULTY, "--rounds", "1", "--", "--device", "cpu", "--fault", "throw_on_id=7")
    assert done.returncode == 1
    assert any("long_tail.py ended with 1" in fault for fault in json.loads(done.stdout)["faults"])
