"""A warning of torch that has no meaning here."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet_first_gradient() -> Iterator[None]:
    """The first gradient in a process runs in a thread without a CUDA context; torch creates one, and warns."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Attempting to run cuBLAS")
        yield
