"""Where clients live. Every engine gives the same answers; they differ in speed alone."""

from __future__ import annotations

from fedhv.engines.base import Engine
from fedhv.engines.choosing import ENGINES, Choice, choose_device, choose_engine
from fedhv.engines.parallel import Parallel
from fedhv.engines.sequential import Sequential
from fedhv.engines.stacked import Stacked

__all__ = ["ENGINES", "Choice", "Engine", "Parallel", "Sequential", "Stacked", "choose_device", "choose_engine"]
