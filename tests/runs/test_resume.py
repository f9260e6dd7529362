"""Interrupted and resumed equals uninterrupted, bit for bit."""

import signal
from dataclasses import dataclass
from functools import cache

import pytest
from observers import Watch
from problems import SETTING, everything_random
from runs_on_disk import contents, records, save_every_round
from waiting import HANG

import fedhv.runs.saving
from fedhv import FSMGDA, FedCMOO, FedHV, InputError, Method, State, Train, Uniform, compare, run
from fedhv.engines import choose_engine
from fedhv.runs.checkpoint import NAME as CHECKPOINT
from fedhv.runs.checkpoint import PREVIOUS
from fedhv.runs.history import NAME as HISTORY
from fedhv.runs.job import Job
from fedhv.runs.resolve import resolve
from fedhv.simulation.observer import Observer
from fedhv.support.errors import Interrupted
from fedhv.support.files import locked


@dataclass(frozen=True, kw_only=True)
class Heavy(Method):
    """Uniform weights with momentum on the server: a method that remembers more than model and weights."""

    name = "heavy"

    def round(self, state):
        replies = yield Train(state.model)
        velocity = replies.mean_update
        if state.memory:
            velocity = velocity + 0.5 * state.memory["velocity"]
        return State(state.model + velocity, state.weights, {"velocity": velocity})


METHODS = {
    "fedhv": FedHV(reference=(3.0, 3.0), report=2, server_lr=1.1),
    "uniform": Uniform(report=1),
    "fsmgda": FSMGDA(),
    "fedcmoo": FedCMOO(),
    "heavy": Heavy(),
}
CHANGES = ["federation.participants=3", "training.batch_size=4", "training.local_steps=3", "training.momentum=0.5",
           "evaluation.every=2", "calibration.rounds=3", "calibration.seeds=[0, 1]"]  # fmt: skip


def play(method, folder, observer=None, resume=False, rounds=6):
    return run(
        everything_random(), method, seed=3, rounds=rounds, out=folder, override=CHANGES, resume=resume,
        observer=observer,
    )  # fmt: skip


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """The folder of an uninterrupted run of a method. Several tests hold theirs against it, and none changes it."""

    @cache
    def folder(method):
        path = tmp_path_factory.mktemp("whole")
        play(method, path)
        return path

    return folder


@pytest.mark.parametrize("after", [1, 4])
@pytest.mark.parametrize("name", METHODS)
def test_interrupted_and_resumed_equals_uninterrupted_bit_for_bit(name, after, tmp_path, uninterrupted):
    whole, broken = uninterrupted(METHODS[name]), tmp_path / "broken"
    with pytest.raises(Interrupted, match=f"Stopped after round {after} of 6; the run in .* can be resumed"):
        play(METHODS[name], broken, Watch(after))
    assert not (broken / "summary.json").exists()
    assert len(records(broken)) == after
    watch = Watch()
    result = play(METHODS[name], broken, watch, resume=True)
    assert watch.started[-1][1] == after
    assert contents(broken) == contents(whole)
    assert [record["round"] for record in result.history] == [1, 2, 3, 4, 5, 6]


def test_a_run_may_be_interrupted_after_every_round(tmp_path, uninterrupted):
    whole, broken = uninterrupted(METHODS["fedhv"]), tmp_path / "broken"
    for after in range(1, 6):
        with pytest.raises(Interrupted):
            play(METHODS["fedhv"], broken, Watch(after), resume=True)
    play(METHODS["fedhv"], broken, resume=True)
    assert contents(broken) == contents(whole)


@pytest.mark.parametrize("label", ["calibration seed 0", "calibration seed 1", "fedhv seed 3"])
def test_a_run_may_be_interrupted_while_it_calibrates(label, tmp_path, uninterrupted):
    whole, broken = uninterrupted(FedHV()), tmp_path / "broken"
    with pytest.raises(Interrupted):
        play(FedHV(), broken, Watch(2, label))
    play(FedHV(), broken, resume=True)
    assert contents(broken) == contents(whole)
    references = [(folder / "reference.toml").read_text().split("\nseconds")[0] for folder in (whole, broken)]
    assert references[0] == references[1]


def test_a_finished_calibration_is_not_repeated(tmp_path):
    with pytest.raises(Interrupted):
        play(FedHV(), tmp_path, Watch(2, "fedhv"))
    before = (tmp_path / "reference.toml").read_bytes()
    watch = Watch()
    play(FedHV(), tmp_path, watch, resume=True)
    assert (tmp_path / "reference.toml").read_bytes() == before
    assert not any("Calibrating" in text for text in watch.said)


@pytest.mark.parametrize("between", [0.0, 1000.0])
def test_a_crash_costs_what_came_after_the_last_checkpoint_and_nothing_else(
    between, tmp_path, monkeypatch, uninterrupted
):
    whole, broken = uninterrupted(METHODS["fedhv"]), tmp_path / "broken"
    monkeypatch.setattr(fedhv.runs.saving, "SECONDS_BETWEEN_CHECKPOINTS", between)
    with pytest.raises(ZeroDivisionError):
        play(METHODS["fedhv"], broken, Watch(4, error=ZeroDivisionError))
    assert (broken / CHECKPOINT).exists() == (between == 0)
    assert len(records(broken)) == 4
    play(METHODS["fedhv"], broken, resume=True)
    assert contents(broken) == contents(whole)


@pytest.mark.parametrize(
    ("costs", "every", "saved"),
    [
        (1, 10, [2, 8, 12]),  # a second's work is done every fifty seconds
        (60, 100, [2, 9, 12]),  # not every fifty minutes
    ],
)
def test_checkpoints_of_a_large_model_take_a_small_share_of_the_time(costs, every, saved, tmp_path, monkeypatch):
    clock, rounds = [0.0], []

    class Clock(Observer):
        def round(self, round):
            clock[0] += every

    def slow(folder, checkpoint):
        clock[0] += costs
        rounds.append(checkpoint.round)
        save_checkpoint(folder, checkpoint)

    save_checkpoint = fedhv.runs.saving.save_checkpoint
    monkeypatch.setattr(fedhv.runs.saving, "save_checkpoint", slow)
    monkeypatch.setattr(fedhv.runs.saving.time, "monotonic", lambda: clock[0])
    assert fedhv.runs.saving.SHARE_OF_CHECKPOINTS == 0.02
    play(Uniform(), tmp_path / "run", Clock(), rounds=12)
    assert rounds == saved


def test_history_lines_after_the_checkpoint_and_a_cut_one_are_written_anew(tmp_path, uninterrupted):
    whole, broken = uninterrupted(METHODS["uniform"]), tmp_path / "broken"
    with pytest.raises(Interrupted):
        play(METHODS["uniform"], broken, Watch(2))
    lines = (whole / HISTORY).read_bytes().split(b"\n")
    (broken / HISTORY).write_bytes(b"\n".join(lines[:4]) + b"\n" + lines[4][:17])
    play(METHODS["uniform"], broken, resume=True)
    assert contents(broken) == contents(whole)


def test_a_corrupt_newest_checkpoint_costs_a_round_and_is_said(tmp_path, monkeypatch, uninterrupted):
    whole, broken = uninterrupted(METHODS["fedcmoo"]), tmp_path / "broken"
    save_every_round(monkeypatch)
    with pytest.raises(Interrupted):
        play(METHODS["fedcmoo"], broken, Watch(4))
    (broken / CHECKPOINT).write_bytes(b"not a checkpoint")
    watch = Watch()
    play(METHODS["fedcmoo"], broken, watch, resume=True)
    assert any("corrupt" in text and "after round 3" in text for text in watch.said)
    assert contents(broken) == contents(whole)


def test_two_corrupt_checkpoints_are_refused_and_everything_stays(tmp_path, monkeypatch):
    save_every_round(monkeypatch)
    with pytest.raises(Interrupted):
        play(METHODS["uniform"], tmp_path, Watch(4))
    for name in (CHECKPOINT, PREVIOUS):
        (tmp_path / name).write_bytes(b"not a checkpoint")
    history = (tmp_path / HISTORY).read_bytes()
    with pytest.raises(InputError, match=r"Delete .* to start the run again"):
        play(METHODS["uniform"], tmp_path, resume=True)
    assert (tmp_path / HISTORY).read_bytes() == history
    assert not (tmp_path / "summary.json").exists()


# --- which run is resumed ---------------------------------------------------------------------------------


def test_a_folder_with_a_run_is_not_overwritten_without_being_asked(tmp_path):
    play(METHODS["uniform"], tmp_path)
    before = contents(tmp_path)
    with pytest.raises(InputError, match=r"already has this run. Continue it with --resume"):
        play(METHODS["uniform"], tmp_path)
    assert contents(tmp_path) == before


def test_a_finished_run_is_returned_as_it_is(tmp_path):
    first = play(METHODS["fedhv"], tmp_path)
    before = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    again = play(METHODS["fedhv"], tmp_path, resume=True)
    assert again.summary == first.summary
    assert again.history == first.history
    assert again.reference == first.reference
    assert all((again.state_dict[name] == value).all() for name, value in first.state_dict.items())
    after = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert after == before


@pytest.mark.parametrize("again", ["run", "compare"])
def test_where_a_finished_run_was_computed_stays_on_record(again, tmp_path):
    options = {"rounds": 2, "override": CHANGES}
    folder = tmp_path / "uniform-seed3"
    run(everything_random(), "uniform", seed=3, out=folder, engine="sequential", **options)
    before = contents(folder)
    if again == "run":
        run(everything_random(), "uniform", seed=3, out=folder, engine="stacked", resume=True, **options)
    else:
        compare(everything_random(), ["uniform"], [3], out=tmp_path, engine="stacked", **options)
    assert 'engine = "sequential"' in (folder / "config.toml").read_text()
    assert contents(folder) == before


@pytest.mark.parametrize(
    ("method", "rounds", "key"),
    [(METHODS["fsmgda"], 6, "run.method"), (Uniform(), 6, "report"), (METHODS["uniform"], 7, "training.rounds")],
)
def test_another_run_is_not_resumed_in_its_place(method, rounds, key, tmp_path):
    with pytest.raises(Interrupted):
        play(METHODS["uniform"], tmp_path, Watch(2))
    with pytest.raises(InputError, match=f"is of another run: .*{key}"):
        play(method, tmp_path, resume=True, rounds=rounds)


def test_a_run_goes_on_where_its_setting_offers_more_references_than_it_did(setting_file, tmp_path):
    """What a setting merely offers decides nothing: the reference of the run has a file of its own."""
    with pytest.raises(Interrupted):
        run(str(setting_file), "fedhv", rounds=4, out=tmp_path / "r", reference=[3.0, 3.0], observer=Watch(2))
    setting_file.write_text(setting_file.read_text() + "[references]\nlooser = [4.0, 4.5]\n")
    with pytest.raises(InputError, match="holds another reference than the given one"):
        run(str(setting_file), "fedhv", rounds=4, out=tmp_path / "r", reference="looser", resume=True)
    went_on = run(str(setting_file), "fedhv", rounds=4, out=tmp_path / "r", resume=True)
    assert (went_on.summary.rounds, went_on.reference.values) == (4, (3.0, 3.0))


def test_a_run_is_not_resumed_with_another_reference(tmp_path):
    with pytest.raises(Interrupted):
        play(METHODS["fedhv"], tmp_path, Watch(2))
    with pytest.raises(InputError, match="holds another reference than the given one"):
        play(FedHV(reference=(4.0, 4.0), report=2, server_lr=1.1), tmp_path, resume=True)
    with pytest.raises(InputError, match="holds another reference than the given one"):
        run(everything_random(), FedHV(report=2, server_lr=1.1), seed=3, rounds=6, out=tmp_path, override=CHANGES,
            reference=[5.0, 5.0], resume=True)  # fmt: skip
    play(METHODS["fedhv"], tmp_path, resume=True)


def test_resuming_where_nothing_is_starts_a_run(tmp_path):
    assert play(METHODS["uniform"], tmp_path / "new", resume=True).summary.rounds == 6


def test_a_folder_with_other_files_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("important")
    with pytest.raises(InputError, match="is not empty and has no run"):
        play(METHODS["uniform"], tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_two_processes_do_not_play_one_run(tmp_path):
    with pytest.raises(Interrupted):
        play(METHODS["uniform"], tmp_path, Watch(2))
    with locked(tmp_path), pytest.raises(InputError, match="Another process is using"):
        play(METHODS["uniform"], tmp_path, resume=True)


@pytest.mark.parametrize("name", ["uniform", "fedhv"])
def test_a_process_that_is_kept_out_has_changed_nothing(name, tmp_path):
    with pytest.raises(Interrupted):
        play(METHODS[name], tmp_path, Watch(2))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with locked(tmp_path), pytest.raises(InputError, match="Another process is using"):
        run(everything_random(), METHODS[name], seed=3, rounds=6, out=tmp_path, override=CHANGES, resume=True,
            engine="stacked", device="cpu")  # fmt: skip
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    play(METHODS[name], tmp_path, resume=True)


def test_what_plays_jobs_locks_their_folders_before_it_writes(tmp_path):
    with pytest.raises(Interrupted):
        play(METHODS["uniform"], tmp_path, Watch(2))
    setting, problem = resolve(everything_random(), CHANGES, 6)
    job = Job(setting, problem, METHODS["uniform"], 3, choose_engine("stacked", "cpu"), tmp_path)
    before = (tmp_path / "config.toml").read_bytes()
    with locked(tmp_path), pytest.raises(InputError, match="Another process is using"):
        job.execute()
    assert (tmp_path / "config.toml").read_bytes() == before
    job.execute()
    assert (tmp_path / "config.toml").read_bytes() != before


def test_a_place_where_the_run_cannot_go_is_left_without_a_folder_or_a_lock(tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("important")
    with pytest.raises(InputError, match="M = 999"):
        run(everything_random(), Uniform(), out=tmp_path / "new", override=["federation.participants=999"])
    with pytest.raises(InputError, match="is not empty and has no run"):
        play(METHODS["uniform"], tmp_path / "other", resume=True)
    assert [path.name for path in tmp_path.rglob("*")] == ["other", "thesis.tex"]


def test_a_run_that_was_killed_while_it_wrote_its_first_file_starts_anew(tmp_path):
    (tmp_path / ".config.toml-a1b2c3_d").write_bytes(b"[ru")
    play(METHODS["uniform"], tmp_path)
    assert (tmp_path / "summary.json").exists()


def test_what_killed_processes_were_writing_is_swept_away_and_nothing_else(tmp_path):
    with pytest.raises(Interrupted):
        play(METHODS["uniform"], tmp_path, Watch(2))
    for name in (".checkpoint.safetensors-abcd1234", ".history.jsonl-________", ".notes.txt-abcd1234", ".profile"):
        (tmp_path / name).write_bytes(b"x")
    play(METHODS["uniform"], tmp_path, resume=True)
    hidden = {path.name for path in tmp_path.iterdir() if path.name.startswith(".")}
    assert hidden == {".lock", ".notes.txt-abcd1234", ".profile"}


# --- a process that is killed -----------------------------------------------------------------------------


@pytest.mark.parametrize("fuse", [10, 30])
def test_a_killed_process_leaves_a_run_that_is_resumed_bit_for_bit(fuse, process, command, tmp_path):
    # every use of the fuse is a client's minibatches, a report or an evaluation, six and a bit in a round: the 10th is
    # in the second round of the calibration, the 30th in the third of the run
    (tmp_path / "small.toml").write_text(SETTING.replace("problems:benchmark", "problems:with_fuse"))
    running = process("run", "small.toml", "--out", "broken", "--engine", "sequential", FUSE=str(fuse))
    running.wait(timeout=HANG)
    assert running.returncode == -signal.SIGKILL
    assert (tmp_path / "broken" / "reference.toml").exists() == (fuse == 30)
    assert not (tmp_path / "broken" / "summary.json").exists()

    assert command("run", "small.toml", "--out", "whole").code == 0
    assert command("run", "small.toml", "--out", "broken", "--resume").code == 0
    assert contents(tmp_path / "broken") == contents(tmp_path / "whole")


def test_an_engine_that_cannot_go_on_leaves_the_last_finished_round(tmp_path, monkeypatch):
    ask = fedhv.engines.Sequential.ask

    def failing(self, call):
        if call.cohort.round == 4:
            raise fedhv.FedHVError("A worker process died three times.")
        return ask(self, call)

    whole = play(Uniform(), tmp_path / "whole")
    monkeypatch.setattr(fedhv.engines.Sequential, "ask", failing)
    with pytest.raises(fedhv.FedHVError, match="died three times"):
        play(Uniform(), tmp_path / "run")
    monkeypatch.undo()
    rounds = []

    class Counting(Observer):
        def round(self, round):
            rounds.append(round.number)

    resumed = play(Uniform(), tmp_path / "run", Counting(), resume=True)
    assert rounds == [5, 6]
    assert contents(resumed.folder) == contents(whole.folder)
