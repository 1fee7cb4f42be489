"""Turns a torch.nn.Module into an entry of a model repository, and refuses one that would not be served right.

    export_model.py --module my_model.py:build --name mine --repository build/models \\
        --input input_ids:INT64:-1,role=TOKENS,range=0..30521,pad=0 \\
        --input attention_mask:INT64:-1,role=MASK,optional \\
        --output embedding

`build` is the module's class, or a function without arguments that returns a module. What is checked before anything is
written:

    the trace        is the same when it is made again, and answers as the module does, at another batch and length too
    the graph        names no device: a tensor made on "cpu" stays there when the model is served on a GPU
    padding          a row answers the same alone and padded beside longer ones (--padding-check OFF leaves it out)
    the dry card     with --dry-card build/release/headroom_dry: the file runs as "cuda:0" on a machine without a GPU
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import inspect
import re
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from export_checks import (
    ExportError,
    check_on_dry_card,
    check_padding,
    compare,
    example_inputs,
    named,
    refuse_baked_devices,
    run,
)
from repository_entry import DATA_TYPES, LADDER, Entry, Input, Output, write_entry

TRACED_AT = (2, 32)
SECOND_SHAPE = (5, 19)  # another batch and another length, odd on purpose: 32 and 19 share no factor


def argument_names(module: nn.Module) -> list[str]:
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [p.name for p in inspect.signature(module.forward).parameters.values() if p.kind in positional]


def in_argument_order(module: nn.Module, entry: Entry) -> Entry:
    """The entry with its inputs in the order of the arguments of forward; the server binds them by these names."""
    names = [value.name for value in entry.inputs]
    if len(set(names)) != len(names):
        raise ExportError(f"an input is declared twice: {', '.join(names)}")
    arguments = argument_names(module)
    if all(re.fullmatch(r".+__\d+", name) for name in names):
        return replace(entry, inputs=sorted(entry.inputs, key=lambda value: int(value.name.rsplit("__", 1)[1])))
    for name in names:
        if name not in arguments:
            raise ExportError(f"input {name!r} is no argument of forward, which takes {', '.join(arguments)}")
    parameters = inspect.signature(module.forward).parameters
    for name in arguments:
        if name not in names and parameters[name].default is inspect.Parameter.empty:
            raise ExportError(f"forward needs {name!r}, and no --input of that name is declared")
    ordered = [name for name in arguments if name in names]
    if ordered != arguments[: len(ordered)]:
        # A trace takes its inputs in order: an optional argument in the middle cannot be skipped.
        skipped = next(name for name in arguments if name not in names)
        raise ExportError(f"forward takes {skipped!r} before {ordered[-1]!r}: declare it as an input too")
    return replace(entry, inputs=sorted(entry.inputs, key=lambda value: arguments.index(value.name)))


def measured_outputs(
    entry: Entry, names: Sequence[str], small: list[tuple[str, Tensor]], large: list[tuple[str, Tensor]]
) -> list[Output]:
    """The outputs as two runs at TRACED_AT and SECOND_SHAPE showed them: a size that follows the length is -1."""
    keys = [key for key, _ in small]
    if not names:
        names = keys if any(keys) else [f"OUTPUT__{place}" for place in range(len(small))]
    if len(names) != len(small):
        raise ExportError(f"forward has {len(small)} outputs, and {len(names)} names are given: {', '.join(names)}")
    if any(keys) and set(keys) != set(names):
        raise ExportError(f"forward returns the keys {', '.join(keys)}; the outputs are named {', '.join(names)}")
    small_by_key, large_by_key = dict(small), dict(large)
    outputs = []
    for place, name in enumerate(names):
        first = small_by_key[name] if any(keys) else small[place][1]
        second = large_by_key[name] if any(keys) else large[place][1]
        if first.dim() != second.dim():
            raise ExportError(f"output {name!r} has {first.dim()} dimensions at one shape, {second.dim()} at another")
        one, other = list(first.shape), list(second.shape)
        if entry.max_batch_size > 0:
            if not one or (one[0], other[0]) != (TRACED_AT[0], SECOND_SHAPE[0]):
                raise ExportError(
                    f"the first dimension of output {name!r} is not the batch: its shape is {one} for {TRACED_AT[0]}"
                    f" rows and {other} for {SECOND_SHAPE[0]}"
                )
            one, other = one[1:], other[1:]
        dims = []
        for a, b in zip(one, other, strict=True):
            if a == b:
                dims.append(a)
            elif (a, b) == (TRACED_AT[1], SECOND_SHAPE[1]):
                dims.append(-1)
            else:
                raise ExportError(
                    f"a size of output {name!r} follows neither the batch nor the length: {one} at length"
                    f" {TRACED_AT[1]}, {other} at {SECOND_SHAPE[1]}"
                )
        outputs.append(Output(name, first.dtype, tuple(dims)))
    return outputs


def trace(module: nn.Module, inputs: dict[str, Tensor]) -> tuple[torch.jit.ScriptModule, list[str]]:
    """The traced module, and what the tracer warned of: noise while the checks pass, a hint when one fails."""
    with warnings.catch_warnings(record=True) as caught, torch.no_grad():
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", torch.jit.TracerWarning)
        try:
            # strict=False lets forward return a dict; the checks below compare what comes out of it.
            traced = torch.jit.trace(module, tuple(inputs.values()), check_trace=True, strict=False)
        except torch.jit.TracingCheckError as error:
            why = "two traces of the module differ, it depends on more than its inputs"
            raise ExportError(f"{why}:\n{error}") from error
        except RuntimeError as error:
            raise ExportError(f"the module cannot be traced: {str(error).strip().splitlines()[-1]}") from error
    notes = []
    for warning in caught:
        said = str(warning.message).split(". ")[0].strip().splitlines()[0]
        notes.append(f"the tracer warned at {Path(warning.filename).name}:{warning.lineno}: {said}")
    return traced, list(dict.fromkeys(notes))


def attempt(what: str, module: Callable[..., object], inputs: dict[str, Tensor], notes: Sequence[str] = ()) -> list:
    try:
        return run(module, inputs)
    except (RuntimeError, IndexError, TypeError, ValueError) as error:
        reason = str(error).strip().splitlines()[-1]
        raise ExportError("\n  ".join([f"{what} fails: {reason}", *notes])) from error


def export(
    module: nn.Module,
    entry: Entry,
    repository: Path,
    version: int = 1,
    script: bool = False,
    dry_card: Path | None = None,
    output_names: Sequence[str] = (),
) -> Path:
    """Checks the module, writes it into the repository and returns the path of its model.pt.

    An entry without outputs gets those that were measured, by `output_names` or the model's own keys.
    Raises ExportError, with nothing written, where the module would not be served right.
    """
    module = module.eval().requires_grad_(False)
    entry = in_argument_order(module, entry)
    small = example_inputs(entry, *TRACED_AT, seed=1)
    large = example_inputs(entry, *SECOND_SHAPE, seed=2)
    shape = "{} rows of length {}".format(*SECOND_SHAPE)

    eager_small = attempt("forward of the module", module, small)
    eager_large = attempt(f"forward of the module at {shape}", module, large)
    if not entry.outputs:
        entry = replace(entry, outputs=measured_outputs(entry, output_names, eager_small, eager_large))

    if script:
        try:
            compiled, notes = torch.jit.script(module), []
        except RuntimeError as error:
            raise ExportError(f"the module cannot be scripted:\n{error}") from error
    else:
        compiled, notes = trace(module, small)
    refuse_baked_devices(compiled)
    once = attempt("the exported model", compiled, small, notes)
    compare("the exported model is not the module", named(entry, eager_small), named(entry, once))
    second = f"the exported model works only at the shape it was traced with; at {shape}"
    again = attempt(second + ", it", compiled, large, notes)
    compare(second, named(entry, eager_large), named(entry, again), notes)
    if entry.padding_check == "REFUSE" and entry.max_batch_size > 0 and any(v.role == "MASK" for v in entry.inputs):
        check_padding(compiled, entry)

    def check(model: Path) -> None:
        if dry_card is not None:
            check_on_dry_card(dry_card, model, [small, large])

    return write_entry(compiled, entry, repository, version, check)


def parse_input(text: str) -> Input:
    """`NAME:TYPE:DIMS[,role=R][,range=LOW..HIGH][,pad=N][,optional]`, DIMS with an x between them: `-1x80`."""
    types = {name.removeprefix("TYPE_"): dtype for dtype, name in DATA_TYPES.items()}
    head, *options = text.split(",")
    try:
        name, kind, dims = head.split(":")
        value = Input(name, types[kind], tuple(int(size) for size in dims.split("x")))
        for option in options:
            key, _, argument = option.partition("=")
            if key == "role" and argument in ("TOKENS", "MASK"):
                value = replace(value, role=argument)
            elif key == "range":
                low, high = argument.split("..")
                value = replace(value, value_range=(float(low), float(high)))
            elif key == "pad":
                value = replace(value, pad_value=float(argument))
            elif option == "optional":
                value = replace(value, optional=True)
            else:
                raise ValueError(option)
    except (ValueError, KeyError):
        form = " ".join((parse_input.__doc__ or "").split())
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form {form} TYPE: {', '.join(types)}") from None
    return value


def parse_tier(text: str) -> tuple[int, str]:
    up_to, _, action = text.partition(":")
    if not up_to.isdigit() or action not in ("TRUNCATE", "SOLO"):
        raise argparse.ArgumentTypeError(f"{text!r} is not LENGTH:TRUNCATE or LENGTH:SOLO")
    return int(up_to), action


def parse_buckets(text: str) -> tuple[int, ...]:
    try:
        buckets = tuple(int(size) for size in text.split(","))
    except ValueError:
        buckets = ()
    if not buckets or buckets[0] < 1 or list(buckets) != sorted(set(buckets)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of lengths that ascend, like 32,64,128")
    return buckets


def load_module(spec: str) -> nn.Module:
    """`package.module:NAME` or `path/to/file.py:NAME`, where NAME is a class or a function without arguments."""
    source, _, name = spec.rpartition(":")
    if not source:
        raise ExportError(f"--module takes FILE.py:NAME or package.module:NAME, not {spec!r}")
    try:
        if source.endswith(".py"):
            path = Path(source)
            found = importlib.util.spec_from_file_location(path.stem, path)
            assert found is not None and found.loader is not None
            code = importlib.util.module_from_spec(found)
            sys.modules[path.stem] = code  # torch.jit.script looks a module's source up by this name
            found.loader.exec_module(code)
        else:
            code = importlib.import_module(source)
        module = getattr(code, name)()
    except (ImportError, OSError, AttributeError) as error:
        raise ExportError(f"--module {spec}: {error}") from error
    if not isinstance(module, nn.Module):
        raise ExportError(f"--module {spec} gives a {type(module).__name__}, not a torch.nn.Module")
    return module


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--module", required=True, metavar="FILE.py:NAME", help="or package.module:NAME")
    parser.add_argument("--name", required=True, help="of the model, 1 to 128 of A-Z a-z 0-9 _ -")
    parser.add_argument("--repository", required=True, type=Path, metavar="DIR")
    parser.add_argument("--version", type=int, default=1, help="a whole number (default: 1)")
    form = " ".join((parse_input.__doc__ or "").split()).replace("%", "%%")
    parser.add_argument("--input", required=True, action="append", type=parse_input, metavar="INPUT", help=form)
    parser.add_argument("--output", action="append", default=[], metavar="NAME", help="as forward orders them")
    parser.add_argument("--max-batch-size", type=int, default=64, help="rows; 0: no batch axis (default: 64)")
    ladder = ",".join(map(str, LADDER))
    parser.add_argument("--buckets", type=parse_buckets, default=LADDER, help=f"lengths (default: {ladder})")
    parser.add_argument("--padding", default="AUTO", choices=["AUTO", "BUCKET", "MULTIPLE_OF_8", "EXACT"])
    parser.add_argument("--padding-check", default="REFUSE", choices=["REFUSE", "WARN", "OFF"])
    parser.add_argument("--padding-safe", action="store_true", help="no mask is needed to ignore padding")
    parser.add_argument("--tier", action="append", default=[], type=parse_tier, metavar="LENGTH:TRUNCATE|SOLO")
    parser.add_argument("--script", action="store_true", help="torch.jit.script instead of a trace: keeps if and for")
    parser.add_argument("--dry-card", type=Path, metavar="LAUNCHER", help="headroom_dry: try it on no real GPU")
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    entry = Entry(
        arguments.name,
        arguments.input,
        outputs=(),
        max_batch_size=arguments.max_batch_size,
        buckets=arguments.buckets,
        padding=arguments.padding,
        padding_check=arguments.padding_check,
        padding_safe=arguments.padding_safe,
        tiers=arguments.tier,
    )
    try:
        module = load_module(arguments.module)
        path = export(
            module,
            entry,
            arguments.repository,
            arguments.version,
            arguments.script,
            arguments.dry_card,
            arguments.output,
        )
    except (ExportError, ValueError, OSError) as error:
        print(f"export_model: {error}", file=sys.stderr)
        return 1
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
