"""The largest change of FedHV's weights by false reports of one client or of a fifth of the cohort.

    python benchmarks/reliability/hostile.py [--participants 10]

An honest run on `digits` gives the clients' true reports of every round. In every round, every possible subset of false
clients (one client; a fifth of the cohort) reports other values for one task or for all. The resulting weights are
compared with those of the honest reports under the same aggregation. So the result is the exact worst case over
subsets. NaN is refused by the server, as in a run. `hostile_runs.py` measures the effect on whole runs.
"""

from __future__ import annotations

import argparse
from itertools import combinations
from typing import Any

import numpy as np
from common import RESULTS, Log, figure, machine, table, write_csv

RULES = ("mean", "median", "trimmed")
CLAIMS = {"10⁹": 1e9, "0": 0.0, "NaN": float("nan")}
TRIM = 0.2


def honest_reports(participants: int, seed: int) -> tuple[list[np.ndarray], Any]:
    """Every round's M × m reports of an honest run, and its reference."""
    from dataclasses import replace

    from fedhv.engines import Sequential
    from fedhv.methods.base import with_reference
    from fedhv.runs.calibration import find_reference
    from fedhv.runs.config import load_setting
    from fedhv.runs.resolve import resolve
    from fedhv.runs.threads import one_thread
    from fedhv.simulation.rounds import simulate

    seen: list[np.ndarray] = []

    class Recording(Sequential):
        def ask(self, call):  # type: ignore[no-untyped-def]
            replies = super().ask(call)
            seen.append(replies.reports.double().numpy())
            return replies

    setting = load_setting("digits", [f"federation.participants={participants}"])
    _, problem = resolve(setting)
    reference = find_reference(setting, problem=problem)
    method = with_reference(setting.method("fedhv"), reference.values)
    plan = replace(setting.plan(method, seed), evaluate_every=0)
    with one_thread():
        for _ in simulate(Recording(problem), method, plan):
            pass
    return seen, reference


def weights(reports: np.ndarray, reference: tuple[float, ...], rule: Any) -> np.ndarray:
    """The server's weights, without reports that are not finite."""
    import torch

    from fedhv.methods.weights import inverse_slack_weights
    from fedhv.protocol.aggregation import aggregate_reports

    taken = reports[np.isfinite(reports).all(axis=1)]
    found: np.ndarray = inverse_slack_weights(aggregate_reports(torch.from_numpy(taken), rule, TRIM), reference).numpy()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--participants", type=int, default=10)
    arguments = parser.parse_args()
    m = arguments.participants
    log = Log(RESULTS / "hostile.txt")
    log(machine())
    rows: list[dict[str, Any]] = []
    moved: dict[tuple[str, str, str], list[float]] = {}
    rounds, found = honest_reports(m, seed=0)
    reference = found.values
    for rule in RULES:
        for liars, who in ((1, "one client"), (m // 5, "a fifth of the cohort")):
            for name, claim in CLAIMS.items():
                for target in ("task 1", "task 2", "all tasks"):
                    worst = []
                    for reports in rounds:
                        honest = weights(reports, reference, rule)
                        most = 0.0
                        for chosen in combinations(range(m), liars):
                            false = reports.copy()
                            where = slice(None) if target == "all tasks" else int(target[-1]) - 1
                            false[list(chosen), where] = claim
                            most = max(most, float(np.abs(weights(false, reference, rule) - honest).max()))
                        worst.append(most)
                    rows.append({"rule": rule, "liars": who, "claim": name, "about": target, "rounds": len(worst),
                                 "largest_move": round(max(worst), 5),
                                 "mean_move": round(float(np.mean(worst)), 5)})  # fmt: skip
                    moved[rule, who, f"{name}, {target}"] = worst
    write_csv(RESULTS / "hostile.csv", rows)
    log(table(list(rows[0]), [tuple(row.values()) for row in rows]))
    fifth = [row for row in rows if row["liars"] == "a fifth of the cohort"]
    for rule in RULES:
        log(f"{rule}: a fifth of the cohort moves a weight by at most "
            f"{max(row['largest_move'] for row in fifth if row['rule'] == rule):.4f}")  # fmt: skip

    def draw(axes: Any) -> None:
        shown = [(rule, who) for who in ("one client", "a fifth of the cohort") for rule in RULES]
        labels = []
        for position, (rule, who) in enumerate(shown):
            values = [v for key, worst in moved.items() if key[:2] == (rule, who) for v in worst]
            colour = {"mean": "#ee6677", "median": "#4477aa", "trimmed": "#228833"}[rule]
            jitter = np.random.default_rng(0).uniform(-0.25, 0.25, len(values))
            axes.plot(position + jitter, np.maximum(values, 1e-5), ".", ms=2, alpha=0.25, color=colour)
            axes.plot([position - 0.3, position + 0.3], [max(values)] * 2, color=colour, lw=2)
            labels.append(f"{rule}\n{who.removesuffix(' of the cohort')}")
        axes.axhline(0.05, color="black", lw=0.8, ls="--")
        axes.set(yscale="log", xticks=range(len(shown)), ylabel="how far a weight moves")
        axes.set_xticklabels(labels, fontsize=8)
        axes.set_title(f"digits, M = {m}: worst case over who lies, every round and claim; dashed: 0.05")

    figure(RESULTS / "hostile", draw, size=(7.2, 3.6))
    if max(row["largest_move"] for row in fifth if row["rule"] != "mean") > 0.05:
        raise SystemExit("more than 0.05")


if __name__ == "__main__":
    main()
