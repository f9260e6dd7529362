"""The page as a person uses it: looking, choosing, zooming, sorting, searching, saving, on a screen and on a phone."""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
import struct

import pytest
from report.studies import write_history, write_run, write_study
from report.test_page import ODD, write_odd
from report.test_taking_part import change, machine

from fedhv.report import page, read_study

METHODS = ("uniform", "fsmgda", "fedcmoo", "fedhv")
SCRIPT = "<script>alert(1)</script>"
IMAGE = "</script><img src=x onerror=alert(2)>"


def write_page(path, folder, **options):
    path.write_text(page(read_study([folder]), **options), encoding="utf-8")
    return path.as_uri()


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    for steps in (5, 20):
        write_study(folder / "study" / f"K{steps}", ("fedhv",), (0,), rounds=40, local_steps=steps)
    write_study(folder / "study", METHODS, (0, 42, 2026), rounds=40)
    write_study(folder / "study" / "five", METHODS, (0, 42), setting="five", tasks=list("abcde"), rounds=20)
    return write_page(folder / "index.html", folder / "study", figures=["digits-curves", "five-radar"])


@pytest.fixture
def shown(one_tab, address):
    """The page with its defaults, in a tab that all tests share; nothing may go to the console."""
    one_tab.complaints.clear()
    one_tab.page.set_viewport_size({"width": 1200, "height": 900})
    one_tab.open(address)
    yield one_tab
    assert one_tab.complaints == []


def column(page, table, number):
    return page.locator(f"table[data-name={table}] tbody tr td:nth-child({number})").all_inner_texts()


def marks(page, chart, kind):
    """How many elements of a class an SVG chart has."""
    return page.locator(f"#{chart} svg .{kind}").count()


def address_of(page):
    """Asked of the page itself: what the test's side knows of it comes a moment later."""
    return page.evaluate("location.href")


def slide(page, control, value):
    page.locator(f"#{control}").evaluate(
        "(node, value) => { node.value = value; node.dispatchEvent(new Event('input')); }", str(value)
    )


def cursor_points(page):
    """The colours of the points that the cursor shows on the curves."""
    return page.locator("#curve-chart .u-cursor-pt:not(.u-off)").evaluate_all(
        "nodes => nodes.filter(node => new DOMMatrix(getComputedStyle(node).transform).e >= 0)"
        ".map(node => getComputedStyle(node).borderColor + getComputedStyle(node).backgroundColor)"
    )


def drag(page, chart, start, end):
    page.locator(f"#{chart} .u-over").scroll_into_view_if_needed()
    box = page.locator(f"#{chart} .u-over").bounding_box()
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + start * box["width"], y)
    page.mouse.down()
    page.mouse.move(box["x"] + end * box["width"], y, steps=3)
    page.mouse.up()


def hover(page, chart, share):
    page.locator(f"#{chart} .u-over").scroll_into_view_if_needed()
    box = page.locator(f"#{chart} .u-over").bounding_box()
    page.mouse.move(box["x"] + share * box["width"], box["y"] + box["height"] / 2)


def saved(page, press):
    with page.expect_download() as download:
        press()
    return download.value.suggested_filename, download.value.path().read_bytes()


def test_the_first_screen_has_verdict_trade_off_bars_and_bytes(shown):
    page = shown.page
    assert page.inner_text("#verdict").startswith("FedHV's worst task is ")
    assert "Uniform's" in page.inner_text("#verdict")
    assert page.locator("#verdict-list li").count() == 2
    assert marks(page, "trade-chart", "final") == 4
    assert marks(page, "trade-chart", "cross") == 4
    assert page.locator("#trade-chart svg circle").count() == 4 + 12  # means and seeds
    assert marks(page, "bar-chart", "bar") == 8
    assert page.locator("#bytes-chart svg").is_visible()
    assert (
        page.locator("#subtitle").inner_text()
        == "22 runs, all finished · 2 settings of 2 or 5 tasks · 4 methods · 3 seeds"
    )
    top = page.locator("#trade-chart").bounding_box()
    assert top["y"] + 200 < 900


def test_the_slider_shows_the_way_there_and_play_moves_it(shown):
    page = shown.page
    at_end = page.locator("#trade-chart svg .final").first.get_attribute("cx")
    assert page.inner_text("#trade-at") == "round 40 (the last)"
    slide(page, "trade-round", 8)
    assert page.inner_text("#trade-at") == "round 8"
    assert page.locator("#trade-chart svg .final").first.get_attribute("cx") != at_end
    assert "trade-round=8" in address_of(page)
    page.click("#trade-play")
    page.locator("#trade-at", has_text="the last").wait_for()
    assert page.locator("#trade-chart svg .final").first.get_attribute("cx") == at_end
    page.locator("#trade-play", has_text="Play").wait_for()


def test_more_than_two_tasks_are_parallel_coordinates_or_any_two(shown):
    page = shown.page
    assert not page.locator("#trade-view").is_visible()
    page.select_option("#setting", "five")
    assert marks(page, "trade-chart", "axis") == 5
    assert marks(page, "trade-chart", "method") == 4
    page.select_option("#trade-view", "two")
    assert marks(page, "trade-chart", "final") == 4
    page.select_option("#trade-x", "2")
    page.select_option("#trade-y", "4")
    words = page.locator("#trade-chart svg text").all_text_contents()
    assert {"c (accuracy, %)", "e (accuracy, %)"} <= set(words)
    page.select_option("#trade-kind", "loss")
    assert "c (loss)" in page.locator("#trade-chart svg text").all_text_contents()


def test_ties_are_not_crowned(shown):
    page = shown.page
    assert page.locator(".tile").count() >= 4
    for tile in page.locator("#highlights .tile").all():
        crowned = tile.locator(".name").inner_text().startswith("Best")
        assert crowned == ("best" in tile.get_attribute("class").split())
        assert crowned == ("level" not in tile.inner_text())


def test_charts_are_drawn(shown):
    for chart in ("curve-chart", "report-chart", "weight-chart", "slack-chart"):
        assert shown.drawn(chart) > 500
    assert list(shown.readout("curve-chart")) == ["Uniform", "FSMGDA", "FedCMOO", "FedHV"]


def test_methods_and_seeds_can_be_switched_off_and_on(shown):
    everything = shown.drawn("curve-chart")
    before = shown.readout("curve-chart")
    chip = shown.page.locator("#methods button", has_text="Uniform")
    chip.click()
    assert chip.get_attribute("aria-pressed") == "false"
    assert shown.drawn("curve-chart") < everything
    assert "Uniform" not in shown.readout("curve-chart")
    assert marks(shown.page, "trade-chart", "final") == 3
    chip.click()
    assert shown.readout("curve-chart") == before
    shown.page.locator("#seeds button", has_text="seed 42").click()
    assert shown.readout("curve-chart") != before
    shown.page.locator("#seeds button", has_text="2026").click()
    assert "±" not in shown.readout("curve-chart")["FedHV"]  # one seed has no deviation
    shown.page.locator("#seeds button", has_text="seed 0").click()
    assert shown.page.locator("#curve-chart .empty").is_visible()
    assert shown.page.locator("#trade-chart .empty").is_visible()


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


def test_smoothing_changes_the_lines_and_not_the_values(shown):
    values, pixels = shown.readout("curve-chart"), shown.drawn("curve-chart")
    slide(shown.page, "smooth", 0.9)
    assert shown.page.inner_text("#smooth-at") == "0.90"
    assert shown.drawn("curve-chart") != pixels
    means = {name: text.split(" ±")[0] for name, text in values.items()}
    assert {name: text.split(" ±")[0] for name, text in shown.readout("curve-chart").items()} == means


def test_curves_can_be_grouped_by_a_hyper_parameter(shown):
    page = shown.page
    for name in page.locator("#methods button[aria-pressed=false]").all_inner_texts():
        page.locator("#methods button", has_text=name).click()
    page.select_option("#group", "training.local_steps")
    assert list(shown.readout("curve-chart")) == ["K = 5", "K = 10", "K = 20"]


def test_hovering_and_arrow_keys_read_values(shown):
    page = shown.page
    place = page.locator("#curve-chart .readout th").first
    last = shown.readout("curve-chart")
    assert place.inner_text() == "last values"
    hover(page, "curve-chart", 0.5)
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


def test_compilation_is_apart_from_the_time_of_rounds_and_shared_clocks_are_marked(one_tab, tmp_path):
    for seed in (0, 1):
        run = write_run(tmp_path / "study" / f"r{seed}", seed=seed)
        machine(run, device="cuda", engine="stacked")
        change(run, r1={"seconds": 50.0})
    one_tab.open(write_page(tmp_path / "index.html", tmp_path / "study"))
    page = one_tab.page
    assert not page.locator("#compilation").is_visible()
    page.select_option("#against", "seconds")
    page.uncheck("#calibration")
    hover(page, "curve-chart", 0.999)
    place = page.locator("#curve-chart .readout th").first
    assert 4 < float(place.inner_text().split()[1]) < 6
    page.check("#compilation")
    hover(page, "curve-chart", 0.999)
    assert 53 < float(place.inner_text().split()[1]) < 56
    assert "one clock" in page.inner_text("#clock")
    assert page.locator("#run-body tr").first.inner_text().endswith("§?")
    assert "(estimated)" in page.locator("#run-body tr td").last.get_attribute("title")
    assert "this is estimated" in page.inner_text("#clock")
    assert page.get_attribute("#compilation-box", "title").startswith("Estimated")


def test_recorded_clocks_are_used_and_shared_ones_are_not_sorted(one_tab, tmp_path):
    """Compilation in round 5 is in the curve from there on; the times of runs that shared a clock have no order."""
    for seed, shared in ((0, 2), (1, 2), (2, 1), (3, 1)):
        run = write_run(tmp_path / "study" / f"r{seed}", seed=seed)
        change(
            run, **{f"r{t}": {"seconds": 4.0 - seed} | ({"shared": shared} if shared > 1 else {}) for t in range(1, 13)}
        )
        change(run, r5={"warm_up": 60.0})
    one_tab.open(write_page(tmp_path / "index.html", tmp_path / "study"))
    page = one_tab.page
    times = page.locator("#run-body tr td:last-child")
    assert times.all_inner_texts() == ["48 s §", "36 s §", "24 s", "12 s"]
    assert (
        times.first.get_attribute("title")
        == "without 60 s of compilation; a share of a clock with other runs: not ranked"
    )
    assert not page.locator("#run-estimated").is_visible()
    heading = page.locator("#run-heads button", has_text="Time")
    heading.click()
    assert times.all_inner_texts() == ["12 s", "24 s", "48 s §", "36 s §"]
    page.select_option("#against", "seconds")
    page.uncheck("#calibration")
    for seed in (0, 1, 2):
        page.click(f"#seeds button[data-key='{seed}']")

    def drawn():
        page.locator("#curve-chart .plot").focus()
        found = []
        for key in ("Home", "ArrowRight", "ArrowRight"):
            page.keyboard.press(key)
            found.append(page.locator("#curve-chart .readout th").first.inner_text())
        return found

    assert drawn() == ["Time 4 s", "Time 8 s", "Time 12 s"]
    page.check("#compilation")
    assert drawn() == ["Time 4 s", "Time 68 s", "Time 72 s"]
    assert not page.locator("#clock-estimated").is_visible()


def test_a_column_of_shared_clocks_alone_cannot_be_sorted(one_tab, tmp_path):
    for seed in (0, 1):
        change(write_run(tmp_path / "study" / f"r{seed}", seed=seed), r1={"shared": 2})
    one_tab.open(write_page(tmp_path / "index.html", tmp_path / "study"))
    assert one_tab.page.locator("#run-heads button", has_text="Time").is_disabled()
    assert one_tab.page.locator("#run-heads button", has_text="HV").is_enabled()


def test_a_browser_that_cannot_unpack_the_data_says_so(one_tab, tmp_path):
    write_run(tmp_path / "study" / "r")
    path = tmp_path / "index.html"
    write_page(path, tmp_path / "study")
    tab = one_tab.page.context.new_page()
    tab.add_init_script("delete window.DecompressionStream")
    failures = []
    tab.on("pageerror", lambda error: failures.append(error))
    tab.goto(path.as_uri())
    tab.locator("#too-old").wait_for(state="visible")
    assert tab.inner_text("main").strip() == tab.inner_text("#too-old")
    assert "too old" in tab.inner_text("#too-old")
    assert not failures
    tab.close()


def test_nothing_is_read_out_beyond_the_end_of_a_curve(shown):
    """FedCMOO sends more than twice as much as Uniform: at its end Uniform has long been over."""
    page = shown.page
    page.select_option("#against", "bytes")
    hover(page, "curve-chart", 0.99)
    read = shown.readout("curve-chart")
    assert read["Uniform"] == "–"
    assert read["FedCMOO"] != "–"
    assert not any("204, 121, 167" in colour for colour in cursor_points(page))  # no point sticks to Uniform's end
    hover(page, "curve-chart", 0.3)
    assert any("204, 121, 167" in colour for colour in cursor_points(page))


def test_zoom_has_a_visible_reset(shown):
    page = shown.page
    reset = page.get_by_role("button", name="Reset the zoom of Curves")
    assert not reset.is_visible()
    drag(page, "curve-chart", 0.25, 0.5)
    assert reset.is_visible()
    page.locator("#curve-chart .plot").focus()
    page.keyboard.press("Home")
    first = page.locator("#curve-chart .readout th").first.inner_text()
    assert first == "Round 12"
    page.select_option("#metric", "mean_loss")
    assert reset.is_visible()  # the zoom survives another metric
    reset.click()
    assert not reset.is_visible()
    page.keyboard.press("Home")
    assert page.locator("#curve-chart .readout th").first.inner_text() == "Round 4"


def test_one_cursor_reads_report_slack_and_weight(shown):
    page = shown.page

    def table():
        rows = page.locator("#balance-body tr").all()
        return {row.locator("td").first.inner_text().strip(): row.locator("td").all_inner_texts()[1:] for row in rows}

    assert page.inner_text("#balance-place") == "round 39"
    hover(page, "slack-chart", 0.25)
    assert page.inner_text("#balance-place") == "round 10"
    left = page.locator("#weight-chart .u-cursor-x, #report-chart .u-cursor-x").evaluate_all(
        "nodes => nodes.map(node => Math.round(new DOMMatrix(getComputedStyle(node).transform).e))"
    )
    assert len(set(left)) == 1
    assert left[0] > 0
    drag(page, "report-chart", 0.5, 0.75)
    for name in ("Reported losses", "Slacks of the reported losses", "Task weights"):
        assert page.get_by_role("button", name=f"Reset the zoom of {name}").is_visible()
    page.get_by_role("button", name="Reset the zoom of Task weights").click()
    assert page.locator("#balance .tools button:visible", has_text="Reset").count() == 0
    page.locator("#weight-chart .plot").focus()
    page.keyboard.press("Home")
    assert page.inner_text("#balance-place") == "round 1"
    assert table()["clear"][0] != "–"


def test_next_weights_are_inverse_to_slacks(one_tab, tmp_path):
    """For FedHV the next weight times the slack is the same number for every task."""
    run = write_run(tmp_path / "study" / "r", rounds=12)
    records = [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]
    for before, after in itertools.pairwise(records):
        inverse = [1 / slack for slack in before["slack"]]
        after["weights"] = [value / sum(inverse) for value in inverse]
    (run / "history.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    one_tab.open(write_page(tmp_path / "index.html", tmp_path / "study"))
    products = one_tab.page.locator("#balance-body tr td:last-child").all_inner_texts()
    assert len(products) == 2
    assert len(set(products)) == 1
    assert float(products[0]) > 0


def test_any_method_shows_its_weights_and_methods_without_slacks_none(shown):
    shown.page.check("#balance-log")
    assert shown.drawn("slack-chart") > 200
    shown.page.select_option("#balance-method", "FSMGDA")
    assert not shown.page.locator("#slack-chart").is_visible()
    assert not shown.page.locator("#report-chart").is_visible()
    assert shown.drawn("weight-chart") > 500
    assert shown.page.locator("#balance-heads th").all_inner_texts() == ["Task", "Weight"]


def test_every_chart_can_be_saved_as_svg_and_png(shown):
    page = shown.page
    tools = page.locator(".tools:visible").all()
    assert len(tools) == 7
    for each in tools:
        name, content = saved(page, each.get_by_role("button", name="SVG").click)
        assert name.endswith(".svg")
        assert content.startswith(b"<svg")
        assert "FedHV" in content.decode() or "faint" in content.decode()
    name, content = saved(page, tools[0].get_by_role("button", name="PNG").click)
    assert name == "trade-off-between-tasks.png"
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">I", content[16:20])[0] == 1800
    name, content = saved(page, page.get_by_role("button", name="Save Curves as PNG").click)
    assert content[:4] == b"\x89PNG"


def test_the_address_holds_what_was_chosen(shown, address):
    page = shown.page
    page.select_option("#setting", "five")
    page.select_option("#metric", "loss")
    page.select_option("#task", "3")
    page.locator("#methods button", has_text="Uniform").click()
    slide(page, "smooth", 0.5)
    page.click("#theme")
    page.fill("#run-search", "fedhv")
    kept = address_of(page)
    values, pixels = shown.readout("curve-chart"), page.evaluate("getComputedStyle(document.body).backgroundColor")
    shown.open(kept)
    assert page.input_value("#setting") == "five"
    assert page.input_value("#metric") == "loss"
    assert page.input_value("#task") == "3"
    assert page.input_value("#run-search") == "fedhv"
    assert page.locator("#methods button[aria-pressed=false]").all_inner_texts() == ["Uniform"]
    assert shown.readout("curve-chart") == values
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == pixels
    shown.open(address + "#curves")  # a plain place is not a state
    assert page.input_value("#metric") == "mean_accuracy"


def test_runs_can_be_searched_sorted_and_grouped(shown):
    page = shown.page
    rows = page.locator("#run-body tr")
    assert rows.count() == 22
    page.fill("#run-search", "fedhv k=20")
    assert page.inner_text("#run-count") == "1 of 22 runs"
    assert rows.first.locator("td").first.inner_text() == "K20/fedhv-seed0"
    page.fill("#run-search", "digits seed42")
    assert rows.count() == 4
    page.locator("#run-heads button", has_text="WorstAcc").click()

    def worst():
        return [float(text) for text in page.locator("#run-body tr td:nth-child(8)").all_inner_texts()]

    assert worst() == sorted(worst(), reverse=True)
    assert page.locator("#run-heads th[aria-sort]").get_attribute("aria-sort") == "descending"
    page.locator("#run-heads button", has_text="WorstAcc").click()
    assert worst() == sorted(worst())
    page.fill("#run-search", "fedhv")
    page.select_option("#run-group", "training.local_steps")
    groups = page.locator("#run-body .of-group th").all_inner_texts()
    assert groups == ["K = 5 (1)", "K = 10 (5)", "K = 20 (1)"]
    assert "±" in page.locator("#run-body .of-group").nth(1).inner_text()


def test_a_run_unfolds_its_configuration(shown):
    button = shown.page.locator("#run-body .unfold").first
    button.click()
    assert button.get_attribute("aria-expanded") == "true"
    assert "[setting.federation]" in shown.page.locator("#run-body pre").inner_text()
    button.click()
    assert shown.page.locator("#run-body pre").count() == 0


def test_tables_follow_the_setting_or_show_all(shown):
    page = shown.page
    assert set(column(page, "main", 1)) == {"digits"}
    page.select_option("#setting", "five")
    assert set(column(page, "main", 1)) == {"five"}
    assert page.inner_text("#about-setting").startswith("five: 5 tasks, 8 runs, 4 methods, seeds 0, 42")
    page.select_option("#tables-scope", "all")
    assert set(column(page, "main", 1)) == {"digits", "five"}


def test_tables_sort_by_value_and_return_to_their_order(shown):
    given = column(shown.page, "costs", 2)
    heads = shown.page.locator("table[data-name=costs] thead tr:last-child th")
    place = [i for i, text in enumerate(heads.all_inner_texts()) if "MB" in text][-1]
    heading = heads.nth(place).locator("button")
    heading.click()

    def totals():
        return [float(text) for text in column(shown.page, "costs", place + 1)]

    assert totals() == sorted(totals())
    head = shown.page.locator("table[data-name=costs] th[aria-sort]")
    assert head.get_attribute("aria-sort") == "ascending"
    heading.click()
    assert totals() == sorted(totals(), reverse=True)
    heading.press("Enter")
    assert column(shown.page, "costs", 2) == given
    assert head.count() == 0


def test_the_other_setting_brings_its_tasks(shown):
    page = shown.page
    page.select_option("#setting", "five")
    assert page.locator("#balance-body tr").count() == 5
    page.locator("#tasks-none").click()
    assert page.locator("#weight-chart .empty").is_visible()
    page.locator("#balance-tasks button", has_text="c").click()
    assert page.locator("#balance-body td:first-child").all_inner_texts() == ["c"]


def test_figures_are_linked(shown):
    links = shown.page.locator("#figure-list a").evaluate_all("nodes => nodes.map(node => node.getAttribute('href'))")
    assert links == [f"figures/{name}.{kind}" for name in ("digits-curves", "five-radar") for kind in ("png", "pdf")]


def test_rates_stand_beside_runs_and_methods(shown):
    page = shown.page
    heads = page.locator("#run-heads th").all_inner_texts()
    place = next(i for i, text in enumerate(heads) if text.startswith("Rates"))
    assert set(page.locator(f"#run-body tr td:nth-child({place + 1})").all_inner_texts()) == {"1.2/0.3"}
    assert "1.2/0.3" in page.locator("#methods button").first.get_attribute("title")


def test_saved_data_have_every_round(shown):
    name, content = saved(shown.page, lambda: shown.page.click("#download-csv"))
    rows = list(csv.DictReader(io.StringIO(content.decode())))
    assert name == "study.csv"
    mine = [row for row in rows if row["run"] == "fedhv-seed0" and row["task"] == "faint"]
    assert [row["round"] for row in mine] == [str(t) for t in range(1, 41)]
    assert float(mine[-1]["accuracy"]) > 50
    assert float(mine[-1]["slack"]) + float(mine[-1]["report"]) == pytest.approx(2.45, abs=1e-3)
    assert mine[0]["accuracy"] == ""
    name, content = saved(shown.page, lambda: shown.page.click("#download-json"))
    assert json.loads(content)["title"] == "study"


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
    assert "theme=dark" in address_of(light.page)
    dark.page.emulate_media(media="print")
    dark.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert paper(dark) == "rgb(255, 255, 255)"
    assert not dark.page.locator("#metric").is_visible()
    dark.page.evaluate("dispatchEvent(new Event('afterprint'))")
    dark.page.emulate_media(media="screen")
    assert paper(dark) == dark_paper


def test_paper_gets_whole_charts_with_names(shown):
    page, screen = shown.page, shown.page.viewport_size
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.set_viewport_size({"width": 800, "height": 1000})  # about A4; Chromium widens it for wide tables
    try:
        for chart in ("curve-chart", "weight-chart", "slack-chart", "report-chart"):
            drawing = page.locator(f"#{chart} .paper svg")
            assert drawing.is_visible()
            sheet = page.locator(f"#{chart}").bounding_box()["width"]
            assert 0.95 * sheet <= drawing.bounding_box()["width"] <= sheet
            assert not page.locator(f"#{chart} .plot").is_visible()
        names = page.locator("#curve-chart .paper svg text").all_text_contents()
        assert {"Uniform", "FSMGDA", "FedCMOO", "FedHV"} <= set(names)
        assert {"clear", "faint"} <= set(page.locator("#weight-chart .paper svg text").all_text_contents())
        page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")  # the new layout
        for chart in ("trade-chart", "bar-chart", "bytes-chart"):
            assert page.locator(f"#{chart} svg").first.bounding_box()["width"] <= 800, chart
    finally:
        page.set_viewport_size(screen)
        page.evaluate("dispatchEvent(new Event('afterprint'))")
        page.emulate_media(media="screen")


def test_a_phone_needs_no_sideways_scrolling(tab, address):
    shown = tab(address, viewport={"width": 390, "height": 844}, is_mobile=True, has_touch=True)
    assert shown.page.evaluate("document.documentElement.scrollWidth") <= 390
    assert shown.drawn("curve-chart") > 300
    for chart in ("curve-chart canvas", "trade-chart svg", "bar-chart svg"):
        box = shown.page.locator(f"#{chart}").first.bounding_box()
        assert box["x"] + box["width"] <= 390


def test_everything_can_be_reached_by_keyboard(shown):
    reached = set()
    for _ in range(80):
        shown.page.keyboard.press("Tab")
        reached.add(shown.page.evaluate("document.activeElement.id || document.activeElement.className"))
    assert {"metric", "against", "view", "log", "smooth", "theme", "download-csv", "plot", "small", "trade-round",
            "trade-play", "balance-method"} <= reached  # fmt: skip


def test_links_to_sections_keep_the_state(shown):
    page = shown.page
    page.select_option("#metric", "mean_loss")
    page.locator("nav a", has_text="Weights").click()
    assert "metric=mean_loss" in address_of(page)
    assert page.evaluate("document.activeElement.id") == "balance"
    assert page.evaluate("scrollY") > 300


def test_names_that_look_like_code_are_shown_as_text(tab, tmp_path):
    folder = tmp_path / "study"
    hidden = SCRIPT.replace("/", "∕")
    for method in ("fedhv", hidden):
        write_run(folder / SCRIPT / method, method=method, setting=SCRIPT, tasks=(SCRIPT, IMAGE))
    (write_run(folder / IMAGE) / "config.toml").write_text("no configuration")
    shown = tab(write_page(tmp_path / "index.html", folder))
    assert SCRIPT in shown.page.inner_text("#run-body")
    assert hidden in shown.page.inner_text("#methods")
    assert SCRIPT in shown.page.inner_text("#balance-tasks")
    assert IMAGE in shown.page.inner_text("#notes")
    assert shown.page.locator("main script, main img").count() == 0
    shown.page.select_option("#metric", "loss")
    assert shown.page.locator("#task option").all_inner_texts() == [SCRIPT, IMAGE]


@pytest.mark.parametrize("what", ODD)
def test_odd_studies_open_and_say_what_is_missing(one_tab, tmp_path, what):
    one_tab.complaints.clear()
    one_tab.open(write_page(tmp_path / "index.html", write_odd(tmp_path / "study", what)))
    page = one_tab.page
    notes = page.locator("#notes").inner_text()
    assert ODD[what] is None or ODD[what] in notes
    assert page.locator("#missing").is_visible() == (ODD[what] is not None)
    if what == "nothing yet":
        assert page.locator("#curve-chart .empty").is_visible()
    else:
        assert one_tab.drawn("curve-chart") > 300
    if what == "forty tasks":
        assert page.locator("#balance-body tr").count() == 8
        page.click("#tasks-all")
        assert page.locator("#balance-body tr").count() == 40
    assert one_tab.complaints == []


def outside(page, chart):
    """The texts of a chart that reach beyond its picture."""
    return page.locator(f"#{chart} svg").first.evaluate(
        """(svg) => {
          const whole = svg.getBoundingClientRect();
          return [...svg.querySelectorAll("text")].filter((node) => {
            const box = node.getBoundingClientRect();
            return box.left < whole.left - 1 || box.right > whole.right + 1 || box.bottom > whole.bottom + 1;
          }).map((node) => node.textContent);
        }"""
    )


def test_an_unfinished_run_does_not_move_the_final_values(one_tab, tmp_path):
    write_study(tmp_path / "study", ("uniform", "fedhv"), (0, 42), rounds=40)
    write_run(tmp_path / "study" / "late", method="fedhv", seed=7, rounds=40, done=4)
    one_tab.open(write_page(tmp_path / "index.html", tmp_path / "study"))
    page = one_tab.page
    drawn = page.locator("#bar-chart .bar title").all_text_contents()
    table = column(page, "per-task", 3)[0]  # FedHV
    assert f"FedHV, clear: {float(table.split(' ± ')[0]):.1f} ± " in " | ".join(drawn)
    assert page.locator("#trade-chart svg circle").count() == 2 + 4
    slide(page, "trade-round", 4)
    assert page.locator("#trade-chart svg circle").count() == 2 + 5


def test_a_page_of_many_methods_stays_readable(one_tab, tmp_path):
    one_tab.complaints.clear()
    one_tab.page.set_viewport_size({"width": 1400, "height": 1000})
    names = [f"a rule with a long name {i}" for i in range(19)]
    write_study(tmp_path / "study", [*names, "uniform", "fedhv"], (0,), rounds=12, parameters={"local_lr": 0.3})
    for seed in range(1, 9):  # notes on missing seeds
        write_run(tmp_path / "study" / f"more{seed}", method="uniform", seed=seed, rounds=12)
    for i in range(14):
        write_run(tmp_path / "study" / "knob" / str(i), parameters={"floor": 0.5**i}, rounds=12)
    one_tab.open(write_page(tmp_path / "index.html", tmp_path / "study"))
    page = one_tab.page
    # Few notes are above the verdict; the others are one press away.
    assert page.locator("#notes li").count() == 2
    assert page.locator("#verdict").bounding_box()["y"] < 450
    page.click("#notes-count")
    assert page.locator("#notes-rest li").first.is_visible()
    # Methods share colours: every bar has its method's name.
    bars = page.locator("#bar-chart .bar").count()
    assert page.locator("#bar-chart .name").count() == bars >= 40
    assert outside(page, "bar-chart") == []
    # Names in the plane neither lie on each other nor leave it.
    boxes = page.locator("#trade-chart .name").evaluate_all(
        "nodes => nodes.map(node => node.getBBox()).map(({x, y, width, height}) => [x, y, x + width, y + height])"
    )
    bottom = page.locator("#trade-chart clipPath rect").evaluate("node => node.getBBox().y + node.getBBox().height")
    assert 0 < len(boxes) <= 21
    assert max(low for *_, low in boxes) <= bottom + 4
    for a, b in itertools.combinations(boxes, 2):
        assert a[2] < b[0] or b[2] < a[0] or abs(a[1] - b[1]) > 14
    assert "FedHV" in page.locator("#trade-chart .name").all_text_contents()
    # What is off at first is folded; a long table scrolls by itself.
    assert page.locator("#variants button").count() == 14
    assert not page.locator("#variants button").first.is_visible()
    page.click("#variants-count")
    page.locator("#variants button").first.click()
    assert page.inner_text("#variants-count").endswith(", 1 shown")
    heights = page.locator("#tables .scroll").evaluate_all("nodes => nodes.map(node => node.offsetHeight)")
    assert max(heights) <= 700
    assert one_tab.complaints == []


def test_long_names_of_tasks_are_not_cut_and_deviations_stay_inside(one_tab, tmp_path):
    tasks = ["readmission to any hospital", *"bcd", "length of stay in an intensive care unit"]
    write_study(tmp_path / "study", ("uniform", "fedhv"), (0, 42), rounds=12, tasks=tasks)
    for run in (tmp_path / "study").iterdir():
        summary = json.loads((run / "summary.json").read_text())
        summary |= {"labels": [60] * 5, "client_labels": [[20, 20, 5, 5, 5, 5]] * 700}
        (run / "summary.json").write_text(json.dumps(summary))
    for width in (1400, 390):
        one_tab.page.set_viewport_size({"width": width, "height": 1000})
        one_tab.open(write_page(tmp_path / "index.html", tmp_path / "study"))
        page = one_tab.page
        for chart in ("trade-chart", "bar-chart", "label-chart"):
            assert outside(page, chart) == []
        ends = page.locator("#label-chart .label").evaluate_all("nodes => Math.max(...nodes.map(n => n.getBBox().x))")
        assert ends < width  # all of many clients are drawn
        axis, crosses = (page.locator(f"#trade-chart .{kind}").evaluate_all(
            "nodes => nodes.flatMap(node => [+node.getAttribute('y1'), +node.getAttribute('y2')])"
        ) for kind in ("axis", "cross"))  # fmt: skip
        assert min(axis) - 1 <= min(crosses)
        assert max(crosses) <= max(axis) + 1
        names = page.locator("#balance-table").evaluate("node => node.scrollWidth - node.parentElement.clientWidth")
        assert width == 390 or names <= 0


def test_names_of_tasks_are_not_broken_within_a_word(one_tab, tmp_path):
    write_study(tmp_path / "study", rounds=12, tasks=("CIFAR-10", "MNIST"))
    one_tab.page.set_viewport_size({"width": 390, "height": 844})
    one_tab.open(write_page(tmp_path / "index.html", tmp_path / "study"))
    heights = one_tab.page.locator("#balance-body .who").evaluate_all("nodes => nodes.map(node => node.offsetHeight)")
    assert max(heights) < 40  # one line


def test_one_task_has_points_on_its_axis(one_tab, tmp_path):
    write_study(tmp_path / "study", rounds=12, tasks=("only",))
    one_tab.open(write_page(tmp_path / "index.html", tmp_path / "study"))
    assert marks(one_tab.page, "trade-chart", "alone") == 2 + 4  # means and seeds


def test_axes_have_whole_rounds_and_more_than_one_number(one_tab, tmp_path):
    for seed, (low, high) in enumerate([(24.9, 95.1), (26.0, 95.2)]):
        write_run(tmp_path / "study" / str(seed), seed=seed, rounds=6, every=1)
        history = (tmp_path / "study" / str(seed) / "history.jsonl").read_text().splitlines()
        records = [json.loads(line) for line in history]
        for record, worst in zip(records, (low, 60, 70, 80, 90, high), strict=True):
            record["evaluation"]["worst_accuracy"] = worst
        write_history(tmp_path / "study" / str(seed), records)
    one_tab.open(write_page(tmp_path / "index.html", tmp_path / "study"))
    page = one_tab.page
    _, content = saved(page, page.get_by_role("button", name="Save Curves as SVG").click)
    texts = re.findall(r"<text[^>]*>([^<]+)</text>", content.decode())
    assert texts[:7] == list("0123456")
    numbers = page.locator("#bytes-chart svg text").all_text_contents()
    assert {"40", "60", "80"} <= set(numbers)


def test_runs_with_participants_are_folded_where_there_are_many(one_tab, tmp_path):
    study = write_study(tmp_path / "study", ("uniform", "fedhv"), (0, 42), rounds=12)
    cohort = {"present": 3, "asked": [0, 1, 2], "taken": [0, 1]}
    for run in study.iterdir():
        change(run, r12={"cohort": cohort, "refused": [{"client": 2, "reason": "no reply"}]})
    one_tab.open(write_page(tmp_path / "index.html", study))
    assert one_tab.page.locator("#federation-list details").count() == 4
    assert one_tab.page.locator("#federation-list details[open]").count() == 0
    assert "3 present" in one_tab.page.locator("#federation-list summary").first.inner_text()
    one_tab.page.locator("#federation-list summary").first.click()
    assert one_tab.page.locator("#federation-list tbody").first.is_visible()
