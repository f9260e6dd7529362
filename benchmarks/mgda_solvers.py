"""How far TorchJD's MGDA is from the min-norm combination that FSMGDA computes, by the number of tasks.

    python benchmarks/mgda_solvers.py

Random task updates of 300 numbers with a common part, 50 for each number of tasks. The excess is that of the norm of
TorchJD's combination over the smallest norm; the distance is the total variation between both weights.
"""

from __future__ import annotations

import statistics

import torch
from torchjd.aggregation import MGDAWeighting

from fedhv.methods.minnorm import min_norm_weights

TASKS, DRAWS, SIZE = (2, 3, 8, 12), 50, 300
STOPPING = {"its default, 100 iterations": {}, "20,000 iterations": {"epsilon": 1e-9, "max_iters": 20_000}}


def compare(tasks: int, options: dict[str, float]) -> tuple[list[float], list[float]]:
    """Relative excesses and distances over draws."""
    generator = torch.Generator().manual_seed(0)
    excesses, distances = [], []
    for _ in range(DRAWS):
        sizes = 3 * torch.rand(tasks, 1, generator=generator, dtype=torch.float64)
        own = torch.randn(tasks, SIZE, generator=generator, dtype=torch.float64)
        U = own * sizes + 0.6 * torch.randn(SIZE, generator=generator, dtype=torch.float64)
        gram = U @ U.T
        ours, theirs = torch.from_numpy(min_norm_weights(gram.numpy())), MGDAWeighting(**options)(gram)
        norms = [float((w @ gram @ w).sqrt()) for w in (ours, theirs)]
        excesses.append(norms[1] / norms[0] - 1)
        distances.append(float((ours - theirs).abs().sum() / 2))
    return excesses, distances


if __name__ == "__main__":
    print("tasks  TorchJD's stopping rule      excess: median, largest   distance: median, largest")
    for tasks in TASKS:
        for name, options in STOPPING.items():
            excesses, distances = compare(tasks, options)
            shown = [f"{statistics.median(each):.1e} {max(each):.1e}" for each in (excesses, distances)]
            print(f"{tasks:5d}  {name:28s} {shown[0]:25s} {shown[1]}", flush=True)
