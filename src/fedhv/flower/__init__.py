"""Methods on Flower: its simulation, and SuperLink with SuperNodes on real machines.

client_app(load)          the ClientApp of a node with your model, tasks and data
server_app(load)          the ServerApp that runs a method and writes a run folder
Strategy(method, server)  the same method as a Flower strategy, for a ServerApp of your own
"""

from fedhv.support.errors import FedHVError

try:
    import flwr  # noqa: F401
except ImportError:
    raise FedHVError("Federations over Flower need the package flwr: pip install 'fedhv[flower]'.") from None

from fedhv.flower.client_app import client_app
from fedhv.flower.node import Node, Server
from fedhv.flower.roster import Patience
from fedhv.flower.server_app import server_app
from fedhv.flower.strategy import Strategy

__all__ = ["Node", "Patience", "Server", "Strategy", "client_app", "server_app"]
