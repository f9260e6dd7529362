"""The engines by name; a class is imported when it is looked up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedhv.support.lazy import Registry

if TYPE_CHECKING:
    from fedhv.engines.base import Engine

ENGINES: Registry[type[Engine]] = Registry(
    {
        "sequential": "fedhv.engines.sequential:Sequential",
        "parallel": "fedhv.engines.parallel:Parallel",
        "stacked": "fedhv.engines.stacked:Stacked",
        "ray": "fedhv.engines.ray:Ray",
    }
)
