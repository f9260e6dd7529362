"""The pages that people read, taken apart: their fenced blocks, their commands, their links."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parents[2]
READ = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
"""Every page whose code is checked."""
FENCE = re.compile(r"^([ \t]*)```([\w-]*)([^\n`]*)\n(.*?)^\1```[ \t]*$", flags=re.DOTALL | re.MULTILINE)
INDENTED = re.compile(r"(?:^|\n\n)((?:    [^\n]*\n?)+)")
"""The README's two commands stand in an indented block, which every reader of Markdown shows alike."""


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its title, what it holds."""

    language: str
    title: str
    code: str


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page; a block that includes a file is that file's business."""
    found = []
    for match in FENCE.finditer(page.read_text(encoding="utf-8")):
        title = re.search(r'title="([^"]*)"', match[3])
        found.append(Block(match[2], title[1] if title else "", textwrap.dedent(match[4])))
    return found


def outputs(page: Path) -> dict[str, str]:
    """For Python blocks that are followed by their output: code to output."""
    found = blocks(page)
    pairs = pairwise(found)
    return {code.code: text.code for code, text in pairs if code.language == "python" and text.title == "output"}


def shape(printed: str) -> str:
    """What was printed without its numbers, which differ between machines."""
    return re.sub(r"-?\d+(\.\d*)?(e-?\d+)?", "#", re.sub(r"[ \t]+", " ", printed)).strip()


def python_blocks(page: Path) -> list[Block]:
    return [block for block in blocks(page) if block.language == "python" and "--8<--" not in block.code]


def commands(page: Path) -> Iterator[list[str]]:
    """The words of every command that a page shows."""
    shown = [block.code for block in blocks(page) if block.language == "sh"]
    if page.parent == ROOT:
        bare = FENCE.sub("", page.read_text(encoding="utf-8"))
        shown += [textwrap.dedent(block) for block in INDENTED.findall(bare)]
    for text in shown:
        for line in text.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
                words.pop(0)  # variables of the environment
            if words:
                yield words
