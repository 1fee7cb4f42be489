"""ModelStatistics, the nv_inference_ names and the headroom_ families tell of the same requests."""

from __future__ import annotations

import shutil
import time

import pytest
from harness import CALL_SECONDS, FAULTY, Page, Server, eventually, row, rows_of
from test_streams import Stream, request, told
from tritonclient.grpc import service_pb2
from tritonclient.utils import InferenceServerException

POISON = 13
FAILURES = {
    "REJECTED": ("queue_full", "over_budget", "expired", "unavailable"),
    "CANCELED": ("cancelled",),
    "BACKEND": ("failed",),
    "OTHER": ("invalid", "not_found"),
}


def triton(page: Page, name: str, **labels: str) -> float:
    """The counter nv_inference_<name>; the parser gives counters the ending that these lack."""
    return page.total(f"nv_inference_{name}_total", **labels)


def statistics(server: Server, model: str, version: str = "") -> service_pb2.ModelStatistics:
    (told_of,) = server.client.get_inference_statistics(model, version, client_timeout=CALL_SECONDS).model_stats
    return told_of


def agree(server: Server, model: str, version: str) -> bool:
    """At rest all three say the same."""
    page, stats = server.metrics(), statistics(server, model)
    spent = stats.inference_stats
    of = {"model": model, "version": version}
    ours = {outcome: n for (outcome,), n in page.series("headroom_requests_total", model=model).items()}
    success = triton(page, "request_success", **of)
    failed = {reason: triton(page, "request_failure", reason=reason, **of) for reason in FAILURES}
    durations = {
        "request_duration_us": spent.success,
        "queue_duration_us": spent.queue,
        "compute_input_duration_us": spent.compute_input,
        "compute_infer_duration_us": spent.compute_infer,
        "compute_output_duration_us": spent.compute_output,
    }
    return (
        page.total("headroom_requests_received_total", model=model) == sum(ours.values())
        and page.total("nv_inference_pending_request_count", **of) == 0
        and success == ours["ok"] == spent.success.count
        and spent.success.count == spent.queue.count == spent.compute_input.count
        and spent.compute_input.count == spent.compute_infer.count == spent.compute_output.count
        and all(failed[reason] == sum(ours[outcome] for outcome in outcomes) for reason, outcomes in FAILURES.items())
        and sum(failed.values()) == spent.fail.count
        and triton(page, "count", **of) == page.total("headroom_batch_rows_sum", model=model) == stats.inference_count
        and triton(page, "exec_count", **of) == page.total("headroom_batches_total", model=model) == stats.execution_count
        and all(triton(page, name, **of) == duration.ns // 1000 for name, duration in durations.items())
        and sum(batch.batch_size * batch.compute_infer.count for batch in stats.batch_stats) == stats.inference_count
        and sum(batch.compute_input.count for batch in stats.batch_stats) == stats.execution_count
    )


@pytest.fixture
def server(toys):
    faults = ["--fault", "delay_ms=20", "--fault", f"throw_on_id={POISON}"]
    options = ["--device", "cpu", "--memory-limit", "1GiB", "--workers", 2, "--model-control", "on"]
    with Server(toys("P", "attn", buckets=[32], max_batch_size=4), *options, *faults, program=(FAULTY,)) as server:
        yield server


def test_all_three_agree_after_a_mixed_load(server):
    fresh = statistics(server, "P")
    assert fresh.version == "1" and fresh.last_inference == 0
    assert fresh.inference_count == fresh.execution_count == fresh.inference_stats.success.count == 0
    began = time.time()
    calls = [server.send("P", row([n + 20])) for n in range(20)] + [server.send("P", rows_of(6, [5])) for _ in range(5)]
    bad = [server.send("P", row([1000])), server.send("P", row([POISON])), server.send("P", row([5]), timeout=1)]
    given_up = server.send("P", row([6]))
    given_up.cancel()
    with Stream(server) as stream:
        stream.send(request([5]), request([1000]), request([POISON]), request([6]))
        stream.half_close()
        assert [told(answer)[1] for answer in stream.rest()] == ["OK", "INVALID_ARGUMENT", "INTERNAL", "OK"]
    assert [call.refusal() for call in calls] == ["OK"] * 25
    assert [call.refusal() for call in bad[:2]] == ["INVALID_ARGUMENT", "INTERNAL"]
    bad[2].refusal(), given_up.refusal()
    assert server.send("P", row([5]), model_version="7").refusal() == "NOT_FOUND"
    assert eventually(lambda: agree(server, "P", "1"))
    after = statistics(server, "P")
    assert after.inference_stats.success.count >= 27 and after.inference_stats.fail.count >= 5
    assert after.inference_stats.compute_infer.ns >= 27 * 20_000_000
    assert after.inference_stats.queue.ns > 0 < after.inference_stats.compute_output.ns
    assert began * 1000 - 1 <= after.last_inference <= time.time() * 1000 + 1
    # Nothing was asked of the other.
    assert agree(server, "attn", "1") and statistics(server, "attn").inference_count == 0
    assert statistics(server, "P", "1").inference_count == after.inference_count


def test_an_empty_name_is_every_model_and_an_unknown_one_is_not_found(server):
    everything = server.client.get_inference_statistics(client_timeout=CALL_SECONDS).model_stats
    assert sorted(stats.name for stats in everything) == ["P", "attn"]
    for name, version in (("no_such_model", ""), ("P", "2")):
        with pytest.raises(InferenceServerException) as refused:
            statistics(server, name, version)
        assert "NOT_FOUND" in str(refused.value.status())


def test_a_new_version_begins_at_zero_and_the_old_ones_counts_stay(server):
    for n in range(3):
        server.infer("P", row([n + 1]))
    shutil.copytree(server.repository / "P" / "1", server.repository / "P" / "2")
    server.client.load_model("P", client_timeout=CALL_SECONDS)
    fresh = statistics(server, "P")
    assert fresh.version == "2" and fresh.inference_count == 0 and not fresh.batch_stats
    server.infer("P", row([5]))

    def counted(page: Page) -> list[float]:
        return [triton(page, "request_success", model="P", version=version) for version in ("1", "2")]

    assert eventually(lambda: counted(server.metrics()) == [3, 1])
    assert statistics(server, "P").inference_stats.success.count == 1
    assert server.metrics().total("headroom_requests_total", model="P", outcome="ok") == 4
