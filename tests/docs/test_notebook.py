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


SHORTER = {
    "seeds=[0, 1, 2], local_lrs=[0.1, 0.3], rounds=40": "seeds=[0, 1], local_lrs=[0.1, 0.3], rounds=8",
    "seeds=[0], rounds=40": "seeds=[0], rounds=20",
}
"""The study and the front have fewer rounds here than in the tutorial."""


def cells(kind):
    content = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    return ["".join(cell["source"]) for cell in content["cells"] if cell["cell_type"] == kind]


def test_it_is_made_from_the_tutorial(made):
    assert NOTEBOOK.read_text(encoding="utf-8") == made, "run: python docs/notebook.py"


def test_its_cells_are_the_code_of_the_tutorial():
    install, *code = cells("code")
    assert 'find_spec("fedhv") is None' in install  # a hosted notebook begins without the package
    assert code == [block.code.rstrip("\n") for block in pages.python_blocks(TUTORIAL)]
    assert any("# Tutorial" in cell for cell in cells("markdown"))


@pytest.mark.slow
def test_its_cells_run_in_their_order(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "__main__"}
    outputs = {code.rstrip("\n"): text for code, text in pages.outputs(TUTORIAL).items()}
    assert len(outputs) >= 6
    assert all(sum(long in cell for cell in cells("code")) == 1 for long in SHORTER)
    for cell in cells("code"):
        capsys.readouterr()
        code = cell
        for long, short in SHORTER.items():
            code = code.replace(long, short)
        exec(compile(code, "tutorial.ipynb", "exec", dont_inherit=True), namespace)
        if cell in outputs:
            assert pages.shape(capsys.readouterr().out) == pages.shape(outputs[cell])
    # What the text says: more weight on a task makes it better, the other worse; both formats of the model agree.
    fixed = namespace["front"].methods[0].points
    assert fixed[0].scores[0] < fixed[-1].scores[0]
    assert fixed[0].scores[1] > fixed[-1].scores[1]
    assert all(0 <= score <= 1 for point in fixed for score in point.scores)  # the main metrics, not per cent
    assert min(task.accuracy for task in namespace["result"].tasks) > 70
    assert namespace["partial"].labels[0] > 2 * namespace["partial"].labels[1]
    assert (tmp_path / "runs" / "schools" / "report" / "index.html").exists()
    assert (tmp_path / "runs" / "exported" / "model.pt2").exists()
