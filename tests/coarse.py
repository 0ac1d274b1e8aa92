"""Frontiers that are traced in a second: few policies, imagined briefly by models that have learned little."""

from corsdice.ope import dynamics
from corsdice.training import ship, trace


def learn_little(monkeypatch):
    """Models of one step that are fitted by 50 steps."""
    monkeypatch.setattr(dynamics, "ROUND", 50)
    for network in (dynamics.StepFit, dynamics.OutcomeFit):
        monkeypatch.setattr(network, "most_rounds", 1)


def coarsen(monkeypatch):
    """Three λ of each way, one imitation of the improved actor; returns the logs that models are fitted to."""
    monkeypatch.setattr(trace, "COARSE", {"multiplier": 3, "imitation": 1})
    monkeypatch.setattr(trace, "REFINEMENTS", 0)
    learn_little(monkeypatch)
    fitted = []

    def fit(evidence, fit_ensemble=dynamics.fit_ensemble):
        fitted.append(evidence)
        return fit_ensemble(evidence)

    monkeypatch.setattr(ship, "fit_ensemble", fit)
    return fitted
