"""Replays a trace: a CSV file with the columns arrival_seconds and length, a call for each line, at its time. Open-loop.

    bench/replay.py trace.csv --speed 3 --address 127.0.0.1:8001 --model minilm

--speed 3 sends what came in three seconds in one. Ends as bench/long_tail.py does.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import open_loop  # noqa: E402
from open_loop import Call  # noqa: E402

MOST_CALLS = 2_000_000
FAULTS_TOLD = 20


def read_trace(path: str) -> list[tuple[float, int]]:
    """The lines of a trace. Ends the program with every fault of the file, by its line."""
    lines, faults = [], []
    with open(path, newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file)
        if not {"arrival_seconds", "length"} <= set(reader.fieldnames or ()):
            raise SystemExit(f"{path}:1: the columns arrival_seconds and length are needed, not {reader.fieldnames}")
        for line in reader:
            try:
                at, length = float(line["arrival_seconds"]), int(line["length"])
                if length < 1 or not (0 <= at < math.inf):
                    raise ValueError("arrival_seconds must be from 0, length from 1")
            except (TypeError, ValueError) as error:
                faults.append(f"{path}:{reader.line_num}: {error}")
                continue
            lines.append((at, length))
            if len(lines) > MOST_CALLS:
                raise SystemExit(f"{path}:{reader.line_num}: more than {MOST_CALLS} calls")
    if faults:
        raise SystemExit("\n".join(faults[:FAULTS_TOLD]))
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", metavar="TRACE.csv")
    open_loop.add_options(parser)
    parser.add_argument("--speed", type=open_loop.number_above_zero, default=1, help="how many times as fast [%(default)s]")
    parser.add_argument("--calls", type=int, default=0, help="only so many from the beginning; 0: all [%(default)s]")
    options = parser.parse_args()
    lines = read_trace(options.trace)[: options.calls or None]
    return open_loop.main("replay", options, lambda _: [Call(at / options.speed, length) for at, length in lines])


if __name__ == "__main__":
    open_loop.run_program(main)
