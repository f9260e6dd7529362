"""Your own model and tabular data: three tasks of different kinds, hospitals of unequal size.

scikit-learn's bundled diabetes records (442 patients, eight measurements) are divided among six hospitals, each with
its own age group. One network predicts the progression of the disease (a number), the patient's sex (two classes)
and the class of the body-mass index (three classes).

    python examples/tabular_three_tasks.py
"""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_diabetes
from torch import Tensor, nn

import fedhv

SIZES = (30, 110, 60, 25, 90, 45)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh())
        self.heads = nn.ModuleList([nn.Linear(32, 1), nn.Linear(32, 2), nn.Linear(32, 3)])

    def forward(self, x: Tensor) -> list[Tensor]:
        shared = self.trunk(x)
        return [head(shared) for head in self.heads]


def problem() -> fedhv.Problem:
    """Six hospitals, and a random fifth of all patients for testing."""
    records = load_diabetes()
    table = {name: records.data[:, i] for i, name in enumerate(records.feature_names)}
    sex, bmi = table.pop("sex"), table.pop("bmi")
    x = np.stack(list(table.values()), axis=1).astype(np.float32)
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    course = (records.target - records.target.mean()) / records.target.std()  # regression targets on a common scale
    targets = [
        course[:, None].astype(np.float32),
        (sex > 0).astype(np.int64),
        np.digitize(bmi, np.quantile(bmi, [1 / 3, 2 / 3])),
    ]

    def examples(rows: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
        return x[rows], [t[rows] for t in targets]

    order = np.random.default_rng(0).permutation(len(x))
    train, test = order[: sum(SIZES)], order[sum(SIZES) :]
    by_age = train[np.argsort(table["age"][train], kind="stable")]
    return fedhv.Problem.from_clients(
        model=Net,
        tasks=[
            fedhv.regression("course", tolerance=0.5),
            fedhv.classification("sex", classes=2),
            fedhv.classification("bmi", classes=3),
        ],
        clients=[examples(rows) for rows in np.split(by_age, np.cumsum(SIZES)[:-1])],
        test=examples(test),
        name="hospitals",
    )


def main(rounds: int = 40) -> fedhv.Study:
    methods = [cls(local_lr=0.2) for cls in (fedhv.FedHV, fedhv.Uniform, fedhv.FSMGDA, fedhv.FedCMOO)]
    return fedhv.compare(
        problem(),
        methods,
        seeds=[0, 1],
        rounds=rounds,
        participants=4,
        batch_size=16,
        override=["evaluation.every=0", "calibration.rounds=5"],
    )


if __name__ == "__main__":
    for run in main():
        scores = "  ".join(f"{task.name} {task.accuracy:.1f} %" for task in run.tasks)
        print(f"{run.method:8} seed {run.seed}:  {scores}")
