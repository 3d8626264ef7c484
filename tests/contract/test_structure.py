"""One update: structure preserved, golden numbers met."""

import json

import golden
import jax
import numpy as np
import pytest


@pytest.mark.parametrize(("name", "form"), golden.RUNS)
def test_an_update_preserves_structure_shapes_and_dtypes(name, form):
    before, after, _ = golden.one_update(name, form)
    assert jax.tree.structure(before) == jax.tree.structure(after)
    described = [jax.tree.map(lambda x: (x.shape, x.dtype), tree) for tree in (before, after)]
    assert described[0] == described[1]


@pytest.mark.parametrize(("name", "form"), golden.RUNS)
def test_an_update_gives_the_golden_numbers(name, form):
    _, after, signals = golden.one_update(name, form)
    expected = json.loads(golden.FILE.read_text())[name + form]
    found = golden.numbers(after, signals)
    assert set(found) == set(expected)
    for key, value in expected.items():
        np.testing.assert_allclose(found[key], value, rtol=2e-4, atol=1e-6, err_msg=key)


@pytest.mark.parametrize(("name", "form"), golden.RUNS)
def test_masked_rows_do_not_teach(name, form):
    """Garbage in rows without a mask changes nothing."""
    _, clean, _ = golden.one_update(name, form, garbage=0.0)
    _, dirty, _ = golden.one_update(name, form, garbage=50.0)
    for one, other in zip(jax.tree.leaves(clean), jax.tree.leaves(dirty), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
