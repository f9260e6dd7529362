"""The examples of each client."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fedhv.support.errors import InputError


@dataclass(frozen=True)
class Clients:
    """Index lists, not objects: client k holds `indices[offsets[k]:offsets[k + 1]]` of the training examples.

    So a million clients are two arrays.
    """

    indices: np.ndarray
    offsets: np.ndarray

    complete: ClassVar[bool] = True
    """Whether these are all clients of the federation. Then every task must have labels."""
    elsewhere: ClassVar[bool] = False
    """Whether no example of any client is here, not even one to try the model on."""

    @classmethod
    def of(cls, lists: Sequence[Any]) -> Clients:
        """From one index list per client."""
        arrays = [_indices(each) for each in lists]
        offsets = np.concatenate([[0], np.cumsum([len(a) for a in arrays])]).astype(np.int64)
        return cls(np.concatenate(arrays) if arrays else np.empty(0, np.int64), offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, client: int) -> np.ndarray:
        return self.indices[self.offsets[client] : self.offsets[client + 1]]

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self[k] for k in range(len(self)))

    @property
    def sizes(self) -> np.ndarray:
        """The number of examples of each client."""
        return np.diff(self.offsets)


def _indices(given: Any) -> np.ndarray:
    """One client's indices. Masks and real numbers would silently become other indices."""
    found = np.asarray(given)
    if found.ndim != 1 or (found.dtype.kind not in "iu" and found.size):
        hint = "; give numpy.flatnonzero(mask)" if found.dtype.kind == "b" else ""
        shape = "" if found.ndim == 1 else f" of shape {found.shape}"
        raise InputError(f"A client's examples should be a list of whole numbers. Found {found.dtype}{shape}{hint}.")
    return found.astype(np.int64)
