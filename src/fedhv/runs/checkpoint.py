"""Checkpoints: the state after a round, atomic, checksummed, kept in pairs, without pickle."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from fedhv.methods.base import State
from fedhv.protocol.memories import Kept
from fedhv.support.errors import InputError
from fedhv.support.files import write_atomic

NAME = "checkpoint.safetensors"
PREVIOUS = "checkpoint-previous.safetensors"
CLIENTS = "clients."
"""The memory of client k is saved as `clients.k.name`; checkpoints of earlier versions have none."""
_CLIENT = re.compile(r"clients\.\d+\..+")
BEST = "best"
"""The best model so far, where the setting keeps that."""
DIGEST = 32
"""A checkpoint file ends with the SHA-256 of all bytes before it."""


@dataclass(frozen=True)
class Checkpoint:
    """The state after `round` rounds, the clients' memory, and the best model so far where the best one is kept."""

    round: int
    state: State
    kept: Kept = field(default_factory=dict)
    best: Tensor | None = None


def save_checkpoint(folder: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint. The previous one is kept."""
    tensors = {"model": checkpoint.state.model, "weights": checkpoint.state.weights}
    tensors |= {f"memory.{name}": value for name, value in checkpoint.state.memory.items()}
    for client, kept in checkpoint.kept.items():
        tensors |= {f"{CLIENTS}{client}.{name}": value for name, value in kept.items()}
    if checkpoint.best is not None:
        tensors[BEST] = checkpoint.best
    tensors["round"] = torch.tensor(checkpoint.round)
    content = save_tensors(_apart(tensors))
    write_atomic(folder / NAME, content + hashlib.sha256(content).digest(), previous=folder / PREVIOUS)


def _apart(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors on the CPU, none of which shares memory with another: a file holds a piece of memory once.

    The best model may be the state's own, and what a method or a client remembers may be the model of its round.
    """
    made: dict[str, Tensor] = {}
    places: set[int] = set()
    for name, value in tensors.items():
        value = value.detach().cpu().contiguous()
        place = value.untyped_storage().data_ptr()
        made[name] = value.clone() if place in places else value
        places.add(place)
    return made


def kept_checkpoint(folder: Path, round: int) -> Path:
    """Where the checkpoint after a round is kept for good, where the setting asks for that."""
    return folder / f"checkpoint-{round:06d}.safetensors"


def kept_rounds(folder: Path) -> list[int]:
    """The rounds whose checkpoints are kept, in ascending order."""
    return sorted(int(each.stem.split("-")[1]) for each in folder.glob("checkpoint-[0-9]*.safetensors"))


def keep_checkpoint(folder: Path, round: int, newest: int | None = None) -> None:
    """Keep the newest checkpoint, which is that of this round; and of all that are kept only the `newest` ones.

    It is a second name of the file, which costs neither time nor, until the next checkpoint is written, space. On file
    systems without such names it is a copy.
    """
    path = kept_checkpoint(folder, round)
    path.unlink(missing_ok=True)
    try:
        os.link(folder / NAME, path)
    except OSError:
        write_atomic(path, (folder / NAME).read_bytes())
    if newest is not None:
        for old in kept_rounds(folder)[:-newest]:
            kept_checkpoint(folder, old).unlink()


def round_to_go_back_to(folder: Path, round: int) -> int:
    """The newest round with a kept checkpoint that is not after `round`."""
    there = kept_rounds(folder)
    if not there or there[0] > round:
        found = ", ".join(map(str, there)) or "none; keep some with `record.checkpoints`"
        raise InputError(
            f"{folder} should have a kept checkpoint of round {round} or of one before it. Found rounds: {found}."
        )
    return max(each for each in there if each <= round)


def go_back(folder: Path, round: int) -> int:
    """Make a kept checkpoint the newest one, and return its round: `round`, or the last before it that was kept.

    A run that is resumed continues from there. Rounds are functions of the state and the seed, so a simulated run that
    goes back further than to `round` repeats the rounds up to it exactly.
    """
    back = round_to_go_back_to(folder, round)
    path = kept_checkpoint(folder, back)
    content = path.read_bytes()
    if hashlib.sha256(content[:-DIGEST]).digest() != content[-DIGEST:]:
        raise InputError(f"The checkpoint {path} is corrupt: its checksum does not match.")
    (folder / PREVIOUS).unlink(missing_ok=True)
    write_atomic(folder / NAME, content)
    for later in kept_rounds(folder):
        if later > back:
            kept_checkpoint(folder, later).unlink()
    return back


def load_checkpoint(folder: Path, start: State) -> tuple[Checkpoint | None, str]:
    """The newest valid checkpoint of a run, and a note if a newer one is damaged; None if there is no checkpoint.

    `start` is the state that the run started from: what is loaded must have its shapes.
    """
    found = [folder / name for name in (NAME, PREVIOUS) if (folder / name).exists()]
    problems = []
    for path in found:
        try:
            checkpoint = read_checkpoint(path, start)
        except InputError as error:
            problems.append(str(error))
        else:
            note = f"{problems[0]} Using the previous one, after round {checkpoint.round}." if problems else ""
            return checkpoint, note
    if problems:
        raise InputError(f"{' '.join(problems)} Delete {folder} to start the run again.")
    return None, ""


def has_checkpoint(folder: Path) -> bool:
    """Whether a run has a checkpoint."""
    return any((folder / name).exists() for name in (NAME, PREVIOUS))


def read_checkpoint(path: Path, start: State) -> Checkpoint:
    """One checkpoint file, its checksum and its shapes checked."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"The checkpoint {path} could not be read: {error.strerror or error}.") from None
    content, digest = data[:-DIGEST], data[-DIGEST:]
    if hashlib.sha256(content).digest() != digest:
        raise InputError(f"The checkpoint {path} is corrupt: its checksum does not match.")
    try:
        tensors: dict[str, Tensor] = load_tensors(content)
        model, weights, round = (tensors.pop(name) for name in ("model", "weights", "round"))
    except (SafetensorError, KeyError) as error:
        raise InputError(f"The checkpoint {path} is not one of FedHV's: {error}.") from None
    best = tensors.pop(BEST, None)
    shaped = [("model", model, start.model), ("weights", weights, start.weights)]
    shaped += [] if best is None else [(BEST, best, start.model)]
    for name, value, like in shaped:
        if value.shape != like.shape or value.dtype != like.dtype:
            raise InputError(
                f"The checkpoint {path} does not fit: expected `{name}` of shape {tuple(like.shape)} and "
                f"{like.dtype}, found {tuple(value.shape)} and {value.dtype}."
            )
    if round.shape != () or round.dtype != torch.int64 or int(round) < 1:
        raise InputError(f"The checkpoint {path} does not fit: expected `round` as a whole number from 1.")
    clients = {name: tensors.pop(name) for name in list(tensors) if _CLIENT.fullmatch(name)}
    foreign = [name for name in tensors if not name.startswith("memory.")]
    if foreign:
        raise InputError(f"The checkpoint {path} is not one of FedHV's: it holds '{foreign[0]}'.")
    for name, value in (("model", model), ("weights", weights)):
        if not bool(value.isfinite().all()):
            raise InputError(f"The checkpoint {path} does not fit: `{name}` is not finite.")
    memory = {name.removeprefix("memory."): value for name, value in tensors.items()}
    kept: dict[int, dict[str, Tensor]] = {}
    for name, value in clients.items():
        _, client, inner = name.split(".", 2)
        kept.setdefault(int(client), {})[inner] = value
    return Checkpoint(int(round), State(model, weights, memory), kept, best)
