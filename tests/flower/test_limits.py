"""An app that hangs ends once the server no longer waits: its SuperNode could answer nothing else."""

from __future__ import annotations

import signal
import threading
import time

import pytest
from flwr.app import Message

from fedhv.flower import client_app, limits
from fedhv.flower.hello import HELLO, hello
from fedhv.flower.limits import time_limit
from fedhv.flower.wire import EVALUATE, EXCHANGE, TRAIN
from fedhv.support.errors import FedHVError
from flower.local_grid import LocalGrid


def test_what_takes_too_long_is_ended_and_the_signal_is_free_again():
    before = signal.getsignal(signal.SIGALRM)
    with pytest.raises(FedHVError, match=r"ended the computation after 0\.05 s"), time_limit(0.05):
        time.sleep(100)
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


@pytest.mark.parametrize("kind", [HELLO, TRAIN, EXCHANGE, EVALUATE])
def test_a_node_whose_data_cannot_be_loaded_answers_no_message_for_longer_than_its_limit(kind, monkeypatch):
    monkeypatch.setattr(limits, "LEAST", 0.05)
    grid = LocalGrid(client_app(lambda context: time.sleep(2)), {1: 0})
    with pytest.raises(FedHVError, match=r"ended the computation after 0\.05 s"):
        grid.app(Message(hello(), 1, kind, ttl=0.05), grid.nodes[1])


def test_in_another_thread_nothing_is_bounded():
    done = []

    def work():
        with time_limit(1e-6):
            done.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [True]
