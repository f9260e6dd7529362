"""Views that only some studies have: fronts, the paper's numbers, clients; and names and contrasts for everybody."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import pytest
from report.judged import mixed_metrics, same_metric
from report.studies import write_study
from report.test_beside import HEADS, front
from report.test_taking_part import change

from browser.test_page_in_browser import marks, saved, write_page

SERIOUS = ("serious", "critical")


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """A study with everything beside it that the page knows."""
    folder = tmp_path_factory.mktemp("views") / "study"
    write_study(folder, ("uniform", "fedhv"), (0, 42), rounds=12)
    for run in folder.iterdir():
        entries = [{"task": task, "score": "accuracy", "better": "higher", "clients": 9, "mean": 80.0,
                    "worst_decile": 60.0, "deviation": 9.0} for task in ("clear", "faint")]  # fmt: skip
        change(run, r12={"validation": {"over_clients": entries}, "absent": [1]})
        summary = json.loads((run / "summary.json").read_text())
        summary |= {"labels": [60, 25], "client_labels": [[20, 20, 5], [20, 20, 20], [20, 20, 0]]}
        (run / "summary.json").write_text(json.dumps(summary))
    made = front(points=100)
    made["methods"][2]["points"][1]["scores"][0] = None  # a metric that is not defined for one run
    made["diverged"] = [{"label": "fixed", "over": "preferences", "value": [0.9, 0.1], "seeds": [0, 4]}]
    (folder / "front.json").write_text(json.dumps(made))
    (folder / "tables").mkdir()
    rows = [
        "digits,fedhv,mean_accuracy,90.1,0.2,3,90.0,0.2,0.1,1,1",
        "digits,uniform,mean_loss,0.5,0.1,3,0.1,0.1,0.4,1,1",
    ]
    (folder / "tables" / "main.csv").write_text("\n".join([HEADS, *rows]) + "\n")
    return write_page(folder.parent / "index.html", folder, figures=["curves"])


@pytest.fixture
def shown(one_tab, address):
    one_tab.complaints.clear()
    one_tab.open(address)
    yield one_tab
    assert one_tab.complaints == []


def test_fronts_are_drawn_beside_each_other_with_their_intervals(shown):
    page = shown.page
    assert marks(page, "front-chart", "point") == 100 + 100 + 1
    assert marks(page, "front-chart", "seed") == 2 * 201 - 1
    assert marks(page, "front-chart", "front") == 2
    assert page.locator("#front-body tr").count() == 3
    assert "7000 (6900 to 7100)" in page.inner_text("#front-body")
    assert "The hypervolume of fedhv is larger than that of fixed by 12" in page.inner_text("#front-pairs")
    lost = "fixed at preferences 0.9, 0.1 is left out: its run diverged with seeds 0, 4."
    assert lost in page.inner_text("#front-pairs")
    page.select_option("#front-kind", "losses")
    assert "not told apart" in page.inner_text("#front-pairs")
    page.locator("#front-methods button", has_text="fixed").click()
    assert marks(page, "front-chart", "point") == 101
    name, content = saved(page, page.get_by_role("button", name="Save Fronts of methods as SVG").click)
    assert name == "fronts-of-methods.svg"
    assert b"fedhv" in content


def test_the_address_holds_the_choices_of_fronts_and_of_the_paper(shown):
    page = shown.page
    page.select_option("#front-kind", "losses")
    page.locator("#front-methods button", has_text="fixed").click()
    page.select_option("#paper-contest", "digits")
    address = page.evaluate("location.href")
    assert "front-kind=losses" in address
    page.reload()
    page.locator("body[data-ready]").wait_for(state="attached")
    assert page.evaluate("location.href") == address
    assert (page.input_value("#front-kind"), page.input_value("#paper-contest")) == ("losses", "digits")
    assert page.locator("#front-methods [aria-pressed=false]").inner_text() == "fixed"
    assert marks(page, "front-chart", "point") == 101


def test_a_front_alone_has_a_verdict_and_says_how_preferences_set_weights(one_tab, tmp_path):
    one_tab.complaints.clear()
    for i, preferences in enumerate([[0.25, 0.75], [0.75, 0.25]]):
        write_study(
            tmp_path / "study" / f"p{i}", ("fedhv",), (0, 42), rounds=12, parameters={"preferences": preferences}
        )
    content = front(points=2)
    for method in content["methods"]:
        for i, point in enumerate(method["points"]):
            point["run"] = f"p{i % 2}/fedhv-seed0"
    (tmp_path / "study" / "front.json").write_text(json.dumps(content))
    one_tab.open(write_page(tmp_path / "index.html", tmp_path / "study"))
    page = one_tab.page
    assert page.inner_text("#verdict").startswith("The hypervolume of fedhv is larger than that of fixed by 12")
    assert "w ∝ p/slack" in page.inner_text("#balance-rule")
    assert one_tab.complaints == []


def test_our_numbers_beside_the_papers_say_whether_intervals_agree(shown):
    page = shown.page
    assert page.inner_text("#paper-count") == "2 numbers: 1 agrees, 1 higher."
    page.locator("#paper details summary").click()
    rows = [row.locator("td").all_inner_texts() for row in page.locator("#paper-body tr").all()]
    assert rows[0] == ["digits", "FedHV", "MeanAcc %", "90.10 ± 0.20", "90.00 ± 0.20", "+0.10", "agrees"]
    colours = page.locator("#paper-body .mark").evaluate_all("nodes => nodes.map(node => getComputedStyle(node).color)")
    assert len(set(colours)) == 2
    assert page.locator("#paper-chart svg circle").count() == 1  # agreement is a shape too, not a colour alone


def test_labels_of_clients_and_rounds_without_a_task_are_shown(shown):
    page = shown.page
    assert "clear 100 %, faint 41.7 %" in page.inner_text("#labels-about")
    assert marks(page, "label-chart", "label") == 6
    titles = page.locator("#label-chart svg title").all_text_contents()
    assert "client 2, faint: 0 of 20 examples labelled" in titles
    assert "faint 2" in page.inner_text("#absent")


def test_scores_over_clients_are_shown(shown):
    page = shown.page
    rows = [row.locator("td").all_inner_texts() for row in page.locator("#clients-body tr").all()]
    assert [row[1:] for row in rows[:2]] == [
        ["clear", "accuracy", "80.0", "60.0", "9.0", "9"],
        ["faint", "accuracy", "80.0", "60.0", "9.0", "9"],
    ]
    assert marks(page, "client-chart", "worst") == 4


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(tab, address, scheme):
    """Names of controls, roles, labels, contrast of text, order of headings, scrollable regions."""
    axe = pytest.importorskip(
        "axe_playwright_python", reason="axe is not installed (pip install axe-playwright-python)"
    )
    shown = tab(address, color_scheme=scheme)
    shown.page.locator("#run-body .unfold").first.click()
    shown.page.locator("#paper details summary").click()
    shown.page.evaluate((Path(axe.__file__).parent / "axe.min.js").read_text(encoding="utf-8"))
    found = shown.page.evaluate("axe.run().then(result => result.violations)")
    serious = [
        (each["id"], [node["target"] for node in each["nodes"]][:4]) for each in found if each["impact"] in SERIOUS
    ]
    assert serious == []


def test_every_control_has_a_name(shown):
    """Buttons, fields and pictures, as a screen reader would announce them."""
    nameless = shown.page.evaluate(
        """() => [...document.querySelectorAll("button, select, input, progress, [role=img], [role=region]")]
             .filter(node => {
               const own = node.getAttribute("aria-label") || node.textContent.trim();
               return !own && !node.labels?.[0]?.textContent.trim();
             }).map(node => node.outerHTML.slice(0, 80))"""
    )
    assert nameless == []


def test_tasks_with_different_metrics_have_scales_of_their_own(one_tab, tmp_path):
    one_tab.complaints.clear()
    one_tab.open(write_page(tmp_path / "index.html", mixed_metrics(tmp_path / "study")))
    page = one_tab.page
    assert page.locator("#trade-kind option").all_inner_texts() == ["Main metric", "Accuracy", "Loss"]
    assert page.input_value("#trade-kind") == "main"
    drawn = page.locator("#trade-chart svg")
    assert "every task has a scale of its own" in drawn.text_content()
    assert "mass, rmse" in drawn.text_content()
    assert page.locator("#bar-chart svg .unit").all_text_contents() == ["rmse ↓", "r2 ↑", "accuracy, % ↑"]
    assert page.inner_text("#bytes-title") == "Mean loss against bytes sent"
    assert page.locator("#trade-chart .method title").nth(1).text_content().startswith("FedHV:")  # nothing beats it
    assert "another method is at least as good" in page.locator("#trade-chart .method title").first.text_content()
    page.select_option("#trade-view", "two")
    assert "better ↗" not in drawn.text_content()
    assert "↖ better" in drawn.text_content()  # a lower rmse, a higher r2
    assert "mass (rmse)" in drawn.text_content()
    page.select_option("#trade-kind", "accuracy")
    assert "better ↗" in drawn.text_content()
    assert page.inner_text("#curve-chart .readout th").startswith("last")
    assert page.input_value("#metric") == "main"
    _, content = saved(page, lambda: page.click("#download-csv"))
    rows = [row for row in csv.DictReader(io.StringIO(content.decode())) if row["task"] == "mass" and row["main"]]
    assert {row["main_metric"] for row in rows} == {"rmse"}
    summary = json.loads((tmp_path / "study" / rows[-1]["run"] / "summary.json").read_text())
    mass = next(task for task in summary["tasks"] if task["name"] == "mass")
    assert float(rows[-1]["main"]) == pytest.approx(mass["metrics"]["rmse"], rel=1e-4)
    assert one_tab.complaints == []


def test_tasks_with_one_metric_share_a_scale_and_have_a_worst_one(one_tab, tmp_path):
    one_tab.complaints.clear()
    one_tab.open(write_page(tmp_path / "index.html", same_metric(tmp_path / "study", lower=True)))
    page = one_tab.page
    assert "clear (mae)" in page.locator("#trade-chart svg").text_content()
    assert "↙ better" in page.locator("#trade-chart svg").text_content()
    assert page.locator("#bar-chart svg .unit").count() == 0
    assert page.locator("#bytes-chart svg").get_attribute("aria-label") == "Worst-task mae against bytes sent"
    assert one_tab.complaints == []


def test_bars_of_negative_values_go_to_the_left_of_zero(one_tab, tmp_path):
    folder = mixed_metrics(tmp_path / "study")
    for run in folder.iterdir():
        for name in ("history.jsonl", "summary.json"):
            text = (run / name).read_text()
            (run / name).write_text(re.sub(r'"r2": ?-?', '"r2": -', text))
    one_tab.open(write_page(tmp_path / "index.html", folder))
    bars = one_tab.page.locator("#bar-chart svg .bar").evaluate_all("nodes => nodes.map(n => +n.getAttribute('width'))")
    assert min(bars) > 5
