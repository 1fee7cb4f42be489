"""The script around the program: processes that die or hang cost one check, and figures are compared as README.md says."""

from __future__ import annotations

import argparse
import importlib.machinery
import importlib.util
import sys
from pathlib import Path

import pytest

LOADER = importlib.machinery.SourceFileLoader("gpu_check", str(Path(__file__).parent / "check"))
SPEC = importlib.util.spec_from_loader("gpu_check", LOADER)
assert SPEC is not None
gpu_check = importlib.util.module_from_spec(SPEC)
sys.modules["gpu_check"] = gpu_check
LOADER.exec_module(gpu_check)


@pytest.fixture
def checks_by(tmp_path):
    """Checks whose program is a shell script; its last words are the names of checks."""

    def make(script: str, only: str = "", patience: float = 30) -> object:
        program = tmp_path / "program"
        program.write_text(f"#!/bin/bash\n{script}\n")
        program.chmod(0o755)
        arguments = argparse.Namespace(quick=True, minutes=1, only=only)
        checks = gpu_check.Checks(arguments, program, tmp_path, "cpu", tmp_path)
        checks.patience = patience
        return checks

    return make


def words_of(checks) -> dict[str, str]:
    return {check: line.split()[0] for check, line in checks.outcome.lines.items()}


def test_a_check_that_takes_its_process_down_fails_and_the_next_go_on(checks_by, capsys):
    checks = checks_by('[[ " $* " == *" a b c " ]] && { echo "ok a"; echo "why it died" >&2; kill -SEGV $$; }; echo "ok c"')
    checks.run(gpu_check.Group(["a", "b", "c"], seconds=1))
    assert words_of(checks) == {"a": "ok", "b": "FAIL", "c": "ok"}
    assert "SIGSEGV" in checks.outcome.lines["b"]
    assert "why it died" in capsys.readouterr().out


def test_a_check_that_hangs_fails_and_the_next_go_on(checks_by):
    checks = checks_by('[[ " $* " == *" a b " ]] && exec sleep 100; echo "ok b"', patience=0.5)
    checks.run(gpu_check.Group(["a", "b"], seconds=1))
    assert words_of(checks) == {"a": "FAIL", "b": "ok"}
    assert "nothing was heard" in checks.outcome.lines["a"]


def test_a_process_that_dies_when_all_is_told_is_a_failure(checks_by):
    checks = checks_by('echo "ok a"; kill -ABRT $$')
    checks.run(gpu_check.Group(["a"], seconds=1))
    assert words_of(checks) == {"a": "ok", "end of a": "FAIL"}


def test_a_check_that_is_not_content_keeps_its_line_and_its_followers(checks_by):
    checks = checks_by('echo "FAIL  a  41 of 42"; echo "skip b"; exit 1')
    checks.run(gpu_check.Group(["a", "b"], seconds=1))
    assert words_of(checks) == {"a": "FAIL", "b": "skip"}
    assert checks.outcome.lines["a"].endswith("41 of 42")


def test_the_limit_for_the_burst_comes_from_what_calibration_told(checks_by):
    checks = checks_by('echo "fact held_at_rest 1000"; echo "fact largest_tensors 500"; echo "ok calibration"')
    checks.run(gpu_check.Group(["calibration"], seconds=1))
    assert gpu_check.limit_for_burst(checks, gpu=False) == 1300


def test_without_those_figures_what_needs_a_limit_fails(checks_by):
    checks = checks_by("exit 0", only="burst")
    gpu_check.check_under_limit(checks, None)
    assert words_of(checks) == {"burst": "FAIL"}


def test_only_takes_calibration_along_where_it_is_needed(checks_by):
    assert checks_by("", only="recovery").wanted("load-once", "calibration", "latency") == ["calibration"]
    assert checks_by("", only="latency").wanted("load-once", "calibration", "latency") == ["latency"]


MIB = 1 << 20
REAL = {("encoder", 1, 32): (10 * MIB, 20 * MIB, 9 * MIB), ("encoder", 8, 512): (400 * MIB, 600 * MIB, 390 * MIB)}


@pytest.mark.parametrize(
    ("dry", "word"),
    [
        (REAL, "ok"),
        # One segment more is what an allocator does; two are not, nor is 1 % of what tensors ask for.
        (REAL | {("encoder", 1, 32): (10 * MIB, 40 * MIB, 9 * MIB)}, "ok"),
        (REAL | {("encoder", 1, 32): (10 * MIB, 60 * MIB, 9 * MIB)}, "FAIL"),
        (REAL | {("encoder", 8, 512): (400 * MIB, 600 * MIB, 395 * MIB)}, "FAIL"),
        (REAL | {("encoder", 8, 512): (395 * MIB, 600 * MIB, 390 * MIB)}, "FAIL"),
        ({}, "FAIL"),
    ],
)
def test_dry_figures_are_compared_with_real_ones(checks_by, dry, word):
    checks = checks_by("")
    gpu_check.compare_peaks(checks, "dry-peaks", REAL, dry)
    assert words_of(checks) == {"dry-peaks": word}
