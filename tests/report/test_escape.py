"""No name that a user chose can become markup."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from fedhv.report.escape import file_name, html_text, latex_text, markdown_text

NASTY = r"<script>alert(1)</script> & 50% of $x_1^2$ #{a}~\b | *c* [d](e) `f` " + '"'


def test_latex_escapes_every_special_character():
    assert latex_text(r"a_b & 50% $x$ #1 {y} ~ ^ \z <t> |") == (
        r"a\_b \& 50\% \$x\$ \#1 \{y\} \textasciitilde{} \textasciicircum{} \textbackslash{}z "
        r"\textless{}t\textgreater{} \textbar{}"
    )
    assert latex_text("90.1 ± 0.2 ↑ – B_rep") == r"90.1 $\pm$ 0.2 $\uparrow$ -- $B_{\mathrm{rep}}$"
    assert latex_text("0.5", math=True) == "0.5"
    assert latex_text("a_b", math=True) == r"\text{a\_b}"


def test_markdown_escapes_markup_html_and_columns():
    text = markdown_text(NASTY)
    assert "<" not in text
    assert not re.search(r"(?<!\\)[|*_`\[\]$]", text)


@given(st.text())
def test_escaped_text_stays_on_one_line_and_holds_no_markup(text):
    for escape in (latex_text, markdown_text, html_text):
        assert not re.search(r"[\n\r\u2028\u2029]", escape(text))
    assert "<" not in html_text(text)
    assert '"' not in html_text(text)
    assert "<" not in markdown_text(text)
    assert not re.search(r"(?<!\\)\|", markdown_text(text))
    # Whatever is left unescaped in LaTeX are our own commands, and these are balanced.
    bare = re.sub(r"\\[\\{}$&#%_]", "", latex_text(text))
    assert bare.count("{") == bare.count("}")
    assert bare.count("$") % 2 == 0
    assert not re.search(r"[&#%~]", bare)


@given(st.text())
def test_file_names_stay_in_their_folder(text):
    name = file_name(text)
    assert re.fullmatch(r"[A-Za-z0-9._-]{1,80}", name)
    assert not name.startswith(".")
