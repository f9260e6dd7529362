"""The package: what wheel and sdist hold, and that the wheel works outside the source tree, with no extra installed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from fnmatch import fnmatch
from pathlib import Path

import pytest
from waiting import HANG

import fedhv

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
BESIDE_CODE = (
    "fedhv/py.typed",
    "fedhv/settings/*.toml",
    "fedhv/benchmarks/label-skew.toml",
    "fedhv/report/assets/*",
    "fedhv/paper/published_tables/*.toml",
)
AROUND = {"PKG-INFO", "pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff", ".gitignore"}
MODULES = {"Pillow": "PIL", "mkdocs-material": "mkdocs", "mkdocstrings-python": "mkdocstrings"}
"""What distributions are imported as, where the two names differ."""


def shipped() -> set[str]:
    """What lies in src/fedhv."""
    files = (path for path in (ROOT / "src" / "fedhv").rglob("*") if path.is_file())
    return {str(path.relative_to(ROOT / "src")) for path in files if "__pycache__" not in path.parts}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    pytest.importorskip("hatchling", reason="building needs hatchling")
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(folder)], cwd=ROOT, check=True, capture_output=True
    )
    return folder


@pytest.fixture(scope="module")
def wheel(built):
    (path,) = built.glob("*.whl")
    return zipfile.ZipFile(path)


@pytest.fixture
def installed(wheel, tmp_path):
    """`python -c CODE` where fedhv is the unpacked wheel, in an empty folder."""
    place = tmp_path / "site-packages"
    wheel.extractall(place)
    (tmp_path / "work").mkdir()

    def run(code: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": str(place), "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
        command = [sys.executable, "-c", code]
        return subprocess.run(
            command, cwd=tmp_path / "work", env=environment, capture_output=True, text=True, timeout=HANG
        )

    return run


def test_the_wheel_holds_the_code_settings_and_assets_and_nothing_else(wheel):
    names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert names == shipped()
    data = {name for name in names if not name.endswith(".py")}
    assert [name for name in data if not any(fnmatch(name, pattern) for pattern in BESIDE_CODE)] == []
    assert {"fedhv/py.typed", "fedhv/settings/digits.toml", "fedhv/report/assets/page.html"} <= data


def test_the_sdist_holds_the_same_and_what_explains_it(built):
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames()}
    assert {name.removeprefix("src/") for name in names if name.startswith("src/")} == shipped()
    assert {name for name in names if not name.startswith("src/")} == AROUND


@pytest.mark.slow
def test_the_wheel_works_outside_the_source_tree_without_extras(installed):
    """Everything but figures, downloads and logs has to work with the core's dependencies alone."""
    extras = PROJECT["project"]["optional-dependencies"]
    wanted = [re.split(r"[<>=\[; ]", need)[0] for needs in extras.values() for need in needs]
    modules = sorted({MODULES.get(name, name).replace("-", "_") for name in wanted} - {"fedhv", "scipy"})
    done = installed(
        f"""
import sys
for module in {modules!r}:
    sys.modules[module] = None  # an import of it fails as if it were not there
import fedhv
from fedhv.cli import main
def call(*words):
    sys.argv = ["fedhv", *words]
    try:
        main()
    except SystemExit as end:
        assert end.code == 0, (words, end.code)
print(fedhv.__file__)
call("--version")
call("list")
call("run", "digits", "--rounds", "1", "--set", "calibration.rounds=1", "--set", "federation.participants=2")
call("report", "runs/digits", "--no-figures")
"""
    )
    assert done.returncode == 0, done.stderr
    assert "site-packages/fedhv/__init__.py" in done.stdout
    assert f"fedhv {fedhv.__version__}" in done.stdout
    assert "runs/digits/report/index.html" in done.stdout


def test_the_licence_of_what_is_not_ours_comes_along(wheel):
    """uPlot, under MIT: its text lies beside it and with the package's own licence, and the metadata say so."""
    place = f"fedhv-{fedhv.__version__}.dist-info"
    own = (ROOT / "src/fedhv/report/assets/uPlot.LICENSE").read_bytes()
    assert b"The MIT License" in own
    assert wheel.read("fedhv/report/assets/uPlot.LICENSE") == own
    assert wheel.read(f"{place}/licenses/src/fedhv/report/assets/uPlot.LICENSE") == own
    assert "\nLicense-Expression: Apache-2.0 AND MIT\n" in wheel.read(f"{place}/METADATA").decode()


def test_the_version_stands_in_one_place(wheel):
    metadata = wheel.read(f"fedhv-{fedhv.__version__}.dist-info/METADATA").decode()
    assert f"\nVersion: {fedhv.__version__}\n" in metadata
    assert PROJECT["project"]["dynamic"] == ["version"]
    code = (path for path in (ROOT / "src").rglob("*.py") if path.name != "_version.py")
    assert [path for path in code if re.search(r"__version__ *=", path.read_text(encoding="utf-8"))] == []
    cited = re.search(r"^version: *\"?([\w.]+)", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)
    assert cited is None or cited[1] == fedhv.__version__


def test_the_changelog_begins_with_this_version():
    headings = re.findall(r"^## \[?([\w.]+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert headings[0] in ("Unreleased", fedhv.__version__)
    assert headings[-1] == "0.1.0"
