"""Mathematics as MathML, made while the site is built: no script and no font has to be loaded to read it."""

from __future__ import annotations

import html
import re
from typing import Any

from latex2mathml.converter import convert

SIZED = re.compile(r"\\[bB]igg?[lrm]?\s*(?=\\\|)")
"""The converter knows no sizes of double bars; without them the bars stay as they are."""
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)


def on_page_content(content: str, **_: Any) -> str:
    """Replace every formula that pymdownx.arithmatex marked."""
    return FORMULA.sub(_mathml, content)


def _mathml(found: re.Match[str]) -> str:
    block = found[2] == "["
    latex = SIZED.sub("", html.unescape(found[3]).strip())
    formula = convert(latex, display="block" if block else "inline")
    return f'<div class="formula">{formula}</div>' if block else formula
