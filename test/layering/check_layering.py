"""Checks that the code keeps to the layers of docs/architecture.md. Reads the sources, needs nothing but Python.

    check_layering.py [ROOT]

Three kinds of rule, each a table below: which folder may include which, which files may see which library, and which calls
are made in one file only (time is injected, so that tests own it; settings come from options, not from the environment).
Prints one line a violation, "file:line: words", and ends with 1 where there is one.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# What a layer may include besides itself: other layers, or single headers of theirs. A layer is a folder without the layers
# inside it: "runtime" is not "runtime/torch".
ARROWS: dict[str, set[str]] = {
    "base": set(),
    "proto": set(),
    "runtime": {"base"},
    "runtime/torch": {"base", "runtime"},
    "runtime/dry_cuda": set(),
    "memory": {"base", "runtime"},
    "batching": {"base", "runtime", "memory"},
    "metrics": {"base", "batching/batch_observer.h", "memory/memory_budget.h"},
    "server": {"base", "runtime", "memory", "batching", "metrics", "proto"},
    "bench": {"base", "runtime", "runtime/torch", "memory", "batching", "proto"},
    "test/fakes": {"base", "runtime", "memory", "batching"},
    "test/faulty": {"base", "runtime", "server"},
    "test/fuzz": {"base", "runtime", "memory", "batching", "server", "proto", "test/fakes", "test/server/wire_request.h"},
    "test/gpu": {"base", "runtime", "runtime/torch", "memory", "batching", "test/fakes"},
    "test/integration": {"base", "runtime", "runtime/torch", "memory", "batching", "metrics", "server", "proto"},
}
# Single files that may include more than their layer: with the reason.
EXTRA_ARROWS: dict[str, tuple[set[str], str]] = {
    "server/model_repository.cc": ({"runtime/torch/extra_file.h"}, "a module may carry its configuration"),
    "test/faulty/main.cc": ({"test/runtime/torch/refusing_allocator.h"}, "a fault below the seam to libtorch"),
    "server/device_set.cc": ({"runtime/torch/torch_device.h"}, "the one place that chooses the concrete device"),
    "server/dry_process.cc": ({"runtime/dry_cuda/launch.h"}, "plan --card starts the program again on dry cards"),
    "server/card_presets.cc": ({"runtime/dry_cuda/launch.h"}, "a card is what the dry runtime can be"),
}

# What belongs to a library, and the files and folders that may include it.
LIBRARIES: dict[str, tuple[str, tuple[str, ...]]] = {
    "libtorch": (r"(torch|ATen|c10|caffe2)/", ("runtime/torch/", "test/runtime/torch/")),
    "CUDA": (
        r"(cuda|cublas|cudnn|nvml|nvrtc)\w*\.h$|crt/",
        ("runtime/torch/", "runtime/dry_cuda/", "test/runtime/torch/", "test/runtime/dry_cuda/"),
    ),
    "protobuf or gRPC": (r"(google/protobuf|grpc|grpcpp|grpc\+\+)/|.*\.pb\.h$", ("server/", "bench/", "test/server/", "test/fuzz/", "test/integration/")),
    "prometheus-cpp": (r"prometheus/", ("metrics/",)),
    "cpp-httplib": (r"httplib\.h$", ("server/http_server.cc",)),
    "spdlog": (r"spdlog/", ("server/log_sink.cc",)),
    "CLI11": (r"CLI/", ("server/command_line.cc", "runtime/dry_cuda/headroom_dry.cc", "bench/")),
    "nlohmann-json": (r"nlohmann/", ("server/", "bench/", "test/")),
    "OpenSSL": (r"openssl/", ("server/sha256.cc", "server/tls_files.cc", "server/bearer_tokens.cc")),
    "zlib": (r"zlib\.h$", ("server/compressed_message.cc", "test/server/")),
    "google-benchmark": (r"benchmark/", ("bench/",)),
    "Catch2": (r"catch2/", ("test/",)),
    "Abseil": (r"absl/", ("",)),
}
# libtorch's headers carry a protobuf of their own, of another version: no file may see both, by whatever way.
NEVER_TOGETHER = ("libtorch", "protobuf or gRPC")

# A call, how it looks, and the one file that makes it.
CALLS: dict[str, tuple[str, str]] = {
    "a sleep": (r"\b(sleep|usleep|nanosleep|sleep_for|sleep_until)\s*\(", "no file: wait on a condition, with a Clock"),
    "a bounded wait": (r"\bwait_(for|until)\s*\(", "base/sync.h"),
    "reading the time": (
        r"\b(steady|system|high_resolution|file|utc)_clock::now\b|\b(clock_gettime|gettimeofday|gpr_now)\s*\("
        r"|(?<![\w.>:])(?:std::|::)?time\s*\(",
        "base/clock.cc",
    ),
    "reading the environment": (r"\b(getenv|secure_getenv|setenv|putenv)\s*\(|\benviron\b", "no file: settings are options"),
}
# Honest exceptions: file or folder, call, reason. One that nothing needs any more is a violation too.
EXCEPTIONS: list[tuple[str, str, str]] = [
    ("server/call_origin.cc", "reading the time", "a call's deadline is converted from gRPC's clock to ours, once, here"),
    ("server/grpc_listener.cc", "reading the time", "gRPC's Shutdown takes a deadline on gRPC's clock"),
    ("server/health_command.cc", "reading the time", "a client's deadline on gRPC's clock"),
    ("runtime/dry_cuda/", "reading the time", "stands for a driver: an event is stamped when it is recorded"),
    ("runtime/dry_cuda/dry_state.cc", "a sleep", "stands for a driver: kernels may be told to take time"),
    ("runtime/dry_cuda/", "reading the environment", "stands for a driver: its cards are described by the environment"),
]

SYSTEM_FOLDERS = ("sys/", "netinet/", "arpa/", "linux/")
FOLDERS = ("base", "proto", "runtime", "memory", "batching", "metrics", "server", "bench", "test")

COMMENT_OR_TEXT = re.compile(
    r"""//[^\n]*|/\*.*?\*/|R"(?P<mark>[^()\s]*)\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"|(?<![0-9A-Za-z_])'(?:\\.|[^'\\\n])+'""", re.DOTALL
)
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"\n]+)"|<([^>\n]+)>)', re.MULTILINE)


@dataclass(frozen=True)
class Include:
    line: int
    name: str  # of ours: relative to the root
    ours: bool


def blanked(text: str, keep_text: bool) -> str:
    """The code without its comments, and without the contents of its literals unless they are to be kept; lines stay."""

    def blank(match: re.Match[str]) -> str:
        found = match.group()
        if keep_text and not found.startswith(("//", "/*")):
            return found
        return re.sub(r"[^\n]", " ", found)

    return COMMENT_OR_TEXT.sub(blank, text)


def layer_of(name: str) -> str:
    """The layer that a file belongs to: the longest folder of ARROWS that it is in, or, for a test, its own folder."""
    folders = [layer for layer in ARROWS if name.startswith(layer + "/")]
    if folders:
        return max(folders, key=len)
    return name.rpartition("/")[0]


def allowed_for(layer: str) -> set[str]:
    """A test of a layer may use what the layer may, the layer itself, the fakes, and what else lies in the test's folder."""
    if layer in ARROWS:
        return ARROWS[layer]
    tested = layer_of(layer.removeprefix("test/") + "/")
    return ARROWS.get(tested, set()) | {tested, "test/fakes", layer}


class Tree:
    def __init__(self, root: Path) -> None:
        self.root = root
        files = (path for folder in FOLDERS for path in (root / folder).rglob("*") if path.suffix in (".h", ".cc"))
        self.texts = {path.relative_to(root).as_posix(): path.read_text("utf-8") for path in files}
        self.includes = {name: list(self._includes_of(name)) for name in sorted(self.texts)}

    def _includes_of(self, name: str) -> Iterator[Include]:
        text = blanked(self.texts[name], keep_text=True)
        for match in INCLUDE.finditer(text):
            line = text.count("\n", 0, match.start(1 if match.group(1) else 2)) + 1
            if match.group(1) is None:
                yield Include(line, match.group(2), ours=False)
                continue
            beside = f"{name.rpartition('/')[0]}/{match.group(1)}"
            yield Include(line, beside if beside in self.texts else match.group(1), ours=True)

    def violations(self) -> list[str]:
        found = []
        for name in self.includes:
            found += self._arrows(name)
            found += self._libraries(name)
            found += self._both_worlds(name)
        return found + list(self._calls())

    def _arrows(self, name: str) -> Iterator[str]:
        layer = layer_of(name)
        allowed = allowed_for(layer) | EXTRA_ARROWS.get(name, (set(), ""))[0]
        for include in self.includes[name]:
            if not include.ours:
                continue
            generated = include.name.startswith("proto/") and include.name.endswith(".pb.h")
            if not generated and include.name not in self.texts:
                yield f'{name}:{include.line}: "{include.name}" is no file of ours; a library\'s header stands in <>'
            elif layer_of(include.name) != layer and not {layer_of(include.name), include.name} & allowed:
                yield f"{name}:{include.line}: {layer} may not include {include.name}"

    def _libraries(self, name: str) -> Iterator[str]:
        for include in self.includes[name]:
            library = library_of(include)
            if library is None:
                if not include.ours and "/" in include.name and not include.name.startswith(SYSTEM_FOLDERS):
                    yield f"{name}:{include.line}: <{include.name}> is of a library that LIBRARIES does not know"
            elif not name.startswith(LIBRARIES[library][1]):
                doors = " and ".join(LIBRARIES[library][1])
                yield f"{name}:{include.line}: {include.name} is of {library}, which is for {doors} alone"

    def _both_worlds(self, name: str) -> Iterator[str]:
        seen = {library for reached in self._reached(name) for library in map(library_of, self.includes[reached])}
        if seen.issuperset(NEVER_TOGETHER):
            yield f"{name}:1: sees both {NEVER_TOGETHER[0]} and {NEVER_TOGETHER[1]}, through what it includes"

    def _reached(self, name: str) -> set[str]:
        reached: set[str] = set()
        waiting = [name]
        while waiting:
            file = waiting.pop()
            if file in reached or file not in self.includes:
                continue
            reached.add(file)
            waiting += [include.name for include in self.includes[file] if include.ours]
        return reached

    def _calls(self) -> Iterator[str]:
        used = set()
        for name in self.includes:
            code = blanked(self.texts[name], keep_text=False)
            for call, (pattern, home) in CALLS.items():
                for match in re.finditer(pattern, code):
                    if name == home:
                        continue
                    excused = [e for e in EXCEPTIONS if e[1] == call and (name == e[0] or (e[0].endswith("/") and name.startswith(e[0])))]
                    used.update(excused)
                    if not excused:
                        line = code.count("\n", 0, match.start()) + 1
                        yield f"{name}:{line}: {call}, {match.group().strip()}, is for {home}"
        for exception in EXCEPTIONS:
            if exception not in used and (self.root / exception[0]).exists():
                yield f"{exception[0]}:1: needs its exception for {exception[1]} no longer: take it out of EXCEPTIONS"


def library_of(include: Include) -> str | None:
    for library, (pattern, _) in LIBRARIES.items():
        if re.match(pattern, include.name):
            return library
    return None


def main(arguments: list[str]) -> int:
    root = Path(arguments[0]) if arguments else Path(__file__).resolve().parents[2]
    tree = Tree(root)
    found = tree.violations()
    for line in found:
        print(line)
    print(f"layering: {len(tree.texts)} files, {len(found)} violations")
    return 1 if found or not tree.texts else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
