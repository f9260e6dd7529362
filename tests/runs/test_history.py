"""The history: one line a round; a crash costs at most the line that was being written."""

import json

import pytest

from fedhv import InputError
from fedhv.protocol.evaluation import Evaluation, TaskScore
from fedhv.runs.history import NAME, Following, History, read_history
from fedhv.simulation.record import Round


def played(number, evaluated=True):
    evaluation = Evaluation.of([TaskScore("größe", 50.0, 1.5)]) if evaluated else None
    return Round(
        number=number, weights=(1.0,), downlink_bytes=8, uplink_bytes=4, exchanges=1, seconds=0.25,
        evaluation=evaluation, extra={"mine": [1, "two"]},
    )  # fmt: skip


ROUNDS = [played(t) for t in (1, 2, 3)]


@pytest.fixture
def folder(tmp_path):
    history = History(tmp_path)
    for each in ROUNDS:
        history.append(each)
    history.close()
    return tmp_path


def test_every_round_is_one_line_of_json(folder):
    lines = (folder / NAME).read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == [each.as_dict() for each in ROUNDS]
    assert read_history(folder) == ROUNDS


def test_a_line_is_on_disk_as_soon_as_the_round_is_over(tmp_path):
    history = History(tmp_path)
    history.append(ROUNDS[0])
    assert read_history(tmp_path) == ROUNDS[:1]
    history.close()


def test_without_a_folder_the_history_is_kept_in_memory():
    history = History(None)
    history.append(ROUNDS[0])
    history.close()
    assert history.rounds == ROUNDS[:1]


def test_a_last_line_cut_anywhere_is_left_out(folder):
    path = folder / NAME
    whole = path.read_bytes()
    start = whole[:-1].rindex(b"\n") + 1
    # at every byte, also within the two of "ö"; without its newline alone, the line is whole
    for end in range(start, len(whole) - 1):
        path.write_bytes(whole[:end])
        assert read_history(folder) == ROUNDS[:2], end
    path.write_bytes(whole[:-1])
    assert read_history(folder) == ROUNDS


def test_going_on_keeps_the_rounds_before_and_drops_those_after(folder):
    history = History(folder, keep=1)
    assert history.rounds == ROUNDS[:1]
    assert read_history(folder) == ROUNDS[:1]
    history.append(ROUNDS[1])
    history.close()
    assert read_history(folder) == ROUNDS[:2]


def test_going_on_after_a_cut_line_writes_a_whole_file(folder):
    path = folder / NAME
    path.write_bytes(path.read_bytes()[:-9])
    history = History(folder, keep=2)
    history.append(ROUNDS[2])
    history.close()
    assert read_history(folder) == ROUNDS


def test_a_new_run_starts_an_empty_history(folder):
    History(folder).close()
    assert read_history(folder) == []


@pytest.mark.parametrize("line", ["{broken", "[1]", '{"weights": []}', '{"round": "one"}', "\udcff"])
def test_a_broken_line_in_the_middle_is_refused_by_its_number(line, folder):
    path = folder / NAME
    lines = path.read_text(encoding="utf-8").split("\n")
    lines[1] = line
    path.write_bytes("\n".join(lines).encode("utf-8", "surrogateescape"))
    with pytest.raises(InputError, match="line 2: not a round of a history"):
        read_history(folder)


def test_going_on_leaves_the_lines_as_they_are(folder):
    """Also what an older or a newer version wrote in another order."""
    path = folder / NAME
    first, *_ = path.read_text(encoding="utf-8").splitlines()
    other = json.dumps(dict(reversed(json.loads(first).items())), ensure_ascii=False)
    path.write_text(other + "\n", encoding="utf-8")
    History(folder, keep=1).close()
    assert path.read_text(encoding="utf-8") == other + "\n"


def test_a_history_that_lacks_rounds_of_the_checkpoint_is_refused_with_the_remedy(folder):
    with pytest.raises(InputError, match=r"does not have rounds 1 to 4. Delete"):
        History(folder, keep=4)


def test_a_folder_without_a_history_has_no_rounds(tmp_path):
    assert read_history(tmp_path) == []


def test_a_followed_history_gives_every_round_once_and_reads_only_what_is_new(tmp_path):
    followed = Following(tmp_path)
    assert followed.news() == []  # it is not there yet
    path = tmp_path / "history.jsonl"
    whole = "".join(json.dumps(each.as_dict()) + "\n" for each in (played(1, False), ROUNDS[1], played(3, False)))
    path.write_text(whole[:-60])
    assert [each.number for each in followed.news()] == [1, 2]
    with path.open("a") as file:
        file.write(whole[-60:])
    assert [each.number for each in followed.news()] == [3]
    assert followed.news() == []
    assert (followed.count, followed.last_evaluated.number, followed.restarts) == (3, 2, 0)


@pytest.mark.parametrize("rounds", [1, 3])
def test_a_followed_history_begins_again_when_its_run_is_resumed(rounds, tmp_path):
    """Also where the new file is as long as the old one."""
    history = History(tmp_path)
    for number in range(1, 4):
        history.append(played(number))
    history.close()
    followed = Following(tmp_path)
    assert len(followed.news()) == 3
    resumed = History(tmp_path, keep=rounds)
    assert [each.number for each in followed.news()] == list(range(1, rounds + 1))
    assert (followed.count, followed.restarts) == (rounds, 1)
    assert followed.last_evaluated.number == rounds
    resumed.close()
