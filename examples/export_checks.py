"""What export_model.py holds against a module before it lets it into a repository."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor

from repository_entry import DATA_TYPES, Entry

Outputs = dict[str, Tensor]

# Float noise of another batch or length: matrix products add up in another order there.
RELATIVE_TOLERANCE = 1e-4
ABSOLUTE_TOLERANCE = 1e-5


class ExportError(Exception):
    """The module cannot be served as it is. The text says why and what to change."""


def example_lengths(rows: int, length: int) -> list[int]:
    """True lengths of the rows of an example: the first fills it, the others are shorter, none is empty."""
    return [max(1, length - row * max(1, length // (rows + 1))) for row in range(rows)]


def example_inputs(entry: Entry, rows: int, length: int, seed: int = 0) -> dict[str, Tensor]:
    """Random inputs that keep to the declared ranges; the rows differ in length where the model has a mask."""
    generator = torch.Generator().manual_seed(seed)
    masked = any(value.role == "MASK" for value in entry.inputs)
    lengths = torch.tensor(example_lengths(rows, length) if masked else [length] * rows)
    inside = torch.arange(length) < lengths.unsqueeze(1)
    inputs: dict[str, Tensor] = {}
    for value in entry.inputs:
        batch = [rows] if entry.max_batch_size > 0 else []
        shape = batch + [length if size == -1 else size for size in value.dims]
        if value.role == "MASK":
            inputs[value.name] = (inside if batch else inside[0]).to(value.dtype).reshape(shape)
            continue
        if value.dtype == torch.bool:
            tensor = torch.randint(0, 2, shape, generator=generator).to(torch.bool)
        elif value.dtype.is_floating_point:
            low, high = value.value_range or (-1.0, 1.0)
            low, high = max(low, -1e3), min(high, 1e3)
            tensor = (torch.rand(shape, generator=generator) * (high - low) + low).to(value.dtype)
        else:
            low, high = value.value_range or (0, 1)
            tensor = torch.randint(int(low), int(high) + 1, shape, generator=generator).to(value.dtype)
            if tensor.numel() > 1:
                # Both ends are used: a range wider than the model's table has to fail here, not on a client's request.
                tensor.view(-1)[0], tensor.view(-1)[1] = int(low), int(high)
        if masked and batch and value.dims[:1] == (-1,):
            padding = ~inside.reshape(rows, length, *[1] * (len(value.dims) - 1))
            tensor = tensor.masked_fill(padding, value.pad_value or 0)
        inputs[value.name] = tensor
    return inputs


def run(module: Callable[..., object], inputs: dict[str, Tensor]) -> list[tuple[str, Tensor]]:
    """Runs a module and returns its outputs in order, with the key where it answers a dict."""
    with torch.no_grad():
        answer = module(*inputs.values())
    if isinstance(answer, Tensor):
        found = [("", answer)]
    elif isinstance(answer, dict):
        found = list(answer.items())
    elif isinstance(answer, (tuple, list)):
        found = [("", value) for value in answer]
    else:
        raise ExportError(f"forward returns a {type(answer).__name__}; a tensor, tuple, list or dict can be served")
    for place, (_, value) in enumerate(found):
        if not isinstance(value, Tensor):
            raise ExportError(f"output {place} of forward is a {type(value).__name__}, not a tensor")
        if value.dtype not in DATA_TYPES:
            raise ExportError(f"output {place} of forward is {value.dtype}, which has no type in the protocol")
    return found


def named(entry: Entry, answers: list[tuple[str, Tensor]]) -> Outputs:
    keys = [key for key, _ in answers]
    names = [output.name for output in entry.outputs]
    if any(keys):
        return {name: dict(answers)[name] for name in names}
    return {name: tensor for name, (_, tensor) in zip(names, answers, strict=True)}


def largest_difference(expected: Tensor, found: Tensor) -> float:
    if expected.numel() == 0:
        return 0.0
    return (expected.to(torch.float64) - found.to(torch.float64)).abs().max().item()


def same(expected: Tensor, found: Tensor) -> bool:
    return (
        expected.shape == found.shape
        and expected.dtype == found.dtype
        and torch.allclose(expected, found, rtol=RELATIVE_TOLERANCE, atol=ABSOLUTE_TOLERANCE, equal_nan=True)
    )


def nodes_of(block: torch._C.Graph | torch._C.Block) -> Iterator[torch._C.Node]:
    """Every node of a graph, those in the blocks of an if or a loop and in subgraphs included."""
    for node in block.nodes():
        yield node
        for inner in node.blocks():
            yield from nodes_of(inner)
        for attribute in node.attributeNames():
            if node.kindOf(attribute) == "g":
                yield from nodes_of(node.g(attribute))


def source_line(node: torch._C.Node) -> str:
    """Where in the user's code a node comes from, with the line itself where the file can be read."""
    # A trace says `file.py(12): forward`, innermost call first, and a script `File "file.py", line 12`.
    places = re.findall(r'([^\s"]+\.py)(?:\(|", line )(\d+)', node.sourceRange())
    torch_itself = str(Path(torch.__file__).parent)
    places = [place for place in places if not place[0].startswith(torch_itself)] or places
    if not places:
        return "an unknown line"
    path, number = Path(places[0][0]), int(places[0][1])
    try:
        return f"{path.name}:{number}: {path.read_text().splitlines()[number - 1].strip()}"
    except (OSError, IndexError):
        return f"{path.name}:{number}"


def baked_devices(module: torch.jit.ScriptModule) -> list[str]:
    """One line for each place of the graph that names a device, instead of following its inputs."""
    found = []
    for node in nodes_of(module.inlined_graph):
        if node.kind() in ("aten::cpu", "aten::cuda", "aten::device"):
            found.append(f"{node.kind()} at {source_line(node)}")
        if node.kind() != "prim::Constant":
            continue
        value = node.output()
        if value.type().kind() != "DeviceObjType" or not node.hasAttribute("value"):
            continue
        for use in value.uses():
            found.append(f'{use.user.kind()} on "{node.s("value")}" at {source_line(use.user)}')
    return list(dict.fromkeys(found))


def refuse_baked_devices(module: torch.jit.ScriptModule) -> None:
    found = baked_devices(module)
    if found:
        raise ExportError(
            "a device is baked into the graph, so the model would run only there:\n  "
            + "\n  ".join(found)
            + "\nA trace writes down the device of every tensor that forward makes. Make such tensors in __init__"
            " (register_buffer) and slice them, derive them from an input (ones_like(x), x.new_ones), or put the line"
            " into a function under @torch.jit.script, where x.device stays a question."
        )


def compare(what: str, expected: Outputs, found: Outputs, notes: Sequence[str] = ()) -> None:
    for name, value in expected.items():
        other = found[name]
        if same(value, other):
            continue
        if value.shape != other.shape or value.dtype != other.dtype:
            difference = f"{list(other.shape)} {other.dtype} instead of {list(value.shape)} {value.dtype}"
        else:
            difference = f"the largest difference is {largest_difference(value, other):.3g}"
        raise ExportError("\n  ".join([f"{what}: output {name!r} differs, {difference}", *notes]))


def check_padding(module: torch.jit.ScriptModule, entry: Entry) -> None:
    """Compares each row alone with the same row padded beside longer ones: what the server will do to it."""
    rows, length = 4, 32
    inputs = example_inputs(entry, rows, length, seed=3)
    together = named(entry, run(module, inputs))
    for row, true_length in enumerate(example_lengths(rows, length)):
        alone_inputs = {}
        for value in entry.inputs:
            tensor = inputs[value.name][row : row + 1]
            for axis, size in enumerate(value.dims):
                tensor = tensor.narrow(axis + 1, 0, true_length) if size == -1 else tensor
            alone_inputs[value.name] = tensor
        alone = named(entry, run(module, alone_inputs))
        padded = {}
        for output in entry.outputs:
            tensor = together[output.name][row : row + 1]
            for axis, size in enumerate(output.dims):
                tensor = tensor.narrow(axis + 1, 0, true_length) if size == -1 else tensor
            padded[output.name] = tensor
        compare(
            f"padding changes the answer of a row of {true_length} tokens in a batch padded to {length}",
            alone,
            padded,
            ["The model has to ignore what its mask leaves out: in attention, in pooling and in normalisation."],
        )


def check_on_dry_card(launcher: Path, model: Path, inputs: Sequence[dict[str, Tensor]]) -> None:
    """Runs the file as "cuda:0" under the stand-in CUDA runtime. It says nothing of values, only of devices."""
    with tempfile.TemporaryDirectory() as folder:
        saved = Path(folder) / "inputs.pt"
        torch.save([list(example.values()) for example in inputs], saved)
        command = [str(launcher), "--card", "16GiB", "--", sys.executable, __file__, str(model), str(saved)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        except OSError as error:
            raise ExportError(f"the dry card could not be started: {launcher}: {error.strerror}") from error
        except subprocess.TimeoutExpired as error:
            raise ExportError("the run on the dry card did not end within 300 s") from error
    if done.returncode != 0:
        last = (done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}").splitlines()[-1]
        raise ExportError(f"the model does not run on another device than this one (tried on a dry card): {last}")


def probe(model: str, inputs: str) -> None:
    """The part of check_on_dry_card that runs under the launcher."""
    # The fusers compile kernels for the card on the second run, which needs a real driver.
    torch._C._jit_set_texpr_fuser_enabled(False)
    torch._C._jit_override_can_fuse_on_gpu(False)
    module = torch.jit.freeze(torch.jit.load(model, map_location="cuda:0").eval())
    for example in torch.load(inputs):
        on_card = {str(place): tensor.to("cuda:0") for place, tensor in enumerate(example)}
        for _ in range(2):
            for place, (_, tensor) in enumerate(run(module, on_card)):
                if tensor.device != torch.device("cuda:0"):
                    sys.exit(f"output {place} is on {tensor.device}, not on the card")


if __name__ == "__main__":
    probe(*sys.argv[1:])
