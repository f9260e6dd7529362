"""What runs on the server: a ServerApp of one's own, with FedHV as its strategy."""

from __future__ import annotations

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedhv import FedHV
from fedhv.flower import Patience, Server, Strategy
from twotasks.problem import TASKS, Net, examples

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    server = Server(Net, TASKS, test=examples(site=1, count=500, part=1), nodes=int(config["nodes"]), name="machines")
    strategy = Strategy(
        # A loss that each task should stay below: here a little above an untrained model's.
        FedHV(reference=(1.0, 6.0), local_lr=0.05),
        server,
        seed=int(config["seed"]),
        override=[f"training.rounds={config['rounds']}", "evaluation.every=5"],
        patience=Patience(reply=float(config["reply-seconds"])),
        folder=str(config["out"]) or None,
    )
    strategy.start(grid)
