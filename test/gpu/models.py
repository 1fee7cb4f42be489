"""The models that test/gpu/check runs, made from a seed with nothing but torch.

    models.py OUT_DIR [full|small]

    encoder.pt     ids and mask to a vector of length 1: BERT's encoder, in `full` of MiniLM's size
    attention.pt   one attention layer that writes down all its scores: memory grows with the square of the length
    identity.pt    its own 16 numbers
    ballast.pt     a table of a known size, that is loaded to take memory
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

SEED = 20
ATTENTION_WIDTH = 64
BALLAST_WIDTH = 1024  # 4 KiB a row


@dataclass(frozen=True)
class Size:
    vocabulary: int
    width: int
    heads: int
    layers: int
    longest: int
    max_rows: int
    ballast_bytes: int


SIZES = {
    "full": Size(vocabulary=30522, width=384, heads=12, layers=6, longest=512, max_rows=64, ballast_bytes=32 << 20),
    # For a CPU: the largest batch is done in a fraction of a second, and still takes tens of megabytes.
    "small": Size(vocabulary=2000, width=128, heads=4, layers=2, longest=256, max_rows=32, ballast_bytes=2 << 20),
}


def masked_out(mask: Tensor) -> Tensor:
    """What is added to scores: nothing is left of exp(-3e4)."""
    return (mask - 1.0) * 3e4


class Layer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.mixed = nn.Linear(width, width)
        self.attention_norm = nn.LayerNorm(width)
        self.wide = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)
        self.output_norm = nn.LayerNorm(width)

    def split(self, x: Tensor) -> Tensor:
        return x.view(x.size(0), x.size(1), self.heads, -1).transpose(1, 2)

    def forward(self, hidden: Tensor, additive: Tensor) -> Tensor:
        seen = nn.functional.scaled_dot_product_attention(
            self.split(self.query(hidden)), self.split(self.key(hidden)), self.split(self.value(hidden)), attn_mask=additive
        )
        seen = seen.transpose(1, 2).reshape(hidden.size(0), hidden.size(1), -1)
        hidden = self.attention_norm(hidden + self.mixed(seen))
        return self.output_norm(hidden + self.narrow(nn.functional.gelu(self.wide(hidden))))


class Encoder(nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.words = nn.Embedding(size.vocabulary, size.width)
        self.positions = nn.Parameter(torch.randn(size.longest, size.width), requires_grad=False)
        self.norm = nn.LayerNorm(size.width)
        self.layers = nn.ModuleList(Layer(size.width, size.heads) for _ in range(size.layers))

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        hidden = self.norm(self.words(input_ids) + self.positions[: input_ids.size(1)])
        mask = attention_mask.to(hidden.dtype)
        additive = masked_out(mask)[:, None, None, :]
        for layer in self.layers:
            hidden = layer(hidden, additive)
        weight = mask.unsqueeze(2)
        return nn.functional.normalize((hidden * weight).sum(1) / weight.sum(1), dim=1)


class Attention(nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.words = nn.Embedding(size.vocabulary, ATTENTION_WIDTH)
        self.project = nn.Linear(ATTENTION_WIDTH, 3 * ATTENTION_WIDTH)
        self.scale = ATTENTION_WIDTH**-0.5

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        query, key, value = self.project(self.words(input_ids)).chunk(3, 2)
        mask = attention_mask.to(query.dtype)
        scores = query.matmul(key.transpose(1, 2)) * self.scale + masked_out(mask).unsqueeze(1)
        seen = scores.softmax(2).matmul(value) * mask.unsqueeze(2)
        return seen.sum(1) / mask.sum(1, keepdim=True)


class Identity(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x


class Ballast(nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.table = nn.Embedding.from_pretrained(torch.zeros(size.ballast_bytes // 4 // BALLAST_WIDTH, BALLAST_WIDTH))

    def forward(self, input_ids: Tensor) -> Tensor:
        # Looked up by an input, so that freezing cannot fold the table away.
        return self.table(input_ids).sum(1)


def make(folder: Path, size: Size) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    modules = {"encoder": Encoder, "attention": Attention, "identity": lambda _: Identity(), "ballast": Ballast}
    for name, build in modules.items():
        torch.manual_seed(SEED)
        torch.jit.script(build(size).eval()).save(str(folder / f"{name}.pt"))


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    make(Path(sys.argv[1]), SIZES[sys.argv[2] if len(sys.argv) == 3 else "full"])
