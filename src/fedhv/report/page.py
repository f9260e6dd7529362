"""The page: one HTML file that contains its data, scripts and licences and loads nothing from the network."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from functools import cache
from importlib import resources

from fedhv.report import render
from fedhv.report.escape import html_text
from fedhv.report.groups import StudyData
from fedhv.report.packing import packed
from fedhv.report.payload import payload
from fedhv.report.tables import tables

SCRIPTS = (
    "state.js",
    "elements.js",
    "unpack.js",
    "svg.js",
    "lines.js",
    "download.js",
    "export.js",
    "picture.js",
    "chart.js",
    "series.js",
    "tradeoff.js",
    "bars.js",
    "overview.js",
    "balance.js",
    "tables.js",
    "runs.js",
    "cards.js",
    "federation.js",
    "clients.js",
    "front.js",
    "paper.js",
    "views.js",
    "live.js",
    "page.js",
)
"""In the order in which they are concatenated."""
GENERATOR = '<meta name="generator" content="fedhv'
"""A file that starts with this is a report page and may be replaced."""


def page(study: StudyData, live: bool = False, figures: Sequence[str] = ()) -> str:
    """The page of a study as HTML.

    Args:
        study: The study.
        live: Whether the page requests new data from its own server. Otherwise it makes no connection.
        figures: The names of figures in the folder `figures` beside the page, which it links to.
    """
    made = payload(study, figures)
    script, style = _script(), _asset("uPlot.min.css") + _asset("page.css")
    values = {
        "policy": _policy(script, style, live),
        "version": html_text(made["version"]),
        "title": html_text(study.title),
        "style": style,
        "static": "".join(f"<h3>{html_text(table.title)}</h3>{render.html(table)}" for table in tables(study)[:2]),
        "licence": html_text_lines(_asset("uPlot.LICENSE")),
        "data": packed(made | {"live": live}),
        "script": script,
    }
    # One pass over the template: placeholders inside a value must not be replaced.
    return re.sub(r"\{\{(\w+)\}\}", lambda match: values[match[1]], _asset("page.html"))


def html_text_lines(text: str) -> str:
    """Escaped text that keeps its line breaks."""
    return "\n".join(html_text(line) for line in text.splitlines())


@cache
def _script() -> str:
    own = "\n".join(_asset(name) for name in SCRIPTS)
    return f'{_asset("uPlot.iife.min.js")}\n"use strict";\n(() => {{\n{own}\n}})();\n'


def _policy(script: str, style: str, live: bool) -> str:
    """The content security policy: only this script and style; a live page may connect to its own server."""
    return (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; img-src data:; "
        f"connect-src {chr(39)}{'self' if live else 'none'}{chr(39)}; base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@cache
def _asset(name: str) -> str:
    return (resources.files("fedhv.report") / "assets" / name).read_text(encoding="utf-8")
