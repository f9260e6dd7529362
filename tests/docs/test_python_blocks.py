"""Every Python block of README and documentation runs, page by page, in a folder of its own."""

from __future__ import annotations

import sys

import pytest

from docs import pages
from fedhv.cli.app import commands
from fedhv.runs.config import load_setting

LANGUAGES = {"python", "sh", "toml", "text", "json"}
WITH_CODE = [page for page in pages.READ if pages.python_blocks(page) and page.name != "tutorial.md"]
"""The tutorial runs as a notebook, in test_notebook.py."""


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """An empty working directory, whose modules are forgotten afterwards."""
    before = set(sys.modules)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for module in set(sys.modules) - before:
        if str(getattr(sys.modules[module], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[module]


@pytest.mark.parametrize("page", pages.READ, ids=pages.name)
def test_every_block_says_what_it_is(page):
    unknown = [block.code for block in pages.blocks(page) if block.language not in LANGUAGES]
    assert unknown == [], "a fence needs a language: python and sh are run or parsed, text is output"


@pytest.mark.parametrize("page", WITH_CODE, ids=pages.name)
def test_the_page_works(page, elsewhere, capsys, few_steps):
    """Its files are written, its Python runs in their order, and its commands' settings and methods exist."""
    namespace = {"__name__": "documentation"}
    for block in pages.blocks(page):
        if block.title.endswith((".py", ".toml")):
            (elsewhere / block.title).write_text(block.code, encoding="utf-8")
    outputs = pages.outputs(page)
    for block in pages.python_blocks(page):
        capsys.readouterr()
        exec(compile(block.code, pages.name(page), "exec", dont_inherit=True), namespace)
        if block.code in outputs:
            assert pages.shape(capsys.readouterr().out) == pages.shape(outputs[block.code])
    for words in pages.commands(page):
        if words[0] == "fedhv":
            _resolve(words[1:])


def _resolve(words: list[str]) -> None:
    """A command's setting, with its changes and its methods, as far as it has any."""
    command = commands()
    while hasattr(command, "commands"):
        command = command.commands[words.pop(0)]
    given = command.make_context(command.name, words).params
    if "setting" in given:
        setting = load_setting(given["setting"], given.get("set_") or [])
        named = given.get("methods") or given.get("method") or ""
        for method in named.split(",") if named else []:
            setting.method(method.partition("@")[0])  # `fedhv front` writes NAME@KEY
