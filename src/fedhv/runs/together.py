"""Jobs on the same problem are executed together: the engine computes their requests in one computation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext, suppress

from fedhv.engines import Engine
from fedhv.engines.portions import gpu_memory
from fedhv.runs.execution import Execution
from fedhv.runs.folder import discard_unplayed
from fedhv.runs.job import Job
from fedhv.runs.record import Run
from fedhv.runs.threads import one_thread
from fedhv.simulation.events import FinishedRound
from fedhv.simulation.observer import Observer
from fedhv.simulation.rounds import simulate_together
from fedhv.support.collection import only_new_objects
from fedhv.support.errors import EarlyStop, FedHVError, InputError, Interrupted
from fedhv.support.files import sweep
from fedhv.support.signals import PATIENCE, DeferredSignals, deferred_signals


def execute_together(
    jobs: Sequence[Job],
    tick: Callable[[Sequence[Execution]], None],
    observer: Observer | None = None,
    until: int | None = None,
) -> list[Run | FedHVError]:
    """Execute jobs on the same problem in step; returns the result or the error of each.

    With `until` they pause after that round: their results are those so far, and another call continues them. Bad input
    that is found in the first round leaves no folder.

    `observer` receives the rounds of a single job. For several jobs `tick` is used instead, which is called
    after every round of any of them.
    """
    observer = observer or Observer()
    with ExitStack() as stack:
        refused: list[Job] = []
        stack.callback(lambda: _discard(refused))  # after the folders' locks are released
        for job in jobs:
            stack.enter_context(job.opened(resume=True))
            if job.folder is not None:
                sweep(job.folder)
        try:
            outcomes = _executed(jobs, tick, observer, until)
        except InputError:
            refused += jobs
            raise
        refused += [job for job, outcome in zip(jobs, outcomes, strict=True) if isinstance(outcome, InputError)]
        return outcomes


def _discard(jobs: Sequence[Job]) -> None:
    for job in jobs:
        if job.folder is not None:
            discard_unplayed(job.folder)


def _executed(
    jobs: Sequence[Job], tick: Callable[[Sequence[Execution]], None], observer: Observer, until: int | None
) -> list[Run | FedHVError]:
    with ExitStack() as stack:
        stack.enter_context(one_thread())
        stack.enter_context(only_new_objects())
        engine = stack.enter_context(jobs[0].choice.make(jobs[0].problem))
        engine.rounds = max(job.plan.rounds for job in jobs)
        with gpu_memory(device=engine.device):
            executions = [
                stack.enter_context(Execution(job, engine, observer, together=len(jobs), until=until)) for job in jobs
            ]
        paused = until is not None and executions[0].done >= until
        if len(jobs) == 1 and not paused:
            observer.start(jobs[0].label, executions[0].last, executions[0].done)
            stack.callback(observer.stop)
        try:
            with deferred_signals(not engine.interruptible, PATIENCE) as signals:
                engine.stopping = lambda: signals.pending
                _play(executions, engine, observer, tick, signals)
        except KeyboardInterrupt:
            saved = False
            while not saved:
                with suppress(KeyboardInterrupt), deferred_signals():  # a second signal changes nothing
                    _save(executions)
                    saved = True
            raise Interrupted(_how_far(executions)) from None
        return [execution.failure or execution.result() for execution in executions]


def _play(
    executions: Sequence[Execution],
    engine: Engine,
    observer: Observer,
    tick: Callable[[Sequence[Execution]], None],
    signals: DeferredSignals,
) -> None:
    """Run the remaining rounds in step, and record them."""

    def between() -> None:
        if signals.pending:
            _save(executions)
            signals.handle()

    def show(finished: FinishedRound) -> None:
        while engine.notes:
            observer.message(engine.notes.pop(0))
        if alone:
            observer.round(finished)
        else:
            tick(executions)

    alone = len(executions) == 1
    try:
        for i, finished in simulate_together(engine, [execution.rounds() for execution in executions], between):
            execution = executions[i]
            if isinstance(finished, FedHVError):
                execution.fail(finished)
                if not alone:  # the others continue, perhaps for hours
                    observer.message(str(execution.failure))
                continue
            execution.record(finished)
            if execution.ended:
                execution.finish()  # at once: the others may yet be interrupted
            # The reader of the output may have ended by the pending signal.
            with suppress(OSError) if signals.pending else nullcontext():
                try:
                    show(finished)
                except EarlyStop:
                    if not execution.ended:
                        execution.stop()
                        execution.finish()
    except FedHVError as stop:  # an error of the engine stops all jobs
        if not alone:
            _save(executions)
            raise
        executions[0].fail(stop)


def _save(executions: Sequence[Execution]) -> None:
    """Write the records of every run, also if a signal arrives or another run fails."""
    with deferred_signals(), ExitStack() as stack:
        for execution in executions:
            stack.callback(execution.save)


def _how_far(executions: Sequence[Execution]) -> str:
    if len(executions) > 1:
        return "Stopped; every run can be resumed."
    job, done = executions[0].job, executions[0].done
    if executions[0].failure:
        return f"{executions[0].failure} Stopped."
    if done == job.plan.rounds:
        return f"Stopped; the run{f' in {job.folder}' if job.folder else ''} has just ended."
    where = f"; the run in {job.folder} can be resumed" if job.folder else ""
    return f"Stopped after round {done} of {job.plan.rounds}{where}."
