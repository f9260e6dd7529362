"""The knobs of rules: a hyper-parameter of each, with the range in which it trades the mean for the worst task.

`fedhv tune` searches these ranges and `fedhv front` goes along them. This module does not import the rules.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Knob:
    """A positive hyper-parameter and its range, which is divided evenly in its logarithm.

    Attributes:
        key: The hyper-parameter.
        low: The lower end of the range.
        high: The upper end.
        least: The logarithm is that of the difference to this number, such as 1 for a factor above 1.
    """

    key: str
    low: float
    high: float
    least: float = 0.0

    def at(self, share: float) -> float:
        """The value at a share of the range, from 0 (`low`) to 1 (`high`), with four digits."""
        low, high = self.low - self.least, self.high - self.least
        return float(f"{self.least + low * (high / low) ** share:.4g}")


KNOBS: dict[str, Knob] = {
    "power": Knob("power", 0.25, 8.0),
    "stch": Knob("mu", 0.02, 2.0),
    "afl": Knob("rate", 0.003, 0.3),
    "dwa": Knob("temperature", 0.1, 10.0),
    "famo": Knob("rate", 0.025, 25.0),
    "uncertainty": Knob("rate", 0.01, 1.0),
    "imtl-l": Knob("rate", 0.01, 1.0),
    "fedhv-moving": Knob("factor", 1.02, 5.0, least=1.0),
    "torchjd:CAGrad": Knob("c", 0.1, 0.9),
    "torchjd:CAGradWeighting": Knob("c", 0.1, 0.9),
    "torchjd:FairGrad": Knob("alpha", 0.3, 3.0),
    "torchjd:FairGradWeighting": Knob("alpha", 0.3, 3.0),
    "torchjd:COSMOS": Knob("lambda_", 0.1, 10.0),
    "torchjd:PBI": Knob("theta", 0.1, 10.0),
    "torchjd:STCH": Knob("mu", 0.02, 2.0),
}
"""The knob of every rule that has one, by the rule's name."""
