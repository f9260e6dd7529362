"""The page of exit codes and environment variables names what the program has."""

from __future__ import annotations

import re

import fedhv
from docs import pages

PAGE = (pages.ROOT / "docs" / "reference" / "environment.md").read_text(encoding="utf-8")
SOURCES = [path.read_text(encoding="utf-8") for path in sorted((pages.ROOT / "src" / "fedhv").rglob("*.py"))]


def test_every_exit_code_is_described():
    errors = [fedhv.FedHVError, fedhv.InputError, fedhv.Interrupted, fedhv.Diverged]
    for error in errors:
        assert re.search(rf"^\| {error.exit_code} \|.*`fedhv\.{error.__name__}`", PAGE, flags=re.MULTILINE)
    assert set(re.findall(r"^\| (\d+) \|", PAGE, flags=re.MULTILINE)) == {"0", *(str(e.exit_code) for e in errors)}


def test_every_variable_that_the_program_reads_or_sets_is_described():
    touched = set()
    for text in SOURCES:
        touched |= set(re.findall(r'environ(?:\.get\(|\.setdefault\(|\[)"(\w+)"', text))
        touched |= set(re.findall(r'^ +"((?:FLWR|OMP)_\w+)": ', text, flags=re.MULTILINE))
        touched |= set(re.findall(r'^MARK = "(\w+)"', text, flags=re.MULTILINE))
    touched -= {"PATH"}  # passed on
    described = set(re.findall(r"`([A-Z]+(?:_[A-Z]+)+)`", PAGE))
    assert described == touched
