"""Toy models for the tests, small enough that their right answers are worked out by hand.

    make_models.py OUT_DIR [NAME ...]      without names: all that a server accepts

The vocabulary is the ids 0 to 999. What a model answers, for each row:

    P             [mask count, sum of the unmasked ids, padded length, rows in the batch]
    big           the same, while holding BIG_CHANNELS floats for every pair of positions
    attn          a vector of 16: masked attention and mean pooling, for which any leak of padding shows
    identity      its own 16 floats
    two_outputs   pooled [1]: sum of the unmasked ids; tokens [L]: twice each id
    no_mask       [sum of the ids, padded length, rows in the batch], without a mask to say what is padding

and those that a server has to refuse when it loads them:

    mask_ignored        counts padding as if it were text
    on_another_device   makes a tensor on "cuda:0", wherever its inputs are
    on_the_cpu          makes a tensor on "cpu", wherever its inputs are
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))

from repository_entry import Entry, Input, Output, write_entry  # noqa: E402

VOCABULARY = 1000
BIG_CHANNELS = 8  # 4 * 8 * L * L bytes a row: 8 MiB at 512, a quarter of that at half the length


def with_batch_shape(columns: list[Tensor], ids: Tensor) -> Tensor:
    """Adds two columns that tell in which batch the rows were run: its padded length and its number of rows."""
    ones = torch.ones_like(columns[0])
    return torch.stack(columns + [ones * ids.size(1), ones * ids.size(0)], 1)


class P(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        # Row v of the table is the number v: an id out of range then fails as it does in a real embedding.
        self.table = nn.Embedding(VOCABULARY, 1)
        self.table.weight.data.copy_(torch.arange(VOCABULARY).unsqueeze(1))

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        mask = attention_mask.to(self.table.weight.dtype)
        ids = self.table(input_ids).squeeze(-1)
        return with_batch_shape([mask.sum(1), (ids * mask).sum(1)], input_ids)


class Big(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.channels = nn.Parameter(torch.ones(BIG_CHANNELS), requires_grad=False)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        mask = attention_mask.to(torch.float32)
        pairs = mask[:, :, None, None] * (mask[:, None, :, None] * self.channels)
        # The count is read out of the big tensor, so that nothing can do without it.
        count = pairs[:, :, :, 0].diagonal(0, 1, 2).sum(1)
        return with_batch_shape([count, (input_ids * attention_mask).sum(1).to(torch.float32)], input_ids)


class Attn(nn.Module):
    def __init__(self, width: int = 16) -> None:
        super().__init__()
        torch.manual_seed(20)
        self.table = nn.Embedding(VOCABULARY, width)
        self.project = nn.Linear(width, 3 * width)
        self.scale = width**-0.5

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        mask = attention_mask.to(self.table.weight.dtype)
        query, key, value = self.project(self.table(input_ids)).chunk(3, 2)
        scores = query.matmul(key.transpose(1, 2)) * self.scale + (mask - 1.0).unsqueeze(1) * 3e4
        mixed = scores.softmax(2).matmul(value) * mask.unsqueeze(2)
        return mixed.sum(1) / mask.sum(1, keepdim=True)


class Identity(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x


class TwoOutputs(nn.Module):
    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, Tensor]:
        pooled = (input_ids * attention_mask).sum(1, keepdim=True)
        return pooled.to(torch.float32), (input_ids * 2).to(torch.float32)


class NoMask(nn.Module):
    def forward(self, input_ids: Tensor) -> Tensor:
        return with_batch_shape([input_ids.sum(1).to(torch.float32)], input_ids)


class MaskIgnored(nn.Module):
    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        # One more than the id: padding with id 0 changes the sum too.
        return (input_ids + 1).sum(1, keepdim=True).to(torch.float32)


class OnAnotherDevice(nn.Module):
    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        offset = torch.zeros([1], device="cuda:0")
        return (input_ids * attention_mask).sum(1, keepdim=True) + offset


class OnTheCpu(nn.Module):
    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        offset = torch.zeros([1], device="cpu")
        return (input_ids * attention_mask).sum(1, keepdim=True) + offset


IDS = Input("input_ids", role="TOKENS", value_range=(0, VOCABULARY - 1), pad_value=0)
MASK = Input("attention_mask", role="MASK", optional=True)


def toy(name: str, outputs: list[Output], inputs: list[Input] | None = None, padding_check: str = "REFUSE") -> Entry:
    # BUCKET, so that a test knows the padded length on every device.
    inputs = [IDS, MASK] if inputs is None else inputs
    return Entry(name, inputs, outputs, max_batch_size=16, padding="BUCKET", padding_check=padding_check)


# P, big and no_mask tell their padded length: they differ by padding on purpose.
TOYS: dict[str, tuple[Callable[[], nn.Module], Entry]] = {
    "P": (P, toy("P", [Output("row", dims=(4,))], padding_check="OFF")),
    "big": (Big, toy("big", [Output("row", dims=(4,))], padding_check="OFF")),
    "attn": (Attn, toy("attn", [Output("embedding", dims=(16,))])),
    "identity": (Identity, toy("identity", [Output("y", dims=(16,))], [Input("x", torch.float32, (16,))])),
    "two_outputs": (TwoOutputs, toy("two_outputs", [Output("pooled", dims=(1,)), Output("tokens", dims=(-1,))])),
    "no_mask": (NoMask, toy("no_mask", [Output("row", dims=(3,))], [IDS], padding_check="OFF")),
}
REFUSED: dict[str, tuple[Callable[[], nn.Module], Entry]] = {
    "mask_ignored": (MaskIgnored, toy("mask_ignored", [Output("total", dims=(1,))])),
    "on_another_device": (OnAnotherDevice, toy("on_another_device", [Output("total", dims=(1,))])),
    "on_the_cpu": (OnTheCpu, toy("on_the_cpu", [Output("total", dims=(1,))])),
}


def make(kind: str, repository: Path, version: int = 1, **changes: object) -> Path:
    """Writes one toy and returns the path of its model.pt; `changes` are fields of Entry, its name among them."""
    build, entry = (TOYS | REFUSED)[kind]
    return write_entry(torch.jit.script(build().eval()), dataclasses.replace(entry, **changes), repository, version)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("repository", metavar="OUT_DIR", type=Path)
    parser.add_argument("names", metavar="NAME", nargs="*", default=list(TOYS), help=", ".join(TOYS | REFUSED))
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if name not in TOYS | REFUSED]
    if unknown:
        parser.error(f"no such toy: {', '.join(unknown)}; there are {', '.join(TOYS | REFUSED)}")
    for name in arguments.names:
        print(make(name, arguments.repository), flush=True)


if __name__ == "__main__":
    main()
