"""The exporter: what it writes, and what it refuses to write."""

from __future__ import annotations

import functools
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper
from google.protobuf.message import Message
from torch import Tensor, nn

import export_checks
import export_model
from export_checks import ExportError
from export_model import export
from my_model import MeanOfTokens
from repository_entry import Entry, Input

ROOT = Path(__file__).resolve().parents[2]
IDS = Input("input_ids", role="TOKENS", value_range=(0, 999), pad_value=0)
MASK = Input("attention_mask", role="MASK", optional=True)


def entry(inputs: tuple[Input, ...] = (IDS, MASK), **fields) -> Entry:
    return Entry("mine", inputs, fields.pop("outputs", ()), **fields)


@functools.cache
def own_protocol() -> tuple[type, EnumTypeWrapper]:
    """ModelConfig and DataType as proto/ describes them. Generated code is not used: Debian's protoc is older than the
    environment's protobuf."""
    command = ["protoc", f"--proto_path={ROOT}", "--descriptor_set_out=/dev/stdout", "proto/model_config.proto"]
    described = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(described).file:
        pool.Add(file)
    message = message_factory.GetMessageClass(pool.FindMessageTypeByName("inference.ModelConfig"))
    return message, EnumTypeWrapper(pool.FindEnumTypeByName("inference.DataType"))


def parsed(text: str) -> Message:
    return text_format.Parse(text, own_protocol()[0]())


def type_name(value: Message) -> str:
    return own_protocol()[1].Name(value.data_type)


def test_a_module_answers_after_export_as_it_did_before(tmp_path: Path) -> None:
    module = MeanOfTokens()
    path = export(module, entry(), tmp_path, output_names=["embedding"])

    assert path == tmp_path / "mine" / "1" / "model.pt"
    ids = torch.tensor([[5, 6, 7, 0], [8, 9, 0, 0], [1, 1, 1, 1]])
    mask = torch.tensor([[1, 1, 1, 0], [1, 1, 0, 0], [1, 1, 1, 1]])
    assert torch.equal(torch.jit.load(path)(ids, mask), module(ids, mask))
    assert sorted(p.name for p in path.parents[1].iterdir()) == ["1", "config.pbtxt"], "staging is left behind"


def test_the_configuration_says_what_was_declared_and_measured(tmp_path: Path) -> None:
    declared = entry(max_batch_size=8, tiers=[(1024, "TRUNCATE")], safety_margin=0.05)
    path = export(MeanOfTokens(), declared, tmp_path, output_names=["embedding"])

    text = (path.parents[1] / "config.pbtxt").read_text()
    carried = {"config.pbtxt": ""}
    torch.jit.load(path, _extra_files=carried)
    assert carried["config.pbtxt"].decode() == text
    config = parsed(text)
    assert (config.name, config.backend, config.max_batch_size) == ("mine", "pytorch", 8)
    assert [(i.name, type_name(i), list(i.dims), i.optional) for i in config.input] == [
        ("input_ids", "TYPE_INT64", [-1], False),
        ("attention_mask", "TYPE_INT64", [-1], True),
    ]
    ids, mask = config.input
    assert (ids.role, mask.role) == (ids.TOKENS, ids.MASK)
    assert (ids.value_range.min, ids.value_range.max, ids.HasField("pad_value"), ids.pad_value) == (0, 999, True, 0)
    assert not mask.HasField("value_range") and not mask.HasField("pad_value")
    assert [(o.name, type_name(o), list(o.dims)) for o in config.output] == [("embedding", "TYPE_FP32", [8])]
    sequence = config.sequence
    assert list(sequence.buckets) == [32, 64, 128, 256, 512]
    assert (sequence.padding, sequence.padding_check) == (sequence.AUTO, sequence.REFUSE)
    assert [(tier.up_to, tier.action) for tier in sequence.tier] == [(1024, sequence.tier[0].TRUNCATE)]
    assert config.memory.safety_margin == 0.05


class PerToken(nn.Module):
    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> dict[str, Tensor]:
        tokens = input_ids * attention_mask
        return {"tokens": tokens, "total": tokens.sum(1, keepdim=True)}


def test_outputs_are_measured(tmp_path: Path) -> None:
    path = export(PerToken(), entry(), tmp_path)
    config = parsed((path.parents[1] / "config.pbtxt").read_text())
    assert [(o.name, type_name(o), list(o.dims)) for o in config.output] == [
        ("tokens", "TYPE_INT64", [-1]),
        ("total", "TYPE_INT64", [1]),
    ]


def refusal(module: nn.Module, repository: Path, what: Entry | None = None, **options) -> str:
    with pytest.raises(ExportError) as error:
        export(module, what or entry(), repository, **options)
    assert not list(repository.rglob("*.p*t*")), "something was written for a module that was refused"
    return str(error.value)


class BakedByTracing(nn.Module):
    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        places = torch.arange(input_ids.size(1), device=input_ids.device)
        return (places * attention_mask).sum(1, keepdim=True)


class BakedInABranch(nn.Module):
    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        total = (input_ids * attention_mask).sum(1, keepdim=True)
        if input_ids.size(1) > 8:
            total = total + torch.zeros([1], device="cpu", dtype=torch.int64)
        return total


class BakedInASubmodule(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = BakedByTracing()

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.inner(input_ids, attention_mask) + 1


@pytest.mark.parametrize(
    ("module", "script", "names"),
    [
        (BakedByTracing(), False, 'aten::arange on "cpu" at test_export.py:'),
        (BakedInASubmodule(), False, 'aten::arange on "cpu" at test_export.py:'),
        (BakedInABranch(), True, 'aten::zeros on "cpu" at test_export.py:'),
    ],
)
def test_a_baked_device_is_refused_with_its_line(module: nn.Module, script: bool, names: str, tmp_path: Path) -> None:
    said = refusal(module, tmp_path, script=script)
    assert "a device is baked into the graph" in said
    assert names in said
    assert "torch.arange(" in said or "torch.zeros(" in said, "the source line is missing"


def test_a_device_that_follows_the_input_is_accepted(tmp_path: Path) -> None:
    export(BakedByTracing(), entry(), tmp_path, script=True)


class LengthBecomesANumber(nn.Module):
    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        first = (input_ids * attention_mask)[:, : int(input_ids.size(1))]
        return first.sum(1, keepdim=True).to(torch.float32) / float(int(attention_mask.sum(1).max()))


def test_a_trace_that_holds_at_one_shape_only_is_refused(tmp_path: Path) -> None:
    said = refusal(LengthBecomesANumber(), tmp_path, entry(padding_check="OFF"))
    assert "works only at the shape it was traced with; at 5 rows of length 19" in said
    assert "the tracer warned at test_export.py:" in said


class FixedLength(nn.Module):
    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return (input_ids * attention_mask).view(-1, 4, 8).sum((1, 2)).unsqueeze(1)


def test_a_module_that_takes_one_length_only_is_refused(tmp_path: Path) -> None:
    assert "forward of the module at 5 rows of length 19 fails" in refusal(FixedLength(), tmp_path)


class IgnoresItsMask(nn.Module):
    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return (input_ids + 1).sum(1, keepdim=True) + attention_mask[:, :1] * 0


def test_a_model_that_padding_changes_is_refused(tmp_path: Path) -> None:
    assert "padding changes the answer of a row" in refusal(IgnoresItsMask(), tmp_path)
    export(IgnoresItsMask(), entry(padding_check="OFF"), tmp_path)


class Unstable(nn.Module):
    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        kept = nn.functional.dropout((input_ids * attention_mask).to(torch.float32), p=0.5, training=True)
        return kept.sum(1, keepdim=True)


def test_a_module_that_answers_by_chance_is_refused(tmp_path: Path) -> None:
    assert "the exported model is not the module" in refusal(Unstable(), tmp_path)


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ((IDS, Input("mask", role="MASK")), "input 'mask' is no argument of forward"),
        ((IDS,), "forward needs 'attention_mask'"),
        ((IDS, IDS), "declared twice"),
    ],
)
def test_inputs_are_held_against_the_arguments_of_forward(inputs: tuple, said: str, tmp_path: Path) -> None:
    assert said in refusal(MeanOfTokens(), tmp_path, entry(inputs))


def test_a_range_wider_than_the_table_is_refused(tmp_path: Path) -> None:
    ids = Input("input_ids", role="TOKENS", value_range=(0, 1000), pad_value=0)  # the table has rows 0 to 999
    assert "index out of range" in refusal(MeanOfTokens(), tmp_path, entry((ids, MASK)))


def test_inputs_may_be_declared_in_any_order(tmp_path: Path) -> None:
    path = export(MeanOfTokens(), entry((MASK, IDS)), tmp_path)
    assert torch.jit.load(path)(torch.tensor([[3]]), torch.tensor([[1]])).shape == (1, 8)


def test_a_refused_export_leaves_the_old_version_as_it_was(tmp_path: Path) -> None:
    path = export(MeanOfTokens(), entry(), tmp_path)
    before = path.read_bytes()
    with pytest.raises(ExportError):
        export(IgnoresItsMask(), entry(), tmp_path)
    assert path.read_bytes() == before


def test_a_bad_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a model's name"):
        export(MeanOfTokens(), Entry("../mine", (IDS, MASK), ()), tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_fixed_shape_has_no_sequence(tmp_path: Path) -> None:
    path = export(nn.ReLU(), Entry("relu", [Input("input", torch.float32, (16,))], ()), tmp_path)
    text = (path.parents[1] / "config.pbtxt").read_text()
    assert not parsed(text).HasField("sequence")
    assert parsed(text).output[0].dims == [16]


def command_of_the_readme() -> list[str]:
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / "examples" / "README.md").read_text(), re.DOTALL)
    return shlex.split(blocks[0].replace("\\\n", " "))


def test_the_command_of_the_readme_works(tmp_path: Path) -> None:
    command = command_of_the_readme()
    assert command[0] == ".venv/bin/python"
    command[0] = sys.executable
    command[command.index("--repository") + 1] = str(tmp_path)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "mean_of_tokens" / "1" / "model.pt").exists()
    assert parsed((tmp_path / "mean_of_tokens" / "config.pbtxt").read_text()).name == "mean_of_tokens"


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--input", "input_ids"),
        ("--input", "input_ids:INT63:-1"),
        ("--input", "input_ids:INT64:-1,colour=blue"),
        ("--buckets", "64,32"),
        ("--tier", "1024"),
        ("--module", "nowhere.py:Thing"),
        ("--module", "examples/my_model.py"),
    ],
)
def test_a_wrong_option_is_one_clear_line(option: str, value: str, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(ROOT)
    command = command_of_the_readme()[1:]
    command[command.index("--repository") + 1] = str(tmp_path)
    if option in command:
        command[command.index(option) + 1] = value
    else:
        command += [option, value]
    monkeypatch.setattr(sys, "argv", command)
    try:
        status = export_model.main()
    except SystemExit as error:
        status = error.code
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert status in (1, 2)
    assert option in last and value in last
    assert not list(tmp_path.iterdir())


def test_every_toy_model_can_be_made(tmp_path: Path) -> None:
    import make_models

    for name in make_models.TOYS | make_models.REFUSED:
        make_models.make(name, tmp_path)
        assert parsed((tmp_path / name / "config.pbtxt").read_text()).name == name
    ids, mask = torch.tensor([[1, 2, 3, 0], [4, 5, 0, 0]]), torch.tensor([[1, 1, 1, 0], [1, 1, 0, 0]])
    for name in ("P", "big"):
        row = torch.jit.load(tmp_path / name / "1" / "model.pt")(ids, mask)
        assert row.tolist() == [[3, 6, 4, 2], [2, 9, 4, 2]]
    assert export_checks.baked_devices(torch.jit.load(tmp_path / "on_another_device" / "1" / "model.pt"))


DRY_CARD = ROOT / "build" / "release" / "headroom_dry"


@pytest.mark.skipif(not DRY_CARD.exists(), reason="headroom_dry is not built")
def test_the_dry_card_tells_a_model_that_travels_from_one_that_does_not(tmp_path: Path) -> None:
    import make_models

    examples = [export_checks.example_inputs(entry(), 2, 32)]
    export(MeanOfTokens(), entry(), tmp_path, dry_card=DRY_CARD)
    export_checks.check_on_dry_card(DRY_CARD, make_models.make("attn", tmp_path), examples)
    # The graph's check would have refused it before: here the card itself has to notice.
    with pytest.raises(ExportError, match="does not run on another device"):
        export_checks.check_on_dry_card(DRY_CARD, make_models.make("on_the_cpu", tmp_path), examples)
