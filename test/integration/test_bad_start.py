"""A server that cannot serve says why in one line that names the thing, and ends; nothing else comes of it."""

from __future__ import annotations

import re
import signal
import socket

import pytest

from harness import HEADROOM, Server, eventually, run

USAGE, CANNOT_SERVE = 2, 1
TRACES = ("terminate called", "what():", "Traceback", "Exception raised from", "frame #", "#0 ", "core dumped")


DEFAULTS = {
    "--device": "cpu",
    "--memory-limit": "256MiB",
    "--grpc-address": "127.0.0.1:0",
    "--http-address": "127.0.0.1:0",
}


def said_in(text):
    """The program's own lines, without those of its log."""
    return [line for line in text.splitlines() if line.startswith("headroom")]


@pytest.fixture
def refusal(tmp_path):
    """The lines in which a start is refused; its exit code is checked, and that it left no ready file and no trace."""

    def start(repository, *options, code=CANNOT_SERVE):
        ready = tmp_path / "ready.json"
        words = ["--ready-file", ready] if "--ready-file" not in options else []
        for flag, value in DEFAULTS.items():
            words += [flag, value] if flag not in options else []
        if repository is not None:
            words += ["--model-repository", repository]
        ended = run(HEADROOM, "serve", *words, *options)
        assert ended.returncode == code, ended.stderr
        assert not ready.exists()
        assert not [trace for trace in TRACES if trace in ended.stderr + ended.stdout]
        return said_in(ended.stderr)

    return start


def assert_one(lines, *words):
    assert len(lines) == 1, lines
    missing = [word for word in words if str(word) not in lines[0]]
    assert not missing, f"{missing} not in: {lines[0]}"


@pytest.mark.parametrize(
    "options, words",
    [
        (["--no-such-flag"], ["--no-such-flag"]),
        (["--memory-limit", "lots"], ["--memory-limit", "lots", "512MiB"]),
        (["--memory-fraction", "1.5"], ["--memory-fraction", "1.5"]),
        (["--device", "abacus"], ["--device", "abacus", "cuda"]),
        (["--grpc-address", "here"], ["--grpc-address", "here"]),
        (["--workers", "0"], ["--workers"]),
    ],
)
def test_a_wrong_flag(refusal, toys, options, words):
    lines = refusal(toys("P"), *options, code=USAGE)
    assert any(all(word in line for word in words) for line in lines), lines
    assert len(lines) <= 3


def test_several_wrong_flags_are_all_told(refusal, toys):
    said = "\n".join(refusal(toys("P"), "--workers", "many", "--memory-fraction", "0", code=USAGE))
    assert "--workers" in said and "--memory-fraction" in said


def test_no_repository_named(refusal):
    assert_one(refusal(None, code=USAGE), "--model-repository")


def test_a_graph_that_names_a_gpu_which_is_not_there(refusal, toys):
    lines = refusal(toys("on_another_device"))
    assert_one(lines, "on_another_device", '"cuda:0"', "aten::zeros", "line ", "KIND_CPU")


def test_a_repository_that_is_missing(refusal, tmp_path):
    assert_one(refusal(tmp_path / "nowhere"), "--model-repository", "nowhere")


def test_a_repository_that_is_empty(refusal, tmp_path):
    (tmp_path / "empty").mkdir()
    assert_one(refusal(tmp_path / "empty"), "--model-repository", "empty", "model.pt")


def test_a_repository_that_is_a_file(refusal, tmp_path):
    (tmp_path / "file").write_text("")
    assert_one(refusal(tmp_path / "file"), "--model-repository", "file")


def test_only_a_model_whose_name_is_impossible(refusal, toys):
    """Told with what is left out: another model beside it could be served."""
    repository = toys("P")
    (repository / "P").rename(repository / "P is bad")
    no_model, left_out = refusal(repository)
    assert "--model-repository" in no_model and "holds no model" in no_model
    assert "P is bad" in left_out and "1 to 128 letters, digits" in left_out


def test_a_name_that_is_not_the_folders(refusal, toys):
    repository = toys("P")
    (repository / "P").rename(repository / "Q")
    assert_one(refusal(repository), "'Q'", "config.pbtxt: name")


@pytest.mark.parametrize("what", ["missing", "empty", "half", "foreign"])
def test_a_bad_model_file(refusal, toys, what):
    repository = toys("attn")
    file = repository / "attn" / "1" / "model.pt"
    content = file.read_bytes()
    if what == "missing":
        file.unlink()
    else:
        file.write_bytes({"empty": b"", "half": content[: len(content) // 2], "foreign": b"PK\3\4 not a model"}[what])
    assert_one(refusal(repository), "model 'attn'", "model.pt" if what == "missing" else "model file")


def test_a_configuration_with_several_faults_tells_all_of_them(refusal, toys):
    repository = toys("P", "attn")
    config = repository / "P" / "config.pbtxt"
    text = config.read_text()
    text = text.replace("max_batch_size: 16", "max_batch_size: -4").replace("[ 32, 64, 128, 256, 512 ]", "[ 64, 32 ]")
    config.write_text(text.replace("pad_value: 0", "pad_value: 1000"))
    other = repository / "attn" / "config.pbtxt"
    other.write_text(other.read_text() + "sequence_batching { }\n")
    lines = refusal(repository)
    assert len(lines) == 4, lines
    faults = {"max_batch_size": "P", "sequence.buckets": "P", "input[0].pad_value": "P", "sequence_batching": "attn"}
    for path, model in faults.items():
        assert any(f"model '{model}'" in line and f"config.pbtxt: {path}" in line for line in lines), (path, lines)


def test_a_configuration_that_cannot_be_parsed(refusal, toys):
    repository = toys("P")
    config = repository / "P" / "config.pbtxt"
    config.write_text(config.read_text() + "no_such_field: 3\n")
    assert_one(refusal(repository), "model 'P'", "config.pbtxt", "no_such_field")


@pytest.mark.parametrize("flag", ["--grpc-address", "--http-address"])
def test_a_port_in_use(refusal, toys, flag):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert_one(refusal(toys("P", buckets=[32]), flag, f"127.0.0.1:{port}"), flag, port)


def test_an_address_of_another_machine(refusal, toys):
    assert_one(refusal(toys("P", buckets=[32]), "--http-address", "192.0.2.1:0"), "--http-address", "192.0.2.1")


@pytest.mark.parametrize("path", ["no/such/folder/ready.json", "a_folder"])
def test_a_ready_file_that_cannot_be_written(refusal, toys, tmp_path, path):
    (tmp_path / "a_folder").mkdir()
    repository = toys("P", buckets=[32])
    # Found out before the model is looked at: it may take minutes to load.
    (repository / "P" / "1" / "model.pt").write_bytes(b"")
    assert_one(refusal(repository, "--ready-file", tmp_path / path), "--ready-file", path)


def test_a_limit_that_the_model_alone_exceeds(refusal, minilm):
    lines = refusal(minilm.repository, "--memory-limit", "50MiB")
    assert_one(lines, "model 'minilm'", "--memory-limit")
    assert re.search(r"[\d.]+ [KMG]iB", lines[0])


def test_a_limit_that_leaves_no_room_for_one_row(refusal, minilm, minilm_at_rest, tmp_path):
    options = ["--memory-limit", minilm_at_rest + 50_000, "--calibration-cache", tmp_path]
    assert_one(refusal(minilm.repository, *options), "model 'minilm'", "--memory-limit")


@pytest.mark.parametrize("moment", ["warming", "calibrating"])
def test_a_signal_during_the_load_ends_it_well(minilm, tmp_path, moment):
    options = ["--device", "cpu", "--memory-limit", "320MiB", "--calibration-cache", tmp_path]
    server = Server(minilm.repository, *options).spawn()
    try:
        assert eventually(lambda: moment in server.log(), bound=300)
        server.process.send_signal(signal.SIGTERM)
        assert server.exit_code() == 0
        assert not server.ready_file.exists()
        assert not [trace for trace in TRACES if trace in server.log()]
        assert not list(tmp_path.glob("minilm-*")), "half a calibration was kept"
    finally:
        server.stop()
