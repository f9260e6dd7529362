"""Whatever a parser is given, it takes it or refuses it in one line that names the file; a bounded number here.

The recorded run with a hundred thousand inputs and more is `benchmarks/reliability/fuzz.py`.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from fuzz_inputs import inputs
from fuzz_targets import TARGETS, judge
from hypothesis import HealthCheck, given, settings

EXAMPLES = 120


@pytest.mark.parametrize("name", TARGETS)
def test_seeds_are_accepted(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for seed in TARGETS[name].seeds:
        assert judge(name, seed, tmp_path), seed


@pytest.mark.parametrize("name", TARGETS)
def test_no_input_makes_a_parser_fall(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck), database=None)
    @given(inputs(TARGETS[name]))
    def check(data: bytes) -> None:
        with tempfile.TemporaryDirectory(dir=tmp_path) as folder:
            judge(name, data, Path(folder))

    check()
