"""Escaping of user-chosen names for LaTeX, Markdown and HTML."""

from __future__ import annotations

import html
import re

from fedhv.support.wording import on_one_line

_LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%", "_": r"\_",
    "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", "↑": r"$\uparrow$", "↓": r"$\downarrow$", "±": r"$\pm$", "–": "--",
    "…": r"\dots{}", "†": r"$\dagger$", "α": r"$\alpha$", "η": r"$\eta$", "ρ": r"$\rho$", "δ": r"$\delta$",
    "Δ": r"$\Delta$", "ℓ": r"$\ell$", "⁶": "$^6$",
}  # fmt: skip
_SYMBOLS = {
    "B_rep": r"$B_{\mathrm{rep}}$", "η_g": r"$\eta_g$", "η_ℓ": r"$\eta_\ell$", "ρ_clip": r"$\rho_{\mathrm{clip}}$",
    "δ_r": r"$\delta_r$",
}  # fmt: skip


def latex_text(text: str, math: bool = False) -> str:
    """Text for LaTeX; within mathematics words are set upright."""
    if math and re.fullmatch(r"-?[0-9.]+", text):
        return text
    pieces = re.split(f"({'|'.join(map(re.escape, _SYMBOLS))})", on_one_line(text))
    escaped = "".join(_SYMBOLS.get(piece) or "".join(_LATEX.get(c, c) for c in piece) for piece in pieces)
    return rf"\text{{{escaped}}}" if math else escaped


def markdown_text(text: str) -> str:
    """Text for a cell of a Markdown table: no markup, no HTML, no column."""
    return re.sub(r"([\\`*_{}\[\]|~#!$])", r"\\\1", html.escape(on_one_line(text), quote=False))


def html_text(text: str) -> str:
    """Text for HTML."""
    return html.escape(on_one_line(text))


def file_name(text: str) -> str:
    """A name that is valid on any file system and cannot leave its folder."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip(".-_")[:80] or "unnamed"
