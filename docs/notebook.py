"""The tutorial as a notebook: `python docs/notebook.py` writes examples/tutorial.ipynb from docs/tutorial.md.

A test keeps the two equal. Text and shell commands become Markdown cells, Python becomes code cells; recorded output is
left out, since the notebook makes its own.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

DOCS = Path(__file__).parent
NOTEBOOK = DOCS.parent / "examples" / "tutorial.ipynb"
INSTALL = """import importlib.util
import subprocess
import sys

if importlib.util.find_spec("fedhv") is None:  # on Colab, for example
    subprocess.check_call([sys.executable, "-m", "pip", "install", "--quiet", "fedhv[data-in,export,fronts]"])
"""
"""The first cell. A hosted notebook has PyTorch, but not this package."""

FENCE = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```\n", flags=re.DOTALL | re.MULTILINE)


def notebook(markdown: str) -> str:
    """The notebook of a page, as JSON."""
    cells, position = [("code", INSTALL)], 0
    for fence in FENCE.finditer(markdown):
        cells.append(("markdown", markdown[position : fence.start()]))
        position = fence.end()
        language, code = fence.groups()
        if language == "python":
            cells.append(("code", code))
        elif language != "text":
            cells.append(("markdown", fence[0]))
    cells.append(("markdown", markdown[position:]))
    written = [_cell(i, kind, _relinked(text).strip("\n")) for i, (kind, text) in enumerate(cells) if text.strip()]
    content = {
        "cells": written,
        "metadata": {
            "colab": {"name": NOTEBOOK.name, "provenance": []},
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def _cell(number: int, kind: str, text: str) -> dict[str, object]:
    cell: dict[str, object] = {"cell_type": kind, "id": f"cell-{number:02}", "metadata": {}}
    if kind == "code":
        cell |= {"execution_count": None, "outputs": []}
    return cell | {"source": text.splitlines(keepends=True)}


def _relinked(text: str) -> str:
    """Links of the page, seen from the folder of the notebook."""
    return re.sub(r"\]\((?!https?:|#)([^)]+)\)", r"](../docs/\1)", text)


if __name__ == "__main__":
    NOTEBOOK.write_text(notebook((DOCS / "tutorial.md").read_text(encoding="utf-8")), encoding="utf-8")
    print(f"Wrote {NOTEBOOK}")
