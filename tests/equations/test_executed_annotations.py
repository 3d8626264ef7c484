"""Annotations of shapes are executed in the processes of these tests."""

import beartype
import executed_annotations
import jax
import jax.numpy as jnp
import pytest
from jaxtyping import Array, Float, TypeCheckError

from sterling.equations.gaussian_posterior import GaussianPosterior
from sterling.equations.masked_average import masked_mean


def test_arguments_of_wrong_types_are_refused():
    with pytest.raises(TypeCheckError, match="mask"):
        masked_mean(jnp.ones(3), jnp.ones(3))
    with pytest.raises(TypeCheckError, match="mask"):
        jax.jit(masked_mean)(jnp.ones(3), jnp.ones(3))


def test_fields_of_wrong_types_are_refused():
    with pytest.raises(TypeCheckError):
        GaussianPosterior("no", "numbers")


def test_results_of_wrong_shapes_are_refused():
    def doubled(x: Float[Array, "n"]) -> Float[Array, "n"]:
        return jnp.concatenate([x, x])

    checked = executed_annotations.when_called(typechecker=beartype.beartype)(doubled)
    with pytest.raises(TypeCheckError, match="return value"):
        checked(jnp.ones(3))


def test_a_function_is_prepared_once_when_it_is_called_first(monkeypatch):
    prepared = []

    def prepare(function, typechecker):
        prepared.append(typechecker)
        return function

    monkeypatch.setattr(executed_annotations, "prepare", prepare)
    checked = executed_annotations.when_called(lambda x: x + 1, typechecker="beartype")
    assert prepared == []
    assert [checked(1), checked(2)] == [2, 3]
    assert prepared == ["beartype"]
