"""The process that Flower starts for every message to a node: what it imports, and the SuperExec that forks it."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys

import pytest

from fedhv.flower import superexec
from fedhv.support.errors import InputError

PROGRAM = """
import json, sys
from fedhv.flower import client_app
from fedhv.methods import CLIENT_SIDE
from fedhv.flower.wire import request_class
names = ("train", "evaluate", "continue_training", "gram_terms", "task_gradients", "task_updates", *CLIENT_SIDE)
known = {name: request_class(name) is not None for name in names}
import fedhv.flower.up_client
print(json.dumps({"known": known, "loaded": sorted(sys.modules)}))
"""


@pytest.fixture(scope="module")
def node() -> dict:
    """The requests that a new process knows which has imported what nodes import, and all that it has imported then."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_nodes_app_imports_neither_the_servers_half_nor_what_draws_and_reports(node):
    """A process for every message pays for every import."""
    loaded = node["loaded"]
    assert "fedhv.flower.up_client" in loaded
    rooms = {name.split(".")[1] for name in loaded if name.startswith("fedhv.")}
    assert not rooms & {"cli", "interface", "paper", "report", "simulation", "theory"}
    assert not {"fedhv.flower.server", "fedhv.flower.engine", "fedhv.flower.strategy", "fedhv.runs.job"} & set(loaded)
    others = {"matplotlib", "pandas", "ray", "scipy", "sklearn", "flwr.simulation", "torch._dynamo", "torch._inductor"}
    assert not others & set(loaded)


def test_a_nodes_process_knows_the_requests_of_every_method_of_the_package(node):
    """Nothing on a node imports the method, which is the server's: its request must be found by name."""
    assert len(node["known"]) > 6
    assert all(node["known"].values()), node["known"]


class Channel:
    """The pipe to the process that forks."""

    def __init__(self) -> None:
        self.reading, self.writing = os.pipe()

    def lines(self) -> list[dict]:
        if not select.select([self.reading], [], [], 0)[0]:
            return []
        return [json.loads(line) for line in os.read(self.reading, select.PIPE_BUF).splitlines()]


def task(token="abc"):
    from flwr.supercore.constant import TaskType
    from flwr.supercore.superexec.executor import ExecutionSpec

    return ExecutionSpec(TaskType.CLIENT_APP, "127.0.0.1:9094", token, True, None, False, 1, False, 7)


def test_flowers_loop_gets_an_executor_that_sends_client_apps_to_the_process_that_forks():
    from flwr.supercore.constant import TaskType

    channel = Channel()
    running = superexec.Running(most=2)
    executor = superexec.Forwarding(channel.writing, 42, running)
    for count, taken in ((1, {TaskType.CLIENT_APP}), (2, set()), (0, {TaskType.CLIENT_APP})):
        running.count = count
        types, _ = executor.get_eligible_capacity(set(TaskType), insecure=True)
        assert types == taken
    assert executor.launch(task()).status == "accepted"
    (sent,) = channel.lines()
    assert sent["token"] == "abc"
    assert sent["parent_pid"] == 42
    assert executor.launch(task("x" * select.PIPE_BUF)).status == "failed", "two of them could be mixed"
    assert channel.lines() == []


def test_a_forked_process_ends_with_its_work_whatever_it_raises():
    def code(work):
        return os.waitstatus_to_exitcode(os.waitpid(superexec._fork("test", work), 0)[1])

    def fails():
        raise ValueError

    assert code(lambda: None) == 0
    assert code(lambda: sys.exit(3)) == 3
    assert code(fails) == 1


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.1:port", ""])
def test_an_address_without_a_port_is_refused_before_anything_is_imported(address, command):
    outcome = command("flower", "superexec", address)
    assert outcome.code == InputError.exit_code
    assert "such as 127.0.0.1:9094" in outcome.err.replace("\n", " ")
