"""What the CUDA path does when its card fails: the whole server on dry cards that are told when to fail (runtime/dry_cuda/dry_cuda.h).
Values mean nothing there and are compared nowhere here."""

from __future__ import annotations

import os

import pytest

from harness import DRY, HEADROOM, Server, eventually, failures, row, run

LOST = 3  # the exit code of a server whose device is lost
TRACES = ("terminate called", "what():", "Exception raised from", "frame #", "core dumped")


class Card:
    """A dry card that can be told to fail, and servers on it."""

    def __init__(self, folder, repository):
        self.file, self.repository = folder / "faults", repository

    def fails(self, *faults: str) -> None:
        """These faults from now on, and no others."""
        part = self.file.with_suffix(".part")
        part.write_text("\n".join(faults))
        os.replace(part, self.file)

    def command(self, memory: str = "640MiB") -> list[object]:
        return [DRY, "--card", memory, "--faults-file", self.file, "--", HEADROOM]

    def server(self, *options: object, memory: str = "640MiB") -> Server:
        return Server(self.repository, "--device", "cuda", *options, program=self.command(memory))


@pytest.fixture
def card(tmp_path, toys):
    # Two rows a batch, so that of many calls most wait.
    return Card(tmp_path, toys("attn", buckets=[32], max_batch_size=2))


def ended_well(server: Server) -> None:
    """It said why, once, and nothing ran that calls into a lost device."""
    log = server.log()
    assert [trace for trace in TRACES if trace in log] == []
    assert len([line for line in log.splitlines() if "a device was lost" in line]) == 1, log


def test_a_tripped_assertion_ends_the_process_with_every_call_answered(card, figure):
    with card.server() as server:
        server.infer("attn", row([1, 2, 3]))
        # Some batches run, slowly, and then one trips.
        card.fails("synchronize_takes_ms=100", "lost_after_launches=50")
        calls = [server.send("attn", row([1] * 8)) for _ in range(24)]
        answers = [call.refusal() for call in calls]
        figure(f"{answers.count('OK')} answered, {answers.count('UNAVAILABLE')} refused")
        assert set(answers) == {"OK", "UNAVAILABLE"}
        assert server.exit_code() == LOST
        ended_well(server)
        assert "device-side assert triggered" in server.log()


def test_a_card_that_does_not_tell_its_memory_ends_the_process(card):
    with card.server() as server:
        server.infer("attn", row([1, 2, 3]))
        card.fails("synchronize_takes_ms=100", "memory_query_fails_after=3")
        calls = [server.send("attn", row([1] * 8)) for _ in range(24)]
        assert set(call.refusal() for call in calls) <= {"OK", "UNAVAILABLE"}
        assert server.exit_code() == LOST
        ended_well(server)
        assert "does not tell its memory" in server.log()


@pytest.mark.parametrize("launches", [0, 1, 10, 30, 50, 70])
def test_a_card_that_is_lost_while_the_server_starts(card, launches, figure):
    card.fails(f"lost_after_launches={launches}")
    server = card.server().spawn()
    try:
        assert eventually(lambda: server.process.poll() is not None or server.ready_file.exists())
        log = server.log()
        assert not server.ready_file.exists(), "more launches than a start takes: nothing was tried"
        said = [line for line in log.splitlines() if line.startswith("headroom: ")]
        figure(f"{launches}: {said}")
        assert server.exit_code() == LOST
        assert [trace for trace in TRACES if trace in log] == []
        assert len(said) == 1 and ("lost" in said[0] or "does not tell its memory" in said[0])
    finally:
        server.stop()
        server.scratch.cleanup()


@pytest.mark.parametrize("queries", [1, 2, 3])
def test_a_card_that_stops_telling_its_memory_while_the_server_starts(card, queries):
    card.fails(f"memory_query_fails_after={queries}")
    server = card.server().spawn()
    try:
        assert server.exit_code() == LOST, server.log()
        assert not server.ready_file.exists()
        assert [trace for trace in TRACES if trace in server.log()] == []
        assert "does not tell its memory" in server.log()
    finally:
        server.stop()
        server.scratch.cleanup()


def test_a_plan_on_a_card_that_is_lost_is_an_error(card):
    card.fails("lost_after_launches=30")
    planned = run(*card.command(), "plan", "--model-repository", card.repository, "--device", "cuda")
    assert planned.returncode > 0
    assert [trace for trace in TRACES if trace in planned.stderr] == []
    assert "attn" in planned.stderr and "lost" in planned.stderr


@pytest.mark.parametrize("fault", ["malloc_fails_every=2", "malloc_fails_at=1 malloc_failures=3", "malloc_fails_every=5 malloc_failures=4"])
def test_memory_that_is_refused_is_survived(card, fault):
    with card.server() as server:
        server.infer("attn", row([1, 2, 3]))
        card.fails(fault)
        calls = [server.send("attn", row([1] * 8)) for _ in range(100)]
        # Whether a call is refused is a matter of how often a batch is tried again.
        assert set(call.refusal() for call in calls) <= {"OK", "RESOURCE_EXHAUSTED"}
        card.fails()
        assert failures(server.infer_all("attn", [row([1] * 8)] * 50, at_once=50)) == []
        assert server.metrics().total("headroom_memory_reserved_bytes", device="cuda:0") == 0
        server.terminate()
        assert server.exit_code() == 0


def test_calls_wait_for_memory_that_others_took_and_run_when_it_comes_back(tmp_path, toys):
    card = Card(tmp_path, toys("big", buckets=[512]))
    with card.server() as server:
        budget = server.metrics().total("headroom_memory_budget_bytes", device="cuda:0")
        card.fails("held_by_others=640MiB")
        assert server.metrics().total("headroom_memory_budget_bytes", device="cuda:0") < budget / 10
        waiting = [server.send("big", row([1] * 512)) for _ in range(20)]
        assert eventually(lambda: server.metrics().total("headroom_queue_rows", model="big") == 20)
        card.fails("held_by_others=100MiB")
        assert {call.refusal() for call in waiting} == {"OK"}
        page = server.metrics()
        assert page.total("headroom_out_of_memory_total") == 0
        assert budget / 10 < page.total("headroom_memory_budget_bytes", device="cuda:0") < budget
        card.fails()
        assert server.metrics().total("headroom_memory_budget_bytes", device="cuda:0") == budget
