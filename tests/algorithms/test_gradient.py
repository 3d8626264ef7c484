"""The policy gradient of text: what its switches do to the loss."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sterling.algorithms import find
from sterling.algorithms.language import credit, gradient
from sterling.language.model import tiny
from sterling.types import Mistake, Record


def test_a_corrected_kl_is_the_ratio_times_the_estimate():
    model = tiny(12, "nano")
    ids = jax.random.randint(jax.random.key(1), (3, 7), 0, 12, jnp.int32)
    log_prob = model.log_prob(ids)[0]
    old, reference = log_prob - 0.3, log_prob + 0.2
    mask = jnp.arange(6)[None] < jnp.asarray([[6], [4], [5]])
    share = jnp.where(mask, 0.1, 0.0)
    rows = {
        **{"ids": ids, "old": old, "spoke": old, "reference": reference, "counted": mask},
        **{"advantage": jnp.zeros_like(old), "weight": jnp.ones_like(old)},
        **{"share": share, "even": share},
    }

    def loss(**switches):
        config = gradient.Config(kl="k3", kl_coef=0.5, **switches)
        return float(gradient.loss_of(config)(model, rows)[0])

    k3 = np.expm1(0.2) - 0.2
    counted = 0.1 * float(mask.sum())
    assert loss() == pytest.approx(0.5 * k3 * counted, rel=1e-4)
    assert loss(kl_corrected=True) == pytest.approx(0.5 * np.exp(0.3) * k3 * counted, rel=1e-4)


@pytest.mark.parametrize("fields", [{}, {"kl": "k1", "kl_in": "reward"}])
def test_a_correction_without_a_kl_in_the_loss_is_refused(fields):
    config = dataclasses.replace(find("grpo").Config(), kl_corrected=True, **fields)
    with pytest.raises(Mistake, match="say kl k3 and kl_in loss as well"):
        gradient.begin(tiny(12, "nano"), config)


def batch(model, shift):
    """Four answers whose recorded log-probabilities lie ``shift`` above the model's own."""
    ids = jax.random.randint(jax.random.key(1), (4, 7), 0, 12, jnp.int32)
    log_prob, none = model.log_prob(ids)[0], jnp.zeros((4, 6))
    mask = jnp.tile(jnp.arange(6)[None] >= 2, (4, 1))
    extras = {
        **{"log_prob": log_prob + shift, "turn": jnp.zeros((4, 6), jnp.int32)},
        **{"group": jnp.zeros(4, jnp.int32), "score": jnp.asarray([1.0, 0.0, 1.0, 0.0])},
        "valid": jnp.ones(4, bool),
    }
    last = jnp.tile(jnp.arange(6)[None] == 5, (4, 1))
    return Record(
        ids[:, :-1], ids[:, 1:], none, jnp.where(last, 0.0, 1.0), None, last, mask, extras=extras
    )


@pytest.mark.parametrize("cuts", [{"top_p": 0.9}, {"top_k": 5}])
def test_ratios_begin_at_one_where_the_sampler_left_tokens_out(cuts):
    """What was sampled by cut probabilities is likelier there than under the model."""
    model = tiny(12, "nano")
    told = batch(model, shift=0.5)
    seen = {}
    for name, fields in {"whole": {}, "cut": cuts}.items():
        state = gradient.begin(model, gradient.Config(**fields))
        seen[name] = gradient.learn(state, told, jax.random.key(0))[1].metrics["policy/cut"]
    assert float(seen["whole"]) > 0.4  # ratios of exp(-0.5): bad answers are cut at once
    assert float(seen["cut"]) == 0.0


def test_the_longest_turn_is_what_may_be_overlong():
    mask = jnp.asarray([[0, 1, 1, 0, 1, 1, 1, 0], [1, 1, 1, 1, 1, 1, 1, 1], [0] * 8], bool)
    assert credit.longest_turn(mask).tolist() == [3, 8, 0]


def test_a_penalty_that_takes_from_every_answer_is_refused():
    with pytest.raises(Mistake, match="overlong=8 takes from every answer of limit=8"):
        gradient.begin(tiny(12, "nano"), gradient.Config(overlong=8, limit=8))
