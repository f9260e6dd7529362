"""A SuperLink and SuperNodes on this machine, with the files that Flower needs."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from fedhv.flower.certificates import Certificates, make_certificates
from fedhv.flower.processes import Processes, free_ports
from fedhv.support import toml
from fedhv.support.errors import FedHVError
from fedhv.support.files import write_atomic

CONNECTION = "fedhv"
"""The name of the connection in Flower's configuration."""
SUBMITTING = 300.0
"""The time limit of a Flower command, in seconds."""


SUPEREXEC = "superexec"
"""The process that starts the apps of all nodes."""
AT_ONCE = 4
"""How many SuperNodes start at the same time: many at once are so slow that they miss Flower's deadlines."""
HOST = "127.0.0.1"
"""The only address at which processes listen."""


class Deployment:
    """A context manager that starts the processes and ends all of them, also after an error."""

    forks: ClassVar[bool] = True
    """Whether one SuperExec forks the apps of all nodes; False for Flower's own at every node, to compare the two."""

    def __init__(self, nodes: int, tls: bool = False) -> None:
        self.nodes, self.tls = nodes, tls
        self.home = Path(tempfile.mkdtemp(prefix="fedhv-flower-"))
        self.logs = self.home / "logs"
        self.logs.mkdir()
        self.processes = Processes(environment(self.home, nodes), self.logs)
        self.certificates: Certificates | None = None
        self.owners: dict[int, int] = {}
        """The node id of every partition's registered key."""
        self.port, *self.node_ports = free_ports(1 + nodes)
        self.keep_logs = False

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.processes.end()
        finally:
            if not self.keep_logs:
                shutil.rmtree(self.home, ignore_errors=True)

    @property
    def address(self) -> str:
        """The SuperLink's address."""
        return f"{HOST}:{self.port}"

    def submit(self, app: Path) -> str:
        """Submit an app to the SuperLink, which starts its ServerApp; returns the id of its run."""
        return str(json.loads(self.flwr("run", str(app), CONNECTION, "--format", "json"))["run-id"])

    def free_nodes(self, run: str) -> None:
        """Stop a run whose ServerApp was killed.

        A server that is killed while it sends leaves incomplete messages. Nodes wait for the missing parts until the
        SuperLink ends the run. Without this call that takes a minute or more, until the SuperLink's heartbeat timeout.
        """
        with contextlib.suppress(
            FedHVError
        ):  # the SuperLink has already ended the run, or the next command reports the error
            self.flwr("stop", run, CONNECTION, "--format", "json")

    def flwr(self, *arguments: str) -> str:
        """Run a Flower command; returns its output."""
        code, out, err = self.processes.ask(["flwr", *arguments], SUBMITTING)
        if code != 0 or '"success": false' in out:
            printed = " ".join((out + err).split())
            raise FedHVError(f"flwr {' '.join(arguments[:2])} failed: {printed[-600:]}")
        return out

    def _start_node(self, partition: int) -> None:
        """Start the SuperNode that holds a partition."""
        command = [
            "flower-supernode",
            "--superlink",
            self.address,
            "--host",
            HOST,
            "--port",
            str(self.node_ports[partition]),
            "--node-config",
            f"partition-id={partition} num-partitions={self.nodes} name='node-{partition}'",
        ]
        if self.forks:
            command += ["--isolation", "process"]
        if self.certificates is None:
            command += ["--insecure"]
        else:
            key = self.certificates.nodes[partition]
            command += ["--root-certificates", str(self.certificates.ca), "--auth-supernode-private-key", str(key)]
        self.processes.start(f"supernode-{partition}", command)

    def _start(self) -> None:
        command = ["flower-superlink", "--host", HOST, "--port", str(self.port)]
        command += ["--disable-runtime-dependency-installation"]
        connection: dict[str, object] = {"address": self.address}
        if self.tls:
            self.certificates = make_certificates(self.home / "certificates", [HOST], self.nodes)
            command += ["--ssl-ca-certfile", str(self.certificates.ca)]
            command += ["--ssl-certfile", str(self.certificates.server)]
            command += ["--ssl-keyfile", str(self.certificates.server_key)]
            command += ["--enable-supernode-auth"]
            connection["root-certificates"] = str(self.certificates.ca)
        else:
            command += ["--insecure"]
            connection["insecure"] = True
        write_atomic(self.home / "config.toml", toml.write({"superlink": {CONNECTION: connection}}))
        self.processes.start("superlink", command)
        self.processes.wait_for_port("superlink", self.port)
        for partition in range(self.nodes):
            if self.certificates is not None:
                public = self.certificates.nodes[partition].with_suffix(".pub")
                register = ("supernode", "register", str(public), CONNECTION, "--name", f"node-{partition}")
                self.owners[partition] = int(json.loads(self.flwr(*register, "--format", "json"))["node-id"])
            self._start_node(partition)
            if (before := partition - AT_ONCE) >= 0:
                self.processes.wait_for_port(f"supernode-{before}", self.node_ports[before])
        if self.forks:
            addresses = [f"{HOST}:{port}" for port in self.node_ports]
            self.processes.start(SUPEREXEC, [sys.executable, "-m", "fedhv", "flower", "superexec", *addresses])


def environment(home: Path, nodes: int = 1) -> dict[str, str]:
    """The environment of all processes: a separate home, no telemetry, no downloads, one thread each."""
    commands = str(Path(sys.executable).parent)  # Flower starts its own commands by name
    return {
        "OMP_NUM_THREADS": "1",
        # Every check for a task takes milliseconds of two processes: many nodes on one machine check less often.
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": f"{min(1.0, max(0.1, 0.02 * nodes)):g}",
        **os.environ,
        "PATH": os.pathsep.join([commands, os.environ.get("PATH", "")]),
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "PYTHONUNBUFFERED": "1",
    }


def write_app(folder: Path, config: Mapping[str, object]) -> Path:
    """The app folder that Flower packs and sends: the names of the two apps and the run configuration."""
    folder.mkdir(parents=True)
    project = {"name": "fedhv-up", "version": "1.0.0", "description": "A setting of FedHV", "license": "Apache-2.0"}
    components = {"serverapp": "fedhv.flower.up_server:server", "clientapp": "fedhv.flower.up_client:client"}
    app = {"publisher": "fedhv", "components": components, "config": config}
    tables = {"project": project | {"dependencies": []}, "tool": {"flwr": {"app": app}}}
    write_atomic(folder / "pyproject.toml", toml.write(tables))
    return folder
