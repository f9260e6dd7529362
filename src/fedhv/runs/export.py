"""Export of a run's model for other programs: `torch.export` (.pt2) and ONNX, with a check of the outputs."""

from __future__ import annotations

import functools
import inspect
import logging
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from fedhv.problem.problem import Examples
from fedhv.problem.stored import Collated
from fedhv.problem.trees import Inputs, arguments, leaves, rebuild
from fedhv.runs.model import Source, as_run, benchmark_of, load_model
from fedhv.runs.record import Run
from fedhv.support.errors import FedHVError, InputError, unknown
from fedhv.support.files import cannot_write, make_folder

FORMATS = ("pt2", "onnx")
FOLDER = "export"
"""The folder of the files, in the run's."""
NEEDED = ("onnx", "onnxscript", "onnxruntime")
"""The packages that write an ONNX file and compute its outputs."""
TRACED = 3
"""The number of examples that a model is traced with."""
CHECKED = (1, 8)
"""The numbers of examples in the minibatches on which outputs are compared; other numbers than the traced one."""
TOLERANCE = 1e-4
"""The largest difference of an output, relative to the largest output or 1. Runtimes order sums differently."""

Compute: TypeAlias = Callable[[Inputs], Sequence[Tensor]]
"""From a minibatch of inputs to one output per task."""


@dataclass(frozen=True)
class Exported:
    """The files of an exported model.

    Attributes:
        files: The file of every format.
        differences: For every format the largest absolute difference to the outputs of the model in PyTorch.
        inputs: The names of the model's inputs.
        outputs: The names of its outputs: the tasks, in their order.
    """

    files: Mapping[str, Path]
    differences: Mapping[str, float]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


class Deployed(nn.Module):
    """A model with the preparation of its inputs: it takes examples as the problem stores them.

    Args:
        model: The trained model.
        prepare: Applied to the inputs first; None if there is nothing to do.
        inputs: The inputs of a minibatch. A dict's keys are the names of the arguments.
    """

    def __init__(self, model: nn.Module, prepare: Callable[[Inputs], Inputs] | None, inputs: Inputs) -> None:
        super().__init__()
        self.model = model
        self._prepare = prepare
        self._several = isinstance(inputs, tuple)
        self.forward = _with_signature(self._compute, _argument_names(inputs))

    def _compute(self, *parts: Any, **named: Any) -> tuple[Tensor, ...]:
        """One output per task."""
        inputs: Inputs = named or (parts if self._several else parts[0])
        if self._prepare is not None:
            inputs = self._prepare(inputs)
        positional, keywords = arguments(inputs)
        outputs = self.model(*positional, **keywords)
        return (outputs,) if isinstance(outputs, Tensor) else tuple(outputs)


def export(
    run: Run | str | Path,
    out: str | Path | None = None,
    *,
    formats: Sequence[str] = FORMATS,
    problem: Source | None = None,
    prepare: bool = True,
    data: str | None = None,
) -> Exported:
    """Write the model of a run for other programs, and check that its outputs are those of PyTorch.

    The exported model takes minibatches of any size and returns one output per task.

    Args:
        run: A `Run`, or a run's folder.
        out: The folder of `model.pt2` and `model.onnx`; by default `export` in the run's folder.
        formats: "pt2" (`torch.export`) and "onnx", which needs the extra `export`.
        problem: For a folder with a run on your own problem: the `Problem`, or "package.module:name" of one.
        prepare: Whether the exported model begins with the problem's `prepare`. It then takes examples as the problem
            stores them.
        data: The folder of the datasets, for benchmarks that need it.

    Examples:
        >>> exported = fedhv.export("runs/digits/fedhv-seed0")
        >>> torch.export.load(exported.files["pt2"]).module()(images)
    """
    run = as_run(run)
    wanted = _formats(formats)
    folder = _folder(run, out)
    benchmark, _ = benchmark_of(run, problem, data)
    source = benchmark.train if benchmark.test is None else benchmark.test
    inside, prepared = (benchmark.prepare, None) if prepare else (None, benchmark.prepare)
    one = _batch(source, 1, prepared)
    module = Deployed(load_model(run, benchmark), inside, one).eval()
    inputs, tasks = tuple(_names(one)), tuple(task.name for task in benchmark.tasks)
    program = _traced(module, source, prepared)
    files, differences = {}, {}
    make_folder(folder)
    for form in wanted:
        path = folder / f"model.{form}"
        with _replacing(path) as temporary:
            _write(form, program, temporary, inputs, tasks)
            compute = _by_torch(temporary) if form == "pt2" else _by_onnx(temporary, inputs)
            differences[form] = _compared(form, compute, module, [_batch(source, n, prepared) for n in CHECKED])
        files[form] = path
    return Exported(files, differences, inputs, tasks)


def _formats(formats: Sequence[str]) -> list[str]:
    if isinstance(formats, str) or not formats:
        raise InputError(f"`formats` should be a list of {' and '.join(FORMATS)}. Found {formats!r}.")
    for form in formats:
        if form not in FORMATS:
            raise unknown("format", form, FORMATS)
    missing = [name for name in NEEDED if find_spec(name) is None] if "onnx" in formats else []
    if missing:
        raise InputError(
            f"ONNX needs {', '.join(missing)}: pip install 'fedhv[export]'. The format pt2 needs no other package."
        )
    return list(dict.fromkeys(formats))


def _folder(run: Run, out: str | Path | None) -> Path:
    if out is not None:
        return Path(out)
    if run.folder is None:
        raise InputError("The run is in memory only. Give the folder for the files: `out`.")
    return run.folder / FOLDER


def _names(inputs: Inputs, prefix: str = "") -> Iterator[str]:
    """The names of all parts: a dict's keys, a tuple's positions, or "inputs"."""
    if isinstance(inputs, dict | tuple):
        pairs = inputs.items() if isinstance(inputs, dict) else enumerate(inputs)
        for key, each in pairs:
            alone = isinstance(inputs, dict) and not prefix
            yield from _names(each, str(key) if alone else f"{prefix or 'inputs'}_{key}")
    else:
        yield prefix or "inputs"


def _argument_names(inputs: Inputs) -> list[str]:
    """The names of the exported model's arguments: of all parts, nested ones taken together."""
    if isinstance(inputs, dict):
        return list(inputs)
    return [f"inputs_{i}" for i in range(len(inputs))] if isinstance(inputs, tuple) else ["inputs"]


def _with_signature(function: Callable[..., Any], names: Sequence[str]) -> Callable[..., Any]:
    """The function with named parameters; torch.export takes names from the signature and refuses `**keywords`."""

    @functools.wraps(function)
    def signed(*parts: Any, **named: Any) -> Any:
        return function(*parts, **named)

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    signed.__signature__ = inspect.Signature([inspect.Parameter(name, kind) for name in names])  # type: ignore[attr-defined]
    return signed


def _batch(examples: Examples, count: int, prepared: Any) -> Inputs:
    """Inputs of this many examples, repeated where there are fewer."""
    inputs = examples[torch.arange(count) % len(examples)].inputs
    return inputs if prepared is None else prepared(inputs)


def _traced(module: Deployed, source: Examples, prepared: Any) -> torch.export.ExportedProgram:
    """The computation of the model for minibatches of any size, and of any length if examples are collated."""
    inputs = _batch(source, TRACED, prepared)
    batch = torch.export.Dim("batch")
    collated = any(isinstance(leaf, Collated) for leaf in leaves(source.inputs))
    others = torch.export.Dim.AUTO if collated else None
    parts = [{0: batch, **dict.fromkeys(range(1, leaf.ndim), others)} for leaf in leaves(inputs)]
    axes = rebuild(inputs, parts)
    each = tuple(axes.values()) if isinstance(inputs, dict) else axes if isinstance(inputs, tuple) else (axes,)
    shapes = dict(zip(_argument_names(inputs), each, strict=True))
    try:
        with _quiet():
            return torch.export.export(module, *arguments(inputs), dynamic_shapes=shapes)
    except Exception as error:  # whatever the tracer finds in a user's code
        raise _failed("torch.export", error) from error


def _write(
    form: str, program: torch.export.ExportedProgram, path: Path, inputs: Sequence[str], tasks: Sequence[str]
) -> None:
    try:
        with _quiet():
            if form == "pt2":
                torch.export.save(program, path)
                return
            made = torch.onnx.export(program, (), input_names=inputs, output_names=tasks, dynamo=True, verbose=False)
            assert made is not None
            made.save(str(path))
    except OSError as error:
        raise cannot_write(path, error) from None
    except Exception as error:
        raise _failed({"pt2": "torch.export", "onnx": "ONNX"}[form], error) from error


def _compared(form: str, compute: Compute, module: Deployed, batches: Sequence[Inputs]) -> float:
    """The largest difference between the outputs of the written file and of the model."""
    largest = 0.0
    for inputs in batches:
        positional, keywords = arguments(inputs)
        with torch.no_grad():
            expected = module(*positional, **keywords)
        for ours, theirs in zip(expected, compute(inputs), strict=True):
            difference = float((ours - theirs).abs().max())
            largest = max(largest, difference)
            if not difference <= TOLERANCE * max(1.0, float(ours.abs().max())):
                raise FedHVError(
                    f"The outputs of the exported model (.{form}) differ from those of PyTorch by {difference:.2g}. "
                    "The file is not written."
                )
    return largest


def _by_torch(path: Path) -> Compute:
    """The outputs that PyTorch computes from the file."""
    with _quiet():
        module = torch.export.load(path).module()

    @torch.no_grad()
    def compute(inputs: Inputs) -> Sequence[Tensor]:
        positional, keywords = arguments(inputs)
        outputs: Sequence[Tensor] = module(*positional, **keywords)
        return outputs

    return compute


def _by_onnx(path: Path, names: Sequence[str]) -> Compute:
    """The outputs that ONNX Runtime computes from the file."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    used = {each.name for each in session.get_inputs()}  # a model may ignore an input

    def compute(inputs: Inputs) -> Sequence[Tensor]:
        parts = zip(names, leaves(inputs), strict=True)
        given = {name: part.contiguous().numpy() for name, part in parts if name in used}
        return [torch.from_numpy(each) for each in session.run(None, given)]

    return compute


def _failed(what: str, error: Exception) -> FedHVError:
    said = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return FedHVError(f"{what} could not convert the model: {said.rstrip('.')}.")


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """A file to write that replaces `path` at the end. After an exception, `path` is unchanged."""
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".export-") as folder:
        temporary = Path(folder) / path.name
        yield temporary
        os.replace(temporary, path)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the exporters' warnings about packages and about their own code."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "torch.export", "onnxscript")]
    before = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)
