"""Weights that are renewed while a run trains are the same however its seeds are run."""

import numpy as np
import pytest
from stopping import Stop, leaves

import sterling

SMALL = {"width": 8, "capacity": 500, "warmup": 50}


@pytest.mark.as_users
@pytest.mark.slow
def test_network_resets_are_independent_of_other_seeds_and_of_resuming(tmp_path):
    def trained(seeds, **options):
        return sterling.train(
            *("dqn", "CartPole-v1"), steps=800, seeds=seeds, evaluate_episodes=0, log_every=100,
            preset=False, plasticity="perturb:200,0.5+decay:1e-3", **SMALL, **options,
        )  # fmt: skip

    whole = trained([3, 8], out=tmp_path / "whole")
    alone = trained([8], out=tmp_path / "alone")
    with pytest.raises(SystemExit):
        trained([3, 8], out=tmp_path / "broken", sinks=[Stop()])
    resumed = sterling.resume(tmp_path / "broken")
    for one, two, three in zip(*map(leaves, (whole, alone, resumed)), strict=True):
        np.testing.assert_array_equal(one[1:], two)
        np.testing.assert_array_equal(one, three)
    together = trained([3, 8], strategy="vmap", out=tmp_path / "vmap")
    assert all(np.isfinite(leaf).all() for leaf in leaves(together))
