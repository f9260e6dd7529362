"""The two apps behind `fedhv flower up`: a setting of the package on Flower, all of it from the run configuration.

| key                            | what it is                                                  |
|--------------------------------|-------------------------------------------------------------|
| `setting`                      | a setting's name or TOML file                               |
| `method`, `seed`, `out`        | as for `fedhv run`                                          |
| `reference`                    | FedHV's reference: a file, or a name in the setting         |
| `data`                         | the folder of the datasets                                  |
| `device`                       | of the nodes                                                |
| `reply-seconds`, `node-seconds`| how long the server waits for replies and for nodes         |
| `report-clip`, `report-noise`  | differential privacy of the reports (0 for none)            |
| `roster`                       | the file that says which node every partition belongs to    |
| `control`                      | where the server says that it runs, and how it ended        |
"""

from __future__ import annotations

from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedhv.flower import run_config
from fedhv.flower.client_app import client_app
from fedhv.flower.control import reporting, tell
from fedhv.flower.log import Log
from fedhv.flower.server_app import serve
from fedhv.problem.problem import Problem
from fedhv.runs.resolve import resolve
from fedhv.simulation.record import Round

server = ServerApp()


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Run the method of the run configuration on the nodes of the grid."""
    settings = context.run_config
    control = Path(str(settings["control"]))
    with reporting(control):
        serve(
            grid,
            str(settings["setting"]),
            str(settings["method"]),
            seed=int(settings["seed"]),
            out=run_config.text(settings, "out"),
            reference=run_config.text(settings, "reference"),
            data=run_config.text(settings, "data"),
            patience=run_config.patience(settings),
            reports=run_config.reports(settings),
            owners=run_config.owners(settings),
            observer=_Told(control),
        )


class _Told(Log):
    """Writes progress to the log; messages also go to the process that started the run."""

    def __init__(self, control: Path) -> None:
        super().__init__()
        self._control = control

    def message(self, text: str) -> None:
        """Something that the user should know."""
        tell(self._control, text)
        super().message(text)

    def start(self, label: str, rounds: int, done: int = 0) -> None:
        """The process that started the run reads this from the folder."""

    def round(self, round: Round) -> None:
        """A round is over: only what went wrong is worth a line."""
        for refusal in round.refused:
            self.message(f"Round {round.number}: left out client {refusal.client}: {refusal.reason}.")


def load(context: Context) -> Problem:
    """The setting's problem; the node takes its own part of it."""
    settings = context.run_config
    return resolve(str(settings["setting"]), data=run_config.text(settings, "data"))[1]


client = client_app(load, reports=lambda context: run_config.reports(context.run_config))
