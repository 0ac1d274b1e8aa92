"""Every estimator by its name, all with one interface: logs in, a function from a policy to an estimate out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from corsdice.errors import UserError
from corsdice.ope import extraction, fqe
from corsdice.ope.dice import IHOPE, DualDICE, Extraction
from corsdice.ope.dynamics import fit_ensemble
from corsdice.ope.estimate import EpisodeEstimate, Estimate
from corsdice.ope.evidence import Evidence, Question
from corsdice.ope.imagined import IMAGINED_ROWS, ensemble_of
from corsdice.ope.networks import Training, fit, rows_of
from corsdice.ope.weighted import weighted_estimate

Estimator = Callable[[Question], Estimate | EpisodeEstimate]
DICE: dict[str, Any] = {
    "extraction-networks": Extraction(),
    "extraction-networks-kl": Extraction("kl"),
    "dualdice": DualDICE(),
    "ihope": IHOPE(),
}
NAMES = ("models", "extraction", "extraction-states", *DICE, "fqe", "naive")
WITH_POLICY_CORRECTION = ("extraction-states", "extraction-networks", "extraction-networks-kl", "ihope", "naive")


def estimator(name: str, evidence: Evidence, training: Training | None = None, seed: int = 0) -> Estimator:
    """What all policies share is computed once, here."""
    training = training or Training()
    key = jax.random.key(seed)
    if name == "models":
        return _by_models(evidence, seed)
    if name == "extraction":
        return extraction.estimator(evidence, seed=seed)
    if name == "extraction-states":
        return extraction.estimator(evidence, states=True, seed=seed)
    if name == "naive":
        return lambda question: naive(evidence, question)
    if name == "fqe":
        method = fqe.method_for(evidence)

        def by_value(question: Question) -> Estimate:
            rows, starts = rows_of(evidence, question, corrected=False)
            params = fit(method, training, rows, starts, evidence.discount, key)
            return fqe.estimate_of(
                evidence, np.asarray(method.values(params, starts, training.widths, evidence.discount))
            )

        return by_value
    if name not in DICE:
        raise UserError(f"unknown estimator {name!r}: choose one of {', '.join(NAMES)}")
    dice = DICE[name]

    def by_correction(question: Question) -> Estimate:
        rows, starts = rows_of(evidence, question, corrected=dice.corrected)
        params = fit(dice, training, rows, starts, evidence.discount, key)
        w = dice.weights(params, rows, training.widths, evidence.discount)
        return weighted_estimate(evidence, question, np.asarray(w))

    return by_correction


def _by_models(evidence: Evidence, seed: int) -> Estimator:
    ensemble = ensemble_of(
        fit_ensemble(evidence), evidence.initial_observations, evidence.horizon, IMAGINED_ROWS, seed
    ).discounted(evidence.discount)

    def imagined(question: Question) -> Estimate:
        if question.act is None:
            raise UserError("models need to know what the policy does anywhere, not in the logged states alone")
        return Estimate(ensemble.of_function(question.act).sums, None)

    return imagined


def naive(evidence: Evidence, question: Question) -> Estimate:
    """E_D[w(a|s) x]: the policy correction taken for the stationary one, which it is not."""
    rows, _ = rows_of(evidence, question, corrected=True)
    return weighted_estimate(evidence, question, np.asarray(rows.policy_correction))
