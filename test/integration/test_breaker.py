"""A caller whose requests are mostly wrong is refused for a while; nobody else is."""

from __future__ import annotations

import grpc
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

from harness import CALL_SECONDS, Server, eventually

KEY = "x-caller"


def request(length: int) -> service_pb2.ModelInferRequest:
    made = service_pb2.ModelInferRequest(model_name="P")
    made.inputs.add(name="input_ids", datatype="INT64", shape=[1, length]).contents.int64_contents.extend([1] * length)
    return made


GOOD, TOO_LONG = request(5), request(40)


@pytest.fixture
def server(toys):
    options = ["--device", "cpu", "--memory-limit", "64MiB", "--caller-metadata-key", KEY, "--breaker-cool-down-seconds", 2]
    with Server(toys("P", buckets=[32]), *options) as server:
        yield server


def test_a_caller_of_mostly_wrong_requests_is_refused_for_a_while(server):
    with grpc.insecure_channel(server.grpc) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)

        def ended(message: service_pb2.ModelInferRequest, caller: str | None) -> tuple[str, str | None]:
            """The status of a call, and its retry hint."""
            try:
                stub.ModelInfer(message, timeout=CALL_SECONDS, metadata=[(KEY, caller)] if caller else None)
            except grpc.RpcError as error:
                return error.code().name, dict(error.trailing_metadata()).get("grpc-retry-pushback-ms")
            return "OK", None

        assert [ended(TOO_LONG, "broken") for _ in range(20)] == [("INVALID_ARGUMENT", None)] * 20
        # Right or wrong, it is refused now, and told for how long.
        for message in (TOO_LONG, GOOD):
            status, retry = ended(message, "broken")
            assert status == "RESOURCE_EXHAUSTED" and 0 < int(retry) <= 2000
        assert [ended(TOO_LONG, None)[0] for _ in range(30)] == ["INVALID_ARGUMENT"] * 30
        assert ended(GOOD, "sound") == ended(GOOD, None) == ("OK", None)
        page = server.metrics()
        assert page.total("headroom_breaker_open_callers") == 1
        assert page.total("headroom_breaker_refusals_total") == 2
        assert page.total("headroom_requests_total", model="P", outcome="queue_full") == 2
        assert server.log().count("mostly invalid") == 1

        assert eventually(lambda: ended(GOOD, "broken") == ("OK", None))
        assert ended(GOOD, "broken") == ("OK", None)
        assert server.metrics().total("headroom_breaker_open_callers") == 0
