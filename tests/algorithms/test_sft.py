"""Imitation of texts: its held-out loss; test_language_oracles.py holds its update."""

import jax
import jax.numpy as jnp
import numpy as np

from sterling.algorithms.language import sft
from sterling.language.models.causal_lm import tiny
from sterling.types import Record


def test_held_out_loss_is_the_mean_over_all_tokens_of_all_rows():
    model, length = tiny(12, "nano"), (9, 5, 7, 3, 8)
    ids = np.random.default_rng(0).integers(0, 12, (5, 9))
    own = [(ids[row], range(2 + row % 2, length[row])) for row in range(5)]  # tokens of answers
    mask = np.zeros((5, 8), bool)
    for row, (_, answer) in enumerate(own):
        mask[row, [at - 1 for at in answer]] = True
    batch = _batch(ids, mask)
    for piece in (0, 1):
        state = sft.begin(model, sft.Config(piece=piece, batch=4))
        found = jax.jit(sft.held_out_metrics)(state, batch)
        total, count = 0.0, 0
        logits = np.asarray(model(jnp.asarray(ids, jnp.int32)), np.float64)
        for row, (text, answer) in enumerate(own):
            for at in answer:
                before = logits[row, at - 1]
                total += np.log(np.exp(before).sum()) - before[text[at]]
                count += 1
        np.testing.assert_allclose(found["loss"], total / count, rtol=1e-5)
        np.testing.assert_allclose(found["perplexity"], np.exp(total / count), rtol=1e-5)


def _batch(ids, mask):
    ids, nothing = jnp.asarray(ids, jnp.int32), jnp.zeros(mask.shape)
    extras = {"valid": jnp.ones(len(ids), bool)}
    last = jnp.zeros(mask.shape, bool)
    parts = {"reward": nothing, "discount": nothing, "next_obs": None, "last": last}
    return Record(ids[:, :-1], ids[:, 1:], mask=jnp.asarray(mask), extras=extras, **parts)
