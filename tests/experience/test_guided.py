"""Who acts when a guide helps: told apart by the action."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sterling import envs
from sterling.experience.rollouts.guided_rollout import Expansion, GuidedRollout, JumpStart
from sterling.experience.rollouts.rollout import Rollout

ENVS, SEEDS = 32, (0, 1)


class Always(eqx.Module):
    """One action, worth what ``value`` says."""

    action: float
    slope: float = 0.0

    def act(self, obs, keys, explore):
        return jnp.full((len(SEEDS), ENVS, 1), self.action), {}

    def action_value(self, obs, action):
        return self.slope * action[..., 0]


def source(rule, length):
    world = envs.make("probe:cut-continuous", SEEDS, ENVS)
    rollout = Rollout.create(world, length, jax.random.split(jax.random.key(0), 2))
    return GuidedRollout(rollout, Always(0.5), rule)


def test_jump_start_guide_acts_first_then_the_learner_to_the_episode_end():
    rule = JumpStart.create(len(SEEDS), ENVS, steps=4, fade=1_000_000)
    made, record = source(rule, 8).live(Always(-0.5), jax.random.split(jax.random.key(1), 2))
    guided = np.asarray(record.action)[..., 0] == 0.5  # (seed, time, env)
    inside = np.asarray(record.mask)
    taken = set()
    for seed in range(2):
        for env in range(ENVS):
            n = int(inside[seed, :, env].argmin()) or 8  # steps of the first episode
            first = int(guided[seed, :n, env].sum())
            np.testing.assert_array_equal(guided[seed, :n, env], np.arange(n) < first)
            taken.add(first)
    assert taken == {0, 1, 2, 3, 4}  # drawn anew for each env; 0: the learner's from the start
    assert int(made.rule.draws) == 8


@pytest.mark.parametrize("rule", ["jump-start", "expansion"])
def test_guided_rollout_of_many_steps_equals_single_steps(rule, monkeypatch):
    """A program of many steps is no longer than one of a few, and gives what single steps give."""
    begun = JumpStart.create(len(SEEDS), ENVS, steps=4, fade=20)
    begun = begun if rule == "jump-start" else Expansion(temperature=0.5)
    keys, agent = jax.random.split(jax.random.key(1), 2), Always(-0.5, 0.3)
    few, many = (
        str(jax.make_jaxpr(lambda keys, n=n: source(begun, n).live(agent, keys)[1])(keys))
        for n in (2, 50)
    )
    assert len(many.splitlines()) == len(few.splitlines())
    compiled = source(begun, 6).live(agent, keys)
    monkeypatch.setattr(GuidedRollout, "traced", False)
    apart = jax.tree.leaves(source(begun, 6).live(agent, keys))
    for one, other in zip(jax.tree.leaves(compiled), apart, strict=True):
        np.testing.assert_array_equal(one, other)


def test_jump_start_guide_fades_out():
    rule = JumpStart.create(len(SEEDS), ENVS, steps=4, fade=8)
    made, _ = source(rule, 8).live(Always(-0.5), jax.random.split(jax.random.key(1), 2))
    _, later = made.live(Always(-0.5), jax.random.split(jax.random.key(2), 2))
    fresh = np.asarray(later.action)[:, -2:, :, 0]
    assert (fresh == -0.5).all()


def test_jump_start_handover_step_is_uniform_and_its_bound_falls():
    rule, envs_ = JumpStart.create(2, 5_000, steps=4, fade=2), 5_000
    keys, begun = jax.random.split(jax.random.key(0), 2), jnp.zeros((2, envs_), jnp.int32)
    for last in (4, 2, 0, 0):  # steps times what is left
        rule = rule.begin(begun, keys)
        share = np.bincount(np.asarray(rule.until).ravel(), minlength=5) / (2 * envs_)
        np.testing.assert_allclose(share, (np.arange(5) <= last) / (last + 1), atol=0.02)


def test_policy_expansion_chooses_guide_or_learner_by_the_critic():
    for slope, share in ((0.0, 0.5), (30.0, 1.0), (-30.0, 0.0), (0.5, 1 / (1 + np.exp(-1.0)))):
        made = source(Expansion(temperature=0.5), 8)
        _, record = made.live(Always(-0.5, slope), jax.random.split(jax.random.key(3), 2))
        found = (np.asarray(record.action) == 0.5).mean()
        np.testing.assert_allclose(found, share, atol=0.08)  # 512 draws
