"""Methods that compare reported losses with a reference, under the reference watch."""

from __future__ import annotations

from dataclasses import dataclass

from fedhv.methods.base import Conversation, State
from fedhv.methods.parts.watch import Policy, Watch, check_watch, watched
from fedhv.methods.preferences import PreferenceMethod
from fedhv.support.errors import InputError


@dataclass(frozen=True, kw_only=True)
class ReferencedMethod(PreferenceMethod):
    """A method with a reference, which is calibrated before training unless it is given.

    Attributes:
        reference: r, one loss per task; None until it is calibrated or given.
        floor: ρ_clip, the floor of the estimated slacks.
        watch: The policy for slacks that are too small: "warn", "stop" or "recalibrate".
        watch_slack: A raw slack below this, or below the floor, is too small.
        watch_margin: δ_r of a recalibration.
    """

    reference: tuple[float, ...] | None = None
    floor: float = 1e-6
    watch: Policy = "warn"
    watch_slack: float = 0.0
    watch_margin: float = 0.15

    def __post_init__(self) -> None:
        super().__post_init__()
        check_watch(self.watch, self.watch_slack, self.watch_margin)
        if not 0 < self.floor < float("inf"):
            raise InputError(f"Method '{self.label}': `floor` should be positive. Found `floor = {self.floor}`.")
        if self.reference is not None:
            object.__setattr__(self, "reference", tuple(float(r) for r in self.reference))
            if not self.reference or not all(0 < r < float("inf") for r in self.reference):
                raise InputError(f"A reference should be positive and finite. Found {list(self.reference)}.")

    def guarded_round(self, state: State) -> Conversation:
        """The round under the reference watch."""
        return watched(self, state, Watch(self.watch, self.watch_slack, self.watch_margin, self.floor))
