"""The policy gradient of text: what its switches do to the loss."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sterling.algorithms import find
from sterling.algorithms.language import gradient
from sterling.language.model import tiny
from sterling.types import Mistake


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
