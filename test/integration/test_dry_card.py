"""The CUDA path without a GPU: libtorch's real caching allocator on dry cards. Memory is real there; values mean nothing
and are compared nowhere here."""

from __future__ import annotations

import re
import subprocess

import pytest

from harness import DRY, HEADROOM, NAIVE, Server, Watch, burst_lengths, eventually, failures, random_ids, row, rows_of, run

OUT_OF_MEMORY = 3  # headroom_naive_batch's exit code


def on_cards(cards, minilm, *options):
    program = (DRY, "--card", cards, "--", HEADROOM)
    return Server(minilm.repository, "--calibration-cache", minilm.cache, *options, program=program)


def burst(random):
    """The long rows come as one request, and so wait together: a dry card is done with single ones before the next arrives."""
    short = [length for length in burst_lengths(random) if length < 512]
    return [rows_of(64, random_ids(random, 512)), *(row(random_ids(random, length)) for length in short)]


@pytest.fixture(scope="module")
def server(minilm):
    with on_cards("640MiB", minilm, "--device", "cuda") as server:
        yield server


def test_one_padded_batch_of_the_burst_runs_out_of_memory(minilm, figure):
    def naive(rows):
        return run(DRY, "--card", "640MiB", "--", NAIVE, minilm.file, "cuda:0", "640MiB", rows, 512)

    whole = naive(64)
    figure(whole.stdout.strip())
    assert whole.returncode == OUT_OF_MEMORY, whole.stderr
    assert whole.stdout.startswith("out of memory")
    assert naive(16).returncode == 0


def test_the_burst_is_split_by_memory(server, random, figure):
    requests = burst(random)
    idle_budget = server.metrics().total("headroom_memory_budget_bytes", device="cuda:0")
    with Watch(server, every=0.01) as watch:
        answers = server.infer_all("minilm", requests, at_once=len(requests))
    page = watch.pages[-1]
    assert failures(answers) == []
    assert [answer["embedding"].shape for answer in answers] == [(64, 384)] + [(1, 384)] * 200
    peak = watch.highest("headroom_memory_peak_bytes")
    splits = page.total("headroom_batch_splits_total", model="minilm", reason="memory")
    figure(f"budget {idle_budget:,.0f}, peak held {peak:,.0f} ({100 * peak / idle_budget:.1f} %),"
           f" {splits:.0f} splits by memory, {page.total('headroom_batches_total', model='minilm'):.0f} batches")
    assert 0 < peak <= idle_budget
    assert page.total("headroom_out_of_memory_total") == 0
    assert page.total("headroom_batch_rows_sum", model="minilm") == 264
    assert splits > 0


def test_what_the_burst_left_cached_is_given_back_once_nothing_runs(server, random, figure):
    requests = burst(random)
    assert failures(server.infer_all("minilm", requests, at_once=len(requests))) == []

    assert eventually(lambda: "cached memory was given back" in server.log())
    given_back = int(re.search(r"given_back_bytes=(\d+)", server.log()).group(1))
    figure(f"{given_back:,} bytes given back")
    # Of a card of 640 MiB, half of it at least was cached.
    assert given_back > 256 << 20
    # And it is taken again where it is needed.
    assert failures(server.infer_all("minilm", requests, at_once=len(requests))) == []


def test_the_server_says_that_it_runs_dry(server):
    said = [line for line in server.log().splitlines() if "dry" in line and "meaningless" in line]
    assert len(said) == 1
    assert server.metrics().total("headroom_device_dry", device="cuda:0") == 1


def test_two_cards_serve_together_and_drain(minilm, random, figure):
    requests = burst(random)
    server = on_cards("640MiB,640MiB", minilm, "--device", "cuda:0,1")
    with server:
        for _ in range(3):
            assert failures(server.infer_all("minilm", requests, at_once=len(requests))) == []
        page = server.metrics()
        batches = {device: page.total("headroom_batches_total", device=device) for device in ("cuda:0", "cuda:1")}
        figure(f"batches {batches}")
        assert all(count > 0 for count in batches.values())
        assert {count for count in page.series("headroom_model_loads_total").values()} == {1.0}
        assert page.total("headroom_out_of_memory_total") == 0
        # What was admitted is answered to the end.
        last = [server.send("minilm", request) for request in requests[:32]]
        assert last[0].refusal() == "OK"
        server.terminate()
        assert {call.refusal() for call in last} <= {"OK", "UNAVAILABLE"}
        assert server.exit_code() == 0


def test_cuda_without_a_card_is_one_clear_error(minilm, tmp_path):
    if subprocess.run(["sh", "-c", "command -v nvidia-smi && nvidia-smi -L"], capture_output=True).returncode == 0:
        pytest.skip("there is a GPU")
    ready = tmp_path / "ready.json"
    refused = run(HEADROOM, "serve", "--model-repository", minilm.repository, "--device", "cuda", "--grpc-address",
                  "127.0.0.1:0", "--http-address", "127.0.0.1:0", "--ready-file", ready)
    said = [line for line in refused.stderr.splitlines() if line.startswith("headroom: ")]
    assert refused.returncode == 1
    assert len(said) == 1 and "--device cuda" in said[0] and "--device cpu" in said[0]
    assert "terminate called" not in refused.stderr
    assert not ready.exists()


def test_a_card_that_is_not_there_is_named(minilm):
    program = (DRY, "--card", "640MiB", "--", HEADROOM)
    refused = run(*program, "plan", "--model-repository", minilm.repository, "--device", "cuda:1")
    assert refused.returncode == 1
    assert "cuda:1" in refused.stderr and "--device" in refused.stderr


def test_the_allocators_configuration_is_logged_and_respected(toys):
    def logged(**environment):
        program = ("env", *(f"{name}={value}" for name, value in environment.items()), DRY, "--card", "640MiB", "--", HEADROOM)
        with Server(toys("attn", buckets=[32]), "--device", "cuda", program=program) as server:
            server.infer("attn", row([1, 2, 3]))
            lines = [line for line in server.log().splitlines() if "cuda allocator" in line]
            measured = "calibrating" in server.log()
        assert len(lines) == 1
        return lines[0], measured

    line, measured = logged()
    assert measured and "expandable_segments=off" in line and "ordinary segments" in line
    # Other settings, other measurements.
    line, measured = logged(PYTORCH_ALLOC_CONF="garbage_collection_threshold:0.9")
    assert measured and "garbage_collection_threshold:0.9" in line
    line, _ = logged(PYTORCH_ALLOC_CONF="expandable_segments:True")
    assert "expandable_segments=off" in line and "dry card" in line
    _, measured = logged()
    assert not measured


def test_an_allocator_that_counts_nothing_is_refused(toys):
    refused = run("env", "PYTORCH_NO_CUDA_MEMORY_CACHING=1", DRY, "--card", "640MiB", "--", HEADROOM, "plan",
                  "--model-repository", toys("attn"), "--device", "cuda")
    assert refused.returncode == 1
    assert "cuda:0" in refused.stderr and "PYTORCH_NO_CUDA_MEMORY_CACHING" in refused.stderr
