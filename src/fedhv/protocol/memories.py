"""What the clients of a run keep: their memories in a round, and what is kept until the run ends."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from fedhv.protocol.script import Memory
from fedhv.support.errors import InputError

Memories = defaultdict[int, Memory]
"""The memory of every client of a run, by client."""

Kept = Mapping[int, Mapping[str, Tensor]]
"""The tensors that clients keep until the run ends, by client and name. Clients that keep nothing are left out."""


def no_memories() -> Memories:
    """The empty memories at the start of a run."""
    return defaultdict(Memory)


class RoundMemories(Memories):
    """The memories of one attempt at a round, created for the clients that receive a request.

    Each starts from what the client kept when the round began. Changes take effect at the end of the round (`kept`): an
    attempt that is interrupted or has too few replies changes nothing.
    """

    def __init__(self, before: Kept) -> None:
        super().__init__()
        self._before = before

    def __missing__(self, client: int) -> Memory:
        memory = self[client] = Memory(run={n: v.clone() for n, v in self._before.get(client, {}).items()})
        return memory

    def kept(self) -> Kept:
        """The tensors that the clients of this round keep after it."""
        return {client: _own(client, memory.run) for client, memory in self.items() if memory.run}


def _own(client: int, run: Mapping[str, Any]) -> dict[str, Tensor]:
    """Copies of tensors that are views of a stack, so that the stack can be freed."""
    for name, value in run.items():
        if not isinstance(value, Tensor):
            found = type(value).__name__
            raise InputError(f"`memory.run` should hold tensors. Found a {found} in '{name}' of client {client}.")
    return {n: v if v.untyped_storage().nbytes() == v.nbytes else v.clone() for n, v in run.items()}
