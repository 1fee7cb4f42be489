"""What the ladder of buckets costs on the lengths that came: told by the live server, and by `headroom plan` for what it recorded."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request

import numpy as np
import pytest

from harness import HEADROOM, Server, rows_of, run

OPTIONS = ["--device", "cpu", "--memory-limit", "64MiB"]
# Length → rows. Of the ladder 32, 64, 128 with rows up to 200 cut to 128.
SENT = {5: 400, 17: 500, 33: 80, 100: 19, 150: 1}
USEFUL = 5 * 400 + 17 * 500 + 33 * 80 + 100 * 19 + 128 * 1
PRESENT = 32 * 900 + 64 * 80 + 128 * 20
# Of three buckets, 128 the last: 8 for the fives and 24 for the seventeens leave 80 rows of 33 at 128.
COSTS = {
    (8, 24, 128): 8 * 400 + 24 * 500 + 128 * 100,
    (8, 40, 128): 8 * 400 + 40 * 580 + 128 * 20,
    (24, 40, 128): 24 * 900 + 40 * 80 + 128 * 20,
}
BEST = min(COSTS, key=COSTS.get)


def page(server, path):
    with urllib.request.urlopen(f"http://{server.http}{path}", timeout=60) as reply:
        return reply.read().decode()


@pytest.fixture
def repository(toys):
    return toys("P", buckets=[32, 64, 128], tiers=[(200, "TRUNCATE")])


@pytest.fixture
def server(repository):
    with Server(repository, *OPTIONS) as started:
        yield started


def send(server, lengths):
    for length, rows in lengths.items():
        while rows > 0:
            some = min(rows, 200)
            server.infer("P", rows_of(some, np.ones(length, dtype=np.int64)))
            rows -= some


def test_the_server_knows_what_a_better_ladder_would_save(server, repository, tmp_path):
    assert BEST == (24, 40, 128)
    metrics = server.metrics()
    assert metrics.total("headroom_row_length_tokens_count", model="P") == 0
    assert not metrics.series("headroom_ladder_saving_ratio", model="P")
    send(server, {length: rows - 1 for length, rows in SENT.items()})
    assert not server.metrics().series("headroom_ladder_saving_ratio", model="P"), "too few rows to say"
    # Who is refused is not counted.
    assert server.send("P", rows_of(3, np.ones(201, dtype=np.int64))).refusal() == "INVALID_ARGUMENT"
    send(server, dict.fromkeys(SENT, 1))

    metrics = server.metrics()
    assert metrics.total("headroom_row_length_tokens_count", model="P") == 1000
    assert metrics.total("headroom_row_length_tokens_sum", model="P") == sum(length * rows for length, rows in SENT.items())
    for bound, rows in {"8": 400, "16": 400, "24": 900, "48": 980, "128": 999, "192": 1000, "+Inf": 1000}.items():
        assert metrics.total("headroom_row_length_tokens_bucket", model="P", le=bound) == rows, bound
    # Padding is to the bucket, so the ladder's cost is what was computed.
    assert metrics.total("headroom_useful_tokens_total", model="P") == USEFUL
    assert metrics.total("headroom_padding_tokens_total", model="P") == PRESENT - USEFUL
    assert metrics.total("headroom_useful_token_ratio", model="P") == pytest.approx(USEFUL / PRESENT)
    saves = 1 - COSTS[BEST] / PRESENT
    assert metrics.total("headroom_ladder_saving_ratio", model="P") == pytest.approx(saves, rel=1e-9)
    proposed = metrics.series("headroom_proposed_bucket_tokens", model="P")
    assert proposed == {("1",): 24, ("2",): 40, ("3",): 128}

    ladders = {model["name"]: model for model in json.loads(page(server, "/ladders"))["models"]}
    assert ladders["P"]["rows"] == 1000 and ladders["P"]["pads_to_buckets"]
    assert ladders["P"]["present"]["buckets"] == [32, 64, 128]
    assert ladders["P"]["present"]["computed_tokens"] == PRESENT
    assert ladders["P"]["proposed"]["buckets"] == list(BEST)
    assert ladders["P"]["proposed"]["computed_tokens"] == COSTS[BEST]
    assert ladders["P"]["proposed"]["useful_tokens"] == USEFUL
    assert ladders["P"]["saves_share"] == pytest.approx(saves)

    # What it has recorded is what `plan` reads, and what that proposes is the same.
    lengths = tmp_path / "lengths.csv"
    lengths.write_text(page(server, "/lengths/P"))
    assert lengths.read_text().splitlines() == ["length,count", *(f"{length},{rows}" for length, rows in SENT.items())]
    done = run(HEADROOM, "plan", "--model-repository", repository, *OPTIONS, "--traffic", lengths, "--json")
    assert done.returncode == 0, done.stderr
    by_name = {model["name"]: model["devices"][0]["traffic"] for model in json.loads(done.stdout)["models"]}
    assert by_name["P"]["ladder"]["present"]["computed_tokens"] == PRESENT
    assert by_name["P"]["ladder"]["proposed"] == ladders["P"]["proposed"]
    assert by_name["P"]["ladder"]["saves_share"] == pytest.approx(saves)

    with pytest.raises(urllib.error.HTTPError) as error:
        page(server, "/lengths/nobody")
    assert error.value.code == 404


def test_a_proposed_ladder_is_taken_and_is_the_best_afterwards(toys, tmp_path):
    repository = toys("P", buckets=[32, 64, 128])
    lengths = tmp_path / "lengths.csv"
    lengths.write_text("length,count\n" + "".join(f"{length},{rows}\n" for length, rows in SENT.items() if length < 128))

    def plan(*options):
        done = run(HEADROOM, "plan", "--model-repository", repository, *OPTIONS, "--traffic", lengths, *options)
        assert done.returncode == 0, done.stderr
        return done.stdout

    (line,) = [text.strip() for text in plan().splitlines() if "sequence { buckets" in text]
    buckets = [int(number) for number in re.findall(r"\d+", line)]
    assert buckets == [24, 40, 128]
    toys("P", buckets=buckets)
    table = plan()
    assert "sequence {" not in table and "no other ladder of so many buckets computes fewer" in table
    # More of them, of any length: each length gets its own.
    (line,) = [text.strip() for text in plan("--buckets", 5, "--bucket-multiple", 1).splitlines() if "sequence { buckets" in text]
    assert line == "sequence { buckets: [ 5, 17, 33, 100, 128 ] }"
