"""Settings: shipped ones are whole, one's own are checked, overrides reach every key."""

import copy
import pickle
from dataclasses import dataclass
from pathlib import Path

import pytest
from problems import SETTING

from fedhv import FSMGDA, FedHV, InputError, Uniform, load_setting
from fedhv.methods.base import lacking_rates
from fedhv.runs.config import Setting, override_setting, setting_from_tables, setting_tables, shipped_settings
from fedhv.support import toml

DIGITS = load_setting("digits")


# --- shipped settings -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", shipped_settings())
def test_every_shipped_setting_is_valid_and_described(name):
    setting = load_setting(name)
    assert setting.name == name
    assert setting.description
    assert set(setting.methods) >= {"fedhv", "uniform", "fsmgda", "fedcmoo"}
    if setting.federation.clients is not None:  # otherwise the benchmark brings them
        assert setting.federation.participants <= setting.federation.clients


def test_the_embedded_setting_is_there():
    assert "digits" in shipped_settings()
    assert DIGITS.benchmark == "digits"
    assert DIGITS.evaluation.reference == 3.0


@pytest.mark.parametrize("name", shipped_settings())
def test_a_resolved_setting_survives_writing_and_reading(name):
    setting = load_setting(name)
    again = setting_from_tables(toml.read_text(toml.write(setting_tables(setting))))
    assert setting_tables(again) == setting_tables(setting)


def test_a_resolved_setting_shows_the_defaults_of_its_methods():
    tables = setting_tables(load_setting("digits", ["methods.fedhv.floor=0.5"]))
    assert tables["methods"]["fedhv"]["floor"] == 0.5
    assert tables["methods"]["fedcmoo"]["iterations"] == 1000
    assert tables["methods"]["fedcmoo"]["step_size"] == 1e-3


# --- one's own --------------------------------------------------------------------------------------------


def test_a_setting_of_ones_own_is_a_file_named_after_it(setting_file):
    setting = load_setting(str(setting_file))
    assert setting.name == "small"
    assert setting.benchmark == "problems:benchmark"
    assert setting.method("fedhv") == FedHV(server_lr=1.1, report=2)


def test_a_method_without_a_section_has_the_rates_of_the_setting(setting_file):
    setting = load_setting(str(setting_file))
    assert setting.method("fsmgda") == FSMGDA(server_lr=1.1)  # FedHV's section has no local rate
    assert setting_from_tables({**setting_tables(setting), "methods": {}}).method("fsmgda") == FSMGDA()


def test_a_setting_may_have_a_name_and_unequal_clients():
    sizes = "samples_per_client = [10, 20, 30, 40, 50, 60]"
    setting = setting_from_tables(toml.read_text('name = "mine"\n' + SETTING.replace("samples_per_client = 30", sizes)))
    assert setting.name == "mine"
    assert setting.federation.samples_per_client == (10, 20, 30, 40, 50, 60)


# --- learning rates ---------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Mine(Uniform):
    name = "mine"


@dataclass(frozen=True, kw_only=True)
class Tuned(Uniform):
    name = "tuned"
    local_lr: float = 0.1  # its own, although it is the interface's


@pytest.mark.parametrize("method", ["test_config:Mine", Mine()])
def test_a_method_of_ones_own_without_rates_has_the_settings(method, monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parent)
    chosen = load_setting("multimnist").chosen(method)
    assert (chosen.server_lr, chosen.local_lr) == (1.2, 0.3)  # FedHV's, not 1.0 and 0.1


@pytest.mark.parametrize("method", ["test_config:Tuned", Tuned()])
def test_rates_of_a_class_are_kept(method, monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parent)
    chosen = load_setting("multimnist").chosen(method)
    assert (chosen.server_lr, chosen.local_lr) == (1.2, 0.1)


def test_rates_that_are_given_are_kept():
    given = Mine(server_lr=1.0, local_lr=0.1)  # the defaults, chosen on purpose
    assert load_setting("multimnist").chosen(given) == given
    setting = load_setting("multimnist", ["methods.fedprox.local_lr=0.7"])
    assert (setting.method("fedprox").server_lr, setting.method("fedprox").local_lr) == (1.2, 0.7)


def test_a_shipped_method_as_an_object_has_the_rates_that_its_name_has():
    setting = load_setting("multimnist")
    for method in (FedHV(), Uniform(), FSMGDA()):
        assert setting.chosen(method).local_lr == setting.method(method.label).local_lr
    assert setting.chosen(FedHV(floor=0.5)) == FedHV(floor=0.5, server_lr=1.2, local_lr=0.3)


def test_what_was_given_survives_copies_and_processes():
    for method in (Mine(), Mine(local_lr=0.1)):
        assert lacking_rates(pickle.loads(pickle.dumps(method))) == lacking_rates(method)
        assert lacking_rates(copy.deepcopy(method)) == lacking_rates(method)
    assert lacking_rates(Mine(local_lr=0.1)) == {"server_lr"}


# --- overrides --------------------------------------------------------------------------------------------


def test_overrides_reach_every_section():
    setting = load_setting(
        "digits",
        [
            "training.rounds=7",
            "training.sampling=replacement",
            'federation.strata=["faint"]',
            "federation.alpha = 1",
            "evaluation.every=0",
            "calibration.seeds=[1, 2]",
            "methods.fedhv.report=3",
            "methods.uniform.local_lr=0.5",
            "references.tight=[2.0, 2.5]",
            "description=words without quotes",
        ],
    )
    assert setting.training.rounds == 7
    assert setting.training.sampling == "replacement"
    assert setting.federation.strata == ("faint",)
    assert setting.federation.alpha == 1.0
    assert setting.evaluation.every == 0
    assert setting.calibration.seeds == (1, 2)
    assert setting.method("fedhv").report == 3
    assert setting.method("uniform").local_lr == 0.5
    assert setting.references == {"tight": (2.0, 2.5)}
    assert setting.description == "words without quotes"


def test_a_dirichlet_partition_without_labels_is_refused():
    with pytest.raises(InputError, match=r"`federation\.strata` should name at least one"):
        load_setting("digits", ["federation.strata=[]"])
    assert load_setting("digits", ["federation.strata=[]", 'federation.partition="iid"']).federation.strata == ()


def test_later_overrides_win_and_the_setting_itself_stays():
    rounds = DIGITS.training.rounds
    changed = override_setting(DIGITS, ["training.rounds=1", "training.rounds=2"])
    assert changed.training.rounds == 2
    assert DIGITS.training.rounds == rounds > 2
    assert override_setting(DIGITS, []) is DIGITS


def test_a_rule_without_learning_rates_has_those_of_its_like():
    fedhv = DIGITS.method("fedhv")
    for name in ("stch", "fedhv-moving"):
        assert (DIGITS.method(name).server_lr, DIGITS.method(name).local_lr) == (fedhv.server_lr, fedhv.local_lr)
    changed = override_setting(DIGITS, ["methods.stch.local_lr=0.7", "methods.stch.mu=0.3"])
    assert (changed.method("stch").local_lr, changed.method("stch").mu) == (0.7, 0.3)
    assert changed.method("stch").server_lr == fedhv.server_lr


def test_a_method_of_ones_own_has_its_hyper_parameters_under_its_name():
    setting = load_setting("digits", ["methods.fedhv.methods.uniform:Uniform.local_lr=0.25"])
    assert setting.method("fedhv.methods.uniform:Uniform").local_lr == 0.25


@pytest.mark.parametrize("override", ["training.rounds", "=3", "training.=3", ".rounds=3", ""])
def test_an_override_that_is_none_is_refused(override):
    with pytest.raises(InputError, match=r"section\.key=value"):
        load_setting("digits", [override])


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("training.round=3", "Unknown key 'training.round'. Did you mean 'training.rounds'?"),
        ("trainin.rounds=3", "Unknown key 'trainin'. Did you mean 'training'?"),
        ("participants=3", "Unknown key 'participants'. Did you mean 'federation.participants'?"),
        ("rounds=3", "Unknown key 'rounds'. Did you mean 'training.rounds' or 'calibration.rounds'?"),
        ("training.rounds=many", "`training.rounds` should be a whole number. Found 'many'."),
        ("training.rounds=3.0", "`training.rounds` should be a whole number. Found 3.0."),
        ("training.rounds=0", "`training.rounds` should be at least 1. Found 0."),
        ("training.local_steps=0", "`training.local_steps` should be at least 1. Found 0."),
        ("training.batch_size=-1", "`training.batch_size` should be at least 1. Found -1."),
        ("training.momentum=1.0", "`training.momentum` should be in [0, 1). Found 1.0."),
        ("training.momentum=nan", "`training.momentum` should be in [0, 1). Found nan."),
        ("training.sampling=epoch", "`training.sampling` should be 'epochs' or 'replacement'. Found 'epoch'."),
        ("federation.participants=999", "(M) should be at most `federation.clients` (N = "),
        ("federation.participants=0", "`federation.participants` should be at least 1. Found 0."),
        ("federation.clients=0", "`federation.clients` should be at least 1. Found 0."),
        ("federation.samples_per_client=[1, 2]", "of them. Found 2."),
        ("federation.alpha=0", "`federation.alpha` should be positive. Found 0.0."),
        ("federation.alpha=-0.3", "`federation.alpha` should be positive. Found -0.3."),
        ("federation.partition=dirichle", "'dirichlet' or 'iid'"),
        ("federation.seed=-1", "`federation.seed` should be at least 0. Found -1."),
        ("evaluation.every=-1", "`evaluation.every` should be at least 0. Found -1."),
        ("evaluation.reference=0", "`evaluation.reference` should be positive. Found 0.0."),
        ("calibration.rounds=0", "`calibration.rounds` should be at least 1. Found 0."),
        ("calibration.margin=0", "`calibration.margin` should be positive. Found 0.0."),
        (f"calibration.seeds=[{2**63}]", f"`calibration.seeds` should be whole numbers from 0. Found [{2**63}]."),
        ("calibration.seeds=[]", "`calibration.seeds` should be whole numbers from 0. Found []."),
        ("calibration.seeds=[-1]", "`calibration.seeds` should be whole numbers from 0. Found [-1]."),
        ("methods.fedhv.local_lr=-0.1", "`local_lr` should be positive and finite. Found -0.1."),
        ("methods.fsmgda.server_lr=0", "`server_lr` should be positive and finite. Found 0."),
        ("methods.fedhv.flor=1", "Unknown hyper-parameter of method 'fedhv' 'flor'. Did you mean 'floor'?"),
        ("methods.fedhw.local_lr=1", "Unknown method 'fedhw'. Did you mean 'fedhv'?"),
        ("methods.fedhv.reference=[1.0, 0.0]", "A reference should be positive and finite. Found [1.0, 0.0]."),
    ],
)
def test_every_wrong_value_is_refused_in_one_line_before_anything_runs(override, message):
    with pytest.raises(InputError) as caught:
        load_setting("digits", [override])
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["digitz", "Digits", "digit"])
def test_an_unknown_setting_is_refused_with_the_nearest(name):
    with pytest.raises(InputError, match="Did you mean 'digits'"):
        load_setting(name)


def test_a_setting_that_resembles_nothing_lists_what_there_is():
    with pytest.raises(InputError, match=r"Known: .*digits.*path of a \.toml file"):
        load_setting("qqqqqqq")


def test_a_setting_file_that_does_not_exist_is_refused():
    with pytest.raises(InputError, match=r"none\.toml could not be read"):
        load_setting("none.toml")


def test_a_setting_with_a_section_missing_is_refused():
    with pytest.raises(InputError, match="`federation` is missing"):
        setting_from_tables({"benchmark": "digits", "training": {"rounds": 1, "batch_size": 1, "local_steps": 1}})


# --- plans ------------------------------------------------------------------------------------------------


def test_a_plan_has_the_settings_training_and_the_methods_rate(setting_file):
    setting: Setting = load_setting(str(setting_file), ["methods.fsmgda.local_lr=0.7"])
    plan = setting.plan(setting.method("fsmgda"), seed=5)
    assert (plan.rounds, plan.participants, plan.seed) == (4, 3, 5)
    assert plan.evaluate_every == 2
    assert plan.evaluation_reference == 3.0
    local = plan.local
    assert (local.steps, local.batch_size, local.learning_rate, local.momentum) == (3, 8, 0.7, 0.5)


def test_a_negative_seed_is_refused():
    with pytest.raises(InputError, match="seed should be a whole number from 0"):
        DIGITS.plan(DIGITS.method("uniform"), seed=-1)
