"""From a DataFrame to a comparison and an exported model: three tasks at twelve hospitals. The records are synthetic.

python examples/hospitals.py
"""

import numpy as np
import pandas as pd
from torch import Tensor, nn

import fedhv

INPUTS = ["age", "pressure", "glucose", "lactate", "frailty", "urgency"]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU())
        self.heads = nn.ModuleList([nn.Linear(32, 2), nn.Linear(32, 3), nn.Linear(32, 1)])

    def forward(self, x: Tensor) -> list[Tensor]:
        return [head(self.trunk(x)) for head in self.heads]


def records(patients: int, seed: int) -> pd.DataFrame:
    """Hospitals differ in size and in their patients; four of them do not record readmissions."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.normal(size=(patients, 6)), columns=INPUTS)
    frame["hospital"] = rng.choice(12, patients, p=np.arange(1, 13) / 78)
    frame["age"] += (frame["hospital"] - 6) / 6
    sick = frame["age"] + frame["lactate"] * frame["frailty"] + 0.5 * rng.normal(size=patients)
    frame["readmitted"] = (sick + rng.normal(size=patients) > 1).astype("Int64")
    frame["ward"] = np.digitize(sick + frame["urgency"], [-0.5, 1.0])
    frame["days"] = np.clip(4 + 2 * sick + frame["glucose"] + rng.normal(size=patients), 0, None)
    frame.loc[frame["hospital"] % 3 == 0, "readmitted"] = pd.NA
    frame.loc[rng.random(patients) < 0.3, "days"] = np.nan
    return frame


def main(rounds: int = 40, patients: int = 2400, seeds: tuple[int, ...] = (0, 1)) -> fedhv.Study:
    tasks = [
        fedhv.classification("readmission", 2, missing=-1, metrics=["roc_auc", "average_precision"]),
        fedhv.classification("ward", 3, metrics=["f1"]),
        fedhv.regression("stay", tolerance=1.0, metrics=["rmse", "r2"]),
    ]
    columns = {"readmission": "readmitted", "ward": "ward", "stay": "days"}
    frames = {"table": records(patients, seed=1), "test": records(1000, seed=2)}
    problem = fedhv.Problem.from_table(Net, tasks, inputs=INPUTS, targets=columns, client="hospital", **frames)
    study = fedhv.compare(problem, ["fedhv", "uniform"], seeds, rounds=rounds, validation=0.15, keep="best", patience=6,
                          participants=6, optimiser="adamw", scale="initial", override=["methods.fedhv.local_lr=0.003"],
                          baselines=["single-task", "local", "pooled"], out="runs/hospitals")  # fmt: skip
    print(study.table())
    print(fedhv.export(study[0], formats=["pt2"]))
    return study


if __name__ == "__main__":
    main()
