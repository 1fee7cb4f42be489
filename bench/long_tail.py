"""Traffic with a long tail, as it took the service down: most rows short, a few very long, in bursts, with callers who give up, who
send nonsense, and whose network is slow. Open-loop; the same seed sends the same.

    bench/long_tail.py --address 127.0.0.1:8001 --model minilm --rate 20 --seconds 60 \\
        --tail-weight 0.05 --longest 3000 --burst-factor 4 --cancel-share 0.1 --malformed-share 0.02 --jitter-ms 200-500

Lengths: but for the tail, 16 rows in 19 are 8 to 127 and 3 are 128 to 511, evenly; the tail is 513 to --longest, evenly, and of all rows
one in a thousand has the longest length itself, so that the 99.9th percentile is really sent. --lengths FILE draws the rest from a
table of quantiles instead (quantile,NAME,…).

Ends with a table on stderr and one JSON object on stdout. Exit code: 0; 1 where a call was neither answered rightly nor refused by
rule; 2 where nothing could be sent.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

import open_loop  # noqa: E402
from open_loop import Call  # noqa: E402

TAIL_FROM = 513
LONGEST_SHARE = 0.001
BURST_SECONDS = 1.0  # how long a burst lasts
BURST_SHARE = 0.1  # of the time
CANCEL_AFTER = (0.0005, 0.5)  # seconds: as many in the first few milliseconds as later
OVER_LONG_FACTOR = 4  # of the longest


def jitter_range(text: str) -> tuple[float, float]:
    low, _, high = text.partition("-")
    span = (float(low), float(high or low))
    if not 0 <= span[0] <= span[1]:
        raise argparse.ArgumentTypeError(f"must be MS or LOW-HIGH, not {text}")
    return span


def quantile_table(path: str) -> Callable[[np.random.Generator], int]:
    """Draws from the columns of a table of quantiles, each as often as the others."""
    with open(path, newline="") as file:
        rows = [[float(field) for field in row] for row in list(csv.reader(file))[1:]]
    table = np.array(rows)

    def draw(random: np.random.Generator) -> int:
        column = random.integers(1, table.shape[1])
        return max(1, int(round(np.interp(random.random(), table[:, 0], table[:, column]))))

    return draw


def incident_body(random: np.random.Generator) -> int:
    return int(random.integers(8, 128) if random.random() < 16 / 19 else random.integers(128, 512))


def arrival_times(random: np.random.Generator, rate: float, seconds: float, burst_factor: float) -> list[float]:
    """A Poisson process whose rate is `burst_factor` times as high for BURST_SHARE of the time, `rate` on the whole."""
    calm = rate / (1 - BURST_SHARE + BURST_SHARE * burst_factor)
    period = BURST_SECONDS / BURST_SHARE
    begins = random.uniform(0, period - BURST_SECONDS)  # in each period
    times, now = [], 0.0
    highest = calm * max(1.0, burst_factor)
    while (now := now + random.exponential(1 / highest)) < seconds:
        bursts = begins <= now % period < begins + BURST_SECONDS
        if random.random() < (calm * burst_factor if bursts else calm) / highest:
            times.append(now)
    return times


def make_calls(options: argparse.Namespace, random: np.random.Generator) -> list[Call]:
    body = quantile_table(options.lengths) if options.lengths else incident_body
    calls = []
    for at in arrival_times(random, options.rate, options.seconds, options.burst_factor):
        if random.random() < LONGEST_SHARE and options.tail_weight > 0:
            length = options.longest
        elif random.random() < options.tail_weight:
            length = int(random.integers(TAIL_FROM, options.longest + 1))
        else:
            length = body(random)
        call = Call(at, length)
        if random.random() < options.malformed_share:
            call.kind = open_loop.MALFORMED[random.integers(len(open_loop.MALFORMED))]
            if call.kind == open_loop.OVER_LONG:
                call.length = OVER_LONG_FACTOR * options.longest
        elif random.random() < options.cancel_share:
            call.cancel_after = float(np.exp(random.uniform(*np.log(CANCEL_AFTER))))
        # A slow network: the call comes later, and not in the order of its sending.
        call.at += float(random.uniform(*options.jitter_ms)) / 1000
        calls.append(call)
    return calls


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    open_loop.add_options(parser)
    parser.add_argument("--rate", type=open_loop.number_above_zero, default=20, help="calls a second, on average [%(default)s]")
    parser.add_argument("--seconds", type=open_loop.number_above_zero, default=60, help="[%(default)s]")
    parser.add_argument("--tail-weight", type=open_loop.share, default=0.05, help="share of rows over 512 [%(default)s]")
    parser.add_argument("--longest", type=int, default=3000, help="the tail's end [%(default)s]")
    parser.add_argument("--lengths", metavar="FILE", default="", help="a table of quantiles for the rows that are not of the tail")
    parser.add_argument("--burst-factor", type=open_loop.number_above_zero, default=1, help="rate in bursts by the calm one [%(default)s]")
    parser.add_argument("--cancel-share", type=open_loop.share, default=0, help="calls given up within half a second [%(default)s]")
    parser.add_argument("--malformed-share", type=open_loop.share, default=0, help="null, wrong bytes, over-long, in turn [%(default)s]")
    parser.add_argument("--jitter-ms", type=jitter_range, default=(0.0, 0.0), metavar="LOW-HIGH", help="added to each call's time [0]")
    options = parser.parse_args()
    if options.longest < TAIL_FROM:
        parser.error(f"--longest must be at least {TAIL_FROM}")
    return open_loop.main("long_tail", options, lambda random: make_calls(options, random))


if __name__ == "__main__":
    open_loop.run_program(main)
