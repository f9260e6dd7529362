"""The page: self-contained, escaped, small, and honest about what is missing."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from fedhv.report import page, read_study
from fedhv.report.packing import unpacked
from fedhv.report.page import SCRIPTS
from fedhv.report.payload import payload, thinning
from fedhv.report.study import make_study
from report.studies import write_run, write_study

METHODS = ("uniform", "fsmgda", "fedcmoo", "fedhv")
SCRIPT = "<script>alert(1)</script>"


def data_of(text):
    return unpacked(re.search(r'<script type="application/gzip" id="data">(.*?)</script>', text, re.S)[1])


def test_nothing_is_loaded_from_anywhere(tmp_path):
    text = page(read_study([write_study(tmp_path)]))
    addresses = set(re.findall(r"https?://[^\s\"')]+", text))
    # One names the SVG vocabulary, the other is the library's own comment on where it comes from.
    assert addresses == {"http://www.w3.org/2000/svg", "https://github.com/leeoniya/uPlot"}
    assert not re.search(r"<(script|link|img|iframe)[^>]*\s(src|href)=\"(?!data:,)", text)
    policy = html.unescape(re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1])
    assert "default-src 'none'" in policy
    assert "connect-src 'none'" in policy
    assert "unsafe" not in policy


def test_the_policy_allows_exactly_the_script_and_the_style_of_the_page(tmp_path):
    text = page(read_study([write_run(tmp_path / "r")]))
    for tag, directive in (("script", "script-src"), ("style", "style-src")):
        content = re.search(rf"<{tag}>(.*?)</{tag}>", text, re.S)[1]
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}'" in text


def test_the_licence_of_the_charts_is_in_the_page(tmp_path):
    text = page(read_study([write_run(tmp_path / "r")]))
    assert "The MIT License (MIT)" in text
    assert "Copyright (c) 2022 Leon Sorokin" in text
    version = re.search(r"leeoniya/uPlot \(v([\d.]+)\)", text)[1]
    assert f"Charts: uPlot {version}, MIT licence" in text


def test_whatever_users_name_stays_text(tmp_path):
    folder = tmp_path / SCRIPT
    write_study(folder, ("fedhv", SCRIPT.replace("/", "∕")), (0,), setting=SCRIPT, tasks=(SCRIPT, "</script><!--"))
    text = page(read_study([tmp_path]))
    outside = re.sub(r"<script>.*?</script>", "", text, count=1, flags=re.S)
    assert "<script>alert" not in outside
    assert "<!--" not in text
    assert text.count("</script>") == 2
    made = data_of(text)
    assert made["settings"][0]["tasks"][0] == SCRIPT
    assert SCRIPT in made["settings"][0]["runs"][0]["name"]


HOSTILE = "</script><img src=x onerror=alert(1)>"


class Elements(HTMLParser):
    """Every element that a browser would make of a page, and its attributes."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes = Counter(), set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags[tag] += 1
        self.attributes |= {name for name, _ in attrs}


@pytest.mark.parametrize("hostile", [HOSTILE, '"><img src=x onerror=alert(1)>', "<!--<script>", "' onload='alert(1)"])
def test_a_hostile_name_makes_no_element_wherever_it_stands(hostile, tmp_path):
    """As folder, run, setting, method, task, benchmark, hyper-parameter, and in a note of what is wrong."""
    given = {"setting": hostile, "benchmark": hostile, "parameters": {hostile: hostile}}
    write_study(tmp_path / "plain" / "a", seeds=(0,), tasks=("one", "two"))
    plain = Elements(page(read_study([tmp_path / "plain"])))
    folder = tmp_path / "study" / hostile
    write_run(folder / "a", method=hostile, tasks=(hostile, f"{hostile} 2"), **given)
    write_run(folder / "b", method="fedhv", tasks=(hostile, f"{hostile} 2"), **given)
    broken = write_run(folder / "c", **given)
    (broken / "config.toml").write_text(hostile)
    text = page(read_study([tmp_path / "study"]))
    made, found = data_of(text), Elements(text)
    assert hostile in made["settings"][0]["tasks"]
    assert any(hostile in note for note in made["notes"])
    assert found.tags["script"] == 2
    assert found.tags["img"] == 0
    assert found.tags.keys() == plain.tags.keys()
    assert found.attributes == plain.attributes


def test_placeholders_in_names_are_left_alone(tmp_path):
    text = page(read_study([write_run(tmp_path / "{{data}}", setting="{{script}}")]))
    assert "<h1>{{data}}</h1>" in text


def test_the_data_are_those_of_the_runs(tmp_path):
    study = read_study([write_study(tmp_path, METHODS, rounds=12)])
    made = payload(study)
    (setting,) = made["settings"]
    assert [series["label"] for series in setting["series"]] == ["Uniform", "FSMGDA", "FedCMOO", "FedHV"]
    run = next(run for run in study.runs if run.name == "fedhv-seed42")
    shown = setting["runs"][[each.name for each in study.runs].index("fedhv-seed42")]
    assert shown["evaluated"] == [4, 8, 12]
    assert shown["worst_accuracy"] == pytest.approx(run.evaluations.values("worst_accuracy").tolist(), rel=1e-6)
    assert shown["weights"][1] == pytest.approx(run.rounds.weights[:, 1].tolist(), rel=1e-3)
    assert shown["bytes"][0] == int((run.rounds.down + run.rounds.up)[:4].sum())
    assert shown["calibration"] == [16_000_080, 4.0, 0.0]  # bytes, seconds, and the seconds of compilation in them
    assert 'method = "fedhv"' in shown["config"]
    uniform = setting["runs"][[each.name for each in study.runs].index("uniform-seed0")]
    assert uniform["weights"] == [0.5, 0.5]  # a column that never changes is one number
    assert uniform["slack"] is None
    assert [tile["label"] for tile in setting["highlights"]] == ["FedHV"] * 4
    json.dumps(made, allow_nan=False)


def test_curves_are_of_their_own_runs_although_folders_have_the_same_name(tmp_path):
    for top, steps in (("a", 10), ("b", 4)):
        write_study(tmp_path / top / "study", ("uniform",), local_steps=steps)
    study = read_study([tmp_path / "a" / "study", tmp_path / "b" / "study"])
    (setting,) = payload(study)["settings"]
    shown = {series["label"]: [setting["runs"][i]["name"] for i in series["runs"]] for series in setting["series"]}
    assert shown == {
        "Uniform": ["a/study/uniform-seed0", "a/study/uniform-seed42"],
        "Uniform (K = 4)": ["b/study/uniform-seed0", "b/study/uniform-seed42"],
    }


def test_curves_are_of_their_own_runs_whatever_these_are_called(tmp_path):
    runs = [replace(run, name="same") for run in read_study([write_study(tmp_path)]).runs]
    (setting,) = payload(make_study("s", runs))["settings"]
    shown = {series["label"]: [setting["runs"][i]["method"] for i in series["runs"]] for series in setting["series"]}
    assert shown == {"Uniform": ["uniform"] * 2, "FedHV": ["fedhv"] * 2}


def test_numbers_that_json_does_not_know_are_left_out(tmp_path):
    run = write_run(tmp_path / "r")
    history = run / "history.jsonl"
    history.write_text(history.read_text().replace('"loss":', '"loss":NaN,"old":'))
    (run / "summary.json").unlink()
    made = data_of(page(read_study([run])))
    assert made["settings"][0]["runs"][0]["loss"] is None
    assert any("not finite" in note for note in made["notes"])


@pytest.mark.parametrize(("m", "every"), [(2, 1), (40, 5)])
def test_a_page_of_twelve_runs_and_500_rounds_is_below_three_megabytes(tmp_path, m, every):
    study = read_study(
        [write_study(tmp_path, METHODS, (0, 42, 2026), tasks=[f"task {i}" for i in range(m)], rounds=500, every=every)]
    )
    text = page(study)
    assert len(text.encode()) < 3_000_000
    assert data_of(text)["thinned"] == thinning(study) == 1
    last = data_of(text)["settings"][0]["runs"][0]
    assert last["evaluated"][-1] == last["round"][-1] == 500


def test_a_study_that_does_not_fit_in_is_thinned_and_says_so_outside_the_warnings(tmp_path, monkeypatch):
    study = read_study([write_study(tmp_path, rounds=12)])
    monkeypatch.setattr("fedhv.report.payload.thinning", lambda _: 3)
    made = payload(study)
    assert made["thinned"] == 3
    assert made["notes"] == []
    assert made["settings"][0]["runs"][0]["round"] == [3, 6, 9, 12]


def write_odd(folder, what):
    """The studies that nobody plans."""
    if what == "nothing yet":
        write_run(folder / "r", done=0)
    elif what == "missing runs":
        write_study(folder, METHODS)
        for file in (folder / "fsmgda-seed42").iterdir():
            file.unlink()
    elif what == "different rounds":
        write_study(folder, ("uniform",), rounds=12)
        write_study(folder, ("fedhv",), rounds=20)
    elif what == "one seed":
        write_study(folder, METHODS, (0,))
    elif what == "one method":
        write_study(folder, ("fedhv",))
    elif what == "one task":
        write_study(folder, ("fedhv", "uniform"), tasks=("only",))
    elif what == "five tasks":
        write_study(folder, METHODS, tasks=list("abcde"))
    elif what == "forty tasks":
        write_study(folder, METHODS, (0,), tasks=[f"t{i}" for i in range(40)])
    else:
        write_study(folder, METHODS)
        history = folder / "fedhv-seed0" / "history.jsonl"
        history.write_bytes(history.read_bytes()[:-30])
        (folder / "fedhv-seed0" / "summary.json").unlink()
    return folder


ODD = {
    "nothing yet": "no rounds yet",
    "missing runs": "FSMGDA has no run with seed 42",
    "different rounds": "different numbers of rounds",
    "one seed": "no standard deviations",
    "one method": None,
    "one task": None,
    "five tasks": None,
    "forty tasks": "no standard deviations",
    "cut in mid-line": "ends in the middle of a line",
}


def test_a_run_of_another_length_has_a_curve_of_its_own(tmp_path):
    write_study(tmp_path, ("uniform", "fedhv"), rounds=12)
    write_run(tmp_path / "long", seed=7, rounds=20)
    (setting,) = data_of(page(read_study([tmp_path])))["settings"]
    found = {series["label"]: (series["compared"], len(series["runs"])) for series in setting["series"]}
    assert found == {"Uniform": (True, 2), "FedHV": (True, 2), "FedHV (T = 20)": (False, 1)}


@pytest.mark.parametrize("what", ODD)
def test_odd_studies_make_a_page_that_says_what_is_missing(tmp_path, what):
    made = data_of(page(read_study([write_odd(tmp_path / "study", what)])))
    if ODD[what] is None:
        assert made["notes"] == []
    else:
        assert any(ODD[what] in note for note in made["notes"])


def test_without_scripts_the_main_tables_are_there(tmp_path):
    text = page(read_study([write_study(tmp_path)]))
    static = re.search(r"<noscript>(.*?)</noscript>", text, re.S)[1]
    assert "MeanAcc %" in static
    assert "MeanLoss" in static


def test_scripts_are_listed_and_never_write_markup():
    from importlib import resources

    assets = resources.files("fedhv.report") / "assets"
    assert {path.name for path in assets.iterdir() if path.name.endswith(".js")} == {*SCRIPTS, "uPlot.iife.min.js"}
    for name in SCRIPTS:
        source = (assets / name).read_text(encoding="utf-8")
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", source)
        assert "</script" not in source
