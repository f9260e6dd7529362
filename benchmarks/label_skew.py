"""Label skew over clients of the shipped settings, as `src/fedhv/benchmarks/label-skew.toml` has it.

    python benchmarks/label_skew.py --data DATA > src/fedhv/benchmarks/label-skew.toml

`fedhv show` prints these numbers without loading the data.
"""

from __future__ import annotations

import argparse

from fedhv.problem.skew import label_skew
from fedhv.runs.config import shipped_settings
from fedhv.runs.resolve import resolve


def main() -> None:
    """Print one line for every task of every setting."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", help="the folder of the datasets")
    data = parser.parse_args().data
    print("# Label skew over clients, found and expected in a random draw: made by benchmarks/label_skew.py.")
    for name in shipped_settings():
        _, problem = resolve(name, data=data)
        print(f"\n[{name}]")
        for task, skew in zip(problem.tasks, label_skew(problem), strict=True):
            print(f'"{task.name}" = [{skew.found:.3f}, {skew.random:.3f}]', flush=True)


if __name__ == "__main__":
    main()
