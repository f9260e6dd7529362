"""The site builds strictly, says what the program has, and needs nothing from the network."""

from __future__ import annotations

import json
import re

import fedhv
from fedhv.cli.app import commands
from fedhv.methods import CLIENT_SIDE, METHODS, RULES
from fedhv.runs.config import Setting
from fedhv.support.toml import as_tables

FETCHED = re.compile(r'<(?:script|link|img|iframe)\b[^>]*?(?:src|href)="(https?:)?//[^"]*"')


def read(site, page):
    return (site / page).read_text(encoding="utf-8")


def test_nothing_is_fetched(site):
    fetched = {found[0] for page in site.rglob("*.html") for found in FETCHED.finditer(page.read_text("utf-8"))}
    assert fetched == set()


def test_formulas_are_mathml_and_complete(site):
    formulas = [f for page in site.rglob("*.html") for f in re.findall(r"<math.*?</math>", page.read_text("utf-8"))]
    assert len(formulas) > 100
    assert [f for f in formulas if "\\" in f or "&amp;" in f] == []
    assert all('class="arithmatex"' not in page.read_text("utf-8") for page in site.rglob("*.html"))


def test_every_command_is_described(site):
    def names(command, name):
        if hasattr(command, "commands"):
            return [found for word, each in command.commands.items() for found in names(each, f"{name} {word}")]
        return [name]

    page = read(site, "reference/commands.html")
    assert [name for name in names(commands(), "fedhv") if f'id="{name.replace(" ", "-")}"' not in page] == []


def test_every_key_is_described(site):
    page = read(site, "reference/settings.html")
    described = set(re.findall(r"<td><code>(\w+)</code></td>", page))
    tables = as_tables(fedhv.load_setting("digits"))
    methods = tables.pop("methods")
    assert methods

    def keys(table):
        for key, value in table.items():
            yield from keys(value) if isinstance(value, dict) else [key]

    assert {key for key in keys(tables) if key.isidentifier()} - described == set()
    assert set(Setting.__dataclass_fields__) - described <= {*tables, "methods"}


def test_every_method_and_its_keys_are_described(site):
    page = re.split(r"<h3 ", read(site, "reference/settings.html"))[1:]
    sections = {found[1]: each for each in page if (found := re.search(r"<code>\[methods\.([\w-]+)\]</code>", each))}
    assert set(sections) == {*METHODS, *RULES, *CLIENT_SIDE}
    assert "<code>mu</code>" in sections["stch"]
    assert "<code>factor</code>" in sections["fedhv-moving"]


def test_every_key_has_a_meaning(site):
    rows = re.findall(r"<tr>\s*<td><code>(\w+)</code></td>(.*?)</tr>", read(site, "reference/settings.html"), re.DOTALL)
    assert len(rows) > 100
    assert [name for name, cells in rows if re.findall(r"<td>(.*?)</td>", cells, re.DOTALL)[-1].strip() == ""] == []


def test_every_section_says_who_reads_it(site):
    sections = re.split(r"<h2 ", read(site, "reference/settings.html"))[1:]
    assert [each[:60] for each in sections if "<em>Read by</em>" not in each and "A whole one" not in each] == []
    assert len(sections) > 10


def test_every_public_name_is_described(site):
    page = read(site, "reference/api.html")
    names = [name for name in fedhv.__all__ if not name.startswith("_")]
    assert [name for name in names if f'id="fedhv.{name}"' not in page] == []


def test_search_finds_pages(site):
    index = json.loads(read(site, "search/search_index.json"))
    found = {entry["location"].split("#")[0] for entry in index["docs"] if "slack" in entry["text"]}
    assert {"tutorial.html", "explanation/method.html", "reference/api.html"} <= found
    assert read(site, "search/search_index.js").startswith("var __index")  # for pages opened from disk
