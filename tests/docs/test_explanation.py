"""The rooms, the vocabulary and the list of differences agree with the tree."""

from __future__ import annotations

import ast
import importlib.util
import re
import tomllib

import pytest

from docs import pages

EXPLANATION = pages.ROOT / "docs" / "explanation"
IGNORED = {"settings", "__pycache__"}  # data files and caches


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("architecture", pages.ROOT / "docs" / "images" / "architecture.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", ["docs/explanation/architecture.md", "CONTRIBUTING.md"])
def test_the_table_of_rooms_is_up_to_date(page, script):
    text = (pages.ROOT / page).read_text(encoding="utf-8")
    assert script.table() in text
    assert script.with_table(text) == text


@pytest.mark.parametrize("page", ["docs/explanation/architecture.md", "CONTRIBUTING.md"])
def test_the_rooms_are_the_folders_in_the_order_of_the_layers(page):
    text = (pages.ROOT / page).read_text(encoding="utf-8")
    listed = re.findall(r"^\| `(\w+)` \|", text, flags=re.MULTILINE)
    (contract,) = tomllib.loads((pages.ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    source = pages.ROOT / "src" / "fedhv"
    folders = {path.name for path in source.iterdir() if path.is_dir()} - IGNORED
    assert listed == contract["layers"]
    assert {room for room in listed if (source / room).is_dir()} == folders
    assert all((source / room).is_dir() or (source / f"{room}.py").exists() for room in listed)


def test_the_picture_of_rooms_is_up_to_date(script):
    assert script.PICTURE.read_text(encoding="utf-8") == script.picture()


def test_the_vocabulary_has_at_most_sixty_terms_and_each_once():
    text = (EXPLANATION / "vocabulary.md").read_text(encoding="utf-8")
    terms = re.findall(r"^\| ([a-z][^|]*?) \|", text, flags=re.MULTILINE)[1:]
    assert 40 <= len(terms) <= 60
    assert len(set(terms)) == len(terms)


def test_every_test_that_the_differences_name_exists():
    text = (EXPLANATION / "differences.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text))
    missing = []
    for path, function in sorted(named):
        file = pages.ROOT / path
        defined = ast.walk(ast.parse(file.read_text(encoding="utf-8"))) if file.exists() else ()
        if function not in {node.name for node in defined if isinstance(node, ast.FunctionDef)}:
            missing.append(f"{path}::{function}")
    assert len(named) > 30
    assert missing == []


def test_every_difference_has_a_reason_or_a_default_and_a_test():
    text = (EXPLANATION / "differences.md").read_text(encoding="utf-8")
    entries = [part for part in text.split("\n\n") if part.startswith("**")]
    assert len(entries) > 20
    for entry in entries:
        assert "::test_" in entry, entry
        assert "*Reason:*" in entry or "off by default" in entry, entry


LABEL = re.compile(r"(?:[Ee]quation \([a-z]|(?:Lemma|Theorem|Corollary|Assumption|Proposition|Remark) [a-z]+[-_:])")


def test_docstrings_cite_the_paper_by_printed_numbers():
    found = [
        f"{path.relative_to(pages.ROOT)}: {match[0]}"
        for path in sorted((pages.ROOT / "src").rglob("*.py"))
        for match in LABEL.finditer(path.read_text(encoding="utf-8"))
    ]
    assert found == []
