"""What docs/security.md promises, on the whole program: TLS, tokens, the management port, addresses, paths, rights, error texts."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import re
import shutil
import socket
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2
from tritonclient.grpc import model_config_pb2, service_pb2  # noqa: F401 (the second needs the first)

from harness import BUILD, HEADROOM, Server, eventually, row, run

OPTIONS = ["--device", "cpu", "--memory-limit", "1GiB"]
SERVICE = "/inference.GRPCInferenceService/"
TOKEN, OTHER_TOKEN = "a-token-for-tests-0123456789", "another-token-0123456789"
FREE = {"ServerLive", "ServerReady"}
# Names that have led other servers out of their repository, or could.
HOSTILE_NAMES = [
    "..", ".", "../P", "../../etc/passwd", "P/../P", "/etc", "/tmp/P", "P/", "./P", "P/1", "P\0", "P\0/../..", "\0", "..\\P", "P\\..\\P",
    "%2e%2e", "%2e%2e%2fP", "..%2fP", "P%00", "．．/P", "‥/P", "..／P", "P\u202e", "P\u200b", "Ｐ", "\ufeffP", "P\n", " P", "P ", "~", "$HOME",
    "P;id", "file:///etc", "http://x/P", "s3://x/P", "con", "", "P" * 129, "P" * 100_000, "é", "P.", "..P", "P/model.pt", "link", "out",
]


@pytest.fixture
def repository(toys):
    return toys("P", buckets=[32])


@pytest.fixture
def certificates(tmp_path):
    """An authority, and pairs that it has signed; another authority with one of its own."""

    def openssl(*words):
        subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True, cwd=tmp_path)

    new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    for authority in ("ca", "other_ca"):
        openssl("req", "-x509", *new_key, "-keyout", f"{authority}.key", "-out", f"{authority}.crt", "-subj", f"/CN={authority}")
    (tmp_path / "names").write_text("subjectAltName=DNS:localhost,DNS:headroom.test,IP:127.0.0.1\n")
    for name, authority in (("server", "ca"), ("renewed", "other_ca"), ("client", "ca"), ("stranger", "other_ca")):
        openssl("req", *new_key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        openssl(
            "x509", "-req", "-in", f"{name}.csr", "-CA", f"{authority}.crt", "-CAkey", f"{authority}.key", "-CAcreateserial",
            "-out", f"{name}.crt", "-extfile", "names",
        )  # fmt: skip
    return tmp_path


def channel(address, certificates=None, authority="ca", client=None):
    apart = [("grpc.use_local_subchannel_pool", 1)]
    if certificates is None:
        return grpc.insecure_channel(address, options=apart)
    pair = [(certificates / f"{client}.{kind}").read_bytes() if client else None for kind in ("key", "crt")]
    credentials = grpc.ssl_channel_credentials((certificates / f"{authority}.crt").read_bytes(), *pair)
    return grpc.secure_channel(address, credentials, options=apart)


def ask(to, method="ServerMetadata", message=b"", token=None, seconds=60):
    """The answer's bytes, or the status of the refusal."""
    metadata = [("authorization", f"Bearer {token}")] if token else None
    path = method if method.startswith("/") else SERVICE + method
    try:
        return to.unary_unary(path)(message, metadata=metadata, timeout=seconds)
    except grpc.RpcError as error:
        return error.code()


def request(model="P", ids=(1, 2, 3)):
    message = service_pb2.ModelInferRequest(model_name=model)
    message.inputs.add(name="input_ids", datatype="INT64", shape=[1, len(ids)])
    message.raw_input_contents.append(np.array(ids, np.int64).tobytes())
    return message.SerializeToString()


def infers(to, token=None):
    answer = ask(to, "ModelInfer", request(), token)
    return isinstance(answer, bytes) and b"row" in answer


def test_tls_with_a_certificate_that_is_renewed_while_calls_go_on(repository, certificates, tmp_path):
    shutil.copy(tmp_path / "server.crt", tmp_path / "now.crt")
    shutil.copy(tmp_path / "server.key", tmp_path / "now.key")
    tls = ["--tls-certificate", tmp_path / "now.crt", "--tls-key", tmp_path / "now.key"]
    with Server(repository, *OPTIONS, *tls) as server, channel(server.grpc, certificates) as old:
        assert infers(old)
        with channel(server.grpc) as plain:
            assert ask(plain, seconds=10) == grpc.StatusCode.UNAVAILABLE
        health = ["health", "--address", server.grpc]
        assert run(HEADROOM, *health, "--tls-ca", tmp_path / "ca.crt").returncode == 0
        assert run(HEADROOM, *health, "--tls-ca", tmp_path / "ca.crt", "--tls-server-name", "headroom.test").returncode == 0
        assert run(HEADROOM, *health, "--tls-ca", tmp_path / "ca.crt", "--tls-server-name", "someone.else").returncode == 1
        assert run(HEADROOM, *health, "--tls-ca", tmp_path / "other_ca.crt").returncode == 1
        assert run(HEADROOM, *health).returncode == 1
        # Half a change leaves what was.
        shutil.copy(tmp_path / "renewed.crt", tmp_path / "now.crt")

        def trusts(authority):
            with channel(server.grpc, certificates, authority) as new:
                return infers(new)

        assert eventually(lambda: trusts("ca") and "could not be read anew" in server.log())
        shutil.copy(tmp_path / "renewed.key", tmp_path / "now.key")
        assert eventually(lambda: trusts("other_ca"))
        assert not trusts("ca")
        assert infers(old)


def test_mutual_tls_serves_only_clients_of_the_authority(repository, certificates, tmp_path):
    tls = ["--tls-certificate", tmp_path / "server.crt", "--tls-key", tmp_path / "server.key", "--tls-client-ca", tmp_path / "ca.crt"]
    with Server(repository, *OPTIONS, *tls) as server:
        with channel(server.grpc, certificates, client="client") as known:
            assert infers(known)
        for client in (None, "stranger"):
            with channel(server.grpc, certificates, client=client) as unknown:
                assert ask(unknown, seconds=10) == grpc.StatusCode.UNAVAILABLE
        health = ["health", "--address", server.grpc, "--tls-ca", tmp_path / "ca.crt"]
        own = ["--tls-certificate", tmp_path / "client.crt", "--tls-key", tmp_path / "client.key"]
        assert run(HEADROOM, *health, *own).returncode == 0
        assert run(HEADROOM, *health, "--timeout", 5).returncode == 1


def test_a_start_with_files_at_fault_names_them(repository, certificates, tmp_path):
    (tmp_path / "tokens").write_text("short\n")
    cases = [
        (["--tls-certificate", tmp_path / "server.crt", "--tls-key", tmp_path / "client.key"], "--tls-key"),
        (["--tls-certificate", tmp_path / "none", "--tls-key", tmp_path / "client.key"], "--tls-certificate"),
        (["--token-file", tmp_path / "tokens"], "--token-file"),
        (["--token-file", tmp_path / "none"], "--token-file"),
    ]
    for options, flag in cases:
        ended = run(HEADROOM, "serve", "--model-repository", repository, "--grpc-address", "127.0.0.1:0", *OPTIONS, *options)
        assert ended.returncode not in (0, 2) and flag in ended.stderr.splitlines()[-1], ended.stderr


def test_tokens_guard_every_method_of_the_service(repository, tmp_path):
    tokens = tmp_path / "tokens"
    tokens.write_text(TOKEN + "\n")
    with Server(repository, *OPTIONS, "--token-file", tokens) as server, channel(server.grpc) as to:
        methods = [method.name for method in service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"].methods]
        assert len(methods) > 15
        for method in methods:
            refused = ask(to, method) == grpc.StatusCode.UNAUTHENTICATED
            assert refused == (method not in FREE), method
            assert ask(to, method, token=TOKEN) != grpc.StatusCode.UNAUTHENTICATED, method
        assert isinstance(ask(to, "/grpc.health.v1.Health/Check", health_pb2.HealthCheckRequest().SerializeToString()), bytes)
        reflection = to.stream_stream("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo")
        with pytest.raises(grpc.RpcError) as refused:
            list(reflection(iter([b""]), timeout=60))
        assert refused.value.code() == grpc.StatusCode.UNAUTHENTICATED
        assert run(HEADROOM, "health", "--address", server.grpc).returncode == 0
        assert infers(to, TOKEN) and not infers(to, OTHER_TOKEN)
        # The old one goes once all callers have the new one.
        tokens.write_text(f"{TOKEN}\n{OTHER_TOKEN}\n")
        assert eventually(lambda: infers(to, OTHER_TOKEN))
        assert infers(to, TOKEN)
        tokens.write_text(OTHER_TOKEN)
        assert eventually(lambda: not infers(to, TOKEN))
        assert infers(to, OTHER_TOKEN)
        assert TOKEN not in server.log() and OTHER_TOKEN not in server.log()


@pytest.mark.parametrize("place", ["tcp", "unix"])
def test_management_has_a_port_of_its_own(repository, tmp_path, place):
    socket_path = tmp_path / "management.sock"
    address = f"unix:{socket_path}" if place == "unix" else "127.0.0.1:0"
    options = ["--model-control", "on", "--management-address", address]
    load = service_pb2.RepositoryModelLoadRequest(model_name="P").SerializeToString()
    with Server(repository, *OPTIONS, *options) as server:
        management = json.loads(server.ready_file.read_text())["management"]
        with channel(server.grpc) as main, channel(management) as own:
            assert infers(main)
            assert ask(main, "RepositoryModelLoad", load) == grpc.StatusCode.UNAVAILABLE
            assert ask(main, "RepositoryModelUnload", load) == grpc.StatusCode.UNAVAILABLE
            assert ask(own, "ModelInfer", request()) == grpc.StatusCode.UNIMPLEMENTED
            assert ask(own, "RepositoryModelLoad", load) == b""
            assert b"READY" in ask(own, "RepositoryIndex")
            assert ask(own, "RepositoryModelUnload", load) == b""
            assert ask(main, "ModelInfer", request()) in (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.UNAVAILABLE)
            assert ask(own, "RepositoryModelLoad", load) == b""
            assert infers(main)
            assert isinstance(ask(own, "/grpc.health.v1.Health/Check"), bytes)
        assert run(HEADROOM, "health", "--address", management).returncode == 0
        if place == "unix":
            assert socket_path.stat().st_mode & 0o777 == 0o600
    assert not socket_path.exists()


def test_management_may_have_tokens_of_its_own(repository, tmp_path):
    (tmp_path / "tokens").write_text(TOKEN)
    (tmp_path / "management_tokens").write_text(OTHER_TOKEN)
    options = ["--model-control", "on", "--management-address", "127.0.0.1:0", "--token-file", tmp_path / "tokens"]
    with Server(repository, *OPTIONS, *options, "--management-token-file", tmp_path / "management_tokens") as server:
        management = json.loads(server.ready_file.read_text())["management"]
        with channel(server.grpc) as main, channel(management) as own:
            assert infers(main, TOKEN) and not infers(main, OTHER_TOKEN)
            assert ask(own, "RepositoryIndex", token=TOKEN) == grpc.StatusCode.UNAUTHENTICATED
            assert isinstance(ask(own, "RepositoryIndex", token=OTHER_TOKEN), bytes)


def listening(process):
    """The addresses at which a process listens, as the kernel tells: (hex address, port)."""
    inodes = set()
    for entry in Path(f"/proc/{process}/fd").iterdir():
        with contextlib.suppress(OSError):
            inodes |= set(re.findall(r"socket:\[(\d+)\]", os.readlink(entry)))
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{process}/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and words[9] in inodes:
                address, port = words[1].split(":")
                found.add((address, int(port, 16)))
    return found


@pytest.mark.parametrize("host, in_hex", [("127.0.0.1", "0100007F"), ("0.0.0.0", "00000000"), ("127.0.0.3", "0300007F")])
def test_what_listens_is_what_is_configured(repository, host, in_hex):
    options = ["--model-control", "on", "--management-address", "127.0.0.2:0"]
    with Server(repository, *OPTIONS, *options, host=host) as server:
        told = json.loads(server.ready_file.read_text())
        ports = {name: int(address.rpartition(":")[2]) for name, address in told.items()}
        expected = {(in_hex, ports["grpc"]), (in_hex, ports["http"]), ("0200007F", ports["management"])}
        assert listening(server.process.pid) == expected


def test_no_name_leads_out_of_the_repository(repository, tmp_path):
    outside = tmp_path / "outside"
    shutil.copytree(repository / "P", outside / "P")
    os.symlink(outside / "P", repository / "link")
    os.symlink("../outside/P", repository / "out")
    with Server(repository, *OPTIONS, "--model-control", "on") as server, channel(server.grpc) as to:
        for name in HOSTILE_NAMES:
            load = service_pb2.RepositoryModelLoadRequest(model_name=name).SerializeToString()
            for method in ("RepositoryModelLoad", "RepositoryModelUnload"):
                assert ask(to, method, load) in (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.INVALID_ARGUMENT), (method, name)
            assert ask(to, "ModelInfer", request(name)) in (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.INVALID_ARGUMENT), name
        for key in ("config", "file:1/model.pt", "file:../../evil"):
            load = service_pb2.RepositoryModelLoadRequest(model_name="P")
            load.parameters[key].string_param = "x"
            assert ask(to, "RepositoryModelLoad", load.SerializeToString()) == grpc.StatusCode.INVALID_ARGUMENT
        assert ask(to, "RepositoryIndex").count(b"READY") == 1
        assert infers(to)


@pytest.mark.parametrize("file", ["../../outside/P/1/model.pt", "/etc/passwd", "other.pt", "model.pt/../model.pt"])
def test_a_configuration_cannot_name_another_file(repository, file):
    config = repository / "P" / "config.pbtxt"
    config.write_text(config.read_text() + f'\ndefault_model_filename: "{file}"\n')
    ended = run(HEADROOM, "serve", "--model-repository", repository, "--grpc-address", "127.0.0.1:0", *OPTIONS)
    assert ended.returncode not in (0, 2) and "default_model_filename" in ended.stderr


@pytest.mark.parametrize("place", ["P/1", "P/1/model.pt", "P/config.pbtxt"])
def test_links_inside_a_model_are_not_followed(repository, tmp_path, place):
    moved = tmp_path / "moved"
    (repository / place).rename(moved)
    os.symlink(moved, repository / place)
    ended = run(HEADROOM, "serve", "--model-repository", repository, "--grpc-address", "127.0.0.1:0", *OPTIONS)
    assert ended.returncode not in (0, 2)
    assert "symbolic link" in ended.stderr or "no version" in ended.stderr


def test_it_serves_as_another_user_from_a_repository_that_it_cannot_write(tmp_path, make_readable):
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    nobody = pwd.getpwnam("nobody")
    repository, scratch = make_readable
    # Where this user may read the program and write nothing but its own scratch.
    def become():
        os.setgroups([])
        os.setgid(nobody.pw_gid)
        os.setuid(nobody.pw_uid)

    ready, log = scratch / "ready.json", scratch / "log"
    command = [HEADROOM, "serve", "--model-repository", repository, "--grpc-address", "127.0.0.1:0", "--http-address", "127.0.0.1:0"]
    before = sorted(str(path) for path in repository.rglob("*"))
    with open(log, "wb") as out:
        process = subprocess.Popen(
            [str(word) for word in [*command, "--ready-file", ready, *OPTIONS]], stdout=out, stderr=out, stdin=subprocess.DEVNULL,
            preexec_fn=become, cwd="/", env={"PATH": os.environ["PATH"], "HOME": "/nonexistent"},
        )  # fmt: skip
    try:
        assert eventually(lambda: ready.exists() or process.poll() is not None, 400), log.read_text()
        assert ready.exists(), log.read_text()
        assert Path(f"/proc/{process.pid}").stat().st_uid == nobody.pw_uid
        with channel(json.loads(ready.read_text())["grpc"]) as to:
            assert infers(to)
    finally:
        process.terminate()
        assert process.wait(60) == 0
    assert sorted(str(path) for path in repository.rglob("*")) == before


@pytest.fixture
def make_readable(toys):
    """A repository that all may read and nobody may write, and a folder for the other user, outside of pytest's private ones."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="headroom-nobody-") as folder:
        os.chmod(folder, 0o755)
        repository = Path(shutil.copytree(toys("P", buckets=[32]), Path(folder) / "repository"))
        for path in [repository, *repository.rglob("*")]:
            os.chmod(path, 0o555 if path.is_dir() else 0o444)
        scratch = Path(folder) / "scratch"
        scratch.mkdir()
        os.chmod(scratch, 0o777)
        yield repository, scratch
        for path in [repository, *repository.rglob("*")]:
            if path.is_dir():
                os.chmod(path, 0o755)


LEAKS = re.compile(r"(/[a-z0-9_.-]+){2,}|0x[0-9a-f]{6,}|\bat::|\bc10::|\btorch\b|\.cc\b|\.cpp\b|\.py\b|std::|Exception|what\(\)|_Z[A-Z0-9]", re.IGNORECASE)


def test_error_texts_tell_nothing_of_the_inside(repository):
    def broken(**changes):
        message = service_pb2.ModelInferRequest.FromString(request())
        for name, value in changes.items():
            setattr(message, name, value)
        return message

    nasty = "\x1b[31m\n\r\0'\"; DROP /etc/passwd %s %n {} " + "x" * 5000
    messages = [broken(model_name=name) for name in HOSTILE_NAMES if len(name) < 1000] + [broken(model_version=nasty[:100])]
    for field, value in (("name", nasty), ("datatype", nasty), ("name", "x"), ("datatype", "FP32")):
        message = broken()
        setattr(message.inputs[0], field, value)
        messages.append(message)
    for shape in ([1, 2**62], [-1, 3], [0, 3], [2**63 - 1, 2**63 - 1], [1] * 100, [], [1, 33], [4, 1]):
        message = broken()
        del message.inputs[0].shape[:]
        message.inputs[0].shape.extend(shape)
        messages.append(message)
    message = broken()
    message.outputs.add(name=nasty)
    messages.append(message)
    message = broken()
    message.parameters[nasty[:100]].string_param = nasty
    message.parameters["timeout"].string_param = nasty
    messages.append(message)
    with Server(repository, *OPTIONS, "--model-control", "on") as server, channel(server.grpc) as to:
        texts = []
        for sent in [*(message.SerializeToString() for message in messages), b"\xff" * 40, request(ids=[5000]), request(ids=[1] * 40)]:
            with pytest.raises(grpc.RpcError) as refused:
                to.unary_unary(SERVICE + "ModelInfer")(sent, timeout=60)
            texts.append(refused.value.details())
        for name in HOSTILE_NAMES:
            with pytest.raises(grpc.RpcError) as refused:
                to.unary_unary(SERVICE + "RepositoryModelLoad")(
                    service_pb2.RepositoryModelLoadRequest(model_name=name).SerializeToString(), timeout=60
                )
            texts.append(refused.value.details())
        for path in ("/nothing", "/../../etc/passwd", "/metrics/../x"):
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(f"http://{server.http}{path}", timeout=60)
            texts.append(refused.value.read().decode())
        for text in texts:
            # What stands in quotes is the client's own.
            own = re.sub(r"'(\\.|[^'\\])*'|\"(\\.|[^\"])*\"", "…", text).replace("/metrics, /livez and /readyz", "")
            assert not LEAKS.search(own), text
            assert len(text) < 1000 and text.strip("\n").isprintable(), text
            assert str(repository) not in text and socket.gethostname() not in own
        assert infers(to)


def test_the_program_is_hardened():
    """What a wrong length could still do is bounded by how the program was built."""
    if BUILD.name != "release":
        pytest.skip("a sanitizer's build is another one")
    told = subprocess.run(["readelf", "-hldW", str(HEADROOM)], capture_output=True, text=True, check=True).stdout
    assert "DYN (" in told and "GNU_RELRO" in told
    assert re.search(r"GNU_STACK.*\bRW\b(?!E)", told)
