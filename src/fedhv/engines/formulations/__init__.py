"""Formulations of layers that `vmap` can map over clients: same parameters and results, other operators."""

from __future__ import annotations

from fedhv.engines.formulations.attention import mappable_attention
from fedhv.engines.formulations.replacement import with_mappable_layers

__all__ = ["mappable_attention", "with_mappable_layers"]
