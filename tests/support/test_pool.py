"""A pool answers in order, repeats the task of a worker that died, and passes exceptions on."""

import os
import signal
import time

import pytest

from fedhv.support.errors import FedHVError
from fedhv.support.pool import Pool, can_fork

pytestmark = pytest.mark.skipif(not can_fork(), reason="the workers inherit functions of the test")


@pytest.fixture
def pool():
    pools = []

    def make(answer, count=3, **options):
        pools.append(Pool(lambda: answer, count, fork=True, **options))
        return pools[-1]

    yield make
    for each in pools:
        each.close()


@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize("ahead", [None, 1, 3])
def test_answers_come_in_order_and_tasks_are_made_only_when_they_may_be(pool, workers, ahead):
    made, taken = [], []

    def task(i):
        made.append(i)
        assert ahead is None or i < len(taken) + ahead
        return i

    for answer in pool(lambda i: i * i, workers).results(task, 12, ahead=ahead):
        taken += [answer]
    assert taken == [i * i for i in range(12)]
    assert made == list(range(12))


def test_workers_serve_one_sequence_after_the_other(pool):
    made = pool(lambda i: os.getpid(), 2)
    first = set(made.results(int, 20))
    assert set(made.results(int, 20)) <= first == first & set(made.pids)
    assert list(made.results(int, 0)) == []


@pytest.mark.parametrize("error", [FedHVError("not this one"), ValueError("nor this"), KeyboardInterrupt("stop")])
def test_an_exception_travels_and_no_answer_is_taken_for_another(pool, error):
    def answer(task):
        if task == "fail":
            raise error
        return task

    made = pool(answer)
    with pytest.raises(type(error), match=str(error)):
        list(made.results(lambda i: "fail" if i == 1 else -i, 9))
    assert list(made.results(lambda i: i, 9)) == list(range(9))


def test_a_sequence_that_is_left_early_leaves_nothing_behind(pool):
    made = pool(lambda i: i)
    answers = made.results(lambda i: i, 9)
    assert next(answers) == 0
    answers.close()
    assert list(made.results(lambda i: -i, 4)) == [0, -1, -2, -3]


def test_the_task_of_a_worker_that_died_is_repeated(pool, tmp_path):
    def answer(i):
        if i == 2 and not (tmp_path / "died").exists():
            (tmp_path / "died").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return i

    warnings = []
    assert list(pool(answer, warn=warnings.append).results(int, 5, name="Client {}".format)) == [0, 1, 2, 3, 4]
    assert warnings == ["A worker process died. Client 2 is repeated."]


def test_a_task_that_ends_every_worker_is_an_error(pool):
    made = pool(lambda i: os.kill(os.getpid(), signal.SIGKILL) if i == 2 else i, remedy="Try another engine.")
    with pytest.raises(FedHVError, match=r"Task 2 ended its worker process 3 times .* Try another engine\."):
        list(made.results(int, 5))


@pytest.mark.parametrize("graceful", [True, False])
def test_a_task_that_runs_when_the_pool_closes_is_interrupted_or_killed(pool, tmp_path, graceful):
    def answer(i):
        if i == 0:
            return i
        try:
            (tmp_path / "begun").touch()
            time.sleep(600)
        finally:
            (tmp_path / "saved").touch()

    made = pool(answer, 2, graceful=graceful)
    answers = made.results(int, 2)
    assert next(answers) == 0
    while not (tmp_path / "begun").exists():
        time.sleep(0.01)
    answers.close()
    assert (tmp_path / "saved").exists() is graceful
    assert made.pids == []
