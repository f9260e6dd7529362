"""A live page follows its runs and keeps what the user has chosen."""

from __future__ import annotations

import json

from report.studies import DIGITS, made_up, write_history, write_run, write_study
from waiting import HANG

from browser.test_page_in_browser import drag


def records(done):
    return made_up("fedhv", 0, DIGITS, 12, done, 1, 10, 6)


def test_new_rounds_and_new_runs_appear_by_themselves(serve, tab, tmp_path):
    study = tmp_path / "study"
    run = write_run(study / "fedhv-seed0", rounds=12, done=4)
    write_history(run, records(4))
    shown = tab(serve(study).url, reduced_motion="reduce")
    page = shown.page
    assert "Live" in page.inner_text("#live")
    assert "4 of 12 rounds" in page.inner_text("#notes")
    card = page.locator("#cards article")
    assert card.locator("progress").get_attribute("value") == "4"
    assert "4 of 12 rounds · about " in card.inner_text()
    assert "healthy" in card.inner_text()
    before = shown.readout("curve-chart")
    page.select_option("#metric", "mean_loss")
    page.locator("#run-body .unfold").first.click()
    drag(page, "curve-chart", 0.4, 0.9)
    reset = page.get_by_role("button", name="Reset the zoom of Curves")
    assert reset.is_visible()
    heading = page.locator("#run-heads button", has_text="Seed")
    heading.focus()
    card.evaluate("node => { node.dataset.old = 'yes'; }")
    told = records(8)
    told[6] |= {"floored": 1, "refused": [{"client": 2, "reason": "no reply"}],
                "cohort": {"present": 3, "asked": [0, 1, 2], "taken": [0, 1]}}  # fmt: skip
    told[6]["nodes"] = [{"client": 0, "node": "5", "name": "north", "seconds": 1.5}]
    write_history(run, told)
    write_study(study, ("uniform",), (0,), rounds=12)
    page.locator("#methods button").nth(1).wait_for(timeout=1000 * HANG)
    assert "8 of 12 rounds" in page.inner_text("#notes")
    assert page.locator("#metric").input_value() == "mean_loss"
    assert page.locator("#run-body pre").count() == 1
    assert set(shown.readout("curve-chart")) == {"FedHV", "Uniform"}
    assert shown.readout("curve-chart")["FedHV"] != before["FedHV"]
    assert "updated at" in page.inner_text("#live")
    # Zoom, focus and the elements themselves are those from before.
    assert reset.is_visible()
    assert page.evaluate("document.activeElement.textContent") == "Seed"
    mine = page.locator("#cards article", has_text="fedhv-seed0")
    assert mine.get_attribute("data-old") == "yes"
    assert mine.locator("progress").get_attribute("value") == "8"
    assert mine.locator(".bad").all_inner_texts() == [
        "1 reply refused in 1 round: 1 × no reply",
        "1 slack below the floor",
    ]
    # Nodes of a federation: who answered, how long it took, who was refused.
    rows = [row.locator("td").all_inner_texts() for row in page.locator("#federation tbody tr").all()]
    assert rows[0][:6] == ["client 0", "north", "1", "1", "0", "1.5 s"]
    assert (rows[2][4], rows[2][7]) == ("1", "no reply")


def test_a_study_that_has_not_begun_starts_by_itself(serve, tab, tmp_path):
    shown = tab(serve(tmp_path).url)
    assert "no runs yet" in shown.page.inner_text("#notes")
    write_run(tmp_path / "fedhv-seed0", rounds=12)
    shown.page.wait_for_selector("#curve-chart canvas", timeout=1000 * HANG)
    assert shown.drawn("curve-chart") > 300


def test_a_run_without_rounds_is_neither_drawn_nor_called_healthy(serve, tab, tmp_path):
    """As a federation that still waits for its nodes."""
    write_history(write_run(tmp_path / "fedhv-seed0", rounds=12, done=4, finished=False), [])
    page = tab(serve(tmp_path).url).page
    card = page.locator("#cards article").inner_text()
    assert "0 of 12 rounds" in card
    assert "healthy" not in card
    assert page.locator("#curve-chart .empty").inner_text() == "Nothing to draw: no evaluated run is switched on."


def test_a_run_that_diverges_is_red(serve, tab, tmp_path):
    run = write_run(tmp_path / "fedhv-seed0", rounds=12, done=8)
    path = run / "history.jsonl"
    lines = path.read_text().splitlines()
    last = json.loads(lines[-1])
    last["evaluation"]["tasks"][0]["loss"] = float("nan")
    path.write_text("\n".join([*lines[:-1], json.dumps(last)]) + "\n")
    shown = tab(serve(tmp_path).url)
    assert shown.page.inner_text("#cards .bad") == "diverged: losses are not finite from round 8 on"
