"""The state of an installation, for bug reports: versions, devices, optional packages, datasets, a short self-test.

Nothing that it reports names a user, a machine or a folder.
"""

from __future__ import annotations

import os
import platform
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import torch

from fedhv._version import __version__
from fedhv.data.locate import data_location
from fedhv.data.verify import presence
from fedhv.engines import choose_engine
from fedhv.methods import FedHV
from fedhv.runs.job import Job
from fedhv.runs.model import load_model
from fedhv.runs.record import Run
from fedhv.runs.reference import Reference
from fedhv.runs.resolve import resolve
from fedhv.support.cores import usable_cores
from fedhv.support.errors import FedHVError

ROUNDS = 2
SHORT = (
    "federation.participants=2",
    "federation.samples_per_client=60",
    "training.local_steps=3",
    "evaluation.every=0",
)
"""The self-test's changes of the embedded setting."""
LEVEL = 3.0
"""The self-test's reference, above the losses of an untrained model on ten classes."""
CLOSE = 1e-2
"""The largest relative difference of losses between devices after two rounds; tf32 rounds to 10 bits."""


@dataclass(frozen=True)
class Finding:
    """One line of the report.

    Attributes:
        section: The group of lines.
        name: What was looked at.
        value: What was found.
        ok: False if it has to be mended.
    """

    section: str
    name: str
    value: str
    ok: bool = True


def examine(data: str | None = None, self_test: bool = True) -> Iterator[Finding]:
    """All findings, as they are made."""
    yield from _system()
    yield from _devices()
    yield from _packages()
    yield from _datasets(data)
    if self_test:
        yield from _self_test()


def _system() -> Iterator[Finding]:
    implementation = f"{platform.python_version()} ({platform.python_implementation()})"
    yield Finding("system", "fedhv", __version__)
    yield Finding("system", "Python", implementation)
    yield Finding("system", "system", f"{platform.system()} {platform.release()}, {platform.machine()}")
    yield Finding("system", "cores", str(usable_cores()))


def _devices() -> Iterator[Finding]:
    built = f", built for CUDA {torch.version.cuda}" if torch.version.cuda else ", built without CUDA"
    yield Finding("devices", "torch", f"{torch.__version__}{built}, {torch.get_num_threads()} threads")
    if not torch.cuda.is_available():
        yield Finding("devices", "CUDA", "no GPU")
    for i in range(torch.cuda.device_count()):
        of = torch.cuda.get_device_properties(i)
        size = f"{of.total_memory / 2**30:.0f} GiB"
        yield Finding("devices", f"cuda:{i}", f"{of.name}, {size}, compute capability {of.major}.{of.minor}")
    yield Finding("devices", "MPS", "available" if torch.backends.mps.is_available() else "not available")
    yield Finding("devices", "Triton", _version("triton") or "not installed: the stacked engine uses torch's kernels")


def _packages() -> Iterator[Finding]:
    """The packages that are needed, and for every extra which of its packages are there."""
    try:
        required = metadata.requires("fedhv") or []
    except metadata.PackageNotFoundError:
        yield Finding("packages", "fedhv", "not installed as a package; extras are unknown")
        return
    groups: dict[str, list[str]] = {}
    for line in required:
        name = re.split(r"[<>=!~\[; ]", line, maxsplit=1)[0]
        marked = re.search(r"extra == ['\"]([\w-]+)['\"]", line)
        if name.lower() != "fedhv":
            groups.setdefault(marked[1] if marked else "", []).append(name)
    core = [(name, _version(name)) for name in groups.pop("", [])]
    absent = [name for name, version in core if version is None]
    yield Finding("packages", "core", ", ".join(f"{name} {version or 'MISSING'}" for name, version in core), not absent)
    for extra, names in groups.items():
        if extra in ("dev", "docs"):
            continue
        found = [f"{name} {version}" for name in names if (version := _version(name)) is not None]
        missing = [name for name in names if _version(name) is None]
        told = [*found, *(["missing: " + ", ".join(missing)] if missing else [])]
        yield Finding("extras", extra, "; ".join(told))


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _datasets(data: str | None) -> Iterator[Finding]:
    try:
        location = data_location(data)
    except FedHVError as error:
        yield Finding("data", "folder", _anonymous(error), ok=False)
        return
    there = "exists" if location.path.is_dir() else "does not exist"
    yield Finding("data", "folder", f"from {location.origin}; {there}")
    for name, state in presence(location.path).items():
        yield Finding("data", name, state)


def _self_test() -> Iterator[Finding]:
    """Two rounds of FedHV on the embedded benchmark: on the CPU, and on the device and engine that `auto` chooses."""
    setting, problem = resolve("digits", SHORT, ROUNDS)
    losses = []
    for engine, device in (("sequential", "cpu"), ("auto", "auto")):
        name = f"{engine} engine, {device} device"
        try:
            choice = choose_engine(engine, device, "auto", problem, setting.plan(FedHV(), 0))
            with tempfile.TemporaryDirectory(prefix="fedhv-doctor-") as folder:
                reference = Reference((LEVEL,) * len(problem.tasks), tuple(task.name for task in problem.tasks))
                job = Job(setting, problem, setting.method("fedhv"), 0, choice, Path(folder) / "run", reference)
                run = job.with_reference(reference).execute()
                yield Finding("self-test", name, _checked(run, choice.engine, str(choice.device)))
                losses.append([task.loss for task in run.tasks])
        except Exception as error:  # whatever is broken on this machine is what the report is for
            yield Finding("self-test", name, _anonymous(error), ok=False)
    if len(losses) == 2:
        differs = max(abs(a - b) / abs(a) for a, b in zip(*losses, strict=True))
        words = "same losses" if differs == 0 else f"losses differ by {differs:.1e} (relative)"
        yield Finding("self-test", "agreement", words, ok=differs <= CLOSE)


def _checked(run: Run, engine: str, device: str) -> str:
    """The result in words; raises an error where the run or its folder is not as it should be."""
    if abs(sum(run.weights) - 1) > 1e-6 or not all(0 < task.loss < LEVEL for task in run.tasks):
        raise FedHVError(f"Unexpected results: weights {run.weights}, losses {[task.loss for task in run.tasks]}.")
    load_model(run)
    shown = ", ".join(f"{task.loss:.6f}" for task in run.tasks)
    return f"{engine} on {device}: {ROUNDS} rounds in {run.seconds:.1f} s, losses {shown}"


def _anonymous(error: BaseException) -> str:
    """An error in one line, without the names of the user's folders."""
    text = " ".join(str(error).split())
    for folder in (os.path.expanduser("~"), os.getcwd(), tempfile.gettempdir()):
        if len(folder) > 1:
            text = text.replace(folder, "…")
    return f"{type(error).__name__}: {text}"
