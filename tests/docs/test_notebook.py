"""The tutorial and its notebook are one text, and it runs from beginning to end."""

from __future__ import annotations

import importlib.util
import json

import pytest

from docs import pages

TUTORIAL = pages.ROOT / "docs" / "tutorial.md"
NOTEBOOK = pages.ROOT / "examples" / "tutorial.ipynb"


@pytest.fixture(scope="module")
def made():
    """The program that makes the notebook."""
    spec = importlib.util.spec_from_file_location("notebook", pages.ROOT / "docs" / "notebook.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.notebook(TUTORIAL.read_text(encoding="utf-8"))


def cells(kind):
    content = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    return ["".join(cell["source"]) for cell in content["cells"] if cell["cell_type"] == kind]


def test_it_is_made_from_the_tutorial(made):
    assert NOTEBOOK.read_text(encoding="utf-8") == made, "run: python docs/notebook.py"


def test_its_cells_are_the_code_of_the_tutorial():
    assert cells("code") == [block.code.rstrip("\n") for block in pages.python_blocks(TUTORIAL)]
    assert any("# Tutorial" in cell for cell in cells("markdown"))


def test_its_cells_run_in_their_order(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "__main__"}
    outputs = {code.rstrip("\n"): text for code, text in pages.outputs(TUTORIAL).items()}
    assert len(outputs) >= 6
    for cell in cells("code"):
        capsys.readouterr()
        exec(compile(cell, "tutorial.ipynb", "exec", dont_inherit=True), namespace)
        if cell in outputs:
            assert pages.shape(capsys.readouterr().out) == pages.shape(outputs[cell])
    # What the text says of the comparison: FedHV is better than equal weights at the task that those neglect.
    heavy = {}
    for run in namespace["study"]:
        heavy.setdefault(run.method, []).append(run.tasks[1].accuracy)
    assert sum(heavy["fedhv"]) > sum(heavy["uniform"])
    assert (tmp_path / "runs" / "mine" / "report" / "index.html").exists()
