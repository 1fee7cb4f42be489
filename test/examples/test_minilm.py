"""The demo as a user meets it: the exported model against the package's own, and the client against a server."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import client
import export_minilm
import export_model
from export_checks import example_inputs, largest_difference

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository that `make models` made, or one of the test's own where there is none."""
    made = ROOT / "build" / "models"
    if (made / "minilm" / "1" / "model.pt").exists():
        return made
    own = tmp_path_factory.mktemp("models")
    bert = export_minilm.load_bert()
    export_model.export(export_minilm.MiniLM(bert), export_minilm.minilm_entry(bert), own)
    return own


def test_the_exported_model_equals_the_packages_own(repository: Path) -> None:
    bert = export_minilm.load_bert()
    model = torch.jit.load(repository / "minilm" / "1" / "model.pt")
    reference = export_minilm.Reference(bert)
    with torch.no_grad():
        for rows, length in [(1, 1), (3, 40), (2, 200)]:
            inputs = example_inputs(export_minilm.minilm_entry(bert), rows, length)
            assert largest_difference(reference(**inputs), model(**inputs)) <= export_minilm.TOLERANCE


def test_the_client_finds_the_sentences_that_mean_the_same(repository: Path, tmp_path: Path) -> None:
    binary = os.environ.get("HEADROOM_BIN", "")
    if not Path(binary).is_file():
        pytest.skip("HEADROOM_BIN names no server")
    # One short bucket: measuring the memory of long ones, at the start, would take most of this test's time.
    model = repository / "minilm" / "1" / "model.pt"
    small = tmp_path / "models" / "minilm"
    (small / "1").mkdir(parents=True)
    shutil.copyfile(model, small / "1" / "model.pt")
    entry = replace(export_minilm.minilm_entry(export_minilm.load_bert()), buckets=[64], tiers=[])
    (small / "config.pbtxt").write_text(entry.text())
    ready = tmp_path / "ready.json"
    with (tmp_path / "log").open("w+") as log:
        server = subprocess.Popen(
            [binary, "serve", "--model-repository", small.parent, "--device", "cpu", "--ready-file", ready]
            + ["--grpc-address", "127.0.0.1:0", "--http-address", "127.0.0.1:0"],
            stdout=log,
            stderr=log,
        )
        try:
            deadline = time.monotonic() + 120
            while not ready.exists() and server.poll() is None and time.monotonic() < deadline:
                time.sleep(0.05)
            assert ready.exists(), (tmp_path / "log").read_text()[-4000:]
            address = json.loads(ready.read_text())["grpc"]
            command = [sys.executable, ROOT / "examples" / "client.py", "--address", address]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        finally:
            server.terminate()
            server.wait(timeout=30)
    assert (done.returncode, done.stderr) == (0, "")
    nearest = re.findall(r"^(\S.*)\n    (-?\d\.\d\d)  (.*)$", done.stdout, re.MULTILINE)
    assert [sentence for sentence, _, _ in nearest] == client.SENTENCES
    # The sentences are written in pairs: each has its partner as the nearest.
    for place, (_, _, found) in enumerate(nearest):
        assert found == client.SENTENCES[place ^ 1]


def test_the_client_says_where_it_found_no_server() -> None:
    command = [sys.executable, ROOT / "examples" / "client.py", "--address", "127.0.0.1:1", "a", "b"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "Is a server ready at 127.0.0.1:1?" in done.stderr
    assert "Traceback" not in done.stderr
