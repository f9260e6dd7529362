"""A benchmark that defines its clients needs a node for each of them."""

import pytest

pytest.importorskip("flwr")

from fedhv import InputError
from fedhv.flower.up import Order, up

SETTING = """
benchmark = "problems:everything_random"
[federation]
participants = 3
[training]
rounds = 1
batch_size = 4
local_steps = 1
"""


def test_another_number_of_nodes_is_refused_before_anything_starts(tmp_path):
    path = tmp_path / "random.toml"
    path.write_text(SETTING)
    with pytest.raises(InputError, match=r"`--nodes` should be 5, one for every client.*Found 3"):
        up(Order(str(path), "uniform", 3, tmp_path / "run"))
    assert not (tmp_path / "run").exists()
