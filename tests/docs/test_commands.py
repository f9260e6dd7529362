"""Every command that README and documentation show exists, with the options that it is given."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest

from docs import pages
from fedhv.cli.app import commands
from fedhv.methods import METHODS

SHOWN = [(page, words) for page in pages.READ for words in pages.commands(page)]
COMMANDS = sorted({tuple(words) for _, words in SHOWN if words[0] == "fedhv"})
TARGETS = sorted({word for _, words in SHOWN if words[0] == "make" for word in words[1:]})
SHELL = {"cd", ".", "git", "pip", "python", "python3", "export", "mkdir"}


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_exists_with_its_options(words):
    command, rest = commands(), list(words[1:])
    if rest == ["--version"]:
        return
    while hasattr(command, "commands"):
        command = command.commands[rest.pop(0)]
    # Parsing alone: unknown options, missing arguments and wrong types are errors; nothing runs.
    command.make_context(command.name, rest)


@pytest.mark.parametrize("target", TARGETS)
def test_every_target_is_in_the_makefile(target):
    makefile = (pages.ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE)


def test_every_other_program_is_there():
    beside = Path(sys.executable).parent
    for page, words in SHOWN:
        program = words[0]
        if program in SHELL or program in ("fedhv", "make") or program.startswith((".venv/", ".ci/")):
            continue
        assert shutil.which(program) or (beside / program).exists(), f"{pages.name(page)}: {program}"


def test_programs_of_the_repository_are_there():
    """`python examples/….py`, `python benchmarks/….py`."""
    for page, words in SHOWN:
        if words[0] in ("python", "python3") and words[1].endswith(".py"):
            assert (pages.ROOT / words[1]).exists() or words[1] in {block.title for block in pages.blocks(page)}


def test_the_readme_names_every_method():
    readme = (pages.ROOT / "README.md").read_text(encoding="utf-8")
    for method in METHODS.values():
        assert method.__name__ in readme


def test_the_readme_is_read_in_two_minutes():
    lines = (pages.ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 150, "move it to docs/"
