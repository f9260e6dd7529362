"""`fedhv flower up`: a whole federation on this machine, from the first process to the last."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fedhv.engines.accounting import gaussian_epsilon
from fedhv.engines.privacy import ReportPrivacy, spent
from fedhv.engines.rehearsal import rehearse
from fedhv.flower.control import Control
from fedhv.flower.deployment import Deployment, write_app
from fedhv.flower.engine import over_flower
from fedhv.flower.owners import write_owners
from fedhv.flower.roster import Patience
from fedhv.methods.base import Method, needs_reference, takes_reference
from fedhv.runs.config import Setting, load_setting
from fedhv.runs.folder import check_folder
from fedhv.runs.history import NAME as HISTORY
from fedhv.runs.history import read_history
from fedhv.runs.job import Job
from fedhv.runs.record import Run, read_finished, read_summary
from fedhv.runs.resolve import resolve, resolve_reference
from fedhv.simulation.observer import Observer, Progress
from fedhv.simulation.record import Round
from fedhv.support import toml
from fedhv.support.errors import FedHVError, InputError, Interrupted

LOOKS = 0.25
"""Seconds between two looks at how far the run is."""
STARTING = 300.0
"""Seconds that a ServerApp has to start."""
RESTARTS = 3
"""How often a ServerApp that died without a word is started again."""


@dataclass(frozen=True)
class Order:
    """What to run.

    Attributes:
        setting: A setting's name or TOML file.
        method: A method's name or "package.module:Class".
        nodes: N, one SuperNode for each client.
        seed: The seed of all random draws of the run.
        out: The run's folder.
        reference: For FedHV, a file or a name in the setting; without one it is calibrated on the nodes.
        override: `section.key=value` changes of the setting.
        rounds: Instead of the setting's.
        data: The folder of the datasets.
        device: Of the nodes.
        tls: Encrypt, and let in only nodes whose keys are registered.
        resume: Continue the run in the folder.
        patience: How long the server waits.
        reports: What clients do to the losses that they report.
    """

    setting: str
    method: str
    nodes: int
    out: Path
    seed: int = 0
    reference: str | None = None
    override: tuple[str, ...] = ()
    rounds: int | None = None
    data: str | None = None
    device: str = "cpu"
    tls: bool = False
    resume: bool = False
    patience: Patience = field(default_factory=lambda: Patience(reply=120.0))
    reports: ReportPrivacy | None = None

    def resolved(self) -> Setting:
        """The setting with a client for every node."""
        if self.nodes < 1:
            raise InputError(f"`--nodes` should be at least 1. Found {self.nodes}.")
        changes = [*self.override, *([] if self.rounds is None else [f"training.rounds={self.rounds}"])]
        asked = load_setting(self.setting, changes)
        most = min(asked.federation.participants, self.nodes)
        divided = [] if asked.federation.clients is None else [f"federation.clients={self.nodes}"]
        return load_setting(self.setting, [f"federation.participants={most}", *changes, *divided])


def up(order: Order, observer: Observer | None = None) -> Run:
    """Start SuperLink and SuperNodes, run, and take everything down again, also after an error or Ctrl-C."""
    observer = observer or Observer()
    setting = order.resolved()
    method = setting.method(order.method)
    _, problem = resolve(setting, data=order.data)
    if len(problem.clients) != order.nodes:
        raise InputError(
            f"`--nodes` should be {len(problem.clients)}, one for every client that '{setting.benchmark}' brings. "
            f"Found {order.nodes}."
        )
    rehearse(problem)
    given = resolve_reference(order.reference, setting, problem)
    if given is not None and not takes_reference(method):
        raise InputError(f"Method '{method.label}' takes no reference. Leave out --reference.")
    job = Job(setting, problem, method, order.seed, over_flower(None, reports=order.reports), order.out, given)
    check_folder(order.out, job.config(), order.resume)
    if read_summary(order.out) is not None:
        observer.message(f"The run in {order.out} is finished already.")
        return read_finished(order.out)
    if order.reports is not None:
        calibrates = given is None and needs_reference(method)
        _say_what_is_spent(order.reports, setting, order.nodes, calibrates, observer)
    watch = _Watch(order.out, setting, method, order.seed)
    observer.message(
        f"Starting a SuperLink and {order.nodes} SuperNodes on 127.0.0.1, "
        f"{'with TLS and node keys' if order.tls else 'without TLS'}."
    )
    try:
        with Deployment(order.nodes, order.tls) as deployment:
            try:
                _run(deployment, order, setting, watch, observer)
            except FedHVError:
                deployment.keep_logs = True
                observer.message(f"The logs are in {deployment.logs}")
                raise
    except KeyboardInterrupt:
        raise Interrupted(f"Stopped after round {watch.done()} of {setting.training.rounds}.") from None
    if order.reports is not None and order.reports.noise > 0:
        observer.message(what_was_spent(order.reports, order.out))
    return read_finished(order.out)


def what_was_spent(reports: ReportPrivacy, out: Path, delta: float = 1e-5) -> str:
    """What the reports that were asked for have really spent, of the client that spent most; exact, not a bound.

    Every request counts, answered or not, in all attempts and in the calibration. An evaluation at the nodes is two
    releases: losses and scores.
    """
    counts: Counter[int] = Counter()
    for folder in (out, *sorted((out / "calibration").glob("seed*"))):
        for played in read_history(folder):
            counts.update((played.cohort or {}).get("asked", ()))
            found = played.validation or {}
            counts.update(dict.fromkeys(found.get("clients", {}).get("client", ()), 2))
            counts.update({refusal["client"]: 2 for refusal in found.get("refused", ())})
    client, most = counts.most_common(1)[0]
    epsilon = gaussian_epsilon({reports.noise: most}, delta)
    return (
        f"Reports: in the rounds that are recorded client {client} was asked most, for {most} noised releases: "
        f"ε = {epsilon:.3g} at δ = {delta:g} towards the server."
    )


def _run(deployment: Deployment, order: Order, setting: Setting, watch: _Watch, observer: Observer) -> None:
    """Submit the app and follow it to its end; a server that dies without a word is started again."""
    path = deployment.home / "setting.toml"
    path.write_text(toml.write(toml.as_tables(setting)), encoding="utf-8")
    missing: set[str] = set()
    roster = deployment.home / "roster.toml" if deployment.owners else None
    if roster is not None:
        write_owners(roster, deployment.owners)
    for attempt in range(1 + RESTARTS):
        control = Control(deployment.home / f"control-{attempt}")
        run = deployment.submit(write_app(deployment.home / f"app-{attempt}", _config(order, path, control, roster)))
        submitted = time.monotonic()
        while (outcome := control.outcome()) is None and not control.died():
            time.sleep(LOOKS)
            for name in set(deployment.processes.dead()) - missing:
                missing.add(name)
                if name == "superlink":
                    raise FedHVError(f"The SuperLink ended:\n{deployment.processes.tail(name)}")
                observer.message(f"{name} has ended; the run goes on without it.")
            if not control.started() and time.monotonic() - submitted > STARTING:
                tail = deployment.processes.tail("superlink")
                raise FedHVError(f"The ServerApp did not start within {STARTING:g} s:\n{tail}")
            _tell(control, watch, observer)
        _tell(control, watch, observer)
        if outcome is not None:
            if outcome["code"] != 0:
                raise (InputError if outcome["code"] == InputError.exit_code else FedHVError)(outcome["error"])
            return
        if attempt < RESTARTS:
            observer.message(f"The server died. Going on after round {watch.done()}.")
            deployment.free_nodes(run)
    raise FedHVError(f"The server died {1 + RESTARTS} times; the last time after round {watch.done()}.")


def _tell(control: Control, watch: _Watch, observer: Observer) -> None:
    """Pass on what is new."""
    for line in control.said():
        observer.message(line)
    if watch.moved():
        observer.runs(watch.progress())


def _config(order: Order, setting: Path, control: Control, roster: Path | None) -> dict[str, object]:
    """The app's run configuration; its processes run elsewhere, so all paths are absolute."""
    reference, data = order.reference or "", order.data or ""
    if reference and Path(reference).is_file():
        reference = str(Path(reference).resolve())
    return {
        "setting": str(setting),
        "method": order.method,
        "seed": order.seed,
        "out": str(order.out.resolve()),
        "reference": reference,
        "data": str(Path(data).resolve()) if data else "",
        "device": order.device,
        "reply-seconds": order.patience.reply,
        "node-seconds": order.patience.nodes,
        "report-clip": order.reports.clip if order.reports else 0.0,
        "report-noise": order.reports.noise if order.reports else 0.0,
        "roster": str(roster or ""),
        "control": str(control.folder),
    }


def _say_what_is_spent(
    reports: ReportPrivacy, setting: Setting, nodes: int, calibrates: bool, observer: Observer
) -> None:
    """A bound that holds whatever happens: everybody is there, in every cohort, and nothing works the first time.

    The draw of M of N hides nobody, since it is from the nodes that are there. A calibration asks the same clients for
    reports too, in rounds of its own, one for every seed at a time; a round that a dying server leaves open is played
    again.
    """
    rounds, rule = setting.training.rounds, setting.calibration
    if reports.noise == 0:
        observer.message("Reports are clipped but not noised: nothing is promised about privacy.")
        return
    seeds = len(rule.seeds) if calibrates else 0
    before, attempts, again = rule.rounds * seeds, setting.server.attempts, RESTARTS * max(1, seeds)
    asked = (before + rounds + again) * attempts
    if setting.federation.validation:  # losses and scores of held-out examples, as often as models are evaluated
        every = setting.evaluation.every
        asked += 2 * ((rounds // every if every else 0) + 1 + seeds + again)
    cost = spent(reports, rounds=asked, participants=nodes, clients=nodes)
    observer.message(
        f"Reports: clip {reports.clip:g}, noise multiplier {reports.noise:g}; over the run (T = {rounds}"
        f"{f', after {before} rounds of calibration' if before else ''}) at most ε = {cost.to_server:.3g} towards the "
        f"server, and so towards anybody, at δ = {cost.delta:g}. This counts {asked} reports of a client: one in every "
        f"round, with all attempts that a round has (`server.attempts` = {attempts}) and {again} rounds that "
        f"restarts of the server may repeat{'; an evaluation counts as two' if setting.federation.validation else ''}."
    )


class _Watch:
    """How far the run is, read off its folder: no channel between processes is needed."""

    def __init__(self, out: Path, setting: Setting, method: Method, seed: int) -> None:
        self.out, self.setting, self.label = out, setting, f"{method.label} seed {seed}"
        self._shown: list[int] = []

    def done(self) -> int:
        """How many rounds are recorded."""
        return len(_played(self.out))

    def moved(self) -> bool:
        """Whether there is a round more than at the last call."""
        before, self._shown = self._shown, [done for _, done, _, _ in self.progress()]
        return any(self._shown) and self._shown != before

    def progress(self) -> Sequence[Progress]:
        """Of the run, and of its calibration while that goes on."""
        rule = self.setting.calibration
        states = [
            _state(f"calibration seed {seed}", self.out / "calibration" / f"seed{seed}", rule.rounds)
            for seed in rule.seeds
            if (self.out / "calibration" / f"seed{seed}" / HISTORY).exists()
        ]
        return [*states, _state(self.label, self.out, self.setting.training.rounds)]


def _state(label: str, folder: Path, rounds: int) -> Progress:
    played = _played(folder)
    return Progress(label, len(played), rounds, next((each for each in reversed(played) if each.evaluation), None))


def _played(folder: Path) -> list[Round]:
    try:
        return read_history(folder)
    except InputError:  # read while it is written
        return []
