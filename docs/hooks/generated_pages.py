"""Reference pages that are made from the code while the site is built, so that they say what it does."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).parent))

import api
import commands
import settings

PAGES = {
    "reference/commands.md": commands.page,
    "reference/settings.md": settings.page,
    "reference/api.md": api.page,
    "reference/api-report.md": partial(api.package_page, "fedhv.report"),
    "reference/api-theory.md": partial(api.package_page, "fedhv.theory"),
}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Leave out entries of the navigation whose page is not written."""
    config.nav = _present(config.nav or [], Path(config.docs_dir))
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    for path, make in PAGES.items():
        files.append(File.generated(config, path, content=make()))
    return files


def _present(entries: list[Any], docs: Path) -> list[Any]:
    kept: list[Any] = []
    for entry in entries:
        if isinstance(entry, dict):
            ((title, value),) = entry.items()
            if isinstance(value, list):
                below = _present(value, docs)
                kept += [{title: below}] if below else []
                continue
            path = value
        else:
            path = entry
        if path in PAGES or (docs / path).exists():
            kept.append(entry)
    return kept
