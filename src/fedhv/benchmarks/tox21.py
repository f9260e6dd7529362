"""Tox21: twelve yes/no assays of molecules, 7 to 26 % of the labels missing; clients hold molecular scaffolds.

Inputs are Morgan fingerprints. Molecules with the same Bemis-Murcko scaffold belong to one client, like the chemical
series of a company. A scaffold of at least `COMMON` molecules is one client. Rarer scaffolds, sorted by their number of
rings, are combined into clients of at least `CLIENT` molecules. A fraction of every client is held out for the test, so
clients have training examples with the scaffolds of the test molecules.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from fedhv.benchmarks.models import MultiTask
from fedhv.benchmarks.natural import Part, natural_problem
from fedhv.data.catalogue import TOX21, TOX21_ASSAYS
from fedhv.data.table import Table, load_table, numbers
from fedhv.problem.problem import Problem
from fedhv.problem.tasks import classification
from fedhv.problem.trees import Inputs, tree_map
from fedhv.support.errors import InputError

BITS, RADIUS = 1024, 2
"""Bits and radius of the Morgan fingerprints; ECFP4 has radius 2."""
COMMON = 20
"""The smallest number of molecules of a scaffold that is one client."""
CLIENT = 60
"""The smallest number of molecules of a client with rarer scaffolds."""

_LOG = logging.getLogger(__name__)


class FingerprintNet(MultiTask):
    """One hidden layer over the fingerprint, two logits per assay: 67,160 parameters."""

    def __init__(self, width: int = 64) -> None:
        super().__init__(
            nn.Sequential(nn.Linear(BITS, width), nn.ReLU(), nn.Dropout(0.25)),
            (nn.Linear(width, 2) for _ in TOX21_ASSAYS),
        )


def load(data: Path, evaluate_on: Part = "test") -> Problem:
    """Tox21 with a task for every assay, divided by scaffold."""
    labels, fingerprints, scaffolds = _molecules(load_table(data, TOX21))
    return natural_problem(
        "Tox21",
        FingerprintNet,
        [classification(name, 2, metrics=["roc_auc", "average_precision"]) for name in TOX21_ASSAYS],
        fingerprints,
        list(labels.T),
        by_scaffold(scaffolds),
        evaluate_on,
        prepare=as_numbers,
    )


def load_validation(data: Path) -> Problem:
    """The same, evaluated on the validation examples, for the choice of learning rates."""
    return load(data, "validation")


def as_numbers(inputs: Inputs) -> Inputs:
    """Bits, stored as bytes, as float32."""
    return tree_map(lambda each: each.to(torch.float32), inputs)


def by_scaffold(scaffolds: list[tuple[int, str]]) -> list[np.ndarray]:
    """The molecules of every client, from the (rings, scaffold) of every molecule."""
    series: dict[tuple[int, str], list[int]] = defaultdict(list)
    for i, scaffold in enumerate(scaffolds):
        series[scaffold].append(i)
    clients: list[list[int]] = []
    rest: list[int] = []
    for _, molecules in sorted(series.items()):
        if len(molecules) >= COMMON:
            clients.append(molecules)
            continue
        rest += molecules
        if len(rest) >= CLIENT:
            clients.append(rest)
            rest = []
    if rest:
        clients.append(rest)
    return [np.array(each) for each in clients]


def _molecules(table: Table) -> tuple[np.ndarray, np.ndarray, list[tuple[int, str]]]:
    """Labels, fingerprints and scaffolds of all readable molecules, without repetitions.

    If a molecule has several rows, the first available label of every assay is used.
    """
    rdkit = _rdkit()
    labels = np.array([numbers(table, name) for name in TOX21_ASSAYS], dtype=np.float32).T
    if not np.isin(labels[~np.isnan(labels)], (0, 1)).all():
        raise InputError("Tox21: expected labels 0, 1 or none, found others; get the file again.")
    rows: dict[str, list[int]] = defaultdict(list)
    for i, smiles in enumerate(table["smiles"]):
        rows[smiles].append(i)
    kept, fingerprints, scaffolds = [], [], []
    with rdkit.quiet():
        for smiles, same in rows.items():
            molecule = rdkit.parse(smiles)
            if molecule is None:
                continue
            known = labels[same[0]]
            for i in same[1:]:
                known = np.where(np.isnan(known), labels[i], known)
            kept.append(known)
            fingerprints.append(rdkit.fingerprint(molecule))
            scaffolds.append((molecule.GetRingInfo().NumRings(), rdkit.scaffold(mol=molecule, includeChirality=False)))
    lost = len(rows) - len(kept)
    if lost:
        _LOG.info("Tox21: %d of %d molecules cannot be read by rdkit and are left out.", lost, len(rows))
    if not kept:
        raise InputError("Tox21: expected molecules as SMILES, found none that rdkit can read; get the file again.")
    return np.stack(kept), np.stack(fingerprints).astype(np.uint8), scaffolds


@dataclass(frozen=True)
class Rdkit:
    """The used functions of rdkit; `quiet` suppresses its warnings about molecules."""

    parse: Callable[[str], Any]
    fingerprint: Callable[[Any], np.ndarray]
    scaffold: Callable[..., str]
    quiet: Callable[[], Any]


def _rdkit() -> Rdkit:
    try:
        from rdkit import Chem, rdBase
        from rdkit.Chem.rdFingerprintGenerator import GetMorganGenerator
        from rdkit.Chem.Scaffolds.MurckoScaffold import MurckoScaffoldSmiles
    except ImportError:
        raise InputError("Tox21's fingerprints need rdkit; run `pip install 'fedhv[chemistry]'`.") from None
    generator = GetMorganGenerator(radius=RADIUS, fpSize=BITS)
    return Rdkit(Chem.MolFromSmiles, generator.GetFingerprintAsNumPy, MurckoScaffoldSmiles, rdBase.BlockLogs)
