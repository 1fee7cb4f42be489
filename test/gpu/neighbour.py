"""Another process on the card: takes nearly all of its free memory for a second, gives it back for a second, and so on.

    neighbour.py DEVICE_INDEX

Says "ready" once it is on the card, and begins when it reads a line.
"""

from __future__ import annotations

import sys
import time

import torch

LEFT_FREE = 384 << 20
LARGEST_PIECE = 8 << 30


def take() -> list[torch.Tensor]:
    pieces = []
    while (more := min(torch.cuda.mem_get_info()[0] - LEFT_FREE, LARGEST_PIECE)) > 32 << 20:
        try:
            pieces.append(torch.empty(more, dtype=torch.uint8, device="cuda"))
        except torch.OutOfMemoryError:
            break  # somebody else was faster
    return pieces


def main() -> None:
    torch.cuda.set_device(int(sys.argv[1]))
    torch.empty(1, device="cuda")
    print("ready", flush=True)
    sys.stdin.readline()
    while True:
        pieces = take()
        time.sleep(1)
        del pieces
        torch.cuda.empty_cache()
        time.sleep(1)


if __name__ == "__main__":
    main()
