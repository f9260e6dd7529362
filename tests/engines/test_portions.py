"""What does not fit into a GPU's memory is computed in smaller portions."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterable
from pathlib import Path

import pytest
import torch
from problems import everything_random, quadratic

from fedhv import FedHVError, compare, run
from fedhv.engines.choosing import choose_engine
from fedhv.engines.portions import Portion, gpu_memory
from fedhv.engines.sequential import Sequential
from fedhv.methods import Uniform, fedcmoo
from fedhv.problem.problem import Examples
from fedhv.protocol.client import Client
from fedhv.protocol.cohort import LocalTraining
from fedhv.protocol.compression import Compressed
from fedhv.runs import execution
from fedhv.simulation.rounds import Plan, simulate


def test_it_is_halved_from_what_there_is_until_it_fits():
    notes, released, tried = [], [], []
    portion = Portion(1_000_000, "{size} at a time", "not even one", notes)

    def compute(size: int) -> int:
        tried.append(size)
        if size > 3:
            raise torch.cuda.OutOfMemoryError("full")
        return size

    assert portion(10, compute, lambda: released.append(True)) == 3
    assert tried == [10, 5, 3]
    assert notes == ["5 at a time", "3 at a time"]
    assert len(released) == 2
    assert portion(2, compute) == 2
    assert portion(10, compute) == 3
    assert tried[3:] == [2, 3]


class Gpu:
    """Computes portions up to a size, which other programs change."""

    def __init__(self, fits: int):
        self.fits, self.tried = fits, list[int]()

    def __call__(self, size: int) -> int:
        self.tried.append(size)
        if size > self.fits:
            raise torch.cuda.OutOfMemoryError("full")
        return size


def test_it_is_doubled_again_when_other_programs_give_memory_back():
    notes: list[str] = []
    portion, gpu = Portion(64, "{size} at a time", "not even one", notes), Gpu(fits=8)
    assert [portion(64, gpu, lambda: None) for _ in range(3)] == [8, 8, 8]
    gpu.fits = 64
    assert [portion(64, gpu, lambda: None) for _ in range(7)] == [8, 8, 16, 32, 64, 64, 64]
    assert notes == ["32 at a time", "16 at a time", "8 at a time"]
    assert portion.size == 64


def test_what_never_fits_is_tried_less_and_less_often_and_without_messages():
    notes: list[str] = []
    portion, gpu = Portion(10, "{size}", "not even one", notes), Gpu(fits=3)
    results = [portion(10, gpu, lambda: None) for _ in range(200)]
    assert set(results) == {3}
    failures = [i for i, size in enumerate(gpu.tried) if size > 3]
    assert len(failures) == 2 + 5  # 10 and 5, then 6 after 4, 8, 16, 32 and 64 computations
    assert notes == ["5", "3"]


@pytest.mark.parametrize(
    ("totals", "fits"),
    [((6, 10), (6, 6)), ((3000, 10_000), (4000, 4000)), ((20, 20), (64, 8))],
    ids=["another total", "reports and evaluations", "a light and a heavy computation"],
)
def test_computations_in_turns_settle_too(totals, fits):
    """What fits for one computation need not fit for the other: attempts become rare, messages name new sizes only."""
    notes: list[str] = []
    portion, gpus = Portion(8192, "{size}", "not even one", notes), [Gpu(fit) for fit in fits]
    for _ in range(1000):
        for total, gpu in zip(totals, gpus, strict=True):
            portion(total, gpu, lambda: None)
    failures = sum(size > gpu.fits for gpu in gpus for size in gpu.tried)
    assert failures < 30
    assert failures - len(notes) < 20
    assert sorted(map(int, notes), reverse=True) == [int(note) for note in notes], "every size is told of once"
    assert len(set(notes)) == len(notes)


def test_a_size_counts_as_fitting_only_if_it_was_computed():
    portion, gpu = Portion(1000, "{size}", "not even one", []), Gpu(fits=6)
    portion(10, gpu, lambda: None)
    for _ in range(8):
        portion(6, gpu, lambda: None)
    assert portion.size == 6


@pytest.mark.parametrize("words", ["CUBLAS_STATUS_NOT_INITIALIZED", "previous error during capture", "out of memory"])
def test_an_attempt_to_grow_that_fails_in_any_words_falls_back(words):
    def compute(size: int) -> int:
        if size > 2:
            raise RuntimeError("CUDA error: " + (words if attempts else "out of memory"))
        return size

    attempts: list[int] = []
    portion = Portion(4, "{size}", "not even one", [])
    assert portion(4, compute, lambda: None) == 2
    attempts.append(1)
    assert [portion(4, compute, lambda: None) for _ in range(20)] == [2] * 20


def test_memory_is_released_before_a_larger_portion_is_tried():
    """Recordings of small portions keep their memory, which the larger one needs."""
    kept, other = [0], [20]

    def compute(size: int) -> int:
        if 9 * size + kept[0] + other[0] > 100:
            raise torch.cuda.OutOfMemoryError("full")
        kept[0] = 9 * size
        return size

    def release() -> None:
        kept[0] = 0

    portion = Portion(10, "{size}", "not even one", [])
    assert portion(10, compute, release) == 5
    other[0] = 0
    results = []
    for _ in range(8):
        results.append(portion(10, compute, release))
        kept[0] = 9 * results[-1] if results[-1] < 10 else 0  # replays of a recording need no second place
    assert results == [5, 5, 5, 5, 10, 10, 10, 10]


def test_it_grows_for_computations_alone_that_need_more():
    portion, gpu = Portion(64, "{size}", "not even one", []), Gpu(fits=8)
    portion(64, gpu, lambda: None)
    gpu.fits = 64
    assert [portion(6, gpu, lambda: None) for _ in range(20)] == [6] * 20
    assert portion.size == 8


def test_not_even_one_is_an_error_in_one_line():
    def full(size: int) -> None:
        raise torch.cuda.OutOfMemoryError("full")

    with pytest.raises(FedHVError, match=r"^not even one$"):
        Portion(4, "{size}", "not even one", [])(4, full)


@pytest.mark.parametrize(("free", "sentence"), [(4, " Other programs use 100 of its 140 GiB."), (104, "")])
def test_the_error_says_what_other_programs_use_of_the_gpu(free, sentence, monkeypatch):
    def full(size: int) -> None:
        raise torch.cuda.OutOfMemoryError("full")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free * 2**30, 140 * 2**30))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 36 * 2**30)
    with pytest.raises(FedHVError) as found:
        Portion(1, "{size}", "Not even one.", [])(1, full, lambda: None)
    assert str(found.value) == "Not even one." + sentence
    with pytest.raises(FedHVError) as found, gpu_memory("Too small."):
        full(1)
    assert str(found.value) == "Too small." + sentence


def test_a_gpu_that_is_too_full_to_be_asked_leaves_the_error_in_one_line(monkeypatch):
    def full(*_: object) -> None:
        raise RuntimeError("CUDA error: out of memory")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", full)
    with pytest.raises(FedHVError, match=r"^Too small\.$"), gpu_memory("Too small."):
        full()


def test_other_errors_are_not_taken_for_short_memory():
    def wrong(size: int) -> None:
        raise RuntimeError("shapes do not match")

    notes: list[str] = []
    portion = Portion(8, "{size}", "not even one", notes)
    with pytest.raises(RuntimeError, match="shapes do not match"):
        portion(8, wrong)
    assert (portion.size, notes) == (8, [])


def test_what_a_failed_attempt_held_in_a_cycle_is_gone_before_memory_is_given_back():
    class Held:
        def __init__(self):
            self.myself = self

    held: list[weakref.ref[Held]] = []

    def compute(size: int) -> int:
        thing = Held()
        held.append(weakref.ref(thing))
        if size > 1:
            raise torch.cuda.OutOfMemoryError("full")
        return size

    alive: list[bool] = []
    gc.disable()  # or it might be gone by chance
    try:
        Portion(2, "{size}", "not even one", [])(2, compute, lambda: alive.append(held[0]() is not None))
    finally:
        gc.enable()
    assert alive == [False]


def test_memory_that_is_short_elsewhere_is_an_error_in_one_line(quadratic_problem, monkeypatch):
    def full(*_: object) -> None:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 44.00 MiB. GPU 0 has …")

    with monkeypatch.context() as patch:
        patch.setattr(Examples, "to", full)
        with pytest.raises(FedHVError, match=r"^The examples do not fit into the GPU's memory\. Use --device cpu"):
            Sequential(quadratic_problem)
    engine = Sequential(quadratic_problem)
    monkeypatch.setattr(engine, "ask_together", full)
    plan = Plan(rounds=1, participants=2, local=LocalTraining(steps=1, batch_size=2, learning_rate=0.1))
    with pytest.raises(FedHVError, match=r"^The GPU's memory is too small for this\."):
        list(simulate(engine, Uniform(), plan))


@pytest.mark.parametrize(
    "error",
    [
        torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 44.00 MiB."),
        RuntimeError("CUDA error: out of memory"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("Triton Error [CUDA]: out of memory"),
    ],
)
def test_libraries_say_in_other_words_that_memory_is_short(error):
    def compute(size: int) -> int:
        if size > 1:
            raise error
        return size

    assert Portion(2, "{size}", "not even one", [])(2, compute, lambda: None) == 1
    with pytest.raises(FedHVError, match="memory is too small"), gpu_memory():
        raise error


def test_memory_that_is_short_on_the_server_leaves_runs_that_are_resumed_exactly(monkeypatch, tmp_path):
    def play(folder: Path) -> None:
        compare(quadratic(), methods=["uniform", "fedcmoo"], seeds=[0, 1], rounds=6, engine="stacked", out=folder)

    play(tmp_path / "whole")
    summed, calls = fedcmoo._sum_and_norms, []

    def full_at_the_sixth(compressed: Iterable[Compressed]) -> tuple[torch.Tensor, list[float]]:
        calls.append(None)
        if len(calls) == 6:
            raise torch.cuda.OutOfMemoryError("full")
        return summed(compressed)

    monkeypatch.setattr(fedcmoo, "_sum_and_norms", full_at_the_sixth)
    with pytest.raises(FedHVError, match=r"^The GPU's memory is too small for this\."):
        play(tmp_path / "cut")
    assert len(list((tmp_path / "cut").rglob("checkpoint*"))) >= 4
    play(tmp_path / "cut")
    for model in (tmp_path / "whole").rglob("model.safetensors"):
        assert model.read_bytes() == (tmp_path / "cut" / model.relative_to(tmp_path / "whole")).read_bytes()


def test_a_run_that_failed_for_memory_is_named_and_leaves_its_memory_to_the_next(monkeypatch, tmp_path):
    engines: list[weakref.ref[Sequential]] = []
    alive: list[bool] = []
    made, ask_together = Sequential.__init__, Sequential.ask_together

    def watched(self: Sequential, *arguments: object) -> None:
        alive.append(any(engine() is not None for engine in engines))
        engines.append(weakref.ref(self))
        made(self, *arguments)

    def full(self: Sequential, calls: object) -> object:
        if len(engines) == 1:
            raise torch.cuda.OutOfMemoryError("full")
        return ask_together(self, calls)

    monkeypatch.setattr(Sequential, "__init__", watched)
    monkeypatch.setattr(Sequential, "ask_together", full)
    wanted = r"^uniform seed 0, after round 0: The GPU's memory is too small .*The other runs? \(1\)"
    with pytest.raises(FedHVError, match=wanted):
        compare(quadratic(), methods=["uniform"], seeds=[0, 1], rounds=1, engine="sequential", jobs=1, out=tmp_path)
    assert alive == [False, False]


def test_memory_that_is_short_for_a_runs_model_is_an_error_in_one_line(monkeypatch, tmp_path):
    def full(*_: object) -> None:
        raise torch.cuda.OutOfMemoryError("full")

    monkeypatch.setattr(execution, "initial_state", full)
    with pytest.raises(FedHVError, match=r"^The GPU's memory is too small for this\."):
        run(quadratic(), method="uniform", rounds=1, out=tmp_path / "run")


@pytest.mark.parametrize(("engine", "precision"), [("stacked", "float32"), ("sequential", "bf16")])
def test_memory_that_is_short_for_the_trial_of_a_model_is_no_obstacle(engine, precision, monkeypatch):
    def full(*_: object, **__: object) -> None:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 44.00 MiB. GPU 0 has …")

    monkeypatch.setattr(Client, "objective", full)
    with pytest.raises(FedHVError, match=r"^The GPU's memory is too small for this\."):
        choose_engine(engine, "cpu", precision, everything_random())
