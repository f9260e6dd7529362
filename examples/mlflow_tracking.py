"""Send a run to MLflow (`pip install mlflow`), then look at it with `mlflow ui`.

python examples/mlflow_tracking.py
"""

import mlflow

import fedhv


class Tracker(fedhv.Observer):
    def start(self, label: str, rounds: int, done: int = 0) -> None:
        self.calibrating = label.startswith("calibration")  # its rounds are not the run's

    def round(self, round: fedhv.Round) -> None:
        if round.evaluation is not None and not self.calibrating:
            names = [f"weights/{task.name}" for task in round.evaluation.tasks]
            metrics = dict(round.evaluation.scalars()) | dict(zip(names, round.weights, strict=True))
            mlflow.log_metrics(metrics, step=round.number)


if __name__ == "__main__":
    with mlflow.start_run(run_name="fedhv on digits"):
        run = fedhv.run("digits", out="runs/mlflow/fedhv-seed0", resume=True, observer=Tracker())
        mlflow.log_params({"method": run.method, "seed": run.seed} | run.parameters)
