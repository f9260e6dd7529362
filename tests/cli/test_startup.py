"""Start-up: commands that compute nothing load no PyTorch, and Ctrl-C while libraries load is one line."""

import importlib
import subprocess
import sys

import pytest

import fedhv
from fedhv.methods import METHODS
from fedhv.runs.config import load_setting, method_tables, setting_tables, shipped_settings
from fedhv.support.declared import declared

HEAVY = {"torch", "sklearn", "scipy", "matplotlib", "flwr", "ray", "PIL", "requests", "tensorboard", "triton"}

CALL = """
import sys
from fedhv.cli import main
for words in sys.argv[1:]:
    sys.argv = ["fedhv", *words.split()]
    try:
        main()
    except SystemExit as end:
        print(words, end.code, *(name for name in sys.modules if "." not in name), sep=",", file=sys.stderr)
"""

INTERRUPTED = """
import importlib.abc, signal, sys
from fedhv.cli import main

number, module = sys.argv[1:]

class Press(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == module:
            signal.raise_signal(getattr(signal, number))

sys.meta_path.insert(0, Press())
sys.argv[1:] = ["run", "digits"]
main()
"""


def python(code, *arguments):
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)


def test_commands_that_compute_nothing_do_not_import_torch():
    """They are called in one process: an import is found at the first of them that makes it."""
    commands = [
        "--help",
        "--version",
        "list",
        "list --json",
        "show digits",
        "show digits --set training.rounds=3",
        "show celeba5-a",
        "data where",
        "run --help",
        "compare --help",
        "reproduce --help",
        "report --help",
        "flower up --help",
    ]
    done = python(CALL, *commands)
    assert "fedhv" in done.stdout
    called = [line.split(",") for line in done.stderr.splitlines()]
    assert [(words, code, HEAVY & set(modules)) for words, code, *modules in called] == [
        (words, "0", set()) for words in commands
    ]


def test_importing_the_package_does_not_import_torch():
    code = "import sys, fedhv; print(fedhv.__version__, fedhv.InputError, 'torch' in sys.modules)"
    assert python(code).stdout.split()[-1] == "False"


@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM"])
@pytest.mark.parametrize("module", ["click", "fedhv.cli.app", "torch", "torch.nn"])
def test_a_signal_while_libraries_are_imported_is_one_line(number, module):
    done = python(INTERRUPTED, number, module)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "Error: Interrupted.\n")


# --- names that are imported at their first use -----------------------------------------------------------


@pytest.mark.parametrize("package", ["fedhv", "fedhv.engines", "fedhv.methods", "fedhv.paper", "fedhv.protocol.local"])
def test_every_name_of_a_lazy_package_is_found_listed_and_imported_by_star(package):
    module = importlib.import_module(package)
    star: dict[str, object] = {}
    exec(f"from {package} import *", star)
    assert set(module.__all__) <= set(dir(module)) & set(star)
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'nothing'"):
        _ = module.nothing


def test_every_method_is_registered_under_its_own_name():
    assert {name: cls.name for name, cls in METHODS.items()} == {name: name for name in METHODS}
    assert fedhv.FedHV is METHODS["fedhv"]


# --- what `show` reads from the sources -------------------------------------------------------------------


@pytest.mark.parametrize("name", METHODS)
def test_the_declared_hyper_parameters_are_those_of_the_class(name):
    assert declared(METHODS.places[name]) == method_tables(METHODS[name]())


@pytest.mark.parametrize("name", shipped_settings())
def test_shipped_settings_are_shown_as_their_methods_are_made(name):
    setting = load_setting(name)
    made = {method: method_tables(setting.method(method)) for method in setting.methods}
    assert setting_tables(setting)["methods"] == made


@pytest.mark.parametrize(
    "source",
    [
        "class It:\n    x: int = 2 + len('a')",
        "class It:\n    x: int",
        "import abc\nclass It(abc.ABC):\n    x: int = 1",
        "",
    ],
    ids=["computed", "required", "other base", "absent"],
)
def test_fields_that_the_source_does_not_say_are_not_guessed(source, tmp_path, monkeypatch):
    (tmp_path / "declared_here.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    assert declared("declared_here:It") is None
