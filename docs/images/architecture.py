"""Make the list of rooms in the documentation from the source tree: the picture and the tables.

    python docs/images/architecture.py

The order is that of the import-linter layers in pyproject.toml. The descriptions are the first lines of the rooms'
docstrings. A test fails if a file is not up to date.
"""

from __future__ import annotations

import ast
import re
import tomllib
from html import escape
from pathlib import Path

ROOT = Path(__file__).parents[2]
PICTURE = ROOT / "docs" / "images" / "architecture.svg"
PAGES = (ROOT / "docs" / "explanation" / "architecture.md", ROOT / "CONTRIBUTING.md")
BEGIN, END = "<!-- rooms: made by docs/images/architecture.py -->", "<!-- end of rooms -->"
WIDTH, HEIGHT, GAP, LEFT = 760, 30, 6, 44
STYLE = """
.room { fill: var(--md-code-bg-color, #f2f5f7); stroke: var(--md-default-fg-color--light, #667); stroke-width: 1.2; }
.name { fill: var(--md-default-fg-color, #222); font-weight: 600; }
.text { fill: var(--md-default-fg-color--light, #555); font-size: 11px; }
.way { fill: none; stroke: var(--md-default-fg-color--light, #667); stroke-width: 1.5; }
.tip { fill: var(--md-default-fg-color--light, #667); }
"""


def rooms() -> dict[str, str]:
    """The rooms from the top layer to the bottom, with their descriptions."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (contract,) = project["tool"]["importlinter"]["contracts"]
    return {name: _description(name) for name in contract["layers"]}


def _description(room: str) -> str:
    package = ROOT / "src" / "fedhv" / room / "__init__.py"
    source = package if package.exists() else package.parent.with_suffix(".py")
    docstring = ast.get_docstring(ast.parse(source.read_text(encoding="utf-8"))) or ""
    return docstring.splitlines()[0]


def table() -> str:
    """The rooms as a table in Markdown."""
    rows = [f"| `{name}` | {text} |" for name, text in rooms().items()]
    return "\n".join(["| room | contents |", "|---|---|", *rows])


def picture() -> str:
    """The rooms as layers, in SVG; imports point down."""
    found = rooms()
    height = len(found) * (HEIGHT + GAP) + GAP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        'aria-labelledby="architecture-title" font-family="system-ui, sans-serif" font-size="13">',
        '<title id="architecture-title">The rooms of the package as layers. Imports point down only.</title>',
        f"<style>{STYLE}</style>",
        '<defs><marker id="down" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path class="tip" d="M0 0 8 4 0 8z"/></marker></defs>',
        f'<path class="way" d="M20 {GAP}V{height - GAP}" marker-end="url(#down)"/>',
        f'<text class="text" transform="translate(14 {height // 2}) rotate(-90)" text-anchor="middle">imports</text>',
    ]
    for i, (name, text) in enumerate(found.items()):
        y = GAP + i * (HEIGHT + GAP)
        words = escape(text.replace("`", ""))
        parts += [
            f'<rect class="room" x="{LEFT}" y="{y}" width="{WIDTH - LEFT - GAP}" height="{HEIGHT}" rx="5"/>',
            f'<text class="name" x="{LEFT + 12}" y="{y + 20}">{name}</text>',
            f'<text class="text" x="{LEFT + 112}" y="{y + 20}">{words}</text>',
        ]
    return "\n".join([*parts, "</svg>", ""])


def with_table(page: str) -> str:
    """A page with its table of rooms replaced by the current one."""
    pattern = re.compile(re.escape(BEGIN) + r".*?" + re.escape(END), flags=re.DOTALL)
    return pattern.sub(lambda _: f"{BEGIN}\n\n{table()}\n\n{END}", page)


def main() -> None:
    """Write the picture and the tables."""
    PICTURE.write_text(picture(), encoding="utf-8")
    for path in PAGES:
        path.write_text(with_table(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
