"""One entry of a model repository: its configuration as text, and the files as the server expects to find them.

    <repository>/<name>/config.pbtxt
    <repository>/<name>/<version>/model.pt
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

LADDER = (32, 64, 128, 256, 512)

# The names of config.pbtxt, which are Triton's.
DATA_TYPES: dict[torch.dtype, str] = {
    torch.bool: "TYPE_BOOL",
    torch.uint8: "TYPE_UINT8",
    torch.int8: "TYPE_INT8",
    torch.int16: "TYPE_INT16",
    torch.int32: "TYPE_INT32",
    torch.int64: "TYPE_INT64",
    torch.float16: "TYPE_FP16",
    torch.bfloat16: "TYPE_BF16",
    torch.float32: "TYPE_FP32",
    torch.float64: "TYPE_FP64",
}
NAME = re.compile(r"[A-Za-z0-9_-]{1,128}")


@dataclass(frozen=True)
class Input:
    """An input of the model. `dims` leave the batch out; -1 is the sequence axis.

    `value_range` is checked on every request: an id outside an embedding ends a GPU's context for all requests.
    """

    name: str
    dtype: torch.dtype = torch.int64
    dims: tuple[int, ...] = (-1,)
    role: str = ""  # TOKENS, MASK or nothing
    value_range: tuple[float, float] | None = None
    pad_value: float | None = None
    optional: bool = False

    def text(self) -> str:
        parts = [f"name: {quoted(self.name)}", f"data_type: {DATA_TYPES[self.dtype]}", f"dims: {listed(self.dims)}"]
        if self.role:
            parts.append(f"role: {self.role}")
        if self.value_range is not None:
            low, high = self.value_range
            parts.append(f"value_range {{ min: {number(low)} max: {number(high)} }}")
        if self.pad_value is not None:
            parts.append(f"pad_value: {number(self.pad_value)}")
        if self.optional:
            parts.append("optional: true")
        return "{ " + " ".join(parts) + " }"


@dataclass(frozen=True)
class Output:
    name: str
    dtype: torch.dtype = torch.float32
    dims: tuple[int, ...] = (-1,)

    def text(self) -> str:
        return f"{{ name: {quoted(self.name)} data_type: {DATA_TYPES[self.dtype]} dims: {listed(self.dims)} }}"


@dataclass(frozen=True)
class Entry:
    """What config.pbtxt says of a model. What is None or empty is left out, so that the server's default holds."""

    name: str
    inputs: Sequence[Input]
    outputs: Sequence[Output]
    max_batch_size: int = 64
    buckets: Sequence[int] = LADDER
    padding: str = "AUTO"  # AUTO, BUCKET, MULTIPLE_OF_8 or EXACT
    padding_check: str = "REFUSE"  # REFUSE, WARN or OFF
    padding_safe: bool = False
    tiers: Sequence[tuple[int, str]] = field(default_factory=tuple)  # (up to this length, TRUNCATE or SOLO)
    safety_margin: float | None = None
    max_queue_size: int | None = None

    @property
    def variable_length(self) -> bool:
        return any(-1 in value.dims for value in self.inputs)

    def text(self) -> str:
        lines = [
            f"name: {quoted(self.name)}",
            'backend: "pytorch"',
            f"max_batch_size: {self.max_batch_size}",
            *(f"input {value.text()}" for value in self.inputs),
            *(f"output {value.text()}" for value in self.outputs),
        ]
        if self.variable_length:
            parts = [f"buckets: {listed(self.buckets)}", f"padding: {self.padding}"]
            parts.append(f"padding_check: {self.padding_check}")
            if self.padding_safe:
                parts.append("padding_safe: true")
            parts += [f"tier {{ up_to: {up_to} action: {action} }}" for up_to, action in self.tiers]
            lines.append("sequence { " + " ".join(parts) + " }")
        if self.safety_margin is not None:
            lines.append(f"memory {{ safety_margin: {number(self.safety_margin)} }}")
        if self.max_queue_size is not None:
            lines.append(f"dynamic_batching {{ default_queue_policy {{ max_queue_size: {self.max_queue_size} }} }}")
        return "\n".join(lines) + "\n"


def quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(value)


def listed(numbers: Sequence[int]) -> str:
    return "[ " + ", ".join(str(number) for number in numbers) + " ]"


def write_entry(
    module: torch.jit.ScriptModule,
    entry: Entry,
    repository: Path,
    version: int = 1,
    check: Callable[[Path], None] | None = None,
) -> Path:
    """Writes the entry's two files and returns the path of model.pt.

    `check` sees the model's file before anybody else can; when it raises, the repository stays as it was.
    """
    if not NAME.fullmatch(entry.name):
        raise ValueError(f"a model's name is 1 to 128 of A-Z a-z 0-9 _ -, not {entry.name!r}")
    if version < 1:
        raise ValueError(f"a version is a whole number from 1, not {version}")
    folder = repository / entry.name
    folder.mkdir(parents=True, exist_ok=True)
    # Staged on the same file system and moved into place: a server that looks meanwhile sees the old file or the new
    # one, never half of one.
    with tempfile.TemporaryDirectory(prefix=".export-", dir=folder) as staging:
        model = Path(staging) / "model.pt"
        config = Path(staging) / "config.pbtxt"
        text = entry.text()
        config.write_text(text)
        torch.jit.save(module, str(model), _extra_files={"config.pbtxt": text})
        if check is not None:
            check(model)
        target = folder / str(version) / "model.pt"
        target.parent.mkdir(exist_ok=True)
        # The model goes last: its presence is what makes a version.
        config.replace(folder / "config.pbtxt")
        model.replace(target)
    return target
