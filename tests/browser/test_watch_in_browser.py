"""A live page follows its runs and keeps what the user has chosen."""

from __future__ import annotations

from report.studies import DIGITS, made_up, write_history, write_run, write_study
from waiting import HANG


def test_new_rounds_and_new_runs_appear_by_themselves(serve, tab, tmp_path):
    study = tmp_path / "study"
    run = write_run(study / "fedhv-seed0", rounds=12, done=4)
    shown = tab(serve(study).url)
    page = shown.page
    assert "Live" in page.inner_text("#live")
    assert "4 of 12 rounds" in page.inner_text("#notes")
    before = shown.readout("curve-chart")
    page.select_option("#metric", "mean_loss")
    page.locator("#run-list summary").first.click()
    write_history(run, made_up("fedhv", 0, DIGITS, 12, 8, 4, 10, 6))
    write_study(study, ("uniform",), (0,), rounds=12)
    page.locator("#methods button").nth(1).wait_for(timeout=1000 * HANG)
    assert "8 of 12 rounds" in page.inner_text("#notes")
    assert page.locator("#metric").input_value() == "mean_loss"
    assert page.locator("#run-list details[open]").count() == 1
    assert set(shown.readout("curve-chart")) == {"FedHV", "Uniform"}
    assert shown.readout("curve-chart")["FedHV"] != before["FedHV"]
    assert "updated at" in page.inner_text("#live")


def test_a_study_that_has_not_begun_starts_by_itself(serve, tab, tmp_path):
    shown = tab(serve(tmp_path).url)
    assert "no runs yet" in shown.page.inner_text("#notes")
    write_run(tmp_path / "fedhv-seed0", rounds=12)
    shown.page.wait_for_selector("#curve-chart canvas", timeout=1000 * HANG)
    assert shown.drawn("curve-chart") > 300
