"""Which runs every experiment needs, narrowed or not."""

import pytest

from fedhv.paper.experiments import EXPERIMENTS, Selection, chosen, family, make_plan
from fedhv.paper.plan import SETTINGS, PlannedRun, StudyVariant
from fedhv.support.errors import InputError

COUNTS = {"main": 72, "loss-hv": 72, "per-task": 36, "ablations": 30, "last10": 54, "references": 18, "efficiency": 12}


@pytest.mark.parametrize(("what", "count"), COUNTS.items())
def test_an_experiment_needs_so_many_runs(what, count):
    plan = make_plan([what], Selection())
    assert len(plan.runs) == len(set(plan.runs)) == count
    assert len({run.name for run in plan.runs}) == count


def test_all_is_every_experiment_and_every_run_once():
    assert chosen("all") == list(EXPERIMENTS) == list(COUNTS)
    plan = make_plan(chosen("all"), Selection())
    assert len({run.name for run in plan.runs}) == len(plan.runs) == 72 + 27  # the ablations' defaults are main runs
    assert plan.calibrations == ("multimnist", "mnist-fmnist", "celeba5-b", "cifar10-mnist-b")


def test_runs_come_study_by_study():
    studies = make_plan(chosen("all"), Selection()).studies()
    assert list(studies)[:6] == [StudyVariant(setting) for setting in SETTINGS]
    assert [run.name for run in studies[StudyVariant("celeba5-a")]][:5] == [
        "celeba5-a/uniform-seed0", "celeba5-a/fsmgda-seed0", "celeba5-a/fedcmoo-seed0", "celeba5-a/fedhv-seed0",
        "celeba5-a/uniform-seed42",
    ]  # fmt: skip


def test_ablations_are_studies_with_a_name_that_says_what_is_changed():
    plan = make_plan(["ablations"], Selection(seeds=(0,)))
    assert {run.variant.name: run.variant.overrides for run in plan.runs} == {
        "cifar10-mnist-b-report1": ("methods.fedhv.report=1",),
        "cifar10-mnist-b-report2": ("methods.fedhv.report=2",),
        "cifar10-mnist-b-report5": ("methods.fedhv.report=5",),
        "cifar10-mnist-b": (),
        "cifar10-mnist-b-participants5": ("federation.participants=5",),
        "cifar10-mnist-b-participants20": ("federation.participants=20",),
        "cifar10-mnist-b-participants30": ("federation.participants=30",),
        "cifar10-mnist-b-steps1": ("training.local_steps=1",),
        "cifar10-mnist-b-steps5": ("training.local_steps=5",),
        "cifar10-mnist-b-steps20": ("training.local_steps=20",),
    }


def test_a_planned_run_resolves_to_the_setting_that_it_says():
    run = PlannedRun(StudyVariant("cifar10-mnist-b", "training.local_steps=20", "steps20"), "fedhv", 42, rounds=7)
    setting = run.resolved
    assert (setting.name, setting.training.local_steps, setting.training.rounds) == ("cifar10-mnist-b", 20, 7)
    assert list(run.config()["methods"]) == ["fedhv"]
    said = {"server_lr": 1.6, "local_lr": 0.3, "report": "all", "floor": 1e-6}
    assert run.config()["methods"]["fedhv"].items() >= said.items()


def test_settings_methods_seeds_and_rounds_narrow_a_plan():
    selection = Selection(("celeba5-a", "multimnist"), ("fedhv", "uniform"), (3,), 5)
    plan = make_plan(["main"], selection)
    assert [(run.variant.setting, run.method, run.seed, run.rounds) for run in plan.runs] == [
        ("multimnist", "uniform", 3, 5), ("multimnist", "fedhv", 3, 5),
        ("celeba5-a", "uniform", 3, 5), ("celeba5-a", "fedhv", 3, 5),
    ]  # fmt: skip
    assert make_plan(["references"], selection).calibrations == ("multimnist", "celeba5-b")


def test_references_of_a_family_are_shared_as_in_the_paper():
    assert {setting: family(setting) for setting in SETTINGS} == {
        "multimnist": "multimnist", "mnist-fmnist": "mnist-fmnist", "celeba5-a": "celeba5-b",
        "celeba5-b": "celeba5-b", "cifar10-mnist-a": "cifar10-mnist-b", "cifar10-mnist-b": "cifar10-mnist-b",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: chosen("mian"), "Unknown experiment 'mian'. Did you mean 'main'"),
        (lambda: Selection(("cifar10-mnist",)), "Did you mean 'cifar10-mnist-b'|Did you mean 'cifar10-mnist-a'"),
        (lambda: Selection(methods=("fedhw",)), "Unknown method of the paper 'fedhw'. Did you mean 'fedhv'"),
        (lambda: Selection(methods=()), "Name at least one method"),
        (lambda: Selection(seeds=()), "whole numbers from 0"),
        (lambda: Selection(seeds=(-1,)), "whole numbers from 0"),
        (lambda: Selection(rounds=0), "at least 1"),
        (
            lambda: make_plan(["ablations"], Selection(("multimnist",))),
            "no run of ablations.*cifar10-mnist-b",
        ),
        (lambda: make_plan(["last10"], Selection(methods=("uniform",))), "fsmgda, fedcmoo, fedhv"),
    ],
)
def test_what_the_paper_does_not_have_is_refused(make, reason):
    with pytest.raises(InputError, match=reason):
        make()
