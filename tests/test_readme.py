"""What the README shows is what works: its Python runs, its commands exist with the options it gives them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer

from fedhv.cli import app
from fedhv.methods import METHODS

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
COMMANDS = re.findall(r"^    (fedhv [^#\n]*)", README, flags=re.MULTILINE)


@pytest.mark.parametrize("code", BLOCKS, ids=range(len(BLOCKS)))
def test_every_python_block_runs(code, capsys):
    exec(compile(code, "README.md", "exec"), {"__name__": "readme"})


def test_there_are_examples():
    assert len(BLOCKS) >= 4
    assert len(COMMANDS) >= 6


@pytest.mark.parametrize("line", COMMANDS)
def test_every_command_exists_with_its_options(line):
    command, words = typer.main.get_command(app), shlex.split(line)[1:]
    while hasattr(command, "commands"):
        command = command.commands[words.pop(0)]
    # Parsing alone: unknown options, missing arguments and wrong types are errors; nothing runs.
    command.make_context(command.name, words)


@pytest.mark.parametrize("target", ["demo", "test"])
def test_the_two_commands_are_in_the_makefile(target):
    assert f"make {target}" in README
    makefile = (Path(__file__).parents[1] / "Makefile").read_text(encoding="utf-8")
    assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE)


def test_every_method_is_named():
    for method in METHODS.values():
        assert method.__name__ in README
