"""The examples of each client."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np


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
        arrays = [np.asarray(each, dtype=np.int64) for each in lists]
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
