"""The host's memory is a budget too: a flood of large requests is refused, and the process does not grow beyond what it was given."""

from __future__ import annotations

import asyncio
import collections
from pathlib import Path

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

from harness import CALL_SECONDS, FAULTY, Server, eventually, row, rows_of

MIB = 1 << 20
LENGTH = 1 << 17  # 8 rows of so many INT64 ids are 8 MiB
LARGE = rows_of(8, np.arange(LENGTH) % 999)
HOST_LIMIT = 64 * MIB
# What else may come and go in the process: one batch's tensors, pages of the heap that are not given back at once, threads.
ALLOWANCE = 64 * MIB
CALLS = 120
REFUSED = grpc.StatusCode.RESOURCE_EXHAUSTED


def message(inputs: dict[str, np.ndarray]) -> service_pb2.ModelInferRequest:
    made = service_pb2.ModelInferRequest(model_name="P")
    for name, array in inputs.items():
        made.inputs.add(name=name, datatype="INT64", shape=array.shape)
        made.raw_input_contents.append(array.tobytes())
    return made


def memory(server: Server, field: str) -> int:
    """A figure of /proc/PID/status in bytes: VmRSS, or VmHWM, the most that it has been."""
    lines = Path(f"/proc/{server.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) << 10


@pytest.fixture
def server(toys):
    """The queue has room for 1,024 rows, a gigabyte of such requests; each batch takes a third of a second."""
    repository = toys("P", buckets=[LENGTH], max_batch_size=4)
    options = ["--device", "cpu", "--memory-limit", "256MiB", "--host-memory-limit", HOST_LIMIT]
    options += ["--workers", 1, "--fault", "delay_ms=300"]
    with Server(repository, *options, program=(FAULTY,)) as server:
        yield server


def call(server: Server, request: service_pb2.ModelInferRequest) -> grpc.RpcError | None:
    with grpc.insecure_channel(server.grpc) as channel:
        try:
            service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer(request, timeout=CALL_SECONDS)
        except grpc.RpcError as error:
            return error
    return None


def pushback(error: grpc.RpcError) -> int | None:
    return next((int(value) for name, value in error.trailing_metadata() if name == "grpc-retry-pushback-ms"), None)


def flood(server: Server) -> list[grpc.RpcError | None]:
    """How each of many large calls, over a few connections at once, ended."""
    request = message(LARGE)

    async def send_all() -> list[grpc.RpcError | None]:
        channels = [grpc.aio.insecure_channel(server.grpc, [("grpc.use_local_subchannel_pool", 1)]) for _ in range(4)]
        stubs = [service_pb2_grpc.GRPCInferenceServiceStub(channel) for channel in channels]

        async def send(index: int) -> grpc.RpcError | None:
            try:
                await stubs[index % len(stubs)].ModelInfer(request, timeout=CALL_SECONDS)
            except grpc.RpcError as error:
                return error
            return None

        try:
            return await asyncio.gather(*(send(index) for index in range(CALLS)))
        finally:
            for channel in channels:
                await channel.close()

    return asyncio.run(send_all())


def test_a_flood_of_large_requests_is_refused_and_does_not_grow_the_process(server, figure):
    # Once alone, so that the heap and the threads are what they will be.
    assert call(server, message(LARGE)) is None
    before = memory(server, "VmRSS")
    ended = flood(server)
    grown = memory(server, "VmHWM") - before
    ours = [error for error in ended if error is not None and "too little memory" in error.details()]
    kinds = collections.Counter("ok" if error is None else error.code().name for error in ended)
    figure(f"{CALLS} calls of 8 MiB at once: {dict(kinds)}, {len(ours)} refused by the budget; the process grew by {grown / MIB:.0f} MiB")
    assert grown <= HOST_LIMIT + ALLOWANCE, "the queue alone would have let a gigabyte in"
    assert kinds["ok"] >= 1
    # gRPC keeps its own part of the limit by ending calls, and, where one is idle, a connection.
    assert set(kinds) <= {"ok", "RESOURCE_EXHAUSTED", "UNAVAILABLE"}
    assert ours and all(error.code() == REFUSED and pushback(error) > 0 for error in ours)
    page = server.metrics()
    assert page.total("headroom_requests_total", model="P", outcome="queue_full") >= len(ours)
    # And then all is as it was.
    assert eventually(lambda: server.infer("P", row([1, 2, 3]))["row"].tolist() == [[3, 6, LENGTH, 1]])
    assert call(server, message(LARGE)) is None
    # Whatever was reserved has come back, also for what gRPC ended by itself.
    assert eventually(lambda: set(server.metrics().series("headroom_stage_memory_bytes").values()) == {0})


def test_a_request_that_could_never_fit_is_told_not_to_come_again(server):
    # Typed contents: small on the wire, and many times that once they are parsed.
    request = service_pb2.ModelInferRequest(model_name="P")
    tensor = request.inputs.add(name="input_ids", datatype="INT64", shape=[40, LENGTH])
    tensor.contents.int64_contents.extend([1] * (40 * LENGTH))
    error = call(server, request)
    assert error is not None and error.code() == REFUSED
    assert "too little memory" in error.details()
    assert (pushback(error) or -1) < 0
    assert server.metrics().total("headroom_requests_total", model="P", outcome="over_budget") == 1
