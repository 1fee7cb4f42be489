"""Clients that mean no good, or do nothing: the server stays up, the others are answered right, and what is held is bounded."""

from __future__ import annotations

import contextlib
import gzip
import sys
import time

import grpc
import numpy as np
import pytest
from tritonclient.grpc import model_config_pb2, service_pb2  # noqa: F401 (the second needs the first)

from harness import FAULTY, HEADROOM, ROOT, Server, eventually, row, tensors

sys.path.insert(0, str(ROOT / "bench"))

import hostile  # noqa: E402

OPTIONS = ["--device", "cpu", "--memory-limit", "1GiB", "--max-message-size", "8MiB", "--handshake-seconds", 1]
IDLE_KIB = 64
IDLE_CONNECTIONS = 1000


@pytest.fixture
def server(toys):
    with Server(toys("P", buckets=[32]), *OPTIONS) as started:
        yield started


def serves(server):
    return list(server.infer("P", row([1, 2, 3]))["row"][0, :2]) == [3, 6]


def connections(server):
    return server.metrics().total("headroom_grpc_connections")


def request():
    message = service_pb2.ModelInferRequest(model_name="P")
    message.inputs.add(name="input_ids", datatype="INT64", shape=[1, 3])
    message.raw_input_contents.append(np.array([1, 2, 3], np.int64).tobytes())
    return message.SerializeToString()


def refusal(call, *arguments, **options):
    with pytest.raises(grpc.RpcError) as failed:
        call(*arguments, **options)
    return failed.value.code()


def test_half_a_preface_is_given_up(server):
    half = [hostile.half_preface(server.grpc) for _ in range(50)]
    assert serves(server)
    assert all(connection.is_closed_within(30) for connection in half)
    assert eventually(lambda: connections(server) == 1)  # the good client's


def test_an_idle_connection_lives_and_costs_little(server, figure):
    assert serves(server)
    before = hostile.resident_bytes(server.process.pid)
    idle = hostile.idle_connections(server.grpc, IDLE_CONNECTIONS)
    try:
        assert eventually(lambda: connections(server) == IDLE_CONNECTIONS + 1)
        assert hostile.answer_pings(idle, 2) == 0
        each = (hostile.resident_bytes(server.process.pid) - before) / IDLE_CONNECTIONS
        figure(f"{each / 1024:.1f} KiB an idle connection")
        assert each <= IDLE_KIB << 10
        assert serves(server)
    finally:
        for connection in idle:
            connection.close()
    assert eventually(lambda: connections(server) == 1)


def test_pings_are_tolerated_at_the_pace_of_common_clients_and_no_faster(server):
    # A ping each 5 s is allowed; the first two sooner ones are forgiven.
    with hostile.Connection(server.grpc) as patient:
        for number in range(3):
            assert patient.send(hostile.pings(number, 1))
            assert not patient.is_closed_within(0.2)
        assert sum(kind == hostile.PING for kind, flags, _, _ in patient.frames() if flags & hostile.ACK) == 3
    with hostile.Connection(server.grpc) as flooder:
        flooder.send(hostile.pings(0, 1000))
        assert flooder.is_closed_within(30)
        # 11: ENHANCE_YOUR_CALM.
        assert any(kind == hostile.GOAWAY and payload[4:8] == b"\0\0\0\x0b" for kind, _, _, payload in flooder.frames())
    assert serves(server)


@pytest.mark.parametrize("kind", ["resets", "settings", "continuations"])
def test_a_flood_harms_nobody_else(server, kind):
    assert serves(server)
    before = hostile.resident_bytes(server.process.pid)
    flood = hostile.Flood(server.grpc, kind, 4_000)
    until = time.monotonic() + 3
    good = 0
    while time.monotonic() < until:
        flood.step(time.monotonic())
        if good < (time.monotonic() - until + 3) * 10:
            assert serves(server)
            good += 1
    assert flood.sent > 1000 and good > 10
    # At 20,000 resets a second it is some 300 MiB, and without the server's own measures more than a GiB.
    assert hostile.resident_bytes(server.process.pid) - before < 192 << 20
    if flood.connection is not None:
        flood.connection.close()
    # What it has sent is worked off first, slowly.
    assert eventually(lambda: connections(server) == 1, 300)
    assert serves(server)


def test_half_a_message_and_answers_that_are_not_read_are_held_no_longer_than_the_grace(toys):
    grace = ["--connection-age-seconds", 1, "--connection-grace-seconds", 1]
    with Server(toys("P", buckets=[32]), *OPTIONS, *grace) as server:
        stuck = [hostile.half_message(server.grpc) for _ in range(5)] + [hostile.zero_window(server.grpc, request()) for _ in range(5)]
        assert serves(server)
        assert all(connection.is_closed_within(30) for connection in stuck)
        # Clients that behave notice nothing of the age: they connect anew.
        for _ in range(30):
            assert serves(server)
            time.sleep(0.1)


def test_calls_under_way_outlive_the_age_of_their_connection(toys):
    slow = ["--device", "cpu", "--memory-limit", "1GiB", "--connection-age-seconds", 1, "--fault", "delay_ms=3000"]
    with Server(toys("P", buckets=[32]), *slow, program=(FAULTY,)) as server:
        calls = [server.send("P", row([n])) for n in (1, 2, 3)]
        assert [call.refusal() for call in calls] == ["OK"] * 3


def test_a_message_that_expands_beyond_the_limit_is_refused_in_bounded_memory(server):
    message = service_pb2.ModelInferRequest(model_name="P")
    message.raw_input_contents.append(bytes(1 << 30))
    text = message.SerializeToString()
    packed = gzip.compress(text, 6)
    assert len(packed) < 2 << 20
    del message
    with grpc.insecure_channel(server.grpc, options=[("grpc.max_send_message_length", -1)]) as channel:
        infer = channel.unary_unary(hostile.INFER)
        assert refusal(infer, text, compression=grpc.Compression.Gzip) == grpc.StatusCode.RESOURCE_EXHAUSTED
    before = hostile.resident_bytes(server.process.pid)
    with grpc.insecure_channel(server.grpc, options=[("grpc.max_send_message_length", -1)]) as channel:
        infer = channel.unary_unary(hostile.INFER)
        for _ in range(3):
            assert refusal(infer, text, compression=grpc.Compression.Gzip) == grpc.StatusCode.RESOURCE_EXHAUSTED
    peak = next(line for line in open(f"/proc/{server.process.pid}/status") if line.startswith("VmHWM"))
    assert int(peak.split()[1]) * 1024 - before < 64 << 20
    answer = server.client.infer("P", tensors(row([1] * 30)), compression_algorithm="gzip")
    assert list(answer.as_numpy("row")[0, :2]) == [30, 30]


def test_compression_can_be_refused(toys):
    many = {"input_ids": np.ones((64, 30), np.int64)}
    with Server(toys("P", buckets=[32]), *OPTIONS, "--compression", "off") as server:
        with pytest.raises(Exception, match="UNIMPLEMENTED"):
            server.client.infer("P", tensors(many), compression_algorithm="gzip")
        assert serves(server)


def test_connections_beyond_the_limit_are_closed_at_once_and_the_others_live(toys):
    with Server(toys("P", buckets=[32]), *OPTIONS, "--max-connections", 20) as server:
        assert serves(server)
        idle = hostile.idle_connections(server.grpc, 19)
        assert eventually(lambda: connections(server) == 20)
        with hostile.Connection(server.grpc) as beyond:
            assert beyond.is_closed_within(30)
        assert serves(server)
        assert server.metrics().total("headroom_grpc_connections_refused_total") >= 1
        for connection in idle:
            connection.close()
        assert eventually(lambda: connections(server) == 1)
        with hostile.Connection(server.grpc) as again:
            assert not again.is_closed_within(0.5)


def test_a_server_that_runs_out_of_descriptors_serves_on(toys):
    # Some programs in between would take its limit away from it.
    program = ["bash", "-c", 'ulimit -n 400 && exec "$@"', "bash", HEADROOM]
    with Server(toys("P", buckets=[32]), *OPTIONS, program=program) as server:
        assert serves(server)
        opened = []
        for _ in range(500):
            with contextlib.suppress(OSError):
                opened.append(hostile.Connection(server.grpc))
        assert eventually(lambda: server.metrics().total("headroom_grpc_connections_refused_total") > 100)
        assert serves(server)
        for connection in opened:
            connection.close()
        assert eventually(lambda: connections(server) == 1)
        with grpc.insecure_channel(server.grpc) as channel:
            channel.unary_unary("/inference.GRPCInferenceService/ServerLive")(b"", timeout=60)
