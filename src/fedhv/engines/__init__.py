"""Engines: they compute the replies of a cohort. All give the same results; they differ in speed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedhv.engines.registry import ENGINES
from fedhv.support.lazy import exports

if TYPE_CHECKING:
    from fedhv.engines.base import Engine
    from fedhv.engines.choosing import Choice, choose_device, choose_engine
    from fedhv.engines.parallel import Parallel
    from fedhv.engines.ray import Ray
    from fedhv.engines.sequential import Sequential
    from fedhv.engines.stacked import Stacked
else:
    __getattr__, __dir__ = exports(
        __name__,
        {
            "fedhv.engines.base": ["Engine"],
            "fedhv.engines.choosing": ["Choice", "choose_device", "choose_engine"],
            "fedhv.engines.parallel": ["Parallel"],
            "fedhv.engines.ray": ["Ray"],
            "fedhv.engines.sequential": ["Sequential"],
            "fedhv.engines.stacked": ["Stacked"],
        },
    )

__all__ = ["ENGINES", "Choice", "Engine", "Parallel", "Ray", "Sequential", "Stacked", "choose_device", "choose_engine"]
