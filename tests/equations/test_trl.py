"""Equations, composed by preset, against TRL's own losses and gradients (benchmarks/parity)."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from constants import constant_array

from sterling.equations import (
    group_advantages,
    kl_estimates,
    likelihood_ratios,
    preference_losses,
    ratio_clipping,
    token_averages,
)

FOUND = json.loads(
    (Path(__file__).parents[2] / "benchmarks" / "parity" / "results" / "trl.json").read_text()
)
FIXED, CASES = FOUND["tensors"], FOUND["cases"]
TOKENS = constant_array(FIXED["tokens"], np.int32)
LENGTH = np.asarray(FIXED["lengths"])
MASK = constant_array(np.arange(TOKENS.shape[1])[None] < LENGTH[:, None])
TOOLS = constant_array(FIXED["tools"], bool)
GROUP = constant_array(FIXED["group"], np.int32)
NEW, OLD, REFERENCE = (
    constant_array(FIXED[name], np.float32) for name in ("new", "old", "reference")
)
AGGREGATION = {
    "grpo": "sequence",
    "bnpo": "token",
    "dr_grpo": "sum-constant",
    "dapo": "token",
    "cispo": "token",
}
POLICY = [name for name, case in CASES.items() if "advantages" in case]


def log_prob(logits, tokens=TOKENS):
    return jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[..., None], -1)[..., 0]


def scored(name, case):
    """Advantages by our own equations from the rewards that TRL was given."""
    options = case["options"]
    reward = jnp.asarray([jnp.nan if r is None else r for r in case["rewards"]], jnp.float32)
    valid = ~jnp.isnan(reward)
    if not name.startswith("rloo"):
        scale = options.get("scale_rewards", "group")
        return group_advantages.advantages(reward, GROUP, valid, "mean", scale)
    k1 = kl_estimates.estimate_kl(log_prob(OLD), log_prob(REFERENCE), "k1")
    reward -= options["beta"] * preference_losses.sequence_log_prob(k1, MASK)
    scale = "whiten" if options.get("normalize_advantages") else "none"
    return group_advantages.advantages(reward, GROUP, valid, "leave-one-out", scale)


def policy_loss(logits, name, case):
    options, is_rloo = case["options"], name.startswith("rloo")
    mask = MASK & TOOLS if case["tools"] else MASK
    advantage = jnp.broadcast_to(scored(name, case)[:, None], mask.shape)
    new, kind = log_prob(logits), options.get("loss_type", "rloo")
    low, level = options.get("epsilon", 0.2), options.get("importance_sampling_level", "token")
    high = options.get("epsilon_high", low)
    rule, limits = "clip", {"low": low, "high": high}
    if kind == "cispo":  # TRL's bound is the cap itself, and there is none below
        rule, limits = "cispo", {"low": 1.0, "high": high - 1.0}
    elif "delta" in options:
        rule, limits = "dual", {**limits, "dual": options["delta"]}
    ratio = likelihood_ratios.log_ratio(new, log_prob(OLD), mask, "sum" if is_rloo else level)
    loss, _ = ratio_clipping.surrogate_loss(ratio, new, advantage, rule, **limits)
    if not is_rloo and "beta" in options:
        loss += options["beta"] * kl_term(new, mask, options, ratio)
    how = AGGREGATION.get(kind, "sequence")
    return token_averages.aggregate(loss, mask, GROUP, how, length=14.0)


def kl_term(new, mask, options, ratio):
    if not options["use_bias_correction_kl"]:
        return kl_estimates.estimate_kl(new, log_prob(REFERENCE), "k3")
    if "importance_sampling_level" in options:  # TRL multiplies by GSPO's ratio, not by the token's
        count = jnp.sum(mask.astype(jnp.float32), -1, keepdims=True)
        ratio = likelihood_ratios.log_ratio(new, log_prob(OLD), mask, "sum") / count
    return kl_estimates.ratio_corrected_kl(new, log_prob(REFERENCE), ratio, "k3")


def agrees(loss, case, at=NEW):
    value, gradient = jax.jit(jax.value_and_grad(loss))(at)
    np.testing.assert_allclose(value, case["loss"], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(gradient, case["gradient"], rtol=1e-4, atol=1e-6)
    assert np.abs(case["gradient"]).max() > 1e-3


@pytest.mark.parametrize("name", POLICY)
def test_policy_losses_and_gradients_equal_trl(name):
    agrees(lambda logits: policy_loss(logits, name, CASES[name]), CASES[name])


@pytest.mark.parametrize("name", POLICY)
def test_advantages_equal_trl(name):
    found = scored(name, CASES[name])
    np.testing.assert_allclose(found, CASES[name]["advantages"], rtol=1e-5, atol=1e-6)


def test_trl_reference_tensors_reach_every_clip_bound():
    """Otherwise the cases above would agree without having compared the limits."""
    new, advantage = log_prob(NEW), jnp.asarray(CASES["grpo"]["advantages"], jnp.float32)
    advantage = jnp.broadcast_to(advantage[:, None], MASK.shape)
    for level, rule, limits in (
        ("token", "clip", {"low": 0.2, "high": 0.28}),
        ("token", "cispo", {"low": 1.0, "high": 0.4}),
        ("sequence", "clip", {"low": 0.03, "high": 0.04}),
        ("sum", "clip", {"low": 0.2, "high": 0.2}),
    ):
        ratio = likelihood_ratios.log_ratio(new, log_prob(OLD), MASK, level)
        cut = ratio_clipping.surrogate_loss(ratio, new, advantage, rule, **limits)[1] & MASK
        assert 0 < cut.sum() < MASK.sum()
    ratio = likelihood_ratios.log_ratio(new, log_prob(OLD), MASK, "token")
    assert bool(jnp.any(MASK & (ratio > np.log(1.5)) & (advantage < 0.0)))


def gains(logits, length=MASK):
    """Chosen answers are the first three rows, rejected ones the others."""
    gain = preference_losses.sequence_log_prob(log_prob(logits) - log_prob(REFERENCE), length)
    return gain[:3], gain[3:]


def ipo(logits):
    lengths = jnp.asarray(LENGTH, jnp.float32)
    return preference_losses.ipo(*gains(logits), 0.1, (lengths[:3], lengths[3:]))


def robust(logits):
    """TRL has no label smoothing in DPO but "robust" (Chowdhury 2024): the clean loss less the
    flipped one's share, over 1 - 2 e. Of conservative DPO's terms its second one changes sign."""
    clean, turned = (
        preference_losses.dpo(*gains(logits)),
        preference_losses.dpo(*reversed(gains(logits))),
    )
    return (0.9 * clean - 0.1 * turned) / 0.8


def free(loss, **options):
    """Losses without a reference, of log-probabilities per token."""

    def of(logits):
        each = preference_losses.mean_log_prob(log_prob(logits), MASK)
        return loss(each[:3], each[3:], **options)

    return of


def summed(loss, **options):
    def of(logits):
        each = preference_losses.sequence_log_prob(log_prob(logits), MASK)
        return loss(each[:3], each[3:], **options)

    return of


def orpo(logits):
    nll = token_averages.aggregate(
        -log_prob(logits), MASK & (jnp.arange(6) < 3)[:, None], GROUP, "token"
    )
    return free(preference_losses.orpo)(logits) + nll


def kto(logits):
    case = CASES["kto"]
    desirable = jnp.asarray(case["desirable"])
    other, there = jnp.roll(TOKENS, 1, 0), jnp.roll(MASK, 1, 0)
    gain = log_prob(logits, other) - log_prob(REFERENCE, other)
    kl = preference_losses.kto_reference(preference_losses.sequence_log_prob(gain, there))
    own = preference_losses.sequence_log_prob(log_prob(logits) - log_prob(REFERENCE), MASK)
    weights = {"weight_desirable": 1.5, "weight_undesirable": 0.5}
    return preference_losses.kto(own, desirable, kl, 0.1, **weights)


PREFERENCES = {
    "dpo": lambda logits: preference_losses.dpo(*gains(logits)),
    "ipo": ipo,
    "hinge": lambda logits: preference_losses.hinge(*gains(logits), 0.3),
    "robust": robust,
    "kto": kto,
    "orpo": orpo,
    "cpo": summed(preference_losses.dpo, beta=0.5, smoothing=0.2),
    "cpo, ipo": free(preference_losses.ipo, beta=0.5),
    "simpo": free(preference_losses.simpo, beta=0.5, margin=0.5),
}


@pytest.mark.parametrize("name", PREFERENCES)
def test_preference_losses_and_gradients_equal_trl(name):
    agrees(lambda logits: jnp.mean(PREFERENCES[name](logits)), CASES[name])


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("reward model", {}),
        (
            "reward model, margin",
            {"margin": constant_array(FIXED["margins"], np.float32), "centring": 0.01},
        ),
    ],
)
def test_reward_models_losses_equal_trl(name, options):
    def loss(scores):
        return jnp.mean(preference_losses.bradley_terry(scores[:3], scores[3:], **options))

    agrees(loss, CASES[name], jnp.asarray(FIXED["scores"], jnp.float32))


def test_overlong_penalty_equals_trl():
    case = CASES["overlong"]
    found = group_advantages.overlong_penalty(jnp.asarray(case["lengths"], jnp.int32), 20, 5)
    np.testing.assert_allclose(found, case["loss"], rtol=1e-6, atol=1e-7)


def test_every_trl_reference_case_is_compared():
    compared = {*POLICY, *PREFERENCES, "reward model", "reward model, margin", "overlong"}
    assert compared == set(CASES)
