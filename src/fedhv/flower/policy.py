"""A node's privacy policy: a file of its operator, and a ledger of all answers of the node.

    [reports]            # reported and held-out losses
    clip = 3.0
    noise = 1.0

    [updates]            # the change of the model by local training
    clip = 0.5
    noise = 1.0

    [budget]
    epsilon = 8.0
    delta = 1e-5
    ledger = "/var/lib/fedhv/ledger"

The node's own configuration names the file (`--node-config "policy='/etc/fedhv/policy.toml'"`); a server cannot change
it. The ledger is a folder. The cost of an answer is written and flushed there before the answer is sent. An answer
that would exceed the budget is not computed. The budget holds for the node's lifetime, over all runs.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save
from torch import Tensor

from fedhv.protocol.accounting import gaussian_epsilon
from fedhv.protocol.cohort import Cohort
from fedhv.protocol.fields import plain_fields, tensor_fields, tensors_of
from fedhv.protocol.report_privacy import ReportPrivacy
from fedhv.protocol.request import Reply, Request
from fedhv.support import toml
from fedhv.support.errors import FedHVError, InputError
from fedhv.support.files import locked, make_folder, write_atomic

SPENT = "spent.json"
ANSWERS = 8
"""The number of recent answers that are kept, to be sent again if the same request arrives again."""


@dataclass(frozen=True)
class UpdatePrivacy:
    """Clips an update to a norm S and adds N(0, (2zS)²): two updates of a client differ by at most 2S.

    Attributes:
        clip: S.
        noise: z, the noise multiplier; 0 clips only, without a privacy guarantee.
    """

    clip: float
    noise: float

    def __post_init__(self) -> None:
        if not 0 < self.clip < math.inf or not 0 <= self.noise < math.inf:
            raise InputError(
                "The policy's [updates] should have a positive `clip` and a `noise` from 0. "
                f"Found clip = {self.clip}, noise = {self.noise}."
            )

    def protect(self, update: Tensor, rng: np.random.Generator) -> Tensor:
        """The update that may leave the node."""
        exact = update.double().nan_to_num()
        norm = float(exact.norm())
        clipped = exact * min(1.0, self.clip / norm) if norm else exact
        noise = torch.from_numpy(rng.standard_normal(tuple(update.shape))).to(clipped)
        return (clipped + 2 * self.noise * self.clip * noise).to(update)


@dataclass(frozen=True)
class Budget:
    """The privacy budget of a node's lifetime, and its ledger.

    Attributes:
        epsilon: ε.
        ledger: The absolute path of a folder, which is created if it does not exist.
        delta: δ.
    """

    epsilon: float
    ledger: str
    delta: float = 1e-5

    def __post_init__(self) -> None:
        if not 0 < self.epsilon < math.inf or not 0 < self.delta < 1:
            raise InputError(
                "The policy's [budget] should have a positive `epsilon` and a `delta` in (0, 1). "
                f"Found epsilon = {self.epsilon}, delta = {self.delta}."
            )
        if not Path(self.ledger).is_absolute():  # a process in another folder would begin with a new ledger
            raise InputError(f"The policy's `ledger` should be an absolute path. Found '{self.ledger}'.")


@dataclass(frozen=True)
class Policy:
    """A node's policy.

    Attributes:
        reports: Clipping and noise of losses; None for neither.
        updates: Clipping and noise of updates; None for neither.
        budget: The privacy budget; None for no limit and no ledger.
    """

    reports: ReportPrivacy | None = None
    updates: UpdatePrivacy | None = None
    budget: Budget | None = None

    def __post_init__(self) -> None:
        if self.budget is None:
            if self.reports is None and self.updates is None:  # it would replace the app's protection by none
                raise InputError("A policy should have [reports], [updates] or both. Found neither.")
            return
        for name in ("reports", "updates"):
            rule = getattr(self, name)
            if rule is None or rule.noise == 0:
                raise InputError(
                    f"A policy with a [budget] should have noise for [{name}]: an answer without noise spends all. "
                    "Found none. Add clip and noise, or leave the budget out."
                )

    @classmethod
    def read(cls, path: str | Path) -> Policy:
        """Read a policy file."""
        return toml.build(cls, toml.read(Path(path)))

    def spent(self) -> tuple[float, int]:
        """ε of everything that has left the node so far, and how many answers that was."""
        assert self.budget is not None
        ledger = _read(Path(self.budget.ledger))
        releases = {float(z): int(n) for z, n in ledger["releases"].items()}
        return gaussian_epsilon(releases, self.budget.delta), len(ledger["answers"])

    def answer(self, request: Request, cohort: Cohort, compute: Callable[[], Reply]) -> Reply:
        """A client's protected answer, after its cost is in the ledger. The same request gets the same answer."""
        if self.budget is None:
            return self._protected(compute())
        folder = make_folder(Path(self.budget.ledger))
        with locked(folder):  # a SuperNode may run several apps at once
            return self._within_budget(folder, _digest(request, cohort), request, compute)

    def _within_budget(self, folder: Path, key: str, request: Request, compute: Callable[[], Reply]) -> Reply:
        assert self.budget is not None
        ledger = _read(folder)
        if key in ledger["answers"]:
            kept = folder / f"{key}.safetensors"
            if not kept.exists():
                raise FedHVError("this node has already answered this request and does not answer it again")
            return request.reply(**{n: load_file(kept).get(n) for n in tensor_fields(request.reply)})
        releases = {float(z): int(n) for z, n in ledger["releases"].items()}
        for noise, count in self._cost(request).items():
            releases[noise] = releases.get(noise, 0) + count
        after = gaussian_epsilon(releases, self.budget.delta)
        if after > self.budget.epsilon:
            raise FedHVError(
                f"this node's privacy budget is used up: an answer would bring it to ε = {after:.4g} of "
                f"{self.budget.epsilon:g} at δ = {self.budget.delta:g}"
            )
        reply = self._protected(compute())
        write_atomic(
            folder / f"{key}.safetensors", save({n: v.cpu().contiguous() for n, v in tensors_of(reply).items()})
        )
        answers = [*ledger["answers"], key]
        ledger = {"releases": {str(z): n for z, n in releases.items()}, "epsilon": after, "answers": answers}
        write_atomic(folder / SPENT, json.dumps(ledger))
        for old in answers[:-ANSWERS]:
            (folder / f"{old}.safetensors").unlink(missing_ok=True)
        return reply

    def _cost(self, request: Request) -> dict[float, int]:
        """The number of releases of an answer, by noise multiplier. All fields that a reply may have are counted."""
        assert self.reports is not None
        assert self.updates is not None
        noise = {"report": self.reports.noise, "score": self.reports.noise, "update": self.updates.noise}
        bounds = [about.bound for about in tensor_fields(request.reply).values()]
        return dict(Counter(noise[bound] for bound in bounds if bound in noise))

    def _protected(self, reply: Reply) -> Reply:
        """The reply with noise from the machine's entropy, because the server knows the run's seed."""
        rng = np.random.default_rng()
        about = tensor_fields(type(reply))
        open_ = (None,) if self.reports is not None else (None, "metric")
        bare = [n for n, each in about.items() if each.bound in open_ and getattr(reply, n) is not None]
        if self.updates is not None:
            if bare:
                raise FedHVError(f"this node's policy has no protection for {', '.join(bare)}")
            mine = [n for n, each in about.items() if each.bound == "update" and getattr(reply, n) is not None]
            reply = replace(reply, **{n: self.updates.protect(getattr(reply, n), rng) for n in mine})
        return reply if self.reports is None else self.reports.protect(reply, rng)


def _read(folder: Path) -> dict[str, Any]:
    try:
        found = json.loads((folder / SPENT).read_text())
        return {"releases": dict(found["releases"]), "answers": list(found["answers"])}
    except FileNotFoundError:
        return {"releases": {}, "answers": []}
    except (ValueError, KeyError, TypeError):
        raise FedHVError(
            f"this node's ledger {folder / SPENT} cannot be read. Restore it; until then the node does not answer"
        ) from None


def _digest(request: Request, cohort: Cohort) -> str:
    """A digest that identifies a request: its fields, round, seed and local training."""
    made = hashlib.sha256()
    plain = [getattr(request, name) for name in plain_fields(type(request))]
    local = [getattr(cohort.local, each.name) for each in fields(cohort.local)]
    made.update(repr((type(request).name, plain, cohort.round, cohort.seed, local)).encode())
    for name, value in sorted(tensors_of(request).items()):
        made.update(name.encode() + value.detach().cpu().contiguous().numpy().tobytes())
    return made.hexdigest()
