"""The algorithms by name, and the settings of the paper."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType
from typing import Any, NamedTuple

from corsdice.algorithms import algorithm1, bc, bcq, bear, cpq, d_bc, d_corsdice, family, odice, optidice
from corsdice.algorithms.contract import Config, Hypers
from corsdice.errors import UserError


class Algorithm(NamedTuple):
    """A module that keeps the contract (see `contract`), and the settings that make it the algorithm of that name."""

    name: str
    module: ModuleType
    settings: dict[str, Any]

    @property
    def is_family(self) -> bool:
        """Whether one training serves every limit."""
        return self.module in (family, d_corsdice)

    @property
    def alphas(self) -> tuple[float, ...]:
        """Those that it is trained for unless others are asked for; a limit chooses among those of a family."""
        return (0.03, 0.3) if self.is_family else (0.3,)

    def config(self, **options: Any) -> Config:
        """Its configuration with some options changed."""
        default: Config = self.module.Config(**self.settings)
        unknown = sorted(set(options) - set(default.__dataclass_fields__))
        if unknown:
            raise UserError(f"{self.name} has no option {', '.join(unknown)}")
        return replace(default, **options)


ALGORITHMS = {
    algorithm.name: algorithm
    for algorithm in (
        Algorithm("corsdice", family, {}),
        Algorithm("corsdice-paper", algorithm1, {}),
        Algorithm("semidice", algorithm1, {"estimate": "none"}),
        Algorithm("naive-semidice", algorithm1, {"estimate": "naive"}),
        Algorithm("f-dvl", algorithm1, {"estimate": "none", "divergence": "chi2", "balance": 0.5}),
        Algorithm("sql", algorithm1, {"estimate": "none", "divergence": "chi2", "alpha_factor": 2.0}),
        Algorithm("xql", algorithm1, {"estimate": "none", "divergence": "kl"}),
        Algorithm("odice", odice, {}),
        Algorithm("optidice", optidice, {}),
        Algorithm("coptidice", optidice, {"constrained": True}),
        Algorithm("bc-all", bc, {}),
        Algorithm("bc-safe", bc, {"safe_only": True}),
        Algorithm("bcq-lag", bcq, {}),
        Algorithm("bear-lag", bear, {}),
        Algorithm("cpq", cpq, {}),
        Algorithm("d-corsdice", d_corsdice, {}),
        Algorithm("d-bc-all", d_bc, {}),
        Algorithm("d-bc-safe", d_bc, {"safe_only": True}),
    )
}


def by_name(name: str) -> Algorithm:
    """The algorithm of that name."""
    if name not in ALGORITHMS:
        raise UserError(f"unknown algorithm {name!r}: choose one of {', '.join(ALGORITHMS)}")
    return ALGORITHMS[name]


BASELINES = (bcq, bear, cpq)


SCORE_MODEL = {
    "score_width": 256,
    "blocks": 6,
    "time_embedding": 32,
    "condition_embedding": 128,
    "solver_steps": 15,
    "score_batch": 2048,
}
"""Of appendix H; the width, and how long D-CORSDICE trains it, are those of D-DICE's public code."""


def paper_settings(algorithm: Algorithm) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the paper's appendix H says, as options of the configuration and of the hyper-parameters.

    Of the baselines, what the public implementations that it compares with have (OSRL), but for the reward, which
    they multiply by .1 and which is standardised here.
    """
    if algorithm.module in BASELINES:
        steps = 300_000 if algorithm.module is bear else 100_000
        critics = 2 if algorithm.module is cpq else 4
        return {"steps": steps, "batch_size": 512, "critics": critics}, {"target_rate": 5e-3, "discount": 0.99}
    options: dict[str, Any] = {"steps": 1_000_000, "cosine_decay": True, "standardise": False}
    if algorithm.module is not d_bc:
        options |= {"batch_size": 256, "widths": (256, 256), "components": 1, "squash": True}
    if algorithm.module not in (bc, d_bc):
        options["layer_norm"] = True
    if algorithm.name == "corsdice-paper":
        options |= {"estimate": "networks", "split_constant": False}
    if algorithm.module in (d_bc, d_corsdice):
        options |= SCORE_MODEL
    if algorithm.module is d_corsdice:
        options |= {"way": "guide", "guidance": "energy", "candidates": 32, "score_steps": 600_000, "score_rate": 3e-4}
    return options, {"learning_rate": 3e-4, "target_rate": 5e-4, "discount": 0.99, "multiplier_rate": 3e-4}


__all__ = ["ALGORITHMS", "Algorithm", "Config", "Hypers", "by_name", "paper_settings"]
