"""Federations with known constants, and experiments on them."""

from fedhv.paper.laboratory.ensemble import Ensemble, EnsembleDraws, Moment
from fedhv.paper.laboratory.logistic import Logistic
from fedhv.paper.laboratory.observed import Observed, observe_engine, observe_ensemble, observe_horizons
from fedhv.paper.laboratory.quadratics import Quadratics
from fedhv.paper.laboratory.rate import RateCurve, rate_curve, rate_experiment
from fedhv.paper.laboratory.safety import Safety, SafetyCase, safety, safety_cases, safety_experiment
from fedhv.paper.laboratory.terms import Case, Measured, cases, measure, terms_experiment

__all__ = [
    "Case",
    "Ensemble",
    "EnsembleDraws",
    "Logistic",
    "Measured",
    "Moment",
    "Observed",
    "Quadratics",
    "RateCurve",
    "Safety",
    "SafetyCase",
    "cases",
    "measure",
    "observe_engine",
    "observe_ensemble",
    "observe_horizons",
    "rate_curve",
    "rate_experiment",
    "safety",
    "safety_cases",
    "safety_experiment",
    "terms_experiment",
]
