"""Colours and dashes: unique for every method and variant, tasks apart from methods, legible to the colour-blind."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from fedhv.report import read_study
from fedhv.report.palette import METHOD_STYLES, OKABE_ITO, TASK_COLOURS, styles, task_styles
from report.colours import MACHADO, contrast, difference, seen
from report.studies import write_run, write_study

APART = 12
"""Of CIEDE2000; ten is what one sees at a glance."""


def test_the_difference_of_colours_is_that_of_the_published_test_data():
    """Three rows of Sharma, Wu and Dalal's table."""
    for first, second, expected in (
        ((50, 2.6772, -79.7751), (50, 0, -82.7485), 2.0425),
        ((50, 2.5, 0), (73, 25, -18), 27.1492),
        ((90.8027, -2.0831, 1.4410), (91.1528, -1.6435, 0.0447), 1.4441),
    ):
        assert difference(first, second) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("sight", MACHADO)
@pytest.mark.parametrize("palette", [tuple(OKABE_ITO.values()), TASK_COLOURS], ids=["methods", "tasks"])
def test_colours_stay_apart_for_red_green_blind_readers(palette, sight):
    shown = [seen(colour, sight) for colour in palette]
    assert min(difference(a, b) for a, b in combinations(shown, 2)) >= APART


@pytest.mark.parametrize("paper", ["#ffffff", "#f6f7f9", "#14171b", "#1d2127"])
def test_colours_stand_out_on_light_and_dark_pages(paper):
    assert min(contrast(colour, paper) for colour in (*OKABE_ITO.values(), *TASK_COLOURS)) >= 2


def test_a_task_is_never_taken_for_a_method():
    methods = [seen(colour, "normal") for colour in OKABE_ITO.values()]
    for colour in TASK_COLOURS:
        assert min(difference(seen(colour, "normal"), other) for other in methods) >= 10


def test_no_two_methods_or_variants_share_colour_and_dash(tmp_path):
    write_study(tmp_path, ("uniform", "fsmgda", "fedcmoo", "fedhv", *(f"own{i}" for i in range(9))), (0,))
    for steps in range(1, 9):
        write_run(tmp_path / f"K{steps}", local_steps=20 + steps)
    for participants in range(1, 6):
        write_run(tmp_path / f"M{participants}", participants=participants)
    looks = styles(read_study([tmp_path]))
    assert len(looks) == 26
    assert len({(style.colour, style.dash) for style in looks.values()}) == 26
    assert looks["FedHV"] == METHOD_STYLES["fedhv"]


def test_twenty_tasks_differ_in_colour_or_dash():
    looks = task_styles([str(i) for i in range(20)])
    assert len({(style.colour, style.dash) for style in looks}) == 20
    assert np.unique([style.colour for style in looks]).size == len(TASK_COLOURS)
