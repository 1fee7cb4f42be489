"""More comes than the server can take: who is refused, how soon, and that the others are served."""

from __future__ import annotations

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from harness import FAULTY, Call, Server, eventually, row, rows_of

KEY = "x-caller"
DELAY_MS = 250  # a batch of 4 rows


@pytest.fixture
def overloaded(toys):
    """Starts P behind a slow device with one worker."""
    servers: list[Server] = []

    def start(*options: object, limits: str = "", queue: int = 1000, names: tuple[str, ...] = ("P",)) -> Server:
        repository = toys(*names, buckets=[32], max_batch_size=4)
        for name in names:
            config = repository / name / "config.pbtxt"
            policy = f"dynamic_batching {{ default_queue_policy {{ max_queue_size: {queue} }} }}"
            config.write_text(f"{config.read_text()}\n{policy}\n{limits}\n")
        common = ["--device", "cpu", "--memory-limit", "64MiB", "--workers", 1, "--fault", f"delay_ms={DELAY_MS}"]
        servers.append(Server(repository, *common, *options, program=(FAULTY,)).start())
        return servers[-1]

    yield start
    for server in servers:
        server.stop()
        server.scratch.cleanup()


def learn(server: Server) -> None:
    """What a batch takes is known after a few."""
    for call in [server.send("P", row([n])) for n in range(24)]:
        call.result()


def plug(server: Server, batches: int) -> list[Call]:
    """So much waits that a newcomer waits as long as these batches run."""
    calls = [server.send("P", rows_of(4, [7])) for _ in range(batches)]
    assert eventually(lambda: server.metrics().total("headroom_queue_rows", model="P") >= 4 * (batches - 2))
    return calls


def refused(call: Call) -> str:
    with pytest.raises(InferenceServerException) as error:
        call.result()
    return f"{error.value.status()}: {error.value.message()}"


def refusals(server: Server, reason: str) -> float:
    return server.metrics().total("headroom_load_refusals_total", model="P", reason=reason)


@pytest.mark.parametrize("how", ["timeout", "deadline"])
def test_who_cannot_be_answered_in_time_is_told_at_once(overloaded, how):
    server = overloaded()
    learn(server)
    plugs = plug(server, 12)
    assert server.metrics().total("headroom_predicted_wait_seconds", model="P") > 1
    hopeless = server.send("P", row([5]), **({"timeout": 900_000} if how == "timeout" else {"deadline": 0.9}))
    assert "DEADLINE_EXCEEDED" in refused(hopeless)
    assert not plugs[-1]._answer.done(), "it was told when the queue was empty"
    assert refusals(server, "deadline") == 1
    patient = server.send("P", row([5]), **({"timeout": 90_000_000} if how == "timeout" else {"deadline": 90}))
    assert patient.result()["row"][0].tolist()[:2] == [1, 5]
    assert [call.result()["row"].shape for call in plugs] == [(4, 4)] * 12
    assert server.metrics().total("headroom_late_starts_total", model="P") == 0


def test_who_names_no_time_waits_no_longer_than_the_server_lets_anybody(overloaded):
    server = overloaded("--max-wait-seconds", 1)
    learn(server)
    plugs = [server.send("P", rows_of(4, [7]), timeout=60_000_000) for _ in range(12)]
    assert eventually(lambda: server.metrics().total("headroom_queue_rows", model="P") >= 40)
    answer = refused(server.send("P", row([5]), deadline=None))
    assert "RESOURCE_EXHAUSTED" in answer and "overloaded" in answer
    assert refusals(server, "wait") == 1
    for call in plugs:
        call.result()


def test_no_more_requests_of_a_model_are_inside_than_may_be(overloaded):
    server = overloaded(limits="limits { max_concurrent_requests: 3 }")
    inside = [server.send("P", row([n])) for n in range(3)]
    assert eventually(lambda: server.metrics().total("nv_inference_pending_request_count", model="P") == 3)
    assert "RESOURCE_EXHAUSTED" in refused(server.send("P", row([9])))
    assert [call.result()["row"][0].tolist()[1] for call in inside] == [0, 1, 2]
    assert server.infer("P", row([9]))["row"][0].tolist()[1] == 9
    assert refusals(server, "calls") == 1


def test_what_waits_is_bounded_in_bytes(overloaded):
    server = overloaded(limits="limits { max_queue_bytes: 100000 }")
    runs = server.send("P", row([1]))
    assert eventually(lambda: server.metrics().total("headroom_memory_reserved_bytes") > 0)
    wide = np.ones(32, dtype=np.int64)
    calls = [server.send("P", rows_of(4, wide)) for _ in range(30)]
    states = [call.refusal() for call in calls]
    assert set(states) == {"OK", "RESOURCE_EXHAUSTED"}
    assert refusals(server, "queue") == states.count("RESOURCE_EXHAUSTED")
    runs.result()
    assert server.metrics().total("headroom_queue_bytes", model="P") == 0


def test_the_queues_of_all_models_are_bounded_together(overloaded):
    server = overloaded("--max-queue-rows", 8, names=("P", "no_mask"))
    runs = server.send("P", row([1]))
    assert eventually(lambda: server.metrics().total("headroom_memory_reserved_bytes") > 0)
    waiting = [server.send("P", rows_of(4, [2])), server.send("no_mask", rows_of(3, [2]))]
    assert eventually(lambda: server.metrics().total("headroom_queue_rows") == 7)
    assert server.send("no_mask", rows_of(2, [3])).refusal() == "RESOURCE_EXHAUSTED"
    for call in [runs, *waiting]:
        call.result()
    assert len(server.infer("no_mask", rows_of(2, [3])).outputs) > 0


def test_one_who_pushes_leaves_room_for_the_others(overloaded):
    server = overloaded("--caller-metadata-key", KEY, queue=30)
    learn(server)
    greedy = [server.send("P", row([n]), headers={KEY: "greedy"}) for n in range(200)]
    assert eventually(lambda: server.metrics().total("headroom_queue_rows", model="P") >= 12)
    modest = [server.send("P", row([n]), headers={KEY: f"modest-{n}"}) for n in range(5)]
    assert [call.result()["row"][0].tolist()[1] for call in modest] == [0, 1, 2, 3, 4]
    states = [call.refusal() for call in greedy]
    # Half of 30, and what has run meanwhile.
    assert 12 <= states.count("OK") < 60 and states.count("RESOURCE_EXHAUSTED") == 200 - states.count("OK")
    assert refusals(server, "share") > 100
