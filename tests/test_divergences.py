import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from corsdice.divergences import CHI2, DIVERGENCES, KL, SOFT_CHI2, by_name
from corsdice.errors import UserError
from corsdice.tabular import float64

every_divergence = pytest.mark.parametrize("divergence", DIVERGENCES.values(), ids=DIVERGENCES)
FUNCTIONS = ("f", "f_prime", "f_prime_inverse", "conjugate", "weight", "weight_prime")


def at(function, x, dtype=np.float64):
    with float64():
        return float(function(jnp.asarray(x, dtype)))


@every_divergence
@settings(max_examples=60)
@given(y=st.floats(-8, 4))
def test_conjugate_and_weight_are_the_numeric_maximum(divergence, y):
    best = minimize_scalar(
        lambda x: at(divergence.f, x) - x * y, bounds=(0, 2 + np.exp(4)), method="bounded", options={"xatol": 1e-10}
    )
    assert at(divergence.conjugate, y) == pytest.approx(-best.fun, abs=1e-6)
    assert at(divergence.weight, y) == pytest.approx(best.x, abs=1e-3)


@every_divergence
@settings(max_examples=60)
@given(x=st.floats(1e-6, 1e4))
def test_the_inverse_undoes_the_derivative(divergence, x):
    assert at(divergence.f_prime_inverse, at(divergence.f_prime, x)) == pytest.approx(x, rel=1e-9)
    assert at(divergence.weight, at(divergence.f_prime, x)) == pytest.approx(x, rel=1e-9)


@every_divergence
@settings(max_examples=100)
@given(a=st.floats(-1e4, 1e4), b=st.floats(-1e4, 1e4), share=st.floats(0, 1))
def test_f_and_its_conjugate_are_convex(divergence, a, b, share):
    middle = share * a + (1 - share) * b
    for function in (divergence.f, divergence.conjugate):
        chord = share * at(function, a) + (1 - share) * at(function, b)
        assert at(function, middle) <= chord + 1e-9 * (1 + abs(chord))


@every_divergence
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@settings(max_examples=100)
@given(x=st.one_of(st.floats(-1e4, 1e4), st.sampled_from([-1e4, -1.0, 0.0, 1.0, 1e4])))
def test_values_and_gradients_are_finite_everywhere(divergence, dtype, x):
    with float64():
        point = jnp.asarray(x, dtype)
        for name in FUNCTIONS:
            function = getattr(divergence, name)
            value, gradient = jax.value_and_grad(function)(point)
            assert value.dtype == dtype, name
            assert np.isfinite(value), name
            assert np.isfinite(gradient), name


@every_divergence
@settings(max_examples=60)
@given(y=st.one_of(st.floats(-50, 50), st.just(0.0)))
def test_the_closed_form_derivatives_are_the_gradients(divergence, y):
    """At y = 0 too, where a minimum or maximum would pass on half a gradient and where networks start."""
    with float64():
        y = jnp.asarray(y)
        assert jax.grad(divergence.conjugate)(y) == pytest.approx(float(divergence.weight(y)), rel=1e-12)
        if abs(float(y) + 1) > 1e-6:  # χ² has a kink there
            assert jax.grad(divergence.weight)(y) == pytest.approx(float(divergence.weight_prime(y)), rel=1e-12)
        x = jnp.exp(y / 10)
        assert jax.grad(divergence.f)(x) == pytest.approx(float(divergence.f_prime(x)), rel=1e-9, abs=1e-12)


@every_divergence
def test_the_behaviour_policy_is_the_origin(divergence):
    assert at(divergence.f, 1.0) == at(divergence.f_prime, 1.0) == 0
    assert at(divergence.weight, 0.0) == 1


def test_the_formulas_of_the_paper():
    for y in (-3.0, -0.5, 0.0, 2.5):
        assert at(CHI2.weight, y) == max(0, y + 1)
        assert at(KL.weight, y) == pytest.approx(np.exp(y))
        assert at(SOFT_CHI2.weight, y) == pytest.approx(y + 1 if y >= 0 else np.exp(y))
        assert at(SOFT_CHI2.conjugate, y) == pytest.approx(y**2 / 2 + y if y >= 0 else np.expm1(y))


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(UserError, match="choose one of kl, chi2, soft-chi2"):
        by_name("tv")
