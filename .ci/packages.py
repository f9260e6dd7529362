"""Install wheel and sdist in clean environments, alone and with every extra, and try each: `make package-check`.

    python .ci/packages.py                      # every extra; takes long, since torch is installed each time
    python .ci/packages.py --only plain,export
    python .ci/packages.py --uv                 # install with uv, which links files from its cache: much faster

An environment passes if `fedhv doctor` finds no problem, and, with an extra, if all its packages are there. The files
are those in dist/, which `make package` writes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PLAIN = "plain"
LEFT_OUT = ("dev",)
"""Extras for those who change the package; they work in its source tree."""


def main() -> int:
    """Try all environments; 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="comma-separated extras; 'plain' is none")
    parser.add_argument("--uv", action="store_true", help="install with uv instead of pip")
    given = parser.parse_args()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [PLAIN, *(name for name in project["optional-dependencies"] if name not in LEFT_OUT)]
    chosen = given.only.split(",") if given.only else extras
    if unknown := set(chosen) - set(extras):
        parser.error(f"unknown extras: {', '.join(sorted(unknown))}")
    (wheel,), (sdist,) = (ROOT / "dist").glob("*.whl"), (ROOT / "dist").glob("*.tar.gz")
    tries = [(wheel, extra) for extra in chosen] + [(sdist, PLAIN)]
    failed = [f"{file.suffix} {extra}" for file, extra in tries if not passes(file, extra, given.uv)]
    print(
        f"{len(tries) - len(failed)} of {len(tries)} environments passed."
        + "".join(f"\nfailed: {each}" for each in failed)
    )
    return 1 if failed else 0


def passes(file: Path, extra: str, with_uv: bool) -> bool:
    """Whether a clean environment with this file and this extra works, outside the source tree."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fedhv-package-") as folder:
        python = Path(folder) / "env" / "bin" / "python"
        subprocess.run([sys.executable, "-m", "venv", str(python.parents[1])], check=True)
        wanted = str(file) if extra == PLAIN else f"{file}[{extra}]"
        if with_uv:
            install = ["uv", "pip", "install", "--quiet", "--python", str(python)]
        else:
            # Compiling torch's files takes longer than everything else; Python compiles those that are imported.
            pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            install = [*pip, "--no-compile"]
        asked = [*install, "-c", str(ROOT / "constraints.txt"), wanted]
        installed = subprocess.run(asked, capture_output=True, text=True)
        problem = installed.stderr.strip().splitlines()[-1:] if installed.returncode else tried(python, extra)
    print(f"{file.name} {extra}: {problem[0] if problem else 'passed'} ({time.monotonic() - began:.0f} s)", flush=True)
    return not problem


def tried(python: Path, extra: str) -> list[str]:
    """Problems that `fedhv doctor` finds in an environment."""
    done = subprocess.run(
        [str(python.parent / "fedhv"), "doctor", "--json"], cwd=python.parents[2], capture_output=True, text=True
    )
    try:
        findings = json.loads(done.stdout)
    except ValueError:
        return (done.stderr or "doctor printed nothing").strip().splitlines()[-1:]
    broken = [f"{each['name']}: {each['value']}" for each in findings if not each["ok"]]
    lacking = [
        each["value"]
        for each in findings
        if each["section"] == "extras" and each["name"] == extra and "missing" in each["value"]
    ]
    return [*broken, *lacking][:1]


if __name__ == "__main__":
    sys.exit(main())
