"""The two apps behind `fedhv flower up`, in this process."""

from __future__ import annotations

import fcntl
import tomllib
from pathlib import Path

import pytest
from flwr.app import Context, RecordDict

from fedhv.flower.control import Control, reporting
from fedhv.flower.up import Order
from fedhv.flower.up_client import client
from fedhv.flower.up_server import server
from fedhv.runs import resolve
from fedhv.runs.config import load_setting
from fedhv.support import toml
from fedhv.support.errors import InputError
from flower.local_grid import LocalGrid

SMALL = [
    "federation.clients=3",
    "federation.participants=3",
    "federation.samples_per_client=20",
    "training.local_steps=1",
    "training.rounds=1",
    "evaluation.every=0",
]


@pytest.fixture
def serve(tmp_path):
    """Runs the ServerApp on three nodes, with these values in the run configuration."""
    setting = tmp_path / "setting.toml"
    setting.write_text(toml.write(toml.as_tables(load_setting("digits", SMALL))))
    reference = tmp_path / "reference.toml"
    reference.write_text("values = [2.6, 2.7]\n")
    run = tmp_path / "run"

    def start(**values):
        config = {"setting": str(setting), "method": "fedhv", "seed": 0, "out": str(run), "reference": str(reference)}
        config |= {"device": "cpu", "reply-seconds": 5.0, "node-seconds": 5.0, "control": str(tmp_path)}
        config |= {name.replace("_", "-"): value for name, value in values.items()}
        nodes = LocalGrid(client, {k + 1: k for k in range(3)}, **config)
        server(nodes, Context(1, 1, {}, RecordDict(), config))
        return tomllib.loads((run / "config.toml").read_text())

    return start


def test_clip_and_noise_of_the_reports_fix_the_run(serve):
    config = serve(report_clip=3.0, report_noise=0.5)
    assert config["run"]["reports"] == {"clip": 3.0, "noise": 0.5}
    serve(report_clip=3.0, report_noise=0.5)
    for other, words in (
        ({"report_clip": 3.0, "report_noise": 0.4}, r"`run\.reports\.noise` was 0\.5 and is now 0\.4"),
        ({}, r"`run\.reports\.clip` was 3\.0 and is now 0\.0"),
    ):
        with pytest.raises(InputError, match=words):
            serve(**other)


def test_a_run_without_protected_reports_has_no_such_table(serve):
    """So have runs from before there was one: they go on as they were, and not with protected reports."""
    assert "reports" not in serve()["run"]
    serve(report_clip=0.0, report_noise=0.0)
    with pytest.raises(InputError, match=r"`run\.reports\.clip` was 0\.0 and is now 3\.0"):
        serve(report_clip=3.0)


def test_the_server_loads_its_data_once(serve, monkeypatch):
    loaded, load = [], resolve.load_benchmark

    def counted(*arguments):
        loaded.append(arguments)
        return load(*arguments)

    monkeypatch.setattr(resolve, "load_benchmark", counted)
    serve()
    assert len(loaded) == 1 + 3, "once for the server, once for every node"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"out": 3}, "`out` should be text. Found 3"),
        ({"reply_seconds": "soon"}, "`reply-seconds` should be a number. Found 'soon'"),
        ({"report_noise": 1.0}, "Set report-clip too"),
    ],
)
def test_a_wrong_value_in_the_run_configuration_is_named(values, words, serve):
    with pytest.raises(InputError, match=words):
        serve(**values)


def test_a_server_is_locked_before_it_can_be_seen(tmp_path, monkeypatch):
    """Whoever looks between the two would think that it died, or hold the lock that it needs."""
    control, flock, seen = Control(tmp_path / "control"), fcntl.flock, []

    def lock(file, how):
        seen.append(control.started())
        flock(file, how)

    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "flock", lock)
        server = reporting(control.folder)
        server.__enter__()
    assert seen == [False]
    assert control.started()
    assert not control.died()
    server.__exit__(None, None, None)
    assert control.outcome() == {"code": 0}
    assert not control.died()
    (control.folder / "outcome.json").unlink()
    assert control.died(), "without an outcome and without its lock"


@pytest.mark.parametrize(
    ("nodes", "override", "asked"), [(50, ["federation.participants=50"], 50), (50, [], 5), (3, [], 3)]
)
def test_there_is_a_client_for_every_node_however_many_the_setting_has(nodes, override, asked):
    setting = Order("digits", "fedhv", nodes, Path("run"), override=tuple(override)).resolved()
    assert (setting.federation.clients, setting.federation.participants) == (nodes, asked)
