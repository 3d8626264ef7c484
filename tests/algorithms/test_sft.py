"""Imitation of texts: how it answers; test_language_oracles.py holds its update."""

import jax
import jax.numpy as jnp
import numpy as np

from sterling.algorithms.language import sft
from sterling.language.models.causal_lm import tiny
from sterling.language.models.generation import Prompts
from sterling.language.models.token_sampling import Sampling


def test_sft_act_decodes_greedily_unless_exploring():
    state = sft.begin(tiny(12, "nano"), sft.Config())
    ids, number = (
        jnp.tile(jnp.asarray([[3, 4, 5]], jnp.int32), (8, 1)),
        jnp.arange(8, dtype=jnp.int32),
    )
    lengths, total = jnp.full(8, 3, jnp.int32), jnp.asarray(8)
    asked = Prompts(ids, lengths, total, number, Sampling.for_rows(8, 1.0), 4, 8, (0,))

    def said(key, explore):
        return np.asarray(sft.act(state, asked, jax.random.key(key), explore)[0].ids)

    np.testing.assert_array_equal(said(0, False), said(9, False))
    assert len(np.unique(said(0, False), axis=0)) == 1
    assert len(np.unique(said(0, True), axis=0)) > 1
