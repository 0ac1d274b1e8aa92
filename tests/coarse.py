"""Frontiers that are traced in a second: few policies, imagined briefly by models that have learned little."""

from corsdice.ope import dynamics
from corsdice.training import trace


def coarsen(monkeypatch):
    """Three λ of each way, one imitation of the improved actor; returns the seeds of the models, as they are fitted."""
    monkeypatch.setattr(trace, "COARSE", {"multiplier": 3, "imitation": 1})
    monkeypatch.setattr(trace, "REFINEMENTS", 0)
    monkeypatch.setattr(dynamics, "STEPS", 50)
    fitted = []

    def fit(evidence, seed=0, kept=None, fit_dynamics=dynamics.fit_dynamics):
        fitted.append(seed)
        return fit_dynamics(evidence, seed, kept)

    monkeypatch.setattr(dynamics, "fit_dynamics", fit)
    return fitted
