"""ModelStreamInfer: many calls in flight, answers in the order of the requests, and what becomes of a stream that goes wrong."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Sequence

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton
from harness import CALL_SECONDS, FAULTY, Server, eventually, row, tensors
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException

POISON = 13  # a token on which the model throws


def request(ids: Sequence[int], id: str = "", model: str = "P", **parameters: int | bool) -> service_pb2.ModelInferRequest:
    made = service_pb2.ModelInferRequest(model_name=model, id=id)
    made.inputs.add(name="input_ids", datatype="INT64", shape=[1, len(ids)]).contents.int64_contents.extend(ids)
    for name, value in parameters.items():
        if isinstance(value, bool):
            made.parameters[name].bool_param = value
        else:
            made.parameters[name].int64_param = value
    return made


class Stream:
    """A stream that sends when it is told to, and reads when it is asked for an answer."""

    def __init__(self, server: Server, timeout: float = CALL_SECONDS, raw: bool = False, caller: str = "") -> None:
        self._requests: queue.Queue = queue.Queue()
        # A connection of its own, whose window stays as small as it begins: 64 KiB.
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 65_535)]
        self._channel = grpc.insecure_channel(server.grpc, options=options)
        method = service_pb2_grpc.GRPCInferenceServiceStub(self._channel).ModelStreamInfer
        if raw:
            method = self._channel.stream_stream(
                "/inference.GRPCInferenceService/ModelStreamInfer",
                request_serializer=bytes,
                response_deserializer=service_pb2.ModelStreamInferResponse.FromString,
            )
        metadata = [("x-caller", caller)] if caller else None
        self.call = method(iter(self._requests.get, None), timeout=timeout, metadata=metadata)

    def send(self, *messages: object) -> None:
        for message in messages:
            self._requests.put(message)

    def half_close(self) -> None:
        self._requests.put(None)

    def answers(self, count: int) -> list[service_pb2.ModelStreamInferResponse]:
        return [next(self.call) for _ in range(count)]

    def rest(self) -> list[service_pb2.ModelStreamInferResponse]:
        return list(self.call)

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.call.cancel()
        self._requests.put(None)
        self._channel.close()


def told(answer: service_pb2.ModelStreamInferResponse) -> tuple[str, str]:
    """Whose answer it is, and OK or the code of its error."""
    parameters = answer.infer_response.parameters
    assert bool(answer.error_message) == ("status" in parameters)
    return answer.infer_response.id, parameters["status"].string_param if answer.error_message else "OK"


def sums(answers: Sequence[service_pb2.ModelStreamInferResponse]) -> list[float]:
    return [float(triton.InferResult(answer.infer_response).as_numpy("row")[0, 1]) for answer in answers]


def waiting(server: Server) -> float:
    return server.metrics().total("headroom_queue_rows", model="P")


def outcomes(server: Server) -> dict[str, float]:
    return {outcome: n for (outcome,), n in server.metrics().series("headroom_requests_total", model="P").items() if n}


def plug(server: Server) -> object:
    """Keeps the only worker busy: whatever comes now waits."""
    call = server.send("P", row([1, 2, 3]))
    assert eventually(lambda: server.metrics().total("headroom_memory_reserved_bytes") > 0)
    return call


def at_rest(server: Server) -> bool:
    page = server.metrics()
    stages = page.series("headroom_stage_memory_bytes")
    return not any(stages.values()) and page.total("nv_inference_pending_request_count") == 0 and waiting(server) == 0


OPTIONS = ["--device", "cpu", "--memory-limit", "1GiB"]


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """P on two workers, a few rows a batch; batches take a while, and those with a poisoned row are run again in parts."""
    import make_models

    repository = tmp_path_factory.mktemp("mixed")
    make_models.make("P", repository, buckets=[32], max_batch_size=4)
    make_models.make("two_outputs", repository, buckets=[512])
    faults = ["--fault", "delay_ms=5", "--fault", f"throw_on_id={POISON}"]
    with Server(repository, *OPTIONS, "--workers", 2, *faults, program=(FAULTY,)) as server:
        yield server


@pytest.fixture
def slow(toys) -> Iterator[Server]:
    """P with one worker, each of whose batches takes a second."""
    options = [*OPTIONS, "--workers", 1, "--drain-seconds", 300, "--fault", "delay_ms=1000"]
    with Server(toys("P", buckets=[32], max_batch_size=4), *options, program=(FAULTY,)) as server:
        yield server


def test_answers_come_in_the_order_of_the_requests_whatever_becomes_of_them(mixed, random):
    kinds = random.choice(["ok", "invalid", "poison", "expired", "unknown"], size=300, p=[0.6, 0.1, 0.1, 0.1, 0.1])
    made = {
        "ok": lambda id: request([int(id) % 900 + 20, 2], id),
        "invalid": lambda id: request([1000], id),
        "poison": lambda id: request([POISON, 2], id),
        "expired": lambda id: request([7], id, timeout=1),
        "unknown": lambda id: request([7], id, model="no_such_model"),
    }
    codes = {"ok": "OK", "invalid": "INVALID_ARGUMENT", "poison": "INTERNAL", "expired": "DEADLINE_EXCEEDED", "unknown": "NOT_FOUND"}
    with Stream(mixed) as stream:
        stream.send(*(made[kind](str(n)) for n, kind in enumerate(kinds)))
        stream.half_close()
        answers = stream.rest()
        assert stream.call.code() == grpc.StatusCode.OK
    got = [told(answer) for answer in answers]
    assert [id for id, _ in got] == [str(n) for n in range(300)]
    for kind, (id, code) in zip(kinds, got, strict=True):
        # One microsecond may be enough where a worker is free at once.
        assert code == codes[kind] or (kind == "expired" and code == "OK"), (kind, id)
    right = [(n, answer) for n, (kind, answer) in enumerate(zip(kinds, answers, strict=True)) if kind == "ok"]
    assert sums([answer for _, answer in right]) == [n % 900 + 22 for n, _ in right]
    assert eventually(lambda: at_rest(mixed))


def test_many_streams_at_once_do_not_mix(mixed):
    def ask(base: int, got: list[float]) -> None:
        with Stream(mixed) as stream:
            stream.send(*(request([base + n, 2]) for n in range(60)))
            stream.half_close()
            got += sums(stream.rest())

    results: list[list[float]] = [[] for _ in range(8)]
    threads = [threading.Thread(target=ask, args=(100 * (i + 1), got)) for i, got in enumerate(results)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [[100 * (i + 1) + n + 2 for n in range(60)] for i in range(8)]


def test_a_client_of_tritons_sees_its_errors_and_goes_on(mixed):
    answers: queue.Queue = queue.Queue()
    with triton.InferenceServerClient(mixed.grpc) as client:
        client.start_stream(lambda result, error: answers.put((result, error)))
        for ids in ([5], [1000], [7]):
            client.async_stream_infer("P", tensors(row(ids)), enable_empty_final_response=True)
        got = [answers.get(timeout=CALL_SECONDS) for _ in range(3)]
        client.stop_stream()
    assert isinstance(got[1][1], InferenceServerException) and "input_ids" in str(got[1][1])
    for result, error in (got[0], got[2]):
        assert error is None
        # There is one answer a request, so each is the last.
        assert result.get_response().parameters["triton_final_response"].bool_param is True
    assert [got[i][0].as_numpy("row")[0, 1] for i in (0, 2)] == [5, 7]


def test_what_is_no_message_is_one_calls_error_and_not_the_streams(mixed):
    with Stream(mixed, raw=True) as stream:
        good = request([5, 6], "good").SerializeToString()
        # The id comes before what is wrong: it is known.
        stream.send(good, b"\xff\xff\xff", b"\x1a\x05later" + b"\x2a\x7f", b"", good)
        stream.half_close()
        got = [told(answer) for answer in stream.rest()]
        assert stream.call.code() == grpc.StatusCode.OK
    assert got == [("good", "OK"), ("", "INVALID_ARGUMENT"), ("later", "INVALID_ARGUMENT"), ("", "NOT_FOUND"), ("good", "OK")]


def test_a_cancelled_stream_frees_its_rows(slow):
    first = plug(slow)
    with Stream(slow) as stream:
        stream.send(*(request([n + 1]) for n in range(20)))
        assert eventually(lambda: waiting(slow) == 20)
        stream.call.cancel()
        # The worker is still busy with the first.
        assert eventually(lambda: waiting(slow) == 0)
    assert first.refusal() == "OK"
    assert eventually(lambda: outcomes(slow) == {"ok": 1, "cancelled": 20})
    assert slow.metrics().total("headroom_batch_rows_sum", model="P") == 1
    assert eventually(lambda: at_rest(slow))


def test_deadlines_of_the_stream_and_of_its_calls_both_count(slow):
    first = plug(slow)
    with Stream(slow) as patient, Stream(slow, timeout=0.3) as hasty:
        patient.send(request([4], "short", timeout=100_000), request([5], "long"))
        hasty.send(request([6]), request([7]))
        assert told(patient.answers(1)[0]) == ("short", "DEADLINE_EXCEEDED")
        with pytest.raises(grpc.RpcError) as ended:
            hasty.rest()
        assert ended.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        assert eventually(lambda: waiting(slow) <= 1)
        assert told(patient.answers(1)[0]) == ("long", "OK")
    assert first.refusal() == "OK"
    # gRPC tells of a deadline as of a cancellation.
    assert eventually(lambda: sum(outcomes(slow).values()) == 5)
    assert outcomes(slow)["ok"] == 2 and slow.metrics().total("headroom_batch_rows_sum", model="P") == 2


def test_a_drain_answers_what_a_stream_was_promised_and_waits_for_no_idle_one(slow):
    first = plug(slow)
    with Stream(slow) as idle, Stream(slow) as working:
        idle.send(request([3], "before"))
        working.send(*(request([10 + n], str(n)) for n in range(6)))
        assert eventually(lambda: waiting(slow) == 7)
        slow.terminate()
        assert eventually(lambda: "draining" in slow.log())
        working.send(request([9], "late"))
        assert [told(answer) for answer in working.answers(7)] == [(str(n), "OK") for n in range(6)] + [("late", "UNAVAILABLE")]
        assert told(idle.answers(1)[0]) == ("before", "OK")
        assert first.refusal() == "OK"
        # Both streams are still open, for as long as their clients like.
        assert slow.exit_code() == 0


def test_a_client_that_does_not_read_holds_no_more_than_a_few_answers(toys):
    options = [*OPTIONS, "--max-stream-calls", 4]
    with Server(toys("two_outputs", buckets=[512], max_batch_size=16), *options) as server, Stream(server) as stream:
        big = service_pb2.ModelInferRequest(model_name="two_outputs")
        big.inputs.add(name="input_ids", datatype="INT64", shape=[16, 512])
        big.raw_input_contents.append(np.ones((16, 512), np.int64).tobytes())
        calls = 100  # of 32 KiB answers

        def received() -> float:
            return server.metrics().total("headroom_requests_received_total", model="two_outputs")

        stream.send(*[big] * calls)
        assert eventually(lambda: received() >= 4)
        # Others are served meanwhile, for much longer than all hundred would take.
        for n in range(200):
            assert server.infer("two_outputs", row([n + 1]))["pooled"][0, 0] == n + 1
        # Four are open; what the connection's window took besides has been written.
        taken = received() - 200
        assert taken < calls / 2
        page = server.metrics()
        assert page.total("headroom_requests_total", model="two_outputs", outcome="ok") >= 200
        assert page.total("headroom_stage_memory_bytes", stage="reply") <= 4 * 2 * 40_000
        # Once it reads, it gets everything.
        stream.half_close()
        assert len(stream.rest()) == calls
        assert stream.call.code() == grpc.StatusCode.OK
        assert eventually(lambda: not any(server.metrics().series("headroom_stage_memory_bytes").values()))


def test_the_breaker_counts_a_streams_calls_one_by_one(toys):
    options = [*OPTIONS, "--caller-metadata-key", "x-caller"]
    with Server(toys("P", buckets=[32]), *options) as server, Stream(server, caller="broken") as stream:
        stream.send(*[request([1] * 40)] * 20, request([5], "late"))
        answers = stream.answers(21)
        assert [told(answer)[1] for answer in answers] == ["INVALID_ARGUMENT"] * 20 + ["RESOURCE_EXHAUSTED"]
        assert 0 < answers[-1].infer_response.parameters["retry_after_ms"].int64_param <= 10_000
        assert "retry_after_ms" not in answers[0].infer_response.parameters
