"""A check that finds nothing must be shown to find something: violations planted in a small tree, one at a time."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
import check_layering  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]

# A tree that keeps the rules, down to the exceptions that are really needed in it.
SOUND = {
    "base/bytes.h": "#include <absl/status/statusor.h>\n",
    "base/clock.cc": '#include "base/bytes.h"\nauto now = std::chrono::steady_clock::now();\n',
    "runtime/device.h": '#include "base/bytes.h"\n',
    "runtime/torch/torch_device.h": '#include "runtime/device.h"\n',
    "runtime/torch/torch_device.cc": '#include <torch/script.h>\n#include "runtime/torch/torch_device.h"\n',
    "memory/memory_budget.h": '#include "runtime/device.h"\n',
    "memory/calibration.h": '#include "runtime/device.h"\n',
    "batching/batch_observer.h": '#include "base/bytes.h"\n',
    "batching/batcher.h": '#include "memory/memory_budget.h"\n',
    "metrics/prometheus_observer.h": '#include "batching/batch_observer.h"\n#include "memory/memory_budget.h"\n',
    "server/device_set.cc": '#include "runtime/torch/torch_device.h"\n',
    "server/codec.cc": '#include "proto/open_inference.pb.h"\n#include "batching/batcher.h"\n',
    "test/batching/batcher_test.cc": '#include <catch2/catch.hpp>\n#include "batching/batcher.h"\n#include "test/fakes/fake.h"\n',
    "test/fakes/fake.h": '#include "runtime/device.h"\n',
}

PLANTED = [
    ("base/bytes.h", '#include "runtime/device.h"', "base may not include runtime/device.h"),
    ("runtime/device.h", '#include "memory/memory_budget.h"', "runtime may not include memory/memory_budget.h"),
    ("runtime/device.h", '#include "runtime/torch/torch_device.h"', "runtime may not include runtime/torch/torch_device.h"),
    ("memory/memory_budget.h", '#include "batching/batcher.h"', "memory may not include batching/batcher.h"),
    ("batching/batcher.h", '#include "metrics/prometheus_observer.h"', "batching may not include metrics/prometheus_observer.h"),
    ("batching/batcher.h", "#include <google/protobuf/message.h>", "is of protobuf or gRPC"),
    ("batching/batcher.h", '#include "proto/open_inference.pb.h"', "batching may not include proto/open_inference.pb.h"),
    ("batching/batcher.h", "#include <grpcpp/grpcpp.h>", "is of protobuf or gRPC"),
    ("metrics/prometheus_observer.h", '#include "batching/batcher.h"', "metrics may not include batching/batcher.h"),
    ("metrics/prometheus_observer.h", '#include "memory/calibration.h"', "metrics may not include memory/calibration.h"),
    ("server/codec.cc", "#include <ATen/ATen.h>", "is of libtorch"),
    ("server/codec.cc", "  #  include <c10/core/Device.h>", "is of libtorch"),
    ("server/codec.cc", '#include "runtime/torch/torch_device.h"', "server may not include runtime/torch/torch_device.h"),
    ("server/codec.cc", "#include <prometheus/counter.h>", "is of prometheus-cpp"),
    ("server/codec.cc", "#include <boost/any.hpp>", "is of a library that LIBRARIES does not know"),
    ("server/codec.cc", '#include "server/lost.h"', "is no file of ours"),
    ("test/batching/batcher_test.cc", '#include "server/device_set.h"', "is no file of ours"),
    ("test/batching/batcher_test.cc", '#include "metrics/prometheus_observer.h"', "test/batching may not include metrics/"),
    ("test/fakes/fake.h", '#include "runtime/torch/torch_device.h"', "test/fakes may not include"),
    ("batching/batcher.h", "void f() { sleep(1); }", "a sleep"),
    ("test/batching/batcher_test.cc", "void f() { std::this_thread::sleep_for(1ms); }", "a sleep"),
    ("server/codec.cc", "void f() { usleep (1); }", "a sleep"),
    ("server/codec.cc", "auto t = std::chrono::system_clock::now();", "reading the time"),
    ("server/codec.cc", "auto t = std::chrono::steady_clock::now();", "reading the time"),
    ("server/codec.cc", "auto t = time(nullptr);", "reading the time"),
    ("server/codec.cc", "auto t = ::time(&x);", "reading the time"),
    ("server/codec.cc", "auto t = gpr_now(GPR_CLOCK_REALTIME);", "reading the time"),
    ("server/codec.cc", 'auto t = std::getenv("HOME");', "reading the environment"),
    ("server/codec.cc", "future.wait_for(1s);", "a bounded wait"),
]

HARMLESS = [
    "// sleep(1), time(nullptr), #include <torch/script.h>",
    "/* std::getenv */",
    'const char* text = "getenv(1) sleep(2)";',
    'const char* text = R"(std::chrono::steady_clock::now() " // )";',
    "long most = 1'000'000; void f(TimePoint time); char c = '\"';",
    "bool Wait(TimePoint time) { return WaitUntil(mutex, time); }",
    "request.set_wait_for_ready(false); clock.time(); downtime(3);",
]


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


def violations(root: Path) -> list[str]:
    return check_layering.Tree(root).violations()


def test_the_tree_itself_keeps_the_rules() -> None:
    assert violations(ROOT) == []


def test_a_sound_tree_has_no_violation(tmp_path: Path) -> None:
    assert violations(write(tmp_path, SOUND)) == []


@pytest.mark.parametrize(("name", "line", "words"), PLANTED)
def test_a_planted_violation_is_found_where_it_is(tmp_path: Path, name: str, line: str, words: str) -> None:
    planted = SOUND[name] + "\n" + line + "\n"
    found = violations(write(tmp_path, SOUND | {name: planted}))
    at = f"{name}:{planted.count(chr(10))}: "
    assert [v for v in found if v.startswith(at) and words in v], found


@pytest.mark.parametrize("line", HARMLESS)
def test_words_that_only_look_like_a_violation_are_passed(tmp_path: Path, line: str) -> None:
    assert violations(write(tmp_path, SOUND | {"server/codec.cc": line + "\n"})) == []


def test_a_file_that_sees_libtorch_and_protobuf_through_others_is_found(tmp_path: Path) -> None:
    files = {
        "runtime/torch/torch_device.h": "#include <torch/script.h>\n",
        "server/device_set.cc": '#include "runtime/torch/torch_device.h"\n#include "server/codec.h"\n',
        "server/codec.h": '#include "proto/open_inference.pb.h"\n',
    }
    found = violations(write(tmp_path, SOUND | files))
    assert [v for v in found if v.startswith("server/device_set.cc:1: sees both")], found


def test_an_exception_that_nothing_needs_is_found(tmp_path: Path) -> None:
    found = violations(write(tmp_path, SOUND | {"server/grpc_listener.cc": "int port;\n"}))
    assert [v for v in found if "needs its exception for reading the time no longer" in v], found


def test_the_program_ends_with_1_where_there_is_a_violation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check_layering.main([str(write(tmp_path, SOUND))]) == 0
    write(tmp_path, {"base/bytes.h": "#include <torch/script.h>\n"})
    assert check_layering.main([str(tmp_path)]) == 1
    assert "base/bytes.h:1: torch/script.h is of libtorch" in capsys.readouterr().out


def test_an_empty_tree_is_not_taken_for_a_sound_one(tmp_path: Path) -> None:
    assert check_layering.main([str(tmp_path)]) == 1
