"""Methods on Flower: its simulation, and SuperLink with SuperNodes on real machines.

client_app(load)          the ClientApp of a node with your model, tasks and data
server_app(load)          the ServerApp that runs a method and writes a run folder
Strategy(method, server)  the same method as a Flower strategy, for a ServerApp of your own
"""

from typing import TYPE_CHECKING

from fedhv.support.errors import FedHVError

try:
    import flwr  # noqa: F401
except ImportError:
    raise FedHVError("Federations over Flower need the package flwr: pip install 'fedhv[flower]'.") from None

if TYPE_CHECKING:
    from fedhv.flower.client import client_app
    from fedhv.flower.node import Node, Server
    from fedhv.flower.patience import Patience
    from fedhv.flower.server import server_app
    from fedhv.flower.strategy import Strategy
else:  # imported at first use: a node's process does not need the server's half
    from fedhv.support.lazy import exports

    __getattr__, __dir__ = exports(
        __name__,
        {
            "fedhv.flower.client": ["client_app"],
            "fedhv.flower.node": ["Node", "Server"],
            "fedhv.flower.patience": ["Patience"],
            "fedhv.flower.server": ["server_app"],
            "fedhv.flower.strategy": ["Strategy"],
        },
    )

__all__ = ["Node", "Patience", "Server", "Strategy", "client_app", "server_app"]
