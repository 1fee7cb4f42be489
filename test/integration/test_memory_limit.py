"""A container that leaves a process 256 MiB beyond what it takes at rest: the burst that ends every naive server is answered.

Where the machine lets us, the limit is the kernel's: a memory control group that the process is moved into once it is idle. What it
has touched before stays charged to where it came from, so that a group of 256 MiB is idle + 256 MiB, and a process that passes it is
killed. Where it does not, the kernel's own record of the most that was resident (VmHWM) is compared with that sum. RLIMIT_AS and
RLIMIT_DATA would be something else: they count addresses that are only reserved (stacks, heaps of threads, mapped libraries), of which
a process with libtorch has gigabytes, and no container counts them.
"""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness import EXIT_SECONDS, HEADROOM, Server, failures, incident_lengths, random_ids, row, run

MIB = 1 << 20
BEYOND_IDLE = 256 * MIB
GROUPS = Path("/sys/fs/cgroup")


@contextmanager
def limited(server: Server, limit: int) -> Iterator[Path | None]:
    """Moves the process into a group of its own; None where the machine does not let us."""
    for root, limit_file in ((GROUPS, "memory.max"), (GROUPS / "memory", "memory.limit_in_bytes")):
        group = root / f"headroom-test-{server.process.pid}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            if not (group / limit_file).exists():  # a plain folder: the hierarchy is mounted elsewhere
                raise OSError
            (group / limit_file).write_text(str(limit))
            (group / "cgroup.procs").write_text(str(server.process.pid))
        except OSError:
            group.rmdir()
            continue
        try:
            yield group
        finally:
            server.stop()  # a group can be removed once it is empty
            group.rmdir()
        return
    yield None


def resident(server: Server, field: str) -> int:
    lines = Path(f"/proc/{server.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) << 10


def is_healthy(server: Server) -> bool:
    with urllib.request.urlopen(f"http://{server.http}/readyz", timeout=EXIT_SECONDS) as reply:
        ready = reply.status == 200
    return ready and run(HEADROOM, "health", "--address", server.grpc).returncode == 0


def test_a_burst_beyond_the_containers_memory_is_answered(minilm, minilm_server, random, figure):
    # The figure that the server is told is what it may have for tensors, its weights among them: what is left of 256 MiB beyond them,
    # a fifth of which batches leave alone, is for requests and for what libraries take unseen.
    with Server(minilm.repository, *minilm.options(BEYOND_IDLE)) as server:
        mix = [row(random_ids(random, length)) for length in incident_lengths(random, 96)]
        burst = [row(random_ids(random, 512)) for _ in range(32)]
        idle = resident(server, "VmRSS")
        Path(f"/proc/{server.process.pid}/clear_refs").write_text("5")  # the most resident so far is forgotten
        with limited(server, BEYOND_IDLE) as group:
            for name, requests in (("the mix", mix[:64]), ("the burst", burst), ("the mix again", mix[64:])):
                assert failures(server.infer_all("minilm", requests, len(requests))) == [], name
                assert server.process.poll() is None
            assert is_healthy(server)
            grown = resident(server, "VmHWM") - idle
            page = server.metrics()
            kept = "by a control group" if group else "by nobody: the machine has no control groups for us"
            figure(f"idle {idle / MIB:.0f} MiB, {grown / MIB:.0f} MiB more at most; the limit of {BEYOND_IDLE / MIB:.0f} MiB was kept {kept};"
                   f" {page.total('headroom_batch_splits_total', reason='memory'):.0f} batches were split by memory")
            assert grown <= BEYOND_IDLE
            assert page.total("headroom_requests_total", model="minilm", outcome="ok") == 128
            assert page.total("headroom_out_of_memory_total") == 0
