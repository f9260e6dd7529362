"""The ServerApp of `fedhv flower up`: a setting of the package on Flower, defined by the run configuration.

| key                            | meaning                                                     |
|--------------------------------|-------------------------------------------------------------|
| `setting`                      | a setting's name or TOML file                               |
| `method`, `seed`, `out`        | as for `fedhv run`                                          |
| `reference`                    | FedHV's reference: a file, or a name in the setting         |
| `data`                         | the folder of the datasets                                  |
| `device`                       | the device of the nodes                                     |
| `reply-seconds`, `node-seconds`| time limits for replies and for nodes                       |
| `report-clip`, `report-noise`  | differential privacy of the reports (0 for none)            |
| `roster`                       | the file that assigns partitions to nodes                   |
| `control`                      | the folder for the state and the outcome of the server      |
"""

from __future__ import annotations

from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedhv.flower import run_config
from fedhv.flower.control import reporting, send_message
from fedhv.flower.log import Log
from fedhv.flower.server import serve
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
            observer=_ForwardedLog(control),
        )


class _ForwardedLog(Log):
    """Writes progress to the log; messages also go to the process that started the run."""

    def __init__(self, control: Path) -> None:
        super().__init__()
        self._control = control

    def message(self, text: str) -> None:
        """Forward a message for the user."""
        send_message(self._control, text)
        super().message(text)

    def start(self, label: str, rounds: int, done: int = 0) -> None:
        """Nothing: the process that started the run reads its progress from the folder."""

    def round(self, round: Round) -> None:
        """Show refused clients only."""
        for refusal in round.refused:
            self.message(f"Round {round.number}: left out client {refusal.client}: {refusal.reason}.")
