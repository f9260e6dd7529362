"""What keeps a model from being computed as a stack, in one line."""

from __future__ import annotations

import traceback

from fedhv.engines.portions import out_of_memory
from fedhv.support.errors import FedHVError, caused_by, printable

LONGEST = 160
"""Characters of a reason: torch explains itself at length."""

PACKED = "it packs sequences, and the shape of a PackedSequence depends on the data"
PACKING = ("pack_padded_sequence", "pack_sequence", "pad_packed_sequence")
"""Functions of torch whose errors do not say that."""

KNOWN = {
    "data-dependent control flow": "a branch of the model depends on the data",
    "calling .item() on a Tensor": "the model reads a number out of a tensor, as .item() does",
}
"""What torch says at length, by a part of it, and what that means for a user."""


def is_obstacle(error: Exception) -> bool:
    """Whether computing clients one after the other may succeed where a stack raised this error.

    Not so for bad input, memory that runs short and Ctrl-C: these have answers of their own.
    """
    stopped = any(caused_by(error, kind) for kind in (FedHVError, KeyboardInterrupt, MemoryError))
    return not (stopped or out_of_memory(error))


def reason(error: BaseException) -> str:
    """What went wrong: the first sentence of what torch says, in one line, or what is known to be behind it."""
    if any(frame.name in PACKING for frame in traceback.extract_tb(error.__traceback__)):
        return PACKED
    text = printable(" ".join(str(error).split())) or type(error).__name__
    for part, meaning in KNOWN.items():
        if part in text:
            return meaning
    sentence = text.split(". ")[0].rstrip(".")
    return sentence if len(sentence) <= LONGEST else f"{sentence[: LONGEST - 1].rstrip()}…"
