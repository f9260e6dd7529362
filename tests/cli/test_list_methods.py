"""`fedhv list methods`: family, needs and what is sent, counted from the requests."""

from __future__ import annotations

import io
import json
import re

import pytest
from rich.console import Console

from fedhv import FSMGDA, FedHV, Uniform
from fedhv.cli.methods import listed, print_methods
from fedhv.methods import CLIENT_SIDE, METHODS, RULES, make_method
from fedhv.simulation.communication import TASKS, communication


def test_every_method_is_listed_with_what_it_needs_and_sends(command):
    rows = {row["name"]: row for row in json.loads(command("list", "methods", "--json").out)}
    own = [*METHODS, *RULES, *CLIENT_SIDE]
    assert own == list(rows)[: len(own)]
    assert {name for name, row in rows.items() if row["reference"]} == {"fedhv"}
    for name in RULES:
        assert rows[name]["family"] == rows["fedhv"]["family"] == "loss-only"
        assert rows[name]["extra"] == rows["fedhv"]["extra"] == 2 * TASKS
    assert rows["fsmgda"]["family"] == rows["fedcmoo"]["family"] == "gradient"
    assert rows["stch"]["hyperparameters"] == ["mu"]
    assert rows["uniform"]["extra"] == rows["fedprox"]["extra"] == 0
    assert rows["uniform"]["family"] == "equal weights"
    assert rows["scaffold"]["family"] == rows["fedprox"]["family"] == "local training"
    assert rows["scaffold"]["up"] == 2 * rows["uniform"]["up"]  # the control variate's change, of the model's size


def test_the_table_names_the_methods_and_what_the_counts_are_of(command):
    done = command("list", "methods")
    assert done.code == 0
    assert "fedhv-moving" in done.out
    assert "scalars per client and round, for a model of 1,030 parameters and 3 tasks" in " ".join(done.out.split())


def test_no_name_is_divided_in_a_terminal_of_80_columns(monkeypatch):
    monkeypatch.setattr("fedhv.cli.methods.torchjd_names", tuple)
    console = Console(width=80, file=io.StringIO())
    print_methods(console, as_json=False)
    words = set(re.split(r"[\s,]+", console.file.getvalue()))
    rows = listed()
    assert words >= {row.name for row in rows} | {name for row in rows for name in row.hyperparameters}
    assert "is calibrated if none is given: fedhv." in console.file.getvalue()


def test_another_word_is_refused(command):
    done = command("list", "method")
    assert done.code == 2
    assert "Did you mean 'methods'?" in done.err


def test_communication_by_hand():
    d, shared, head = 1030, 1000, 10
    assert communication(Uniform()).extra == 0
    assert communication(FedHV()).down == communication(FedHV()).up == d + TASKS
    assert communication(FSMGDA()).up == TASKS * (shared + head)
    assert communication(make_method("fedcmoo")).exchanges == 3


def test_rules_of_torchjd_are_listed_where_it_is_installed(command):
    pytest.importorskip("torchjd")
    rows = {row["name"]: row for row in json.loads(command("list", "methods", "--json").out)}
    assert rows["torchjd:IMTLG"]["up"] == rows["fsmgda"]["up"]
    assert rows["torchjd:MGDAWeighting"]["up"] == rows["fedcmoo"]["up"]
    assert rows["torchjd:STCH"]["up"] == rows["fedhv"]["up"]
    assert rows["torchjd:STCH"]["required"] == ["mu"]
    assert rows["torchjd:IMTLG"]["required"] == rows["stch"]["required"] == []
    assert sum(name.startswith("torchjd:") for name in rows) > 20
