"""Model files that are not what they should be: damaged at every place, changed meanwhile, not on the list."""

from __future__ import annotations

import hashlib
import io
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest
from tritonclient.utils import InferenceServerException

from harness import HEADROOM, Server, row, run

CPU = ("--device", "cpu", "--memory-limit", "256MiB")
ANYWHERE = ("--grpc-address", "127.0.0.1:0", "--http-address", "127.0.0.1:0")
KIB = 1 << 10


def damaged(content: bytes, at: int) -> list[bytes]:
    return [content[:at], content[:at] + bytes([content[at] ^ 0x10]) + content[at + 1 :]]


def idle_bytes(content: bytes) -> set[int]:
    """Where nothing stands that anybody reads: versions and attributes in the headers of the archive, the last bits of a compressed
    record, which fill its last byte before the PK 7 8 that follows."""
    idle: set[int] = set()
    for magic, ranges in ((b"PK\3\4", [(4, 6)]), (b"PK\1\2", [(4, 8), (36, 42)]), (b"PK\6\6", [(12, 16)]), (b"PK\7\x08", [(-1, 0)])):
        at = content.find(magic)
        while at >= 0:
            for start, end in ranges:
                idle.update(range(at + start, at + end))
            at = content.find(magic, at + 1)
    return idle


def refusal_to_load(server: Server, model: str) -> str:
    with pytest.raises(InferenceServerException) as refused:
        server.client.load_model(model)
    return str(refused.value)


def test_a_new_version_that_is_damaged_anywhere_leaves_the_old_one_serving(toys, figure):
    """A toy at every place: each is loaded into a live server, which goes on with version 1."""
    repository = toys("P", buckets=[32], max_batch_size=2)
    content = (repository / "P" / "1" / "model.pt").read_bytes()
    places = sorted(set(range(0, len(content), 64)) - idle_bytes(content))
    with Server(repository, *CPU, "--model-control", "on") as server:
        file = repository / "P" / "2" / "model.pt"
        file.parent.mkdir()
        tried = 0
        for at in places:
            for bad in damaged(content, at):
                file.write_bytes(bad)
                text = refusal_to_load(server, "P")
                assert "model 'P'" in text and "model file" in text and str(repository) not in text, text
                tried += 1
            if at % 4096 == 0:
                answer = server.infer("P", row([at % 1000]))
                assert answer["row"][0][1] == at % 1000
        file.write_bytes(content)
        server.client.load_model("P")
        assert server.client.get_model_metadata("P").versions == ["2"]
        assert server.metrics().total("headroom_model_loads_total") == 2, "what is damaged is not handed to libtorch"
    figure(f"{tried} damaged files of {len(content)} bytes refused")


def test_a_start_on_a_damaged_file_is_refused(minilm, tmp_path, random, figure):
    """MiniLM, at places drawn by chance, a KiB each."""
    content = minilm.file.read_bytes()
    idle = idle_bytes(content)
    repository = tmp_path / "models"
    model = repository / "minilm"
    (model / "1").mkdir(parents=True)
    shutil.copy(minilm.repository / "minilm" / "config.pbtxt", model)
    places = [int(place) * KIB for place in random.integers(0, len(content) // KIB, size=6)]
    for at in places:
        for bad in damaged(content, at if at not in idle else at + 8):
            (model / "1" / "model.pt").write_bytes(bad)
            ended = run(HEADROOM, "serve", "--model-repository", repository, *CPU, *ANYWHERE)
            assert ended.returncode == 1, (at, ended.returncode, ended.stderr[-2000:])
            line = [line for line in ended.stderr.splitlines() if line.startswith("headroom")][-1]
            assert "model 'minilm'" in line and "the model file is damaged" in line, line
    figure(f"places {places}")


def test_a_record_that_was_changed_with_its_checksum_is_no_crash(toys, random, figure):
    """Past the checksums: what libtorch makes of it ends in words, not in the end of the process."""
    repository = toys("P", buckets=[32], max_batch_size=2)
    archive = zipfile.ZipFile(repository / "P" / "1" / "model.pt")
    records = [(info.filename, archive.read(info)) for info in archive.infolist()]
    structure = [k for k, (name, data) in enumerate(records) if data and name.endswith((".pkl", ".py", ".debug_pkl"))]
    refused = 0
    with Server(repository, *CPU, "--model-control", "on") as server:
        version = 1
        for turn in range(40):
            version += 1
            changed = list(records)
            chosen = structure[int(random.integers(len(structure)))]
            data = bytearray(changed[chosen][1])
            for _ in range(int(random.integers(1, 4))):
                data[int(random.integers(len(data)))] ^= 1 << int(random.integers(8))
            changed[chosen] = (changed[chosen][0], bytes(data))
            packed = io.BytesIO()
            with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as out:
                for name, content in changed:
                    out.writestr(name, content)
            file = repository / "P" / str(version) / "model.pt"
            file.parent.mkdir()
            file.write_bytes(packed.getvalue())
            try:
                server.client.load_model("P")
            except InferenceServerException:
                refused += 1
            shutil.rmtree(file.parent)
            assert server.process.poll() is None, server.log()[-3000:]
            assert server.client.is_server_ready()
    figure(f"{refused} of 40 refused, the others served")


def listed(repository: Path, *files: str) -> str:
    """What `sha256sum` says in the repository."""
    done = subprocess.run(["sha256sum", *files], cwd=repository, capture_output=True, text=True, check=True)
    return done.stdout


def test_a_manifest_is_enforced(toys, tmp_path):
    repository = toys("P", buckets=[32])
    manifest = tmp_path / "SHA256SUMS"
    options = (*CPU, "--model-control", "on", "--model-manifest", manifest)
    manifest.write_text(listed(repository, "P/config.pbtxt", "P/1/model.pt"))
    with Server(repository, *options) as server:
        assert server.infer("P", row([7]))["row"][0][1] == 7
        # A version that nobody has listed.
        (repository / "P" / "2").mkdir()
        shutil.copy(repository / "P" / "1" / "model.pt", repository / "P" / "2")
        assert "P/2/model.pt is not listed in the --model-manifest" in refusal_to_load(server, "P")
        # Once it is, it is loaded; the list is read anew.
        manifest.write_text(listed(repository, "P/config.pbtxt", "P/1/model.pt", "P/2/model.pt"))
        server.client.load_model("P")
        # A configuration that was changed since.
        config = repository / "P" / "config.pbtxt"
        config.write_text(config.read_text() + "\n# changed\n")
        shutil.copytree(repository / "P" / "2", repository / "P" / "3")
        manifest.write_text(manifest.read_text() + listed(repository, "P/3/model.pt"))
        assert "P/config.pbtxt is not the file that the --model-manifest lists" in refusal_to_load(server, "P")
        assert server.client.get_model_metadata("P").versions == ["2"]
        assert server.infer("P", row([7]))["row"][0][1] == 7


@pytest.mark.parametrize(
    "text, says",
    [
        ("", "P/config.pbtxt is not listed in the --model-manifest"),
        ("not a digest\n", "line 1 is not as sha256sum prints it"),
        (None, "--model-manifest"),
    ],
)
def test_a_manifest_that_does_not_let_the_model_in_ends_the_start(toys, tmp_path, text, says):
    repository = toys("P", buckets=[32])
    manifest = tmp_path / "SHA256SUMS"
    if text is not None:
        manifest.write_text(text or "0" * 64 + "  other\n")
    ended = run(HEADROOM, "serve", "--model-repository", repository, *CPU, "--model-manifest", manifest, *ANYWHERE)
    assert ended.returncode == 1 and says in ended.stderr, ended.stderr


def test_the_digest_is_that_of_the_file(toys, tmp_path):
    repository = toys("P", buckets=[32])
    file = repository / "P" / "1" / "model.pt"
    wrong = hashlib.sha256(file.read_bytes() + b"x").hexdigest()
    manifest = tmp_path / "SHA256SUMS"
    manifest.write_text(f"{wrong}  P/1/model.pt\n" + listed(repository, "P/config.pbtxt"))
    ended = run(HEADROOM, "plan", "--model-repository", repository, *CPU, "--model-manifest", manifest)
    assert ended.returncode == 1
    assert f"its SHA-256 begins with {hashlib.sha256(file.read_bytes()).hexdigest()[:12]}" in ended.stderr


def test_a_plan_reads_the_same_files(toys):
    repository = toys("P", buckets=[32])
    content = bytearray((repository / "P" / "1" / "model.pt").read_bytes())
    content[len(content) // 3] ^= 1
    (repository / "P" / "1" / "model.pt").write_bytes(content)
    ended = run(HEADROOM, "plan", "--model-repository", repository, *CPU)
    assert ended.returncode == 1 and "model file" in ended.stderr
