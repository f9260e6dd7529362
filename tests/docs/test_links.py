"""Links between files resolve, and so do the files and folders that the pages name."""

from __future__ import annotations

import re

import pytest

from docs import pages

OUTSIDE = sorted([*pages.ROOT.glob("*.md"), *(pages.ROOT / "results").rglob("*.md")])
"""What is not part of the site; the strict build checks the links of what is."""
LINK = re.compile(r'\]\(([^)\s]+)\)|src="([^"]+)"')
NAMED = re.compile(r"`((?:docs|examples|results|benchmarks|tests|src)/[\w./-]+)`")


@pytest.mark.parametrize("page", OUTSIDE, ids=pages.name)
def test_links_resolve(page):
    text = page.read_text(encoding="utf-8")
    targets = [first or second for first, second in LINK.findall(text)]
    broken = []
    for target in targets:
        path, _, anchor = target.partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        there = page if not path else page.parent / path
        if not there.exists() or (anchor and there.suffix == ".md" and anchor not in _anchors(there)):
            broken.append(target)
    assert broken == []


@pytest.mark.parametrize("page", pages.READ, ids=pages.name)
def test_files_that_are_named_exist(page):
    named = set(NAMED.findall(page.read_text(encoding="utf-8")))
    assert [path for path in sorted(named) if not (pages.ROOT / path).exists()] == []


LIGHT = re.compile(r'[("]([\w./-]+)-light\.svg')
ONE_SEED = ("pull-light.svg", "effect-light.svg")
"""Pictures of single runs."""


def test_pictures_for_light_pages_have_one_for_dark_pages():
    found = 0
    for page in pages.READ:
        text = page.read_text(encoding="utf-8")
        for stem in LIGHT.findall(text):
            found += 1
            assert f"{stem}-dark.svg" in text, pages.name(page)
            assert (page.parent / f"{stem}-light.svg").exists()
            assert (page.parent / f"{stem}-dark.svg").exists()
    assert found >= 5


@pytest.mark.parametrize("page", pages.READ, ids=pages.name)
def test_pictures_of_one_seed_say_so(page):
    lines = [line for line in page.read_text(encoding="utf-8").splitlines() if any(name in line for name in ONE_SEED)]
    assert [line for line in lines if "one seed" not in line] == []


def _anchors(page) -> set[str]:
    """The anchors of a page's headings, as Markdown readers make them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings}
