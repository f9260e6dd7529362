"""SuperLink and SuperNodes as real processes on 127.0.0.1, with nodes and servers that are killed.

Long tests and short ones take turns: neighbours go to the same worker.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import uuid
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from runs_on_disk import records
from safetensors.torch import load_file
from waiting import HANG, wait_until

import fedhv
from fedhv.flower import up
from fedhv.flower.processes import Processes
from fedhv.support.errors import FedHVError
from fedhv.support.files import locked
from flower.watching import LOOPBACK, MARK, listening, marked, one

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")

SMALL = ["federation.samples_per_client=60", "training.local_steps=3", "evaluation.every=0"]
"""The embedded benchmark, with little to compute: what these tests measure is processes."""
HELD = ["benchmark=problems:held_digits", *SMALL]
"""The same, where a test can act while clients wait."""
ENDLESS = 1_000_000
"""Rounds of a run that is still going on when a test acts."""


@pytest.fixture
def mark():
    name = uuid.uuid4().hex
    yield name
    for left in marked(name):  # only where a test failed
        os.kill(left.pid, signal.SIGKILL)


@pytest.fixture
def flower_up(process, mark, tmp_path):
    """`fedhv flower up digits …` with the small setting."""
    reference = tmp_path / "reference.toml"
    reference.write_text("values = [2.6, 2.7]\n")

    def start(*arguments: object, **environment: str):
        sets = [word for change in HELD for word in ("--set", change)]
        return process(
            "flower",
            "up",
            "digits",
            *sets,
            "--out",
            tmp_path / "run",
            *arguments,
            **{MARK: mark, "TMPDIR": str(tmp_path), **environment},
        )

    return start


def nothing_is_left(mark):
    return wait_until(lambda: not marked(mark), f"{[each.command for each in marked(mark)]} to end")


@pytest.mark.slow
def test_a_server_that_is_killed_goes_on_and_ends_with_the_same_model(flower_up, mark, tmp_path):
    # Both nodes have to be there after the restart, too, however slow they are: the model is compared.
    patience = ("--node-seconds", HANG, "--reply-seconds", HANG)
    run, go = tmp_path / "run", tmp_path / "go"
    held = {"HOLD_WHEN": str(run / "checkpoint.safetensors"), "HOLD_UNTIL": str(go)}  # in the second round
    running = flower_up("--nodes", 2, "--rounds", 2, "--reference", tmp_path / "reference.toml", *patience, **held)
    wait_until(lambda: (run / "checkpoint.safetensors").exists(), "the first round", running)
    first = records(run)
    assert listening([each.pid for each in marked(mark)]) <= LOOPBACK
    server = one(mark, "flwr-serverapp")
    os.kill(server.pid, signal.SIGKILL)
    go.touch()
    log = Path(server.environment["FLWR_HOME"]) / "logs" / "superlink.log"
    wait_until(lambda: "ControlServicer.StopRun" in log.read_text(), "the dead server's nodes to be freed", running)
    out, err = running.communicate(timeout=HANG)
    assert running.returncode == 0, err
    assert "The server was killed. Continuing after round 1." in err
    assert nothing_is_left(mark)

    there, here = records(run), simulated("fedhv", 2, reference=(2.6, 2.7))
    assert there[:1] == first, "the first round was played again"
    assert [record["round"] for record in there] == [1, 2]
    for mine, theirs in zip(here.history, there, strict=True):
        assert theirs["report"] == pytest.approx(mine["report"], rel=1e-5)
        assert theirs["downlink_bytes"] == mine["downlink_bytes"]
        assert theirs["serialised"]["uplink_bytes"] > mine["uplink_bytes"]
    model = load_file(run / "model.safetensors")
    for name, value in here.state_dict.items():
        torch.testing.assert_close(model[name], value, rtol=1e-5, atol=1e-6)
    assert json.loads((run / "summary.json").read_text())["engine"] == "flower"
    assert "fedhv on digits" in out
    resumes_what_is_finished(run)


def resumes_what_is_finished(run):
    """The server's configuration is the command's: the same command with --resume reads, and starts nothing."""
    from fedhv.flower.up import Order, up
    from fedhv.protocol.report_privacy import ReportPrivacy

    order = Order("digits", "fedhv", 2, run, override=tuple(HELD), rounds=2, resume=True)
    assert len(up(order).rounds) == 2
    with pytest.raises(fedhv.InputError, match="--resume"):
        up(replace(order, resume=False))
    with pytest.raises(fedhv.InputError, match="another run"):
        up(replace(order, seed=1))
    with pytest.raises(fedhv.InputError, match=r"`run.reports.clip` was 0.0 and is now 3.0"):
        up(replace(order, reports=ReportPrivacy(3.0, 0.5)))


def simulated(method, rounds, reference=None):
    override = [*HELD, "federation.clients=2", "federation.participants=2"]
    return fedhv.run("digits", method, rounds=rounds, engine="sequential", override=override, reference=reference)


def test_nothing_survives_a_kill_of_the_command_itself(flower_up, mark):
    running = flower_up("--nodes", 1, "--rounds", ENDLESS, "--method", "uniform")
    wait_until(lambda: one(mark, "flower-supernode", "partition-id=0"), "the SuperNode", running)
    running.kill()
    running.wait()
    assert nothing_is_left(mark)


@pytest.mark.slow
def test_a_node_that_is_killed_is_left_out_and_the_run_completes(flower_up, mark, tmp_path):
    """FedCMOO, three exchanges: node 2 dies after the first, and Flower finds it gone when it misses a sign of life."""
    patience = ("--node-seconds", HANG, "--reply-seconds", HANG)
    go, answered = tmp_path / "go", "Sending: train.exchange"
    held = {"HOLD_WHEN": "$FLWR_HOME/logs/supernode-2.log", "HOLD_TEXT": answered, "HOLD_UNTIL": str(go)}
    running = flower_up("--nodes", 3, "--rounds", 1, "--method", "fedcmoo", *patience, **held)

    def sent_its_gradients():
        node = one(mark, "flower-supernode", "partition-id=2")
        log = Path(node.environment["FLWR_HOME"]) / "logs" / "supernode-2.log" if node else None
        # Killed in the middle of its upload, Flower would wait three minutes for the rest.
        return node if log and "Sent successfully" in log.read_text().partition(answered)[2] else None

    node = wait_until(sent_its_gradients, "node 2 to answer once", running)
    os.kill(node.pid, signal.SIGKILL)
    go.touch()
    _, err = running.communicate(timeout=HANG)
    assert running.returncode == 0, err
    assert "supernode-2 has ended. The run continues without it." in err
    (record,) = records(tmp_path / "run")
    assert [refusal["client"] for refusal in record["refused"]] == [2]
    assert record["exchanges"] == 3
    assert nothing_is_left(mark)


@pytest.mark.slow
def test_ctrl_c_takes_everything_down(flower_up, mark, tmp_path):
    running = flower_up("--nodes", 2, "--rounds", ENDLESS, "--method", "uniform")
    wait_until(lambda: one(mark, "flower-supernode", "partition-id=1"), "the SuperNodes", running)
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=HANG)
    assert running.returncode == 130
    assert re.search(rf"Stopped after round \d+ of {ENDLESS}\. Continue with: fedhv flower up digits", err)
    assert err.rstrip().endswith("--resume")
    assert nothing_is_left(mark)
    assert not list(tmp_path.glob("fedhv-flower-*"))


@pytest.mark.slow
def test_with_tls_only_registered_nodes_are_let_in(mark, tmp_path, monkeypatch):
    from fedhv.flower.certificates import make_certificates
    from fedhv.flower.deployment import CONNECTION, Deployment
    from fedhv.flower.processes import free_ports
    from fedhv.flower.up import Order, _run, _RunProgress
    from fedhv.simulation.observer import Observer

    monkeypatch.setenv(MARK, mark)
    order = Order("digits", "uniform", 2, tmp_path / "run", override=tuple(SMALL), rounds=1, tls=True)
    setting = order.resolved()
    with Deployment(2, tls=True) as deployment:
        stranger = make_certificates(tmp_path / "stranger", ["127.0.0.1"], 1)
        intruders = {
            "unregistered": [
                "--root-certificates",
                str(deployment.certificates.ca),
                "--auth-supernode-private-key",
                str(stranger.nodes[0]),
            ],
            "plaintext": ["--insecure"],
            "wrong-authority": [
                "--root-certificates",
                str(stranger.ca),
                "--auth-supernode-private-key",
                str(deployment.certificates.nodes[0]),
            ],
        }
        for (name, options), port in zip(intruders.items(), free_ports(len(intruders)), strict=True):
            command = ["flower-supernode", "--superlink", deployment.address, "--port", str(port)]
            command += ["--max-retries", "2", "--node-config", "partition-id=0", *options]
            deployment.processes.start(name, command)
        _run(deployment, order, setting, _RunProgress(order.out, setting, setting.method("uniform"), 0), Observer())
        listed = deployment.flwr("supernode", "list", CONNECTION, "--format", "json")
        assert len(json.loads(listed)["nodes"]) == 2
        for name in intruders:
            wait_until(lambda name=name: name in deployment.processes.dead(), f"the {name} node to give up")
            text = deployment.processes.log(name).read_text()
            assert "SuperNode ID" not in text, f"the {name} node was let in"
            assert "could not establish a connection to the SuperLink" in text
    (record,) = records(order.out)
    assert "refused" not in record
    assert nothing_is_left(mark)


@pytest.mark.slow
def test_a_superlink_that_dies_ends_the_run_in_good_order(flower_up, mark, tmp_path):
    running = flower_up("--nodes", 1, "--rounds", ENDLESS, "--method", "uniform")
    superlink = wait_until(lambda: one(mark, "flower-superlink"), "the SuperLink", running)
    wait_until(lambda: one(mark, "flower-supernode"), "the SuperNode", running)
    os.kill(superlink.pid, signal.SIGKILL)
    _, err = running.communicate(timeout=HANG)
    assert running.returncode == 1
    assert "Traceback" not in err
    assert nothing_is_left(mark)
    assert "The logs are in" in err


def test_nothing_starts_where_the_input_is_wrong(command, tmp_path):
    for arguments, message in (
        (["--method", "fedhw"], "Did you mean 'fedhv'?"),
        (["--set", "training.rounds=0"], "at least 1"),
        (["--report-noise", "1.0"], "--report-clip"),
        (["--reference", "missing.toml"], "missing.toml"),
        (["--device", "tpu"], "Unknown device 'tpu'"),
    ):
        outcome = command("flower", "up", "digits", *arguments)
        assert outcome.code == 2
        assert message in outcome.err.replace("\n", " ")
    assert not list(tmp_path.iterdir())


@pytest.fixture
def without_processes(monkeypatch):
    """A federation that ends where its processes would start."""

    def start(*_):
        raise FedHVError("here processes start")

    monkeypatch.setattr(up, "Deployment", start)


def test_nothing_starts_while_another_process_has_the_folder(without_processes, command, tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    with locked(folder):
        outcome = command("flower", "up", "digits", "--out", str(folder))
    assert outcome.code == 2
    assert "Another process is using" in outcome.err


def test_a_run_of_another_kind_is_replaced_with_fresh(without_processes, command, tmp_path):
    fedhv.run("digits", "uniform", rounds=1, local_steps=1, out=tmp_path / "run", quiet=True)
    arguments = ("flower", "up", "digits", "--method", "power", "--out", str(tmp_path / "run"))
    outcome = command(*arguments)
    assert outcome.code == 2
    assert "delete it with --fresh" in outcome.err.replace("\n", " ")
    assert "here processes start" in command(*arguments, "--fresh").err
    assert not (tmp_path / "run").exists()


SLEEP = "import time; time.sleep(100_000)"
STARTS_ANOTHER = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', '{SLEEP}'], start_new_session=True)"
WHEN_IT_STARTS = f"{STARTS_ANOTHER}; {SLEEP}"
WHEN_IT_IS_ASKED_TO_END = f"""
import signal, sys, time
def on_end(number, frame):
    {STARTS_ANOTHER}
    sys.exit()
signal.signal(signal.SIGTERM, on_end)
print("ready", flush=True)
time.sleep(100_000)
"""


@pytest.mark.parametrize("program", [WHEN_IT_STARTS, WHEN_IT_IS_ASKED_TO_END])
def test_what_a_process_has_started_in_a_group_of_its_own_ends_with_it(program, mark, tmp_path):
    """As the SuperExec of a SuperLink, which is busy and has to be killed."""
    from fedhv.flower.processes import Processes

    processes = Processes({**os.environ, MARK: mark}, tmp_path)
    processes.start("parent", [sys.executable, "-c", program])
    wait_until(lambda: len(marked(mark)) == 2 or processes.tail("parent") == "ready", "the child")
    processes.end()
    assert nothing_is_left(mark)


def test_a_process_that_was_being_started_at_ctrl_c_is_ended(mark, tmp_path, monkeypatch):
    """Else it would write into the folder that is being removed."""
    from fedhv.flower.processes import Processes

    class Interrupted(subprocess.Popen):
        def __init__(self, *arguments, **named):
            super().__init__(*arguments, **named)
            signal.raise_signal(signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    processes = Processes({**os.environ, MARK: mark}, tmp_path)
    sleep = [sys.executable, "-c", SLEEP]
    with pytest.raises(KeyboardInterrupt):
        processes.start("sleeper", sleep)
    assert list(processes.running) == ["sleeper"]
    with pytest.raises(KeyboardInterrupt):
        processes.ask(sleep, HANG)
    processes.end()
    assert nothing_is_left(mark)
    assert signal.getsignal(signal.SIGINT) is before


def test_a_command_that_hangs_is_ended_and_said(mark, tmp_path):
    from fedhv.flower.processes import Processes

    processes = Processes({**os.environ, MARK: mark}, tmp_path)
    with pytest.raises(fedhv.support.errors.FedHVError, match=r"did not end within 0\.2 s"):
        processes.ask([sys.executable, "-c", SLEEP], 0.2)
    assert nothing_is_left(mark)


def test_a_system_without_groups_of_processes_is_refused(tmp_path, monkeypatch):
    monkeypatch.delattr(os, "killpg")
    with pytest.raises(fedhv.InputError, match="which Windows does not have"):
        Processes({}, tmp_path)
