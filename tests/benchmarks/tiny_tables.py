"""Tables of a few rows in the layouts of Tox21 and STAR, for tests without any dataset."""

import csv
import gzip
import io

import numpy as np

from fedhv.data.catalogue import GRADES, STAR, STAR_TESTS, TOX21_ASSAYS

MOLECULES = {
    "c1ccccc1": ("{}c1ccccc1", "benzene"),
    "C1CCCCC1": ("{}C1CCCCC1", "cyclohexane"),
    "": ("{}", "no ring"),
}
CHAINS = ["C" * n for n in range(1, 26)]


def write_tox21(root, extra=(), seed=0):
    """Three scaffolds of 25 molecules each; every third label missing; `extra` rows behind them."""
    draws = np.random.default_rng(seed)
    rows = []
    for pattern, _ in MOLECULES.values():
        for chain in CHAINS:
            labels = [str(label) for label in draws.integers(2, size=len(TOX21_ASSAYS))]
            labels = ["" if draws.random() < 1 / 3 else label for label in labels]
            rows.append([*labels, f"TOX{len(rows)}", pattern.format(chain)])
    _write(root / "tox21/tox21.csv.gz", [*TOX21_ASSAYS, "mol_id", "smiles"], [*rows, *extra])


def write_star(root, schools=3, pupils=30, seed=0, change=None):
    """Pupils with about half of their scores; `change` may alter the rows, each a dict."""
    draws = np.random.default_rng(seed)
    rows = []
    for i in range(schools * pupils):
        row = dict.fromkeys(STAR.columns, "") | {"gender": "male", "ethnicity": "afam", "birth": "1980 Q1"}
        first = int(draws.integers(len(GRADES)))
        for grade in GRADES[first:]:
            row |= {
                f"schoolid{grade}": str(1 + i % schools),
                f"star{grade}": "small",
                f"lunch{grade}": "free",
                f"school{grade}": "rural",
                f"degree{grade}": "master+",
                f"ladder{grade}": "level1",
                f"experience{grade}": "7",
                f"tethnicity{grade}": "cauc",
                f"read{grade}": str(int(draws.integers(400, 700))),
                f"math{grade}": str(int(draws.integers(400, 700))),
            }
        rows.append(row)
    if change is not None:
        change(rows)
    _write(root / "star/star.csv.gz", list(STAR.columns), [list(row.values()) for row in rows])
    return rows


def scores(row):
    return [float(row[test]) if row[test] else float("nan") for test in STAR_TESTS]


def _write(path, header, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    text = io.StringIO()
    csv.writer(text).writerows([header, *rows])
    path.write_bytes(gzip.compress(text.getvalue().encode()))
