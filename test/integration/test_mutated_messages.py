"""A live server and damaged messages: it lives, says whose fault it is, and serves everybody else meanwhile.

The figure is of a million messages: `build/release/headroom_mutated_messages HOST:PORT 1000000`. This is its short form.
"""

from __future__ import annotations

import re

from harness import BUILD, Server, run

MUTATED = BUILD / "headroom_mutated_messages"
MESSAGES = 20_000


def test_damaged_messages_are_refused_and_hurt_nobody(toys, figure):
    repository = toys("P", "attn", "identity", "two_outputs", "no_mask", buckets=[8, 64])
    with Server(repository, "--device", "cpu", "--memory-limit", "256MiB", "--workers", 2) as server:
        done = run(MUTATED, server.grpc, MESSAGES, "rounds=2", "seconds=1", f"pid={server.process.pid}")
        for line in done.stdout.splitlines():
            figure(line[:300])
        assert done.returncode == 0, done.stdout + done.stderr
        answered = {status: int(count) for status, count in re.findall(r"([A-Z_]+) (\d+)", re.search("damaged: .*", done.stdout)[0])}
        # Most are refused as the client's fault; some are as good as they were.
        assert answered["INVALID_ARGUMENT"] > MESSAGES / 4 and answered["OK"] > MESSAGES / 100
        assert server.process.poll() is None
        assert server.metrics().total("headroom_requests_total", outcome="failed") == 0
