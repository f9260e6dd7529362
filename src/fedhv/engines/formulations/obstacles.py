"""The reason why a model cannot be computed as a stack, in one line."""

from __future__ import annotations

import traceback

from fedhv.engines.portions import out_of_memory
from fedhv.support.errors import FedHVError, caused_by, printable

LONGEST = 160
"""The largest number of characters of a reason; torch's messages are long."""

PACKED = "it packs sequences, and the shape of a PackedSequence depends on the data"
PACKING = ("pack_padded_sequence", "pack_sequence", "pad_packed_sequence")
"""Functions of torch whose error messages do not contain this reason."""

KNOWN = {
    "data-dependent control flow": "a branch of the model depends on the data",
    "calling .item() on a Tensor": "the model reads a number out of a tensor, as .item() does",
}
"""A part of a message of torch, and what it means for a user."""


def is_obstacle(error: Exception) -> bool:
    """Whether clients may be computed one after the other if a stack raised this error.

    Invalid input, memory shortage and Ctrl-C are handled elsewhere.
    """
    stopped = any(caused_by(error, kind) for kind in (FedHVError, KeyboardInterrupt, MemoryError))
    return not (stopped or out_of_memory(error))


def reason(error: BaseException) -> str:
    """The reason for an error: a known explanation, or the first sentence of torch's message, in one line."""
    if any(frame.name in PACKING for frame in traceback.extract_tb(error.__traceback__)):
        return PACKED
    text = printable(" ".join(str(error).split())) or type(error).__name__
    for part, meaning in KNOWN.items():
        if part in text:
            return meaning
    sentence = text.split(". ")[0].rstrip(".")
    return sentence if len(sentence) <= LONGEST else f"{sentence[: LONGEST - 1].rstrip()}…"
