"""Frontiers that are traced in a second: few policies, imagined briefly by models that have learned little."""

from corsdice.ope import dynamics
from corsdice.training import ship, trace


def coarsen(monkeypatch):
    """Three λ of each way, one closeness of the improved actor; returns the seeds of the models, as they are fitted."""
    monkeypatch.setattr(trace, "POSITIONS", (0.0, 0.5, 1.0))
    monkeypatch.setattr(trace, "REFINEMENTS", 0)
    monkeypatch.setattr(trace, "CLOSENESS", (0.5,))
    monkeypatch.setattr(dynamics, "STEPS", 50)
    fitted = []

    def fit(evidence, seed, kept):
        fitted.append(seed)
        return dynamics.fit_dynamics(evidence, seed, kept)

    monkeypatch.setattr(ship, "fit_dynamics", fit)
    return fitted
