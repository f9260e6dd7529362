"""Missing labels on a GPU: does the stacked engine compute what the sequential one computes?

    python benchmarks/gpu_missing_labels.py

The tests' problem with gaps (tests/gaps.py): labels, tasks and whole clients' tasks are missing. Prints, for every
method and every way of averaging, how far the two engines' models are apart after a few rounds relative to how far they
moved, and fails above 0.1 %.
"""

from __future__ import annotations

import sys
from pathlib import Path

from torch import Tensor

from fedhv import FSMGDA, FedCMOO, FedHV, LocalTraining, Uniform
from fedhv.engines import Engine, Sequential, Stacked, choose_device
from fedhv.methods.base import Method
from fedhv.simulation.rounds import Plan, initial_state, simulate

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from gaps import gappy  # the tests' problem is no package

METHODS: dict[str, Method] = {
    "uniform": Uniform(report="all"),
    "fedhv": FedHV(reference=(9.0, 9.0, 9.0)),
    "fsmgda": FSMGDA(),
    "fedcmoo": FedCMOO(),
}
LOCAL = LocalTraining(3, 8, 0.1, 0.5)
LARGEST = 1e-3


def played(engine: Engine, method: Method, average: str) -> tuple[Tensor, list[object]]:
    """The model after the last round, and which tasks were absent in which round."""
    plan = Plan(4, 2, LOCAL, average=average)  # type: ignore[arg-type]  # a word of `Average`
    finished = list(simulate(engine, method, plan))
    return finished[-1].state.model.cpu(), [each.state.record.get("absent") for each in finished]


def main() -> int:
    """Compare; the exit status says whether all agree."""
    device, worst = choose_device(), 0.0
    print(f"apart after 4 rounds, relative to the distance moved ({device}, float32)")
    problem = gappy()
    with Sequential(problem, device) as one, Stacked(problem, device, compiled=False) as many:
        for name, method in METHODS.items():
            for average in ("clients", "labels"):
                start = initial_state(one, method, 0).model.cpu()
                (alone, absent), (stacked, absent_too) = (played(engine, method, average) for engine in (one, many))
                apart = float((alone - stacked).norm() / (alone - start).norm())
                how = "as a stack" if many.obstacle is None else f"alone: {many.obstacle}"
                same = "" if absent == absent_too else ", other tasks are absent"
                print(f"{name:8} average = {average:8} {apart:.1e}   {how}{same}")
                worst = max(worst, apart) if not same else 1.0
    return int(not worst <= LARGEST)


if __name__ == "__main__":
    sys.exit(main())
