"""How much of its budget a server really uses when memory is what limits: a burst of long rows under a small limit.

    bench/budget_use.py --repository build/models --model minilm --length 512 --rows 64 --bursts 3 -- --device cpu --memory-limit 256MiB

The model should be padded to buckets (`sequence { padding: BUCKET }`): --padding BUCKET serves a copy of it that is. Prints one JSON
object: headroom_memory_peak_bytes ÷ headroom_memory_budget_bytes, and what became of the calls. Exit code 1 where the share is under
--target, or a call was not answered.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import re
import shutil
import sys
import tempfile
from pathlib import Path

import grpc
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

import open_loop  # noqa: E402
from open_loop import Call  # noqa: E402
from soak import HERE, Metrics, Server  # noqa: E402


def configured(repository: Path, model: str, changes: dict[str, str], scratch: Path) -> Path:
    """A copy of one model whose configuration has what is found replaced; its module is linked, not copied."""
    copy = scratch / "repository" / model
    shutil.copytree(repository / model, copy, copy_function=lambda source, target: Path(target).hardlink_to(Path(source).resolve())
                    if source.endswith(".pt") and Path(source).stat().st_dev == scratch.stat().st_dev else shutil.copy(source, target),
                    ignore=shutil.ignore_patterns(".*"))
    config = copy / "config.pbtxt"
    text = config.read_text()
    for found, replacement in changes.items():
        text, changed = re.subn(found, replacement, text)
        if not changed:
            raise SystemExit(f"budget_use: the model's config.pbtxt has nothing like {found} to replace")
    config.unlink()
    config.write_text(text)
    return copy.parent


async def burst(address: str, options: argparse.Namespace) -> list[str]:
    """Sends all rows at once, each a call; the status of each."""
    settings = argparse.Namespace(deadline_ms=0, client_key="", clients=1)
    channel = grpc.aio.insecure_channel(address, options=[("grpc.max_receive_message_length", open_loop.MESSAGE_BYTES)])
    try:
        model = await open_loop.Model.ask(channel, options.model, 999)
        calls = [Call(0.0, options.length) for _ in range(options.rows)]
        await open_loop.Sender(settings, model, [channel]).run(calls, np.random.default_rng(options.seed))
        return [call.fault or call.status for call in calls]
    finally:
        await channel.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", type=Path, default=HERE.parent / "build" / "release" / "headroom", help="[%(default)s]")
    parser.add_argument("--repository", type=Path, required=True)
    parser.add_argument("--model", default="minilm", help="[%(default)s]")
    parser.add_argument("--padding", default="", help="serve a copy of the model that is padded so")
    parser.add_argument("--buckets", default="", help="serve a copy of the model with these, such as 8 or 8,32")
    parser.add_argument("--length", type=int, default=512, help="[%(default)s]")
    parser.add_argument("--rows", type=int, default=64, help="of a burst [%(default)s]")
    parser.add_argument("--bursts", type=int, default=3, help="[%(default)s]")
    parser.add_argument("--target", type=float, default=0.9, help="least share of the budget [%(default)s]")
    parser.add_argument("--seed", type=int, default=1, help="[%(default)s]")
    parser.add_argument("server_options", nargs="*", metavar="-- OPTION", help="of the server")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headroom-budget-")))
        changes = {r"padding: \w+": f"padding: {options.padding}"} if options.padding else {}
        if options.buckets:
            changes[r"buckets: \[[^]]*\]"] = f"buckets: [ {options.buckets} ]"
        if changes:
            options.repository = configured(options.repository, options.model, changes, scratch)
        server = Server(options, scratch)
        stack.callback(lambda: server.process.poll() is None and server.process.kill())
        statuses = [status for _ in range(options.bursts) for status in asyncio.run(burst(server.grpc, options))]
        page = Metrics(server.http)
        code = server.end()
    budget, peak = page.total("headroom_memory_budget_bytes"), page.total("headroom_memory_peak_bytes")
    told = {
        "tool": "budget_use",
        "rows": options.rows * options.bursts,
        "length": options.length,
        "budget_bytes": budget,
        "peak_bytes": peak,
        "used": round(peak / budget, 4),
        "batches": page.total("headroom_batch_rows_count"),
        "out_of_memory": page.total("headroom_out_of_memory_total"),
        "not_answered": [status for status in statuses if status != "OK"][:10],
        "exit_code": code,
    }
    print(json.dumps(told), flush=True)
    return 0 if told["used"] >= options.target and not told["not_answered"] and code == 0 else 1


if __name__ == "__main__":
    open_loop.run_program(main)
