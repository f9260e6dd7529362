"""The theorem, the rate and the certificate, held against runs on the laboratory's federations."""

import csv
import json
import math
from itertools import pairwise

import numpy as np
import pytest

from fedhv import InputError
from fedhv.paper.laboratory import Ensemble, Quadratics, cases, measure, observe_ensemble, safety, safety_cases
from fedhv.paper.laboratory.rate import pair, rate_curve, rate_experiment
from fedhv.paper.laboratory.safety import certified_horizons
from fedhv.paper.laboratory.terms import terms_by_horizon
from fedhv.theory import StepSizes, certify, largest_base_step, prescribed_steps, stationarity_bound

CASES = {case.name: case for case in cases()}
CLOSED = [name for name in CASES if name != "logistic regression"]


# --- the theorem's bound --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CLOSED)
def test_the_average_squared_gradient_is_below_the_bound(name):
    found = measure(CASES[name], 64, runs=300, seed=1)
    assert found.observed.mean <= found.refined.total <= found.terms.total
    assert found.observed.squared_gradients.max() <= found.terms.total  # even of the worst run
    assert found.observed.smallest_slack.min() >= found.case.margin * (1 - 1e-9)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("horizon", [1, 30])
def test_the_bound_holds_on_random_federations(seed, horizon):
    rng = np.random.default_rng(seed)
    tasks, clients = int(rng.integers(1, 5)), int(rng.integers(2, 7))
    q = Quadratics.random(
        seed, tasks=tasks, clients=clients, examples=3, spread=rng.random(), noise=rng.random(), offset=rng.random()
    )
    c = q.constants(
        cohort=int(rng.integers(1, clients + 1)), batch_size=1, report=1, margin=float(10 ** rng.uniform(-1, 1))
    )
    steps = prescribed_steps(c, horizon, local_steps=int(rng.integers(1, 5)), server_lr=float(rng.uniform(0.2, 1)))
    seen = observe_ensemble(Ensemble(q, c, 1, 1), steps, horizon, runs=100, seed=seed)
    assert seen.mean <= stationarity_bound(c, steps, horizon).total
    assert seen.mean > 0


@pytest.mark.parametrize("name", ["a quarter, one minibatch", "five tasks", "logistic regression"])
def test_the_bound_holds_through_the_engine(name):
    found = measure(CASES[name], 6, runs=2, engine=True)
    assert found.through == "engine"
    assert 0 < found.observed.mean <= found.terms.total
    assert found.observed.smallest_slack.min() >= found.case.margin * (1 - 1e-6)


def test_engine_and_ensemble_measure_alike_where_nothing_is_random():
    case = CASES["full participation, full reports"]
    still = type(case)("still", Quadratics.random(1, examples=1), batch_size=1)
    closed, engine = measure(still, 8, runs=1), measure(still, 8, runs=1, engine=True)
    assert engine.observed.mean == pytest.approx(closed.observed.mean, rel=1e-5)
    assert engine.observed.smallest_slack[0] == pytest.approx(closed.observed.smallest_slack[0], rel=1e-5)


@pytest.mark.parametrize("name", [n for n in CLOSED if CASES[n].cohort < 8 or CASES[n].report != "all"])
def test_the_measured_report_error_is_below_its_bound(name):
    found = measure(CASES[name], 12, runs=2000, seed=2)
    bound = found.case.constants.report_error_bound(orthogonal=True)
    worst, error = found.observed.largest_report_error, found.observed.largest_report_error_error
    # The largest of twelve means of 2000: within four standard errors of what it estimates.
    assert bound / 50 < worst <= bound + 4 * error
    assert found.observed.report_error <= bound + error
    assert bound <= found.case.constants.report_error_bound()


def test_full_participation_with_full_reports_errs_not_at_all():
    assert measure(CASES["ten local steps"], 5, runs=3).observed.largest_report_error == 0


# --- the rate -------------------------------------------------------------------------------------------------


def test_with_exact_reports_the_slope_is_minus_one_half():
    for noise in (0.0, 0.05):
        q = pair(clients=4, examples=4, distance=0.1, start=0.1, spread=0.02, noise=noise)
        ensemble = Ensemble(q, q.constants(cohort=4, batch_size=1, margin=1.0))
        slope, error = rate_curve("", ensemble, 1.0, [2**k for k in range(6, 13)], runs=8, seed=3).slope
        assert slope <= -0.5 + 0.005 + 3 * error
        assert slope >= -0.6
        assert error < 0.02


def test_under_the_largest_admissible_base_step_runs_follow_the_exponential_and_its_rate():
    q = pair(clients=4, examples=1, distance=0.1, start=0.1)
    c = q.constants(cohort=4, batch_size=1, margin=1.0)
    base = largest_base_step(c, 1.0)
    curve = rate_curve("", Ensemble(q, c), base, [2**k for k in (8, 12, 14, 15, 16)])
    assert curve.admissible
    first = q.squared_gradient(q.start, c.reference)
    for t, seen, bound in zip(curve.horizons, curve.observed, curve.bounds, strict=True):
        x = base * math.sqrt(t)  # the mean of e^(-2x s) over s in [0, 1], for L = 1
        assert seen.mean == pytest.approx(first * -math.expm1(-2 * x) / (2 * x), rel=0.03)
        assert seen.mean <= bound
    flat, steep = (np.diff(np.log([s.mean for s in curve.observed])) / np.diff(np.log(curve.horizons)))[[-1, 0]]
    assert steep < -0.35 < flat


def test_with_noisy_reports_it_levels_off_at_a_height_that_grows_with_their_error():
    curves = rate_experiment(longest=256, noisy_longest=2**13, runs=16)[2:]
    errors, heights = [c.report_error for c in curves], [c.height for c in curves]
    assert errors[0] == 0
    assert errors == sorted(errors)
    assert len(set(errors)) == 4
    assert all(b > 1.5 * a for a, b in pairwise(heights))
    slopes = [c.slope[0] for c in curves]
    assert slopes[0] <= -0.49
    assert slopes[-1] >= -0.2
    assert slopes == sorted(slopes)
    for curve in curves[1:]:
        # One task errs and clients are independent: the lemma is an equality.
        assert curve.report_error == pytest.approx(curve.constants.report_error_bound(orthogonal=True), rel=0.1)


def test_terms_shrink_with_the_horizon_but_for_the_report_error():
    rows = terms_by_horizon(CASES["a quarter, one minibatch"], [2**8, 2**12])
    for name in ("initial_gap", "gradient_noise", "participation"):
        assert rows[1][name] == pytest.approx(rows[0][name] / 4)
    assert rows[1]["initial_weights"] == pytest.approx(rows[0]["initial_weights"] / 16)
    assert rows[1]["report_error"] == rows[0]["report_error"]


# --- the certificate ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", [c for c in safety_cases() if c.horizon is None], ids=lambda c: c.name)
def test_what_is_certified_is_never_violated(case):
    found = safety(case, runs=200, seed=4)
    assert found.certificate.certified
    assert found.certificate.horizon >= 20
    assert found.violations == found.unsafe == 0
    assert not certify(case.constants, case.steps, found.certificate.horizon + 1, 0.05).certified


@pytest.mark.parametrize("case", [c for c in safety_cases() if c.horizon is not None], ids=lambda c: c.name)
def test_what_is_not_certified_can_go_wrong_and_the_reasons_are_named(case):
    found = safety(case, runs=200, seed=4)
    assert not found.certificate.certified
    assert found.unsafe > 0
    assert found.violations >= found.unsafe
    assert "exceeds the budget" in found.row()["reasons"]


def test_smaller_steps_are_certified_for_more_rounds_and_more_movement():
    rows = certified_horizons(safety_cases()[0], np.array([1e-3, 1e-4, 1e-5]))
    assert [row["horizon"] for row in rows] == sorted(row["horizon"] for row in rows)
    assert [row["effective_time"] for row in rows] == sorted(row["effective_time"] for row in rows)


# --- the same numbers every time ------------------------------------------------------------------------------


def test_experiments_are_functions_of_their_seed():
    case = CASES["a quarter, one minibatch"]
    first, again, other = (measure(case, 10, runs=5, seed=seed).row() for seed in (0, 0, 1))
    assert first == again
    assert first["mean_squared_gradient"] != other["mean_squared_gradient"]
    assert safety(safety_cases()[1], runs=5, seed=0).row() == safety(safety_cases()[1], runs=5, seed=0).row()


# --- the command line -----------------------------------------------------------------------------------------

SMALL = {
    "rate": ("--longest", 512, "--noisy-longest", 256, "--runs", 2),
    "certificate": ("--runs", 5),
    "terms": ("--horizon", 8, "--runs", 3, "--engine-horizon", 1),
}


def table(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def test_a_horizon_beyond_what_the_constants_hold_for_is_refused():
    with pytest.raises(InputError, match="Use a shorter horizon"):
        measure(cases()[-1], 4000, runs=1, engine=True)


@pytest.mark.parametrize("name", SMALL)
def test_each_experiment_writes_its_table_and_its_figure(command, tmp_path, name):
    done = command("theory", name, "--out", "here", *SMALL[name])
    assert done.code == 0, done.err
    assert "Tables and figures are in here" in done.out
    rows = table(tmp_path / "here" / f"{name}.csv")
    assert len(rows) >= 5
    pdf = (tmp_path / "here" / f"{name}.pdf").read_bytes()
    assert b"/Type3" not in pdf  # text is text
    assert (tmp_path / "here" / f"{name}.png").stat().st_size > 10_000


def test_json_is_the_tables_and_nothing_else(command, tmp_path):
    done = command("theory", "certificate", "--runs", 3, "--no-figures", "--json", "--out", "x")
    assert done.code == 0
    tables = json.loads(done.out)
    assert [row["certified"] for row in tables["certificate"]] == [True] * 5 + [False] * 2
    assert {row["case"] for row in tables["certificate"]} == {
        row["case"] for row in table(tmp_path / "x/certificate.csv")
    }
    assert not list((tmp_path / "x").glob("*.png"))


def test_quiet_prints_nothing(command):
    done = command("theory", "certificate", "--runs", 2, "--no-figures", "--quiet", "--out", "x")
    assert (done.code, done.out, done.err) == (0, "", "")


def test_bad_options_are_named_in_one_line(command, tmp_path):
    (tmp_path / "file").write_text("")
    for arguments, named in (
        (("certificate", "--delta", "1.5", "--runs", 1), "`delta` should lie in (0, 1)"),
        (("certificate", "--runs", 1, "--out", "file"), "file should be a folder"),
        (("rate", "--longest", 3), "--longest"),
    ):
        done = command("theory", *arguments)
        assert done.code == 2
        assert named in done.err
        assert len(done.err.strip().splitlines()) == 1


def test_a_step_beyond_the_theorem_has_no_bound():
    q = pair(clients=2, examples=1, distance=0.1, start=0.1)
    c = q.constants(cohort=2, batch_size=1, margin=1.0)
    curve = rate_curve("", Ensemble(q, c), 1.0, [16, 32, 64])
    assert not curve.admissible
    assert curve.bounds == (None, None, None)
    assert StepSizes(local_steps=1, local_lr=1.0).effective > largest_base_step(c, 1.0)
