"""`fedhv flower up`: a whole federation on this machine; starts and ends all its processes."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fedhv.engines import choose_device
from fedhv.engines.trial_run import check_model
from fedhv.flower.control import Control
from fedhv.flower.deployment import SUPEREXEC, Deployment, write_app
from fedhv.flower.engine import over_flower
from fedhv.flower.patience import Patience
from fedhv.flower.roster_file import write_owners
from fedhv.methods.base import Method, needs_reference, takes_reference
from fedhv.protocol.accounting import gaussian_epsilon
from fedhv.protocol.privacy_cost import spent
from fedhv.protocol.report_privacy import ReportPrivacy
from fedhv.runs.config import Setting, load_setting
from fedhv.runs.folder import check_folder, remove_runs
from fedhv.runs.history import NAME as HISTORY
from fedhv.runs.history import read_history
from fedhv.runs.job import Job
from fedhv.runs.record import Run, read_finished, read_summary
from fedhv.runs.resolve import resolve, resolve_reference
from fedhv.simulation.observer import Observer, Progress
from fedhv.simulation.record import Round
from fedhv.support import toml
from fedhv.support.errors import FedHVError, InputError, Interrupted
from fedhv.support.files import locked

POLL_SECONDS = 0.25
"""Seconds between two checks of the run's progress."""
STARTING = 300.0
"""The time limit for a ServerApp to start, in seconds."""
ESSENTIAL = {"superlink": "The SuperLink", SUPEREXEC: "The SuperExec"}
"""Processes without which no run continues."""
RESTARTS = 3
"""How often a ServerApp that was killed is restarted."""


@dataclass(frozen=True)
class Order:
    """A run on a local federation.

    Attributes:
        setting: A setting's name or TOML file.
        method: A method's name or "package.module:Class".
        nodes: N, one SuperNode for each client.
        seed: The seed of all random draws of the run.
        out: The run's folder.
        reference: For FedHV, a file or a name in the setting; without one it is calibrated on the nodes.
        override: `section.key=value` changes of the setting.
        rounds: The number of rounds; None for the setting's.
        data: The folder of the datasets.
        device: The device of the nodes.
        tls: Use encryption, and accept only nodes with registered keys.
        resume: Continue the run in the folder.
        fresh: Delete the run in the folder first.
        patience: The time limits of the server.
        reports: Clipping and noise of the reported losses.
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
    fresh: bool = False
    patience: Patience = field(default_factory=lambda: Patience(reply=120.0))
    reports: ReportPrivacy | None = None

    def resolved(self) -> Setting:
        """The setting with a client for every node."""
        if self.nodes < 1:
            raise InputError(f"`--nodes` should be at least 1. Found {self.nodes}.")
        changes = [*self.override, *([] if self.rounds is None else [f"training.rounds={self.rounds}"])]
        plain = load_setting(self.setting).federation.clients
        room = [] if plain is None else [f"federation.clients={max(plain, self.nodes)}"]
        asked = load_setting(self.setting, [*room, *changes])
        most = min(asked.federation.participants, self.nodes)
        divided = [] if asked.federation.clients is None else [f"federation.clients={self.nodes}"]
        return load_setting(self.setting, [f"federation.participants={most}", *changes, *divided])


def up(order: Order, observer: Observer | None = None) -> Run:
    """Start SuperLink and SuperNodes, run, and end all processes, also after an error or Ctrl-C."""
    observer = observer or Observer()
    setting = order.resolved()
    method = setting.method(order.method)
    choose_device(order.device)  # the nodes are on this machine; they would refuse it one by one
    _, problem = resolve(setting, data=order.data)
    if len(problem.clients) != order.nodes:
        raise InputError(
            f"`--nodes` should be {len(problem.clients)}, one for every client of '{setting.benchmark}'. "
            f"Found {order.nodes}."
        )
    check_model(problem)
    given = resolve_reference(order.reference, setting, problem)
    if given is not None and not takes_reference(method):
        raise InputError(f"Method '{method.label}' takes no reference. Leave out --reference.")
    job = Job(setting, problem, method, order.seed, over_flower(None, reports=order.reports), order.out, given)
    if order.fresh:
        remove_runs([order.out])
    check_folder(order.out, job.config(), order.resume)
    if order.out.exists():
        with locked(order.out):  # raises an error while another process has the lock
            pass
    if read_summary(order.out) is not None:
        observer.message(f"The run in {order.out} is already finished.")
        return read_finished(order.out)
    if order.reports is not None:
        calibrates = given is None and needs_reference(method)
        _show_privacy_bound(order.reports, setting, order.nodes, calibrates, observer)
    progress = _RunProgress(order.out, setting, method, order.seed)
    observer.message(
        f"Starting a SuperLink and {order.nodes} SuperNodes on 127.0.0.1, "
        f"{'with TLS and node keys' if order.tls else 'without TLS'}."
    )
    try:
        with Deployment(order.nodes, order.tls) as deployment:
            try:
                _run(deployment, order, setting, progress, observer)
            except FedHVError:
                deployment.keep_logs = True
                observer.message(f"The logs are in {deployment.logs}")
                raise
    except KeyboardInterrupt:
        raise Interrupted(f"Stopped after round {progress.done()} of {setting.training.rounds}.") from None
    if order.reports is not None and order.reports.noise > 0:
        observer.message(privacy_spent(order.reports, order.out))
    return read_finished(order.out)


def privacy_spent(reports: ReportPrivacy, out: Path, delta: float = 1e-5) -> str:
    """The privacy cost of the recorded requests, for the client with the largest one; exact, not a bound.

    All requests are counted, answered or not, in all attempts and in the calibration. An evaluation at the nodes is two
    releases: losses and scores.
    """
    counts: Counter[int] = Counter()
    for folder in (out, *sorted((out / "calibration").glob("seed*"))):
        for recorded in read_history(folder):
            counts.update((recorded.cohort or {}).get("asked", ()))
            found = recorded.validation or {}
            counts.update(dict.fromkeys(found.get("clients", {}).get("client", ()), 2))
            counts.update({refusal["client"]: 2 for refusal in found.get("refused", ())})
    client, most = counts.most_common(1)[0]
    epsilon = gaussian_epsilon({reports.noise: most}, delta)
    return (
        f"Reports: in the recorded rounds client {client} had the most requests, {most} noised releases: "
        f"ε = {epsilon:.3g} at δ = {delta:g} towards the server."
    )


def _run(deployment: Deployment, order: Order, setting: Setting, progress: _RunProgress, observer: Observer) -> None:
    """Submit the app and follow it to its end. A server that is killed is restarted."""
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
            time.sleep(POLL_SECONDS)
            for name in set(deployment.processes.dead()) - missing:
                missing.add(name)
                if name in ESSENTIAL:
                    raise FedHVError(f"{ESSENTIAL[name]} ended:\n{deployment.processes.tail(name)}")
                observer.message(f"{name} has ended. The run continues without it.")
            if not control.started() and time.monotonic() - submitted > STARTING:
                tail = deployment.processes.tail("superlink")
                raise FedHVError(f"The ServerApp did not start within {STARTING:g} s:\n{tail}")
            _show_progress(control, progress, observer)
        _show_progress(control, progress, observer)
        if outcome is not None:
            if outcome["code"] != 0:
                raise (InputError if outcome["code"] == InputError.exit_code else FedHVError)(outcome["error"])
            return
        if attempt < RESTARTS:
            observer.message(f"The server was killed. Continuing after round {progress.done()}.")
            deployment.free_nodes(run)
    raise FedHVError(f"The server was killed {1 + RESTARTS} times, the last time after round {progress.done()}.")


def _show_progress(control: Control, progress: _RunProgress, observer: Observer) -> None:
    """Show new messages and progress."""
    for line in control.messages():
        observer.message(line)
    if progress.advanced():
        observer.runs(progress.progress())


def _config(order: Order, setting: Path, control: Control, roster: Path | None) -> dict[str, object]:
    """The app's run configuration. Its processes have another working directory, so all paths are absolute."""
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


def _show_privacy_bound(
    reports: ReportPrivacy, setting: Setting, nodes: int, calibrates: bool, observer: Observer
) -> None:
    """Show an upper bound on the privacy cost: a client in every cohort, and all attempts of every round.

    Sampling M of N clients gives no amplification, because M are drawn from the available nodes. The calibration
    requests reports of the same clients, in separate rounds per seed. A round that a killed server has not finished is
    repeated.
    """
    rounds, rule = setting.training.rounds, setting.calibration
    if reports.noise == 0:
        observer.message("Reports are clipped but have no noise: there is no privacy guarantee.")
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
        f"server, and so towards all, at δ = {cost.delta:g}. This counts {asked} reports of a client: one in every "
        f"round, with all attempts that a round has (`server.attempts` = {attempts}) and {again} rounds that "
        f"restarts of the server may repeat{'; an evaluation counts as two' if setting.federation.validation else ''}."
    )


class _RunProgress:
    """The progress of the run, read from its folder."""

    def __init__(self, out: Path, setting: Setting, method: Method, seed: int) -> None:
        self.out, self.setting, self.label = out, setting, f"{method.label} seed {seed}"
        self._shown: list[int] = []

    def done(self) -> int:
        """The number of recorded rounds."""
        return len(_recorded(self.out))

    def advanced(self) -> bool:
        """Whether there are new rounds since the last call."""
        before, self._shown = self._shown, [done for _, done, _, _ in self.progress()]
        return any(self._shown) and self._shown != before

    def progress(self) -> Sequence[Progress]:
        """The progress of the run and of its calibration."""
        rule = self.setting.calibration
        states = [
            _state(f"calibration seed {seed}", self.out / "calibration" / f"seed{seed}", rule.rounds)
            for seed in rule.seeds
            if (self.out / "calibration" / f"seed{seed}" / HISTORY).exists()
        ]
        return [*states, _state(self.label, self.out, self.setting.training.rounds)]


def _state(label: str, folder: Path, rounds: int) -> Progress:
    recorded = _recorded(folder)
    return Progress(label, len(recorded), rounds, next((each for each in reversed(recorded) if each.evaluation), None))


def _recorded(folder: Path) -> list[Round]:
    try:
        return read_history(folder)
    except InputError:  # read while it is written
        return []
