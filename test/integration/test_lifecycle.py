"""The end of a server, and readiness before it: settling, draining, strained, hung."""

from __future__ import annotations

import json
import signal
import sys
import urllib.error
import urllib.request

import grpc
import pytest

from harness import FAULTY, ROOT, Server, eventually, row, rows_of

sys.path.insert(0, str(ROOT / "bench"))

CPU = ("--device", "cpu", "--memory-limit", "256MiB")


def ready_page(server: Server) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{server.http}/readyz", timeout=10) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def health(server: Server) -> str:
    with grpc.insecure_channel(server.grpc) as channel:
        answer = channel.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=10)
    return {b"\x08\x01": "SERVING", b"\x08\x02": "NOT_SERVING"}[answer]


@pytest.fixture
def slow(toys):
    """One row at a time, a fifth of a second each; more options by calling it."""
    repository = toys("P", buckets=[32], max_batch_size=1)

    def start(*options: object, faults: tuple[str, ...] = ("delay_ms=200",)) -> Server:
        words = [word for fault in faults for word in ("--fault", fault)]
        return Server(repository, *CPU, "--workers", 1, *words, *options, program=(FAULTY,))

    return start


def test_late_calls_are_served_while_it_settles(slow):
    with slow("--settle-seconds", 3) as server:
        assert health(server) == "SERVING" and ready_page(server)[0] == 200
        server.terminate()
        assert eventually(lambda: health(server) == "NOT_SERVING", 2.0)
        code, reason = ready_page(server)
        assert code == 503 and "about to end" in reason
        assert not server.client.is_server_ready() and not server.client.is_model_ready("P")
        assert server.metrics().total("headroom_ready") == 0
        server.terminate()  # a second signal changes nothing
        assert server.infer("P", row([1, 2, 3]))["row"][0][1] == 6
        last = [server.send("P", row([n])) for n in range(1, 4)]
        assert server.exit_code() == 0
        assert [call.refusal() for call in last] == ["OK"] * 3
        assert server.log().count("draining") == 1


def test_what_was_admitted_is_answered_and_the_port_is_let_go(slow):
    with slow() as server:
        queued = [server.send("P", row([n])) for n in range(1, 16)]
        assert eventually(lambda: server.metrics().total("headroom_requests_received_total") == 15)
        server.terminate()
        # New connections find nobody long before the drain is over.
        host, _, port = server.grpc.rpartition(":")
        refused = lambda: grpc_refuses(f"{host}:{port}")  # noqa: E731
        assert eventually(refused, 2.0)
        assert server.process.poll() is None
        assert [call.result()["row"][0][1] for call in queued] == list(range(1, 16))
        assert server.exit_code() == 0


def grpc_refuses(address: str) -> bool:
    import socket

    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), 1).close()
    except ConnectionRefusedError:
        return True
    return False


def test_what_is_not_done_in_time_is_refused_and_what_runs_is_finished(slow):
    with slow("--drain-seconds", 1) as server:
        queued = [server.send("P", row([n])) for n in range(1, 31)]
        assert eventually(lambda: server.metrics().total("headroom_requests_received_total") == 30)
        server.terminate()
        endings = [call.refusal() for call in queued]
        assert server.exit_code() == 0
        # Answered, or told that it was never begun: nobody is cut in the middle.
        assert set(endings) == {"OK", "UNAVAILABLE"}


def test_an_open_watch_of_health_does_not_hold_up_the_end(slow):
    with slow() as server, grpc.insecure_channel(server.grpc) as channel:
        states = []
        watch = channel.unary_stream("/grpc.health.v1.Health/Watch")(b"")
        states.append(next(watch))
        server.terminate()
        states.append(next(watch))
        assert states == [b"\x08\x01", b"\x08\x02"]
        assert server.exit_code() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_lost_device_during_the_drain_still_ends_with_3(slow, number):
    with slow(faults=("delay_ms=200", "device_lost_after=2")) as server:
        queued = [server.send("P", row([n])) for n in range(1, 9)]
        assert eventually(lambda: server.metrics().total("headroom_requests_received_total") == 8)
        server.process.send_signal(number)
        assert server.exit_code() == 3
        assert {call.refusal() for call in queued} <= {"OK", "UNAVAILABLE"}


def test_a_run_that_hangs_ends_the_server(slow):
    watchdog = ("--watchdog-multiple", 5, "--watchdog-least-seconds", 2)
    with slow(*watchdog, faults=("hang_after=3",)) as server:
        for n in (1, 2):
            assert server.infer("P", row([n]))["row"][0][1] == n
        hung = server.send("P", row([3]))
        assert eventually(lambda: server.metrics().total("headroom_memory_reserved_bytes") > 0)
        waiting = [server.send("P", row([n])) for n in range(4, 8)]
        assert server.exit_code() == 3
        assert [call.refusal() for call in waiting] == ["UNAVAILABLE"] * 4
        assert hung.refusal() == "UNAVAILABLE"  # its connection went with the process
        log = server.log()
        line = next(line for line in log.splitlines() if "a run hangs" in line)
        assert "model=P" in line and "rows=1" in line and "length=32" in line and "bound_seconds=2" in line, line
        assert log.index("a run hangs") < log.index("a device was lost")


def test_a_run_that_hangs_during_the_drain_ends_the_server(slow):
    with slow("--watchdog-multiple", 5, "--watchdog-least-seconds", 2, "--drain-seconds", 0, faults=("hang_after=1",)) as server:
        call = server.send("P", row([3]))
        assert eventually(lambda: server.metrics().total("headroom_memory_reserved_bytes") > 0)
        server.terminate()
        assert server.exit_code() == 3
        assert call.refusal() == "UNAVAILABLE"


def test_slow_runs_do_not_hang(slow):
    with slow("--watchdog-multiple", 5, "--watchdog-least-seconds", 2, faults=("delay_ms=1200",)) as server:
        # Far beyond its estimate, and within the least time.
        assert [server.infer("P", row([n]))["row"][0][1] for n in (1, 2)] == [1, 2]
        server.terminate()
        assert server.exit_code() == 0


def test_a_queue_that_is_too_old_is_not_ready_and_serves(slow):
    with slow("--ready-max-queue-delay-ms", 500) as server:
        queued = [server.send("P", row([n])) for n in range(1, 26)]
        assert eventually(lambda: ready_page(server)[0] == 503, 20)
        assert "a row has waited" in ready_page(server)[1]
        assert health(server) == "NOT_SERVING"
        assert not server.client.is_server_ready()
        page = server.metrics()
        assert page.total("headroom_readiness_strained", threshold="queue_delay") == 1
        assert page.total("headroom_readiness_strained", threshold="memory") == 0
        assert page.total("headroom_ready") == 0 and page.total("headroom_model_ready") == 1
        queued.append(server.send("P", row([26])))  # let in all the same
        assert [call.result()["row"][0][1] for call in queued] == list(range(1, 27))
        assert eventually(lambda: ready_page(server)[0] == 200)
        assert health(server) == "SERVING"
        assert server.log().count("not ready by its thresholds") == 1


def test_slow_answers_are_not_ready_for_a_while(slow):
    with slow("--ready-max-latency-ms", 100, faults=("delay_ms=150",)) as server:
        for n in range(1, 22):
            server.infer("P", row([n]))
        assert eventually(lambda: ready_page(server)[0] == 503, 20)
        assert "of the latest requests took" in ready_page(server)[1]
        # Nobody calls any more: ten seconds later nothing is known against it, and five after that it is ready.
        assert eventually(lambda: ready_page(server)[0] == 200)


def test_memory_in_use_is_not_ready(toys):
    repository = toys("P", buckets=[4096], max_batch_size=4)
    options = ("--device", "cpu", "--memory-limit", "16MiB", "--workers", 1, "--fault", "delay_ms=3000")
    with Server(repository, *options, "--ready-min-memory-headroom", 0.999, program=(FAULTY,)) as server:
        assert ready_page(server)[0] == 200
        calls = [server.send("P", rows_of(4, [1] * 4000)) for _ in range(2)]
        assert eventually(lambda: ready_page(server)[0] == 503, 20)
        assert "of the memory budget is free" in ready_page(server)[1]
        assert [call.refusal() for call in calls] == ["OK"] * 2
        assert eventually(lambda: ready_page(server)[0] == 200)


def test_the_thresholds_are_off_unless_they_are_asked_for(slow):
    with slow() as server:
        queued = [server.send("P", row([n])) for n in range(1, 16)]
        while not all(call._answer.done() for call in queued):
            assert ready_page(server)[0] == 200
        page = server.metrics()
        assert {value for value in page.series("headroom_readiness_strained").values()} == {0}


def restarts(*words: object) -> dict:
    """bench/restarts.py with few rounds: what its figures are measured with."""
    from harness import run

    out = run(sys.executable, ROOT / "bench" / "restarts.py", "--program", FAULTY, *words)
    assert out.stdout, out.stderr
    return json.loads(out.stdout)


def test_restarts_lose_no_call(toys, figure):
    result = restarts("--repository", toys("P", buckets=[32], max_batch_size=4), "--rounds", 4, "--delay-ms", 40, "--load", 0.4)
    figure(json.dumps({key: result[key] for key in ("calls", "lost", "end_seconds")}))
    assert not result["faults"] and result["lost"] == 0 and result["ended"]["OK"] == result["calls"]


def test_without_retries_a_killed_replica_costs_calls(toys):
    repository = toys("P", buckets=[32], max_batch_size=4)
    words = ("--rounds", 4, "--delay-ms", 40, "--load", 0.4, "--signal", "KILL", "--no-retries")
    result = restarts("--repository", repository, *words)
    assert result["lost"] > 0, "the tool would not have seen a lost call"


@pytest.mark.parametrize("proxy", ["nginx", "haproxy"])
def test_a_killed_replica_behind_a_proxy_loses_no_call(toys, proxy):
    import shutil

    if shutil.which(proxy, path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin") is None:
        pytest.skip(f"{proxy} is not installed")
    repository = toys("P", buckets=[131072], max_batch_size=4)
    result = restarts("--repository", repository, "--rounds", 4, "--delay-ms", 80, "--signal", "KILL", "--through", proxy,
                      "--length", 131072, "--at-once", 8, "--load", 0.4)  # fmt: skip
    assert result["message_bytes"] > 1 << 20
    assert not result["faults"] and result["lost"] == 0, result
