"""The page as a person uses it: looking, choosing, sorting, typing, printing, on a screen and on a phone."""

from __future__ import annotations

import csv
import io
import json

import pytest
from report.studies import write_run, write_study
from report.test_page import ODD, write_odd

from fedhv.report import page, read_study

METHODS = ("uniform", "fsmgda", "fedcmoo", "fedhv")
SCRIPT = "<script>alert(1)</script>"
IMAGE = "</script><img src=x onerror=alert(2)>"


def write_page(path, folder):
    path.write_text(page(read_study([folder])), encoding="utf-8")
    return path.as_uri()


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    for steps in (5, 20):
        write_study(folder / "study" / f"K{steps}", ("fedhv",), (0,), rounds=40, local_steps=steps)
    write_study(folder / "study", METHODS, (0, 42, 2026), rounds=40)
    write_study(folder / "study" / "five", METHODS, (0, 42), setting="five", tasks=list("abcde"), rounds=20)
    return write_page(folder / "index.html", folder / "study")


@pytest.fixture
def shown(tab, address):
    return tab(address)


def column(page, table, number):
    return page.locator(f"table[data-name={table}] tbody tr td:nth-child({number})").all_inner_texts()


def test_charts_are_drawn_and_the_summary_is_there(shown):
    for chart in ("curve-chart", "weight-chart", "slack-chart"):
        assert shown.drawn(chart) > 500
    assert list(shown.readout("curve-chart")) == ["Uniform", "FSMGDA", "FedCMOO", "FedHV"]
    assert shown.page.locator(".tile").count() == 4
    assert shown.page.locator("#subtitle").inner_text().startswith("22 runs, all finished")


def test_methods_and_seeds_can_be_switched_off_and_on(shown):
    everything = shown.drawn("curve-chart")
    before = shown.readout("curve-chart")
    chip = shown.page.locator("#methods button", has_text="Uniform")
    chip.click()
    assert chip.get_attribute("aria-pressed") == "false"
    assert shown.drawn("curve-chart") < everything
    assert "Uniform" not in shown.readout("curve-chart")
    chip.click()
    assert shown.readout("curve-chart") == before
    shown.page.locator("#seeds button", has_text="seed 42").click()
    assert shown.readout("curve-chart") != before
    shown.page.locator("#seeds button", has_text="2026").click()
    assert "±" not in shown.readout("curve-chart")["FedHV"]  # one seed has no deviation
    shown.page.locator("#seeds button", has_text="seed 0").click()
    assert shown.page.locator("#curve-chart .empty").is_visible()


def test_ablations_are_offered_but_not_drawn_at_first(shown):
    chips = shown.page.locator("#methods button[aria-pressed=false]")
    assert chips.all_inner_texts() == ["FedHV (K = 5)", "FedHV (K = 20)"]
    chips.first.click()
    assert "FedHV (K = 5)" in shown.readout("curve-chart")


def test_metric_task_axis_and_view_can_be_chosen(shown):
    choose = shown.page.select_option
    seen = [shown.readout("curve-chart")]
    assert not shown.page.locator("#task").is_visible()
    for metric in ("worst_accuracy", "mean_loss", "hypervolume", "accuracy", "loss"):
        choose("#metric", metric)
        seen.append(shown.readout("curve-chart"))
    choose("#task", "1")
    seen.append(shown.readout("curve-chart"))
    assert len({json.dumps(each) for each in seen}) == len(seen)
    assert not shown.page.locator("#calibration").is_visible()
    choose("#against", "bytes")
    choose("#view", "runs")
    assert "FedHV, seed 2026" in shown.readout("curve-chart")
    assert shown.drawn("curve-chart") > 500
    pixels = shown.drawn("curve-chart")
    shown.page.uncheck("#calibration")  # FedHV's curves start earlier
    assert shown.drawn("curve-chart") != pixels
    choose("#against", "seconds")
    shown.page.check("#log")
    assert shown.drawn("curve-chart") > 500


def test_hovering_and_arrow_keys_read_values(shown):
    page = shown.page
    place = page.locator("#curve-chart .readout th").first
    last = shown.readout("curve-chart")
    assert place.inner_text() == "last values"
    box = page.locator("#curve-chart .u-over").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + box["height"] * 0.5)
    assert place.inner_text() == "Round 20"
    assert shown.readout("curve-chart") != last
    page.mouse.move(5, 5)
    page.locator("#curve-chart .plot").focus()
    page.keyboard.press("Home")
    assert place.inner_text() == "Round 4"
    page.keyboard.press("ArrowRight")
    assert place.inner_text() == "Round 8"
    page.keyboard.press("End")
    assert place.inner_text() == "Round 40"
    page.keyboard.press("Escape")
    assert place.inner_text() == "last values"
    assert shown.readout("curve-chart") == last


def test_tables_sort_by_value_and_return_to_their_order(shown):
    given = column(shown.page, "costs", 2)
    heading = shown.page.locator("table[data-name=costs] thead button", has_text="MB ↓").last
    heading.click()

    def totals():
        return [float(text) for text in column(shown.page, "costs", 9)]

    assert totals() == sorted(totals())
    head = shown.page.locator("table[data-name=costs] th[aria-sort]")
    assert head.get_attribute("aria-sort") == "ascending"
    heading.click()
    assert totals() == sorted(totals(), reverse=True)
    heading.press("Enter")
    assert column(shown.page, "costs", 2) == given
    assert head.count() == 0


def test_the_other_setting_brings_its_tasks(shown):
    shown.page.select_option("#setting", "five")
    assert list(shown.readout("weight-chart")) == list("abcde")
    assert "5 tasks" in shown.page.locator("#subtitle").inner_text()
    shown.page.locator("#tasks-none").click()
    assert shown.page.locator("#weight-chart .empty").is_visible()
    shown.page.locator("#balance-tasks button", has_text="c").click()
    assert list(shown.readout("weight-chart")) == ["c"]


def test_slacks_show_the_floor_and_methods_without_slacks_none(shown):
    shown.page.check("#slack-log")
    assert shown.readout("slack-chart")["floor"] == "1.00e-6"
    shown.page.select_option("#balance-method", "FSMGDA")
    assert not shown.page.locator("#slack-chart").is_visible()
    assert shown.drawn("weight-chart") > 500


def test_configurations_unfold_and_data_can_be_saved(shown):
    run = shown.page.locator("#run-list details").first
    run.locator("summary").click()
    assert "[setting.federation]" in run.locator("pre").inner_text()
    with shown.page.expect_download() as saved:
        shown.page.click("#download-csv")
    rows = list(csv.DictReader(io.StringIO(saved.value.path().read_text(encoding="utf-8"))))
    assert saved.value.suggested_filename == "study.csv"
    one = [row for row in rows if row["run"] == "fedhv-seed0" and row["round"] == "40" and row["task"] == "faint"]
    assert len(one) == 1
    assert float(one[0]["accuracy"]) > 50
    assert float(one[0]["slack"]) > 0
    with shown.page.expect_download() as saved:
        shown.page.click("#download-json")
    assert json.loads(saved.value.path().read_text(encoding="utf-8"))["title"] == "study"


def test_the_theme_follows_the_system_and_can_be_changed(tab, address):
    def paper(shown):
        return shown.page.evaluate("getComputedStyle(document.body).backgroundColor")

    light, dark = tab(address), tab(address, color_scheme="dark")
    assert paper(light) == "rgb(255, 255, 255)"
    assert paper(dark) != paper(light)
    dark_paper = paper(dark)
    light.page.click("#theme")
    assert paper(light) == dark_paper
    assert light.page.inner_text("#theme") == "Light"
    assert light.drawn("curve-chart") > 500
    dark.page.emulate_media(media="print")
    dark.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert paper(dark) == "rgb(255, 255, 255)"
    assert not dark.page.locator("#metric").is_visible()
    dark.page.evaluate("dispatchEvent(new Event('afterprint'))")
    dark.page.emulate_media(media="screen")
    assert paper(dark) == dark_paper


def test_a_phone_needs_no_sideways_scrolling(tab, address):
    shown = tab(address, viewport={"width": 360, "height": 740}, is_mobile=True, has_touch=True)
    assert shown.page.evaluate("document.documentElement.scrollWidth") <= 360
    assert shown.drawn("curve-chart") > 300
    box = shown.page.locator("#curve-chart canvas").first.bounding_box()
    assert box["x"] + box["width"] <= 360


def test_everything_can_be_reached_by_keyboard(shown):
    reached = set()
    for _ in range(70):
        shown.page.keyboard.press("Tab")
        reached.add(shown.page.evaluate("document.activeElement.id || document.activeElement.className"))
    assert {"metric", "against", "view", "log", "theme", "download-csv", "plot", "scroll", "balance-method"} <= reached


def test_names_that_look_like_code_are_shown_as_text(tab, tmp_path):
    folder = tmp_path / "study"
    hidden = SCRIPT.replace("/", "∕")
    for method in ("fedhv", hidden):
        write_run(folder / SCRIPT / method, method=method, setting=SCRIPT, tasks=(SCRIPT, IMAGE))
    (write_run(folder / IMAGE) / "config.toml").write_text("no configuration")
    shown = tab(write_page(tmp_path / "index.html", folder))
    assert SCRIPT in shown.page.inner_text("#run-list")
    assert hidden in shown.page.inner_text("#methods")
    assert SCRIPT in shown.page.inner_text("#balance-tasks")
    assert IMAGE in shown.page.inner_text("#notes")
    assert shown.page.locator("main script, main img").count() == 0
    shown.page.select_option("#metric", "loss")
    assert shown.page.locator("#task option").all_inner_texts() == [SCRIPT, IMAGE]


@pytest.mark.parametrize("what", ODD)
def test_odd_studies_open_and_say_what_is_missing(tab, tmp_path, what):
    shown = tab(write_page(tmp_path / "index.html", write_odd(tmp_path / "study", what)))
    notes = shown.page.locator("#notes").inner_text()
    assert ODD[what] is None or ODD[what] in notes
    assert shown.page.locator("#missing").is_visible() == (ODD[what] is not None)
    if what == "nothing yet":
        assert shown.page.locator("#curve-chart .empty").is_visible()
    else:
        assert shown.drawn("curve-chart") > 300
    if what == "forty tasks":
        assert len(shown.readout("weight-chart")) == 8
        shown.page.click("#tasks-all")
        assert len(shown.readout("weight-chart")) == 40
