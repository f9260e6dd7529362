"""The configuration of GitHub Actions calls targets of the Makefile, on the versions of Python that the package has."""

import re
from pathlib import Path

import pytest

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[1]
FILES = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def jobs(path):
    return yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"]


def commands(path):
    return [step["run"] for job in jobs(path).values() for step in job["steps"] if "run" in step]


def test_there_is_one_for_changes_and_one_for_nights():
    assert [path.stem for path in FILES] == ["ci", "nightly"]
    assert {"lint", "test", "docs", "package"} == set(jobs(FILES[0]))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_step_is_a_target_of_the_makefile(path):
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for command in commands(path):
        target = re.fullmatch(r"make ([\w-]+) PYTHON=python", command)
        assert target, command
        assert re.search(rf"^{target[1]}:", makefile, flags=re.MULTILINE), command


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_versions_of_actions_and_python_are_fixed(path):
    for name, job in jobs(path).items():
        for step in job["steps"]:
            assert "uses" not in step or re.search(r"@v\d+$", step["uses"]), (name, step)
    text = path.read_text(encoding="utf-8")
    assert 'python-version: ["3.11", "3.12", "3.13"]' in text
