"""`headroom plan --card` and `--traffic`: what a model needs on cards that are not there, and what a mix of lengths needs."""

from __future__ import annotations

import json

import pytest

from harness import DRY, HEADROOM, run

MIB = 1 << 20
BUCKETS = [32, 64, 128, 256, 512]
ALLOWANCE = 500 * MIB  # the default


def plan(repository, *options):
    return run(HEADROOM, "plan", "--model-repository", repository, *options)


def planned(minilm, *options):
    done = plan(minilm.repository, "--calibration-cache", minilm.cache, "--json", *options)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def largest(device):
    return {bucket["bucket"]: bucket["largest_batch"] for bucket in device["buckets"]}


@pytest.fixture(scope="module")
def cards(minilm):
    """A card with room for everything, one on which the weights and little else fit, and one that does not hold the weights."""
    return planned(minilm, "--card", "t4,700MiB:8.6", "--card", "512MiB")


def test_a_large_card_takes_full_batches(cards, figure):
    device = cards["models"][0]["devices"][0]
    assert device["card"] == {"name": "t4", "memory_bytes": 15095 * MIB, "capability": "7.5", "allowance_bytes": ALLOWANCE}
    assert (device["computes"], device["fits"], device["reason"]) == (False, True, None)
    assert largest(device) == dict.fromkeys(BUCKETS, 64)
    # 22.6 million parameters of four bytes, in blocks of an allocator.
    assert device["weights_bytes"] == pytest.approx(90.4e6, rel=0.01)
    assert device["at_rest_bytes"] >= device["weights_bytes"]
    free = 15095 * MIB - ALLOWANCE - device["at_rest_bytes"]
    assert 0.78 * free < device["budget_bytes"] <= 0.8 * free
    for bucket in device["buckets"]:
        assert 0 < bucket["measured_peak_bytes"] <= bucket["estimated_peak_bytes"] <= device["budget_bytes"]
        assert 0 < bucket["allocated_peak_bytes"] <= bucket["measured_peak_bytes"]
        assert bucket["latency_us"] is None and bucket["rows_per_second"] is None
    full = device["buckets"][-1]
    figure(f"512 x 64 on a t4: {full['allocated_peak_bytes']:,} in tensors, {full['measured_peak_bytes']:,} held")


def test_a_small_card_takes_small_batches(cards):
    device = cards["models"][0]["devices"][1]
    batches = largest(device)
    assert list(batches.values()) == sorted(batches.values(), reverse=True)
    assert 1 <= batches[512] < 64
    for bucket in device["buckets"]:
        assert bucket["estimated_peak_bytes"] <= device["budget_bytes"]


def test_a_card_that_does_not_hold_the_weights_is_an_answer(cards):
    device = cards["models"][0]["devices"][2]
    assert device["fits"] is False
    assert "minilm" in device["reason"]
    assert device["buckets"] == []


def test_it_says_what_it_cannot_know(cards):
    assert "speed" in cards["cannot_know"] and "allowance" in cards["cannot_know"]


def test_some_buckets_fit_nothing(toys):
    # A row of 512 takes 8 MiB for its pairs of positions, and of that two at a time.
    repository = toys("big", buckets=BUCKETS)
    done = plan(repository, "--json", "--card", "24MiB", "--card-allowance", "0MiB")
    assert done.returncode == 0, done.stderr
    device = json.loads(done.stdout)["models"][0]["devices"][0]
    batches = largest(device)
    assert batches[512] == 0 and batches[32] > 0
    assert device["fits"] is False and device["reason"] is None
    table = plan(repository, "--card", "24MiB", "--card-allowance", "0MiB").stdout
    assert "nothing fits" in table and "cannot know" in table and "latency" not in table


def test_the_allowance_is_held_by_others(minilm):
    def budget(*options):
        return planned(minilm, "--card", "2GiB", *options)["models"][0]["devices"][0]["budget_bytes"]

    assert budget("--card-allowance", "0MiB") - budget("--card-allowance", "1GiB") == pytest.approx(0.8 * 1024 * MIB, abs=MIB)


def test_the_answer_is_the_same_from_inside_another_dry_run(minilm, cards):
    done = run(DRY, "--card", "1GiB", "--", HEADROOM, "plan", "--model-repository", minilm.repository, "--calibration-cache",
               minilm.cache, "--json", "--card", "t4")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["models"][0]["devices"][0] == cards["models"][0]["devices"][0]


@pytest.mark.parametrize("options", [["--card", "t5"], ["--card", "16GiB:1.2"], ["--card", ""], ["--card", "t4", "--device", "cpu"],
                                     ["--card", "t4", "--card-allowance", "some"], ["--traffic-mix", "a=1"]])
def test_wrong_usage_is_one_line_and_code_2(minilm, options):
    refused = plan(minilm.repository, *options)
    assert refused.returncode == 2
    first, *rest = refused.stderr.splitlines()
    assert first.startswith("headroom plan: --") and len(rest) <= 1
    assert refused.stdout == ""


def test_a_model_that_cannot_be_served_is_no_answer(tmp_path):
    (tmp_path / "nothing").mkdir()
    refused = plan(tmp_path / "nothing", "--card", "t4")
    assert refused.returncode == 1 and refused.stdout == ""


# Traffic

TRACE = "arrival_seconds,length\n" + "".join(f"{i / 10},{length}\n" for i, length in enumerate([20] * 70 + [300] * 20 + [900] * 5 + [3000] * 5))


@pytest.fixture
def trace(tmp_path):
    file = tmp_path / "trace.csv"
    file.write_text(TRACE)
    return file


def check_classes(traffic):
    shares = {(of["from"], of["up_to"], of["treatment"]): of["share"] for of in traffic["classes"]}
    assert shares == pytest.approx({
        (1, 32, "batched"): 0.70, (33, 64, "batched"): 0, (65, 128, "batched"): 0, (129, 256, "batched"): 0,
        (257, 512, "batched"): 0.20, (513, 1024, "truncated"): 0.05, (1025, None, "refused"): 0.05,
    })
    assert traffic["refused_share"] == pytest.approx(0.05) and traffic["unfit_share"] == 0
    assert [at["length"] for at in traffic["percentiles"]] == [20, 300, 3000, 3000]
    assert [at["refused"] for at in traffic["percentiles"]] == [False, False, True, True]


def test_what_a_trace_needs_on_a_card(minilm, trace):
    answer = planned(minilm, "--card", "1GiB", "--traffic", trace)
    assert answer["traffic"]["form"] == "trace" and answer["traffic"]["rows"] == 100
    device = answer["models"][0]["devices"][0]
    traffic = device["traffic"]
    check_classes(traffic)
    assert traffic["rows_per_second"] is None
    batches = largest(device)
    for of in traffic["classes"][:-1]:
        assert of["largest_batch"] == batches[of["bucket"]]
        assert 0 < of["full_batch_bytes"] <= device["budget_bytes"]
    # Padded to buckets: 20 of 32, 300 of 512, 512 of 512.
    useful = 0.70 * 20 + 0.20 * 300 + 0.05 * 512
    assert traffic["useful_token_share"] == pytest.approx(useful / (0.70 * 32 + 0.25 * 512))
    short, long = traffic["percentiles"][:2]
    assert (short["rows"], short["padded_length"]) == (64, 32) and (long["rows"], long["padded_length"]) == (64, 512)
    # 64 rows of 300 are what nobody may run here: the incident.
    assert long["needs_bytes"] > device["budget_bytes"] and long["largest_batch"] == batches[512] < 64


def test_what_a_trace_needs_on_the_cpu(minilm, minilm_server, minilm_at_rest, trace, figure):
    answer = planned(minilm, *minilm.options(minilm_at_rest + 60_000_000)[:4], "--traffic", trace)
    traffic = answer["models"][0]["devices"][0]["traffic"]
    check_classes(traffic)
    assert traffic["rows_per_second"] > 0
    # Multiples of 8: 20 of 24, 300 of 304.
    useful = 0.70 * 20 + 0.20 * 300 + 0.05 * 512
    assert traffic["useful_token_share"] == pytest.approx(useful / (0.70 * 24 + 0.20 * 304 + 0.05 * 512))
    figure(f"{traffic['rows_per_second']:.1f} rows/s expected of one worker")
    table = plan(minilm.repository, *minilm.options(minilm_at_rest + 60_000_000), "--traffic", trace).stdout
    assert "5.00 %  refused" in table and "truncated" in table and "rows/s by one worker" in table


def test_quantiles_are_mixed_as_told(minilm, tmp_path):
    (tmp_path / "lengths.csv").write_text("quantile,queries,pages\n0,8,100\n1,24,500\n")
    answer = planned(minilm, "--card", "1GiB", "--traffic", tmp_path / "lengths.csv", "--traffic-mix", "queries=3,pages=1")
    assert answer["traffic"]["columns"] == ["queries", "pages"] and answer["traffic"]["rows"] is None
    classes = answer["models"][0]["devices"][0]["traffic"]["classes"]
    assert classes[0]["share"] == pytest.approx(0.75)
    assert classes[4]["share"] == pytest.approx(0.25 * 243.5 / 400, rel=1e-3)  # 257 to 500


def test_faults_of_the_file_are_named_with_their_lines(minilm, tmp_path):
    bad = tmp_path / "bad.csv"
    bad.write_text("length\n5\nfive\n0\n")
    refused = plan(minilm.repository, "--traffic", bad)
    assert refused.returncode == 1 and refused.stdout == ""
    assert [line.split(": ")[1] for line in refused.stderr.splitlines()] == [f"{bad}:3", f"{bad}:4"]
    assert plan(minilm.repository, "--traffic", tmp_path / "missing.csv").returncode == 1
