"""Mean ± sample standard deviation over seeds, paired differences, and ranks by unrounded means."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Spread:
    """Mean and sample standard deviation over runs. The deviation is None for one run or non-finite values."""

    mean: float
    deviation: float | None
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """From one value per run."""
        if not all(map(math.isfinite, values)):
            return cls(sum(values) / len(values), None, len(values))
        try:
            deviation = statistics.stdev(values) if len(values) > 1 else None
            return cls(statistics.fmean(values), deviation, len(values))
        except OverflowError:  # finite, but their sum is not
            return cls(sum(value / len(values) for value in values), None, len(values))

    def text(self, digits: int = 2) -> str:
        """For example "90.17 ± 0.18"."""
        mean = f"{self.mean:.{digits}f}"
        return mean if self.deviation is None else f"{mean} ± {self.deviation:.{digits}f}"


@dataclass(frozen=True)
class Paired:
    """The mean difference between pairs of runs, and its Student confidence interval.

    Attributes:
        mean: Of the differences.
        low: The lower end of the interval.
        high: The upper end.
        count: The number of pairs.
    """

    mean: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, differences: Sequence[float], confidence: float = 0.95) -> Paired:
        """d̄ ± t_{n−1} s/√n, of n ≥ 2 differences d."""
        from scipy.special import stdtrit  # for those who compare

        n = len(differences)
        mean, deviation = statistics.fmean(differences), statistics.stdev(differences)
        reach = float(stdtrit(n - 1, (1 + confidence) / 2)) * deviation / math.sqrt(n)
        return cls(mean, mean - reach, mean + reach, n)

    @property
    def interval(self) -> tuple[float, float, float]:
        """The mean, and both ends of the interval."""
        return self.mean, self.low, self.high

    @property
    def clear(self) -> bool:
        """Whether the interval excludes zero."""
        return self.low > 0 or self.high < 0


def ranks(means: Mapping[str, float], higher_is_better: bool = True) -> dict[str, int]:
    """1 for the best, 2 for the second best, …; equal means share the better rank."""
    ordered = sorted(means.values(), reverse=higher_is_better)
    return {name: 1 + ordered.index(value) for name, value in means.items()}
