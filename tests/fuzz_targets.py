"""Every parser that reads what others wrote, as a function of bytes, and what it may do with them.

A parser may accept, or refuse with one line that names the file. Anything else is a bug: `judge` raises it.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import json
import signal
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save

from fedhv.cli import main
from fedhv.data.arrays import write_arrays
from fedhv.data.celeba import ATTRIBUTES, _read_attributes, _read_partition, read_faces
from fedhv.data.cifar import RECORD, read_records
from fedhv.data.idx import read_idx
from fedhv.methods.base import State
from fedhv.report.rounds import read_rounds
from fedhv.runs.checkpoint import NAME as CHECKPOINT
from fedhv.runs.checkpoint import load_checkpoint
from fedhv.runs.config import load_setting, setting_from_tables, setting_tables, shipped_settings
from fedhv.runs.history import NAME as HISTORY
from fedhv.runs.history import read_history
from fedhv.runs.record import read_summary
from fedhv.runs.reference import read_reference
from fedhv.support import toml
from fedhv.support.errors import FedHVError

SUMMARY = json.dumps(
    {
        "setting": "digits", "method": "fedhv", "seed": 0, "rounds": 3, "mean_accuracy": 50.0, "worst_accuracy": 40.0,
        "mean_loss": 1.0, "hypervolume": 4.0, "tasks": [{"name": "clear", "accuracy": 40.0, "loss": 1.0}],
        "weights": [1.0], "seconds": 1, "calibration_seconds": 0, "total_seconds": 1,
        "communication": {"downlink_bytes": 8, "uplink_bytes": 8, "calibration_bytes": 0, "total_bytes": 16},
    }
).encode()  # fmt: skip

SLOWEST = 100.0
"""No input of a few kilobytes may take more CPU seconds than this: one whose time grows with a power does."""


@dataclass(frozen=True)
class Target:
    """A parser, the name that its file has, and inputs that it accepts, from which others are made."""

    parse: Callable[[Path], object]
    file: str
    seeds: tuple[bytes, ...]
    place: str = ""
    """What a refusal must name; the file by default."""


class Bug(AssertionError):
    """An input that a parser neither accepted nor refused as it should."""


def judge(name: str, data: bytes, folder: Path) -> bool:
    """Give bytes to a parser; True if it took them. Raises `Bug` where it misbehaves."""
    target = TARGETS[name]
    path = folder / target.file
    path.write_bytes(data)
    began = time.process_time()
    try:
        target.parse(path)
    except FedHVError as error:
        message = str(error)
        if "\n" in message.replace(str(folder), ""):
            raise Bug(f"{name}: a refusal of several lines: {message!r}") from None
        if (target.place or str(path)) not in message:
            raise Bug(f"{name}: the refusal does not name {target.place or path.name}: {message!r}") from None
        return False
    except Exception as error:
        raise Bug(f"{name}: {type(error).__name__}: {str(error)[:200]} for {data[:200]!r}") from error
    finally:
        if time.process_time() - began > SLOWEST:
            raise Bug(f"{name}: took {time.process_time() - began:.1f} s for {data[:200]!r}")
    return True


# --- the parsers ------------------------------------------------------------------------------------------


def _setting(path: Path) -> None:
    try:
        setting = load_setting(str(path))
    except FedHVError as error:
        raise type(error)(f"{path}: {error}") from None  # a key is its own place
    # What is accepted can be shown, and what is shown can be read.
    shown = toml.write(setting_tables(setting))
    assert toml.write(setting_tables(setting_from_tables(toml.read_text(shown)))) == shown


def _override(path: Path) -> None:
    text = path.read_bytes().decode("utf-8", "replace")
    try:
        load_setting("digits", [text])
    except FedHVError as error:
        raise type(error)(f"{path}: {error}") from None


def _history(path: Path) -> None:
    read_rounds(path.parent)  # the report reads whatever there is and never refuses
    read_history(path.parent)


START = State(torch.zeros(5), torch.zeros(2))


def _checkpoint(path: Path) -> None:
    load_checkpoint(path.parent, START)


def _sealed(path: Path) -> None:
    """A checkpoint whose checksum is right, whatever it holds."""
    content = path.read_bytes()
    path.write_bytes(content + hashlib.sha256(content).digest())
    load_checkpoint(path.parent, START)


def _command(path: Path) -> None:
    """Arguments, one a line, to `fedhv`; it must end with a known code and never by an exception."""
    # No system passes a null byte to a program.
    arguments = path.read_bytes().decode("utf-8", "replace").replace("\0", "").split("\n")
    if harmless(arguments):
        code, err = called(arguments)
        if code not in (0, 1, 2) or "Traceback" in err:
            raise AssertionError(f"fedhv {arguments} ended with {code}: {err[-300:]}")


COMMANDS = ("run", "compare", "calibrate", "list", "show", "report", "diagnose", "data", "--version", "nonsense")
SHIPPED = set(shipped_settings())


def harmless(arguments: list[str]) -> bool:
    """Command lines that start no long work: nothing is trained, downloaded, served or left running."""
    if not arguments or (arguments[0] in ("run", "compare", "calibrate") and SHIPPED & set(arguments)):
        return False
    return arguments[0] in COMMANDS and not {"download", "--install-completion", "watch"} & set(arguments)


def called(arguments: list[str]) -> tuple[int, str]:
    """The exit code of `fedhv …` and what it wrote to stderr."""
    before, handler = sys.argv, signal.getsignal(signal.SIGTERM)
    out, err = io.StringIO(), io.StringIO()
    sys.argv = ["fedhv", *arguments]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main()
    except SystemExit as end:
        return (end.code if isinstance(end.code, int) else 1), err.getvalue()
    finally:
        sys.argv = before
        signal.signal(signal.SIGTERM, handler)
    return 0, err.getvalue()


# --- inputs that they accept ------------------------------------------------------------------------------

RECORDS = [
    {"round": 1, "report": [1.5, 2.0], "slack": [0.5, 0.1], "floored": 0, "weights": [0.5, 0.5], "downlink_bytes": 4,
     "uplink_bytes": 4, "exchanges": 1, "seconds": 0.1, "refused": [{"client": 3, "reason": "no answer"}]},
    {"round": 2, "weights": [0.4, 0.6], "downlink_bytes": 4, "uplink_bytes": 4, "exchanges": 1, "seconds": 0.1,
     "evaluation": {"mean_accuracy": 50.0, "worst_accuracy": 50.0, "mean_loss": 1.0, "hypervolume": 2.0,
                    "tasks": [{"name": "a", "accuracy": 50.0, "loss": 1.0}]}},
]  # fmt: skip
TENSORS = {"model": torch.ones(5), "weights": torch.ones(2) / 2, "round": torch.tensor(3), "memory.v": torch.ones(2)}
SIGNS = " ".join(["1", "-1"] * 20)


def _idx(*shape: int) -> bytes:
    return struct.pack(f">HBB{len(shape)}I", 0, 8, len(shape), *shape) + bytes(int(np.prod(shape)))


def _faces() -> bytes:
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / "f.npz"
        arrays = {"images": np.zeros((1, 3, 32, 32), np.uint8), "attributes": np.zeros((1, 40), np.uint8)}
        write_arrays(path, arrays | {"names": np.array(["1.jpg"]), "attribute_names": np.array(ATTRIBUTES)})
        return path.read_bytes()


def _settings() -> Iterator[bytes]:
    for name in ("digits", "celeba5-a"):
        yield shipped_settings()[name].read_bytes()
    yield b"""benchmark = "digits"
federation = {clients = 3, participants = 2, samples_per_client = [4, 5, 6]}
training = {rounds = 1, batch_size = 2, local_steps = 1}
faults = {drop_out = 0.25, claim = [1e9, nan], pattern = "same"}
server = {min_replies = 2, max_update = 10.0}
references.mine = [1.5, 2.5]
methods.fedhv = {aggregate = "trimmed", trim = 0.1, watch = "stop", weight_cap = 0.9}
"""


GOOD = json.dumps(RECORDS[0]).encode()
LINES = (
    b"show\ndigits", b"show\ndigits\n--set\ntraining.rounds=3", b"run\nnowhere.toml\n--rounds\n0", b"list\n--json",
    b"compare\nx\n--seeds\n1,2,a", b"report\nnowhere\n--out\nr", b"diagnose\nnowhere", b"data\nwhere", b"--version",
    b"calibrate\nx.toml\n--margin\nnan", b"show\n\xff\xfe\n--set\n=",
)  # fmt: skip

TARGETS = {
    "setting": Target(_setting, "s.toml", tuple(_settings())),
    "override": Target(
        _override, "o.txt", (b"training.rounds=3", b"faults.claim=[1.0, nan]", b"methods.fedhv.floor=1e-3")
    ),
    "reference": Target(read_reference, "r.toml", (b"values = [1.5, 2.0]\n[cost]\nrounds = 3\n", b"values=[1]")),
    "history": Target(_history, HISTORY, (b"".join(json.dumps(r).encode() + b"\n" for r in RECORDS), GOOD)),
    "summary": Target(lambda path: read_summary(path.parent), "summary.json", (SUMMARY,)),
    "checkpoint": Target(_checkpoint, CHECKPOINT, (save(TENSORS) + hashlib.sha256(save(TENSORS)).digest(),)),
    "sealed checkpoint": Target(_sealed, CHECKPOINT, (save(TENSORS),)),
    "idx images": Target(lambda path: read_idx(path, 3), "i.idx", (_idx(2, 2, 3), gzip.compress(_idx(2, 2, 3)))),
    "idx labels": Target(lambda path: read_idx(path, 1), "l.idx", (_idx(7), gzip.compress(_idx(7)))),
    "cifar": Target(read_records, "c.bin", (bytes([3]) + bytes(RECORD - 1), bytes(RECORD * 2))),
    "celeba attributes": Target(
        _read_attributes, "a.txt", (f"1\n{' '.join(ATTRIBUTES)}\n000001.jpg {SIGNS}\n".encode(),)
    ),
    "celeba partition": Target(_read_partition, "p.txt", (b"000001.jpg 0\n000002.jpg 2\n",)),
    "celeba arrays": Target(read_faces, "f.npz", (_faces(),)),
    "command line": Target(_command, "arguments", LINES),
}
