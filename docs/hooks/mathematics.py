"""Mathematics as MathML, made while the site is built: no script and no font has to be loaded to read it."""

from __future__ import annotations

import html
import re
from typing import Any

from latex2mathml.converter import convert

SIZED = re.compile(r"\\[bB]igg?[lrm]?\s*(?=\\\|)")
"""The converter knows no sizes of double bars; without them the bars stay as they are."""
ALIGNED = re.compile(r"\\(begin|end)\{aligned\}")
"""The converter knows the environment align* only; it would write the ampersands of this one."""
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)


def on_page_content(content: str, **_: Any) -> str:
    """Replace every formula that pymdownx.arithmatex marked."""
    return FORMULA.sub(_mathml, content)


def _mathml(found: re.Match[str]) -> str:
    block = found[2] == "["
    latex = ALIGNED.sub(r"\\\1{align*}", SIZED.sub("", html.unescape(found[3]).strip()))
    if not block:
        return convert(latex, display="inline")
    # Formulas beside each other stand below each other where there is no room: a browser does not break MathML.
    parts = [latex] if "\\begin" in latex else latex.split(r"\qquad")
    return f'<div class="formula">{"".join(convert(part.strip(), display="block") for part in parts)}</div>'
