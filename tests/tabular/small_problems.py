"""Small random problems that many tests share."""

from functools import cache

import jax

from corsdice import tabular

ALPHAS = (1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0)
BETAS = (0.1, 0.3, 0.5, 0.7, 0.9, 0.99)


@cache
def make_logs(seed: int = 0, states: int = 12, actions: int = 3, binding_limit: float = 0.1):
    """A small random constrained MDP and its model from logs."""
    with tabular.float64():
        key = jax.random.key(seed)
        truth = tabular.random_constrained_mdp(key, binding_limit, states, actions, 3, 0.9).mdp
        behaviour = tabular.mixed_behaviour(truth)
        counts = tabular.simulate_counts(jax.random.fold_in(key, 1), truth, behaviour, 20, 30)
        return truth, tabular.logged(tabular.mle_model(truth, counts, "uniform"), behaviour)
