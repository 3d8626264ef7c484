"""The policy gradient of text: what its switches do to the loss."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sterling
from sterling import algorithms
from sterling.algorithms import find
from sterling.algorithms.language import policy_gradient, token_credit, token_critic
from sterling.language.models.causal_lm import LanguageModel, tiny
from sterling.language.models.sequence_packing import TokenRows
from sterling.training.fields.config_fields import make_config
from sterling.types import Mistake, Record


def test_policy_gradient_charges_no_kl_cost_unless_configured():
    before = {"model": jnp.zeros((2, 3)), "reference": jnp.ones((2, 3))}
    mask = jnp.ones((2, 3), bool)
    for fields in ({"kl": "none", "kl_in": "reward"}, {"kl": "k1", "kl_in": "loss"}):
        assert not token_credit.kl_cost(policy_gradient.Config(**fields), before, mask).any()
    asked = policy_gradient.Config(kl="k1", kl_in="reward", kl_coef=0.5)
    assert (token_credit.kl_cost(asked, before, mask) == -0.5).all()


@pytest.mark.slow
def test_policy_gradient_corrected_kl_is_the_ratio_times_the_estimate():
    model = tiny(12, "nano")
    ids = jax.random.randint(jax.random.key(1), (3, 7), 0, 12, jnp.int32)
    log_prob = model.log_prob(ids)[0]
    old, reference = log_prob - 0.3, log_prob + 0.2
    mask = jnp.arange(6)[None] < jnp.asarray([[6], [4], [5]])
    share = jnp.where(mask, 0.1, 0.0)
    rows = {
        **{"old": old, "sampled": old, "reference": reference, "counted": mask},
        **{"advantage": jnp.zeros_like(old), "weight": jnp.ones_like(old)},
        **{"share": share, "even": share},
    }

    def loss(**switches):
        config = policy_gradient.Config(kl="k3", kl_coef=0.5, **switches)
        return float(policy_gradient.make_loss(config)(model, TokenRows.one_per_row(ids), rows)[0])

    k3 = np.expm1(0.2) - 0.2
    counted = 0.1 * float(mask.sum())
    assert loss() == pytest.approx(0.5 * k3 * counted, rel=1e-4)
    assert loss(kl_corrected=True) == pytest.approx(0.5 * np.exp(0.3) * k3 * counted, rel=1e-4)


@pytest.mark.parametrize("fields", [{}, {"kl": "k1", "kl_in": "reward"}])
def test_policy_gradient_refuses_kl_correction_without_kl_in_the_loss(fields):
    config = dataclasses.replace(find("grpo").Config(), kl_corrected=True, **fields)
    with pytest.raises(Mistake, match="Set kl=k3 and kl_in=loss as well"):
        policy_gradient.begin(tiny(12, "nano"), config)


def test_kl_correction_of_k2_is_refused_and_the_exact_estimators_are_named():
    config = dataclasses.replace(find("grpo").Config(), kl_corrected=True, kl="k2")
    with pytest.raises(Mistake, match="kl=k3 or kl=k1"):
        policy_gradient.begin(tiny(12, "nano"), config)


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


@pytest.mark.parametrize(
    "cuts", [{"top_p": 0.9}, pytest.param({"top_k": 5}, marks=pytest.mark.slow)]
)
def test_policy_gradient_ratios_begin_at_one_under_top_k_and_top_p_sampling(cuts):
    """What was sampled by cut probabilities is likelier there than under the model."""
    model = tiny(12, "nano")
    told = batch(model, shift=0.5)
    seen = {}
    for name, fields in {"whole": {}, "cut": cuts}.items():
        state = policy_gradient.begin(model, policy_gradient.Config(**fields))
        learn = jax.jit(policy_gradient.learn)
        seen[name] = learn(state, told, jax.random.key(0))[1].metrics["policy/cut"]
    assert float(seen["whole"]) > 0.4  # ratios of exp(-0.5): bad answers are cut at once
    assert float(seen["cut"]) == 0.0


def test_overlong_penalty_measures_the_longest_turn():
    mask = jnp.asarray([[0, 1, 1, 0, 1, 1, 1, 0], [1, 1, 1, 1, 1, 1, 1, 1], [0] * 8], bool)
    assert token_credit.longest_turn(mask).tolist() == [3, 8, 0]


def test_policy_gradient_refuses_overlong_penalty_as_long_as_the_limit():
    with pytest.raises(Mistake, match="overlong=8 must be below limit=8"):
        policy_gradient.begin(tiny(12, "nano"), policy_gradient.Config(overlong=8, limit=8))


@pytest.mark.parametrize(("limit", "last"), [(4, 0), (8, 1), (32, 6), (20_480, 4096)])
def test_dapo_overlong_penalty_covers_a_fifth_of_the_token_limit(limit, last):
    config = make_config(
        policy_gradient, {**algorithms.preset_fields("dapo"), "limit": limit}, "dapo"
    )
    assert token_credit.overlong_tokens(config) == last
    assert policy_gradient.begin(tiny(12, "nano"), config).config.overlong is None
    own = dataclasses.replace(config, overlong=3)
    assert token_credit.overlong_tokens(own) == 3


def test_language_presets_begin_at_every_token_limit():
    model = tiny(12, "nano")
    for name, limit in itertools.product(algorithms.GRADIENT_PRESETS, (1, 8, 1024)):
        fields = {**algorithms.preset_fields(name), "limit": limit}
        config = make_config(policy_gradient, fields, name)
        assert policy_gradient.begin(model, config).config.limit == limit, name


@pytest.mark.parametrize("cuts", [{"top_p": 0.9}, {"top_k": 5}])
@pytest.mark.parametrize("old", [{"lag": 2}, {"ahead": 1}, {"again": 1}])
def test_policy_gradient_refuses_stale_answers_of_cut_sampling_without_weights(cuts, old):
    """Their ratios would begin at 1 as if they were fresh; only ``decoupled`` knows their age."""
    model, (name, count) = tiny(12, "nano"), next(iter(old.items()))
    with pytest.raises(Mistake, match=f"{name}={count} with top_k or top_p.*Add decoupled"):
        policy_gradient.begin(model, policy_gradient.Config(**cuts, **old))
    told, seen = batch(model, shift=0.5), {}
    for decoupled in (False, True):
        config = policy_gradient.Config(**cuts, decoupled=decoupled)
        mask = told.mask
        before = token_credit.log_probs_before_update(
            policy_gradient.begin(model, config), *_lines(told), mask
        )
        seen[decoupled] = token_credit.staleness_weight(config, before, told, mask)[mask]
    np.testing.assert_allclose(seen[False], 1.0)
    np.testing.assert_allclose(seen[True], np.exp(-0.5), rtol=1e-4)
    for fields in ({**old}, {**cuts}, {**cuts, **old, "decoupled": True}):
        policy_gradient.begin(model, policy_gradient.Config(**fields))
    policy_gradient.begin(
        model, policy_gradient.Config(**cuts, **old, rule="reinforce")
    )  # it has no ratios


def _lines(told):
    """The token ids of a batch's lines."""
    return (jnp.concatenate([told.obs, told.action[:, -1:]], 1),)


def line(discount, turn):
    """Two rows of four own tokens, the first of which earns 1 at its end."""
    last = jnp.tile(jnp.arange(4)[None] == 3, (2, 1))
    reward = jnp.zeros((2, 4)).at[0, 3].set(1.0)
    ends, none = jnp.where(last, discount, 1.0), jnp.zeros((2, 4), jnp.int32)
    extras = {"turn": jnp.asarray([turn] * 2, jnp.int32)}
    return Record(none, none, reward, ends, None, last, jnp.ones((2, 4), bool), extras=extras)


@pytest.mark.parametrize("turn", [[0, 0, 0, 0], [0, 0, 1, 1]])
def test_turn_level_critic_targets_exclude_its_own_errors(turn):
    """A critic that fits its targets exactly but cannot tell the rows apart at their first token;
    where each token was taught A + V of its own, the later ones ran away."""
    batch, config = line(0.0, turn), policy_gradient.Config(baseline="critic", turns=2)
    value = jnp.zeros((2, 4))
    for _ in range(8):
        target = token_credit.critic_advantages(config, batch, batch.reward, value, batch.mask)[1]
        value = target.at[:, 0].set(target[:, 0].mean())
    np.testing.assert_allclose(target, [[1.0] * 4, [0.0] * 4], atol=1e-6)


def test_truncated_conversation_bootstraps_from_the_value_after_its_last_token():
    batch = line(1.0, [0, 0, 0, 0])
    mask = batch.mask.at[:, 3].set(False)
    value = jnp.asarray([[0.1, 0.2, 0.3, 0.7], [0.0, 0.0, 0.0, -0.5]])
    config = policy_gradient.Config(baseline="critic", lam=1.0)
    _, target = token_credit.critic_advantages(config, batch, jnp.zeros((2, 4)), value, mask)
    np.testing.assert_allclose(target[:, :3], [[0.7] * 3, [-0.5] * 3], rtol=1e-6)


def test_policy_gradient_leaves_only_truncated_rows_out_of_learning():
    batch = line(0.0, [0] * 4)
    batch.extras.update(cut=jnp.asarray([True, False]), score=jnp.zeros(2))
    found = token_credit.learned_tokens(policy_gradient.Config(truncated=False), batch, batch.mask)
    assert found.any(1).tolist() == [False, True]
    assert token_credit.learned_tokens(policy_gradient.Config(), batch, batch.mask).all()


@pytest.mark.slow
@pytest.mark.parametrize(("name", "scale"), [("dr-grpo", 1.0), ("reinforce", 8.0)])
def test_clip_rule_does_not_change_the_loss_denominator(name, scale):
    """Where ratios are 1 a ratio's gradient is log pi's; a sum over answers is 8 = limit times the
    sum over a constant length."""
    model = tiny(12, "nano")
    sizes = []
    for fields in ({}, {"rule": "none"}, {"rule": "reinforce"}, {"aggregate": "sum-constant"}):
        settings = {**algorithms.preset_fields(name), "limit": 8, **fields}
        state = policy_gradient.begin(model, policy_gradient.Config(**settings))
        found = policy_gradient.learn(state, batch(model, shift=0.0), jax.random.key(0))[1]
        sizes.append(float(found.metrics["loss/grad_norm"]))
    np.testing.assert_allclose(sizes[1:3], sizes[0], rtol=1e-4)
    np.testing.assert_allclose(sizes[0] / sizes[3], scale, rtol=1e-4)


@pytest.mark.parametrize("name", ["grpo", "rloo", "dr-grpo"])
def test_group_baseline_refuses_groups_of_one(name):
    settings = {**algorithms.preset_fields(name), "group": 1}
    with pytest.raises(Mistake, match=r"but group=1 has one\. Set group=2 or more"):
        policy_gradient.begin(tiny(12, "nano"), policy_gradient.Config(**settings))


@pytest.mark.parametrize("name", ["reinforce", "token-ppo", "expert-iteration"])
def test_policy_gradient_without_group_baseline_accepts_groups_of_one(name):
    settings = {**algorithms.preset_fields(name), "group": 1}
    assert (
        policy_gradient.begin(tiny(12, "nano"), policy_gradient.Config(**settings)).config.group
        == 1
    )


def test_turn_credit_refuses_fewer_turns_than_the_environment_has():
    """The rewards of later turns would be left out."""
    place = {"environment": "try-again:copy-text", "model": "nano", "updates": 1}
    small = {"prompts": 2, "group": 2, "limit": 4, "evaluate_episodes": 0}
    with pytest.raises(Mistake, match=r"try-again:copy-text has 3 turns\. Give turns=3"):
        sterling.train("grpo", turns=2, **place, **small)


@pytest.mark.slow
def test_token_critic_learns_in_every_epoch_without_value_divergence(monkeypatch):
    """Updates on all rows: the first begins at the values that the others are clipped to."""
    model, settings = tiny(12, "nano"), algorithms.preset_fields("token-ppo")
    told = batch(model, shift=0.0)
    reward = jnp.where(told.last, told.extras["score"][:, None], 0.0)

    def learned(clip=0.2, **fields):
        monkeypatch.setattr(token_critic, "VALUE_CLIP", clip)
        jax.clear_caches()  # the programs have it as a constant
        config = policy_gradient.Config(
            **{**settings, "value_lr": 2e-3, "minibatches": 1, **fields}
        )
        asked = dataclasses.replace(told, reward=reward)
        after = policy_gradient.learn(
            policy_gradient.begin(model, config), asked, jax.random.key(0)
        )[0]
        value = after.critic.judge(
            TokenRows.one_per_row(jnp.concatenate([told.obs[:, :1], told.action], 1))
        )
        return float(jnp.mean(jnp.abs(value[told.mask])))

    once, often = learned(epochs=1), learned(epochs=4)
    assert often > 1.5 * once
    assert learned(0.01, epochs=4) < 0.8 * often
    assert learned(0.01, epochs=1) == pytest.approx(once, rel=1e-5)


@pytest.mark.parametrize(
    "fields", [{"kl": "k3"}, {"top_p": 0.9}, {"decoupled": True}, {"baseline": "critic"}]
)
def test_policy_gradient_accumulation_reads_at_most_one_piece_of_rows_at_a_time(
    fields, monkeypatch
):
    model, seen, read = tiny(12, "nano"), set(), LanguageModel.hidden

    def counted(self, ids, mask=None, **how):
        seen.add(ids.size)
        return read(self, ids, mask, **how)

    monkeypatch.setattr(LanguageModel, "hidden", counted)
    six = jax.tree.map(lambda x: jnp.concatenate([x, x[:2]]), batch(model, shift=0.0))
    seen.clear()
    config = policy_gradient.Config(
        **{"scale": "none", **fields, "piece": 4}
    )  # which does not divide 6
    jax.eval_shape(
        policy_gradient.learn, policy_gradient.begin(model, config), six, jax.random.key(0)
    )
    assert seen == {4 * 7}  # tokens: those of four rows
