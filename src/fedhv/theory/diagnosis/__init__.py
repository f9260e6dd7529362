"""The theory applied to a run: `fedhv diagnose`."""

from fedhv.theory.diagnosis.diagnose import Diagnosis, diagnose
from fedhv.theory.diagnosis.findings import Alternative, ModelFinding
from fedhv.theory.diagnosis.measuring import Examiner, PopulationLosses

__all__ = ["Alternative", "Diagnosis", "Examiner", "ModelFinding", "PopulationLosses", "diagnose"]
