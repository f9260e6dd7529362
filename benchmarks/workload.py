"""One workload for every program that is compared: written once, read by each in its own environment."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from fedhv.benchmarks.random_images import SHAPES
from fedhv.runs.bench import find_source
from fedhv.runs.config import load_setting

ROOT = Path(__file__).parents[1]
PEERS = Path(__file__).parent / "peers"
MODELS = ROOT / "src" / "fedhv" / "benchmarks" / "models.py"
TORCH = f"torch=={torch.__version__.split('+')[0]}"
"""All programs use the same version of torch."""


def write_workload(
    name: str,
    folder: Path,
    data: str | None,
    random: bool = False,
    overrides: Sequence[str] = (),
    dropout: bool = True,
) -> tuple[Path, str]:
    """Images, labels, clients, hyper-parameters and first model of a setting as one file; also a note on its data."""
    setting = load_setting(name, overrides)
    _, problem, note = find_source(setting, data, random)
    shape, training = SHAPES[setting.benchmark], setting.training
    numbers = {
        "setting": name,
        "model": shape.model.__name__,
        "models": str(MODELS),
        "tasks": len(problem.tasks),
        "participants": setting.federation.participants,
        "steps": training.local_steps,
        "batch": training.batch_size,
        "rate": setting.method("fedhv").local_lr,
        "mean": list(problem.prepare.mean),
        "std": list(problem.prepare.std),
        "dropout": dropout,
    }
    torch.manual_seed(0)
    start = shape.model().state_dict()
    path = folder / f"{name}.npz"
    np.savez(
        path,
        images=problem.train.inputs.numpy(),
        labels=np.stack([target.numpy() for target in problem.train.targets], axis=1),
        indices=problem.clients.indices,
        offsets=problem.clients.offsets,
        numbers=json.dumps(numbers),
        **{f"parameter {name}": value.detach().numpy() for name, value in start.items()},
    )
    return path, note


def environment(cache: Path, name: str, requirements: list[str]) -> Path:
    """The Python of a separate virtual environment with these packages, created at first use."""
    place = cache / name
    python, stamp = place / "bin" / "python", place / "requirements.txt"
    wanted = "\n".join(requirements)
    if not stamp.exists() or stamp.read_text() != wanted:
        print(f"Making an environment with {', '.join(requirements)} in {place} …", file=sys.stderr, flush=True)
        venv.create(place, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *requirements], check=True)
        stamp.write_text(wanted)
    return python


def installed(python: Path | str, *packages: str) -> str:
    """The versions of packages in an environment."""
    code = "import importlib.metadata as m, sys; print(', '.join(f'{p} {m.version(p)}' for p in sys.argv[1:]))"
    return subprocess.run([python, "-c", code, *packages], check=True, capture_output=True, text=True).stdout.strip()


def machine() -> str:
    """The machine of the measurements."""
    model = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    return (
        f"{model}, {os.cpu_count()} cores, Python {platform.python_version()}, torch {torch.__version__}, load {load}"
    )
