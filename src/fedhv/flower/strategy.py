"""A Flower strategy for any method of the package; it runs the same generator as the simulation."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from logging import INFO
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.common.logger import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result
from flwr.serverapp.strategy import Strategy as FlowerStrategy
from torch import Tensor

from fedhv.flower.engine import over_flower, quorum_of
from fedhv.flower.exchange import FrequentPolling
from fedhv.flower.log import Log
from fedhv.flower.node import Server, refuse_for_nodes
from fedhv.flower.patience import Patience
from fedhv.flower.records import model_of, model_record
from fedhv.flower.status import STOP, discard_stop
from fedhv.interface.checks import check_applied
from fedhv.methods.base import Method, needs_reference
from fedhv.problem.problem import Problem
from fedhv.protocol.evaluation import Evaluation
from fedhv.protocol.exchange import Call
from fedhv.protocol.local import Schedule
from fedhv.protocol.screening import TooFewReplies
from fedhv.runs.config import Setting, override_setting
from fedhv.runs.execution import Execution
from fedhv.runs.job import Job
from fedhv.runs.resolve import check_override, problem_under, resolve_setting, with_policy
from fedhv.simulation.divergence import check_explosion
from fedhv.simulation.events import Assess, Event, FinishedRound
from fedhv.simulation.loop import evaluated, rounds
from fedhv.simulation.observer import Observer
from fedhv.support.errors import FedHVError, InputError, diverged
from fedhv.support.wording import counted

EvaluateFunction = Callable[[int, ArrayRecord], MetricRecord | None]


class Strategy(FlowerStrategy):
    """FedHV or any other method of the package as a Flower strategy.

    Flower's loop handles one exchange per round, the one that trains. Other exchanges of a method (FedCMOO) take
    place in `configure_train`, before that exchange, or in `aggregate_train`, after it. Each round starts from the
    model that the loop passes, so that a wrapper may change it, as those of differential privacy do.

        strategy = Strategy(FedHV(reference=(2.4, 2.4)), Server(Net, TASKS, test, nodes=3))
        strategy.start(grid)

    Args:
        method: A method with its hyper-parameters, or its name; FedHV needs its reference. Learning rates that it was
            not given are the setting's.
        server: A `Server`, or a whole problem.
        setting: The setting of the run; by default that of a user's own problem, see `fedhv.run`.
        override: `section.key=value` changes of the setting, such as `training.rounds=20`.
        seed: The seed of all random draws of the run.
        patience: The time limits of the server, for nodes and for replies.
        folder: The run's folder. Every round is checkpointed, and an existing run is resumed.
        observer: Receives progress.
        owners: The node of every partition. Any other node that claims the partition is refused.
    """

    def __init__(
        self,
        method: str | Method,
        server: Server | Problem,
        *,
        setting: Setting | None = None,
        override: Iterable[str] = (),
        seed: int = 0,
        patience: Patience | None = None,
        folder: str | Path | None = None,
        observer: Observer | None = None,
        owners: Mapping[int, int] | None = None,
    ) -> None:
        problem = server.problem() if isinstance(server, Server) else server
        check_override(override)
        changes = list(override)
        check_applied(changes, [method])
        chosen = resolve_setting(problem, changes) if setting is None else override_setting(setting, changes)
        method = chosen.chosen(method)
        if needs_reference(method):
            raise InputError(
                f"Method '{method.label}' needs a reference here: {type(method).__name__}(reference=(…)). "
                "Find one with `fedhv calibrate`, or use fedhv.flower.server_app, which calibrates first."
            )
        if chosen.evaluation.patience:
            raise InputError(
                "Flower's loop runs a fixed number of rounds: `evaluation.patience` has no effect in a strategy. "
                "Leave it out, or use fedhv.flower.server_app."
            )
        refuse_for_nodes(chosen, problem)
        problem = problem_under(chosen, problem) if setting is None else with_policy(problem, chosen)
        where = Path(folder) if folder is not None else None
        self._observer = observer or Log()
        self.patience = patience or Patience()
        choice = over_flower(
            None,
            self.patience,
            chosen.server.min_replies,
            owners=owners,
            stop=where and where / STOP,
            tell=self._observer.message,
        )
        self.job = Job(chosen, problem, method, seed, choice, where)
        with ExitStack() as stack:
            stack.enter_context(self.job.opened(resume=True))
            self.engine = choice.make(problem)
            self.execution = stack.enter_context(Execution(self.job, self.engine, self._observer))
            self._stack = stack.pop_all()
        self._run: Generator[Event, Any, None] | None = None
        self._open: tuple[Call, dict[int, Message]] | None = None
        self._finished: FinishedRound | None = None
        self._alone = False
        """Whether Flower's loop calls this strategy directly, without a wrapper."""
        self._began = time.perf_counter()

    # --- what Flower's loop calls -------------------------------------------------------------------------

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The messages of the exchange that trains. Exchanges before it take place here."""
        self._record_finished(arrays)
        self._began = time.perf_counter()
        self.engine.connect(grid)
        model = model_of(arrays, self.engine.layout)
        if self.rounds_left <= 0:
            raise InputError(
                f"The run has {counted(self.job.plan.rounds, 'round')}, and all are done. Found a further one; pass "
                "num_rounds=strategy.rounds_left to the loop, or set `training.rounds`."
            )
        # One round, from the model that the loop passes. The loop evaluates it after the round. A schedule depends on
        # the number of all rounds, so its rate is set before.
        plan = replace(self.job.plan, local=self.job.plan.local_in(self.execution.done), schedule=Schedule())
        plan = replace(plan, rounds=self.execution.done + 2, evaluate_every=0)
        if not self._alone:
            plan = replace(plan, screening=replace(plan.screening, attempts=1))
        self._run = rounds(
            self.engine.layout,
            self.engine.population,
            self.job.method,
            plan,
            replace(self.execution.state, model=model),
            self.execution.done,
            sizes=self.engine.sizes,
            largest=self.execution.history.largest_step,
        )
        self._advance(None, config)
        return list(self._open_messages().values())

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The next model, from the accepted replies. A round with too few is repeated here, up to `server.attempts`.

        Inside a wrapper the round is dropped instead: replies of a repetition would bypass the wrapper's clipping.
        """
        if self._open is None:
            raise FedHVError("This round has no request: `configure_train` should be called before `aggregate_train`.")
        call, messages = self._open
        try:
            self._advance(self.engine.replies(call, messages, replies), None)
        except TooFewReplies as few:
            if self._alone:
                raise
            self._observer.message(f"{few} The round is dropped.")
            return None, None
        assert self._finished is not None
        if not self._alone and not self._noise_matches(call):
            return None, None
        after = self._finished.state
        metrics: dict[str, Any] = {"weights": [float(w) for w in after.weights]}
        if self._finished.report is not None:
            metrics["report"] = list(self._finished.report)
        return model_record(after.model), MetricRecord(metrics)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """No messages: `evaluate` sends its own, in the rounds that the setting evaluates."""
        return []

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Nothing to aggregate."""
        return None

    def evaluate(self, server_round: int, arrays: ArrayRecord) -> MetricRecord | None:
        """Record the round that led to this model, and evaluate it if the setting requires it.

        This is the `evaluate_fn` of Flower's loop. `start` passes it to the loop. If another strategy wraps this one,
        pass it to that strategy's `start`.
        """
        finished = self._record_finished(arrays)
        return None if finished is None or finished.evaluation is None else _metrics(finished.evaluation)

    def summary(self) -> None:
        """Log method, seed, rounds and participants."""
        plan = self.job.plan
        log(INFO, "\t├──> FedHV: method %s, seed %s", self.job.method.label, plan.seed)
        log(INFO, "\t├──> Rounds: %s, after %s that are done", plan.rounds, self.execution.done)
        log(INFO, "\t└──> Participants: %s of %s", plan.participants, len(self.job.problem.clients))

    # --- for a ServerApp ----------------------------------------------------------------------------------

    def initial_arrays(self) -> ArrayRecord:
        """The initial θ: the model's initialisation, or the last checkpoint in the folder."""
        return model_record(self.execution.state.model)

    @property
    def rounds_left(self) -> int:
        """The number of remaining rounds."""
        return self.job.plan.rounds - self.execution.done

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord | None = None,
        num_rounds: int | None = None,
        timeout: float | None = None,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: EvaluateFunction | None = None,
    ) -> Result:
        """Run the remaining rounds (or fewer, with `num_rounds`), and write the results.

        A run that is resumed from a checkpoint ignores `initial_arrays`.
        """

        def after_round(server_round: int, arrays: ArrayRecord) -> MetricRecord | None:
            ours = self.evaluate(server_round, arrays)
            theirs = evaluate_fn(server_round, arrays) if evaluate_fn is not None else None
            return ours if theirs is None else MetricRecord({**(ours or {}), **theirs})

        self._alone, fresh = True, self.execution.done == 0
        self._observer.start(self.job.label, self.job.plan.rounds, self.execution.done)
        try:
            result = super().start(
                FrequentPolling(grid, lambda asked: quorum_of(self.job.plan.screening, asked), self.engine.arrivals),
                initial_arrays if fresh and initial_arrays is not None else self.initial_arrays(),
                self.rounds_left if num_rounds is None else min(num_rounds, self.rounds_left),
                self.patience.reply if timeout is None else timeout,
                train_config,
                evaluate_config,
                after_round,
            )
        except BaseException:
            self._stack.close()  # otherwise the folder stays locked until this process ends
            raise
        finally:
            self._observer.stop()
        self.finish()
        return result

    def finish(self) -> None:
        """Write the summary and the final model, if all rounds are done."""
        if self.rounds_left == 0 and self.execution.history.count:
            self.execution.finish()
            if self.job.folder is not None:
                discard_stop(self.job.folder / STOP)
        self._stack.close()

    # --- inside -------------------------------------------------------------------------------------------

    def _advance(self, answer: Any, config: ConfigRecord | None) -> None:
        """Continue the round: to the exchange that trains, if it has not taken place yet, otherwise to its end."""
        assert self._run is not None
        self._open = None
        while True:
            event = self._run.send(answer)
            match event:
                case FinishedRound():
                    self._finished = event
                    return
                case Call():
                    if config is not None and event.request.trains:
                        self._open = (event, self.engine.messages(event, config))
                        return
                    answer = self.engine.ask(event)
                case Assess(model, reference):
                    answer = self.engine.evaluate(model, reference)
                case FedHVError():
                    raise event

    def _noise_matches(self, call: Call) -> bool:
        """Whether the number of accepted replies is that of the wrapper's noise; otherwise the round is dropped.

        Flower's wrappers add noise for a mean of `num_sampled_clients` updates. A mean of fewer depends more on each
        of them, and the noise would be too small.
        """
        assert self._finished is not None
        taken, wanted = len((self._finished.cohort or {}).get("taken", ())), self.job.plan.participants
        if taken < wanted:
            self._observer.message(
                f"Round {self._finished.number}: {taken} of {wanted} replies are accepted; the wrapper's noise is for "
                f"{wanted}. The round is dropped."
            )
            self._finished = None
        return taken >= wanted

    def _open_messages(self) -> dict[int, Message]:
        if self._open is None:
            raise FedHVError(f"Method '{self.job.method.label}' should train clients in every round. Found none.")
        return self._open[1]

    def _evaluated(self, model: Tensor, number: int) -> tuple[Evaluation | None, Mapping[str, Any] | None]:
        """Evaluate the model after a round: on test examples here, and on held-out ones at the nodes."""
        run = evaluated(self.engine.layout, self.engine.population, self.job.plan, model, number - 1)
        answer: Any = None
        while True:
            try:
                event = run.send(answer)
            except StopIteration as end:
                found: tuple[Evaluation | None, Mapping[str, Any] | None] = end.value
                return found
            if isinstance(event, Call):
                answer = self.engine.ask(event)
            else:
                assert isinstance(event, Assess)
                answer = self.engine.evaluate(event.model, event.reference)

    def _record_finished(self, arrays: ArrayRecord) -> FinishedRound | None:
        """Record the finished round with its final model."""
        if self._finished is None:
            return None
        finished, self._finished = self._finished, None
        plan = self.job.plan
        model = model_of(arrays, self.engine.layout)
        if not bool(model.isfinite().all()):  # a wrapper's noise or clipping came after the round's own checks
            raise diverged(f"After round {finished.number} the model of Flower's loop is")
        evaluation, validation = (
            self._evaluated(model, finished.number) if plan.evaluates(finished.number) else (None, None)
        )
        if evaluation is not None:
            cohort = finished.cohort or {}
            norms = dict(zip(cohort.get("taken", ()), cohort.get("norms", ()), strict=False))
            judged = evaluation.only(plan.judged)
            check_explosion(judged, self.execution.baseline, plan.explosion, finished.number, norms)
        finished = replace(
            finished,
            state=replace(finished.state, model=model),
            seconds=round(time.perf_counter() - self._began, 6),
            evaluation=evaluation,
            validation=validation,
        )
        self.execution.record(finished)
        self._observer.round(finished)
        while self.engine.notes:
            self._observer.message(self.engine.notes.pop(0))
        return finished


def _metrics(evaluation: Evaluation) -> MetricRecord:
    found: dict[str, Any] = {"mean-accuracy": float(evaluation.mean_accuracy)}
    found["worst-accuracy"] = float(evaluation.worst_accuracy)
    for task in evaluation.tasks:
        found[f"accuracy-{task.name}"] = float(task.accuracy)
        found[f"loss-{task.name}"] = float(task.loss)
    return MetricRecord(found)
