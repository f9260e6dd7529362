"""The site, built as `make docs` builds it."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.pages import ROOT


def build_site(folder: Path) -> Path:
    """Build strictly: a broken link, a page outside the navigation or an unknown name aborts it."""
    build = pytest.importorskip("mkdocs.commands.build", reason="the site needs fedhv[docs]")
    from mkdocs.config import load_config

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        patch.setenv("NO_MKDOCS_2_WARNING", "1")
        build.build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder), strict=True))
    return folder
