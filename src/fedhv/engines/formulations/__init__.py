"""Formulations of layers that `vmap` can map over clients: same parameters and results, other operators."""

from __future__ import annotations

from fedhv.engines.formulations.attention import mappable_calls
from fedhv.engines.formulations.replacement import with_mappable_layers

__all__ = ["mappable_calls", "with_mappable_layers"]
