"""Policy gradients for language models: GRPO, RLOO, DAPO and related ones, by a few switches.

An answer y to a prompt is one of a group; with a mask over the tokens that the model sampled,

    L = sum_t w_t [ l(r_t, A_t) + beta KL_t - c H_t ],    r = pi(y_t) / pi_old(y_t)

    A   ``baseline`` and ``scale`` of the scores in a group     equations/group_advantages.py
    r   ``level``: of a token, or of the whole answer           equations/likelihood_ratios.py
    l   ``rule``: how the ratio is limited                      equations/ratio_clipping.py
    w   ``aggregate``: the denominator of the sum               equations/token_averages.py

Published algorithms are presets of these switches (algorithms/language/named.json; the run's
config.json has all fields): reinforce, rloo, grpo, dr-grpo, dapo, gspo, cispo, reinforce++,
lite-ppo, token-ppo (with a critic and GAE) and expert-iteration. docs/language_losses.md compares
them with other systems; losses and gradients equal TRL's (tests/equations/test_trl.py).

pi_old is the policy that sampled the answer. With ``top_k`` or ``top_p``, whose probabilities are
not the model's own, it is the policy at the start of the iteration. The same holds with
``decoupled``; answers of an older policy then get the weight pi_old / pi_sampled, at most ``cap``
(Hilton 2022). Without ``decoupled`` nothing corrects for old answers (``lag``, ``ahead`` or
``again``) that were sampled with ``top_k`` or ``top_p``, so this combination is refused.
Evidence: benchmarks/language.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Key

from sterling import random_keys
from sterling.algorithms.language import gradient_accumulation, token_credit
from sterling.algorithms.language.gradient_accumulation import update_options
from sterling.algorithms.language.token_critic import Critic
from sterling.equations import group_advantages, line_rows
from sterling.equations.kl_estimates import KL_ESTIMATORS, estimate_kl, ratio_corrected_kl
from sterling.equations.likelihood_ratios import RATIO_LEVELS, log_ratio
from sterling.equations.ratio_clipping import CLIP_RULES, surrogate_loss
from sterling.equations.token_averages import AGGREGATIONS, token_weights, weighted_sum
from sterling.field_types import Count, Limit, NotNegative, Number, Part, Positive, Share, Whole
from sterling.language.models.causal_lm import LanguageModel
from sterling.language.models.sequence_packing import TokenRows
from sterling.lookup.name_suggestions import did_you_mean
from sterling.types import Generations, Mistake, Record, Signals, Spec, config

FIELD_CHOICES = {
    "baseline": (*group_advantages.BASELINES, "critic"),
    "scale": (*group_advantages.SCALES, "tokens"),
    "level": RATIO_LEVELS,
    "rule": CLIP_RULES,
    "aggregate": AGGREGATIONS,
    "kl": ("none", *KL_ESTIMATORS),
    "kl_in": ("loss", "reward"),
}

TRAINED_FOLDER = {"lr": 1e-6, "value_lr": 1e-5}  # defaults for a Hugging Face folder


@config
class Config:
    """Defaults suit models of a few million parameters; TRAINED_FOLDER is for large ones."""

    prompts: Count = 32  # prompts per iteration
    group: Count = 16  # answers per prompt
    limit: Count = 32  # longest answer in tokens
    lr: NotNegative = 3e-4  # Adam's step size
    rise: Whole = 5  # updates over which the step size rises linearly from 0
    max_grad_norm: Limit = 1.0  # gradients are clipped to this global norm
    weight_decay: NotNegative = 0.0  # AdamW's weight decay
    epochs: Count = 1  # passes over each batch
    minibatches: Count = 1  # updates per epoch
    piece: Whole = 16  # full rows processed at once (shorter rows are packed); 0: all, unpacked
    baseline: str = "mean"  # baseline of the scores: none, mean, leave-one-out or critic
    scale: str = "group"  # scale of advantages: none, group, batch, whiten, tokens (REINFORCE++)
    level: str = "token"  # level of the ratio: token, sequence (GSPO) or sum
    rule: str = "clip"  # how the ratio is limited: none, clip, dual, cispo or reinforce
    low: Number = 0.2  # lower limit of the ratio: 1 - low
    high: Number = 0.2  # upper limit of the ratio: 1 + high
    dual: Limit = 3.0  # c of rule dual: the loss is at most -c A where A < 0
    aggregate: str = "token"  # denominator of L: token, sequence, sum, sum-constant or prompt
    turns: Whole = 0  # number of turns, to give credit per turn; 0: credit per answer
    gamma: Share = 1.0  # discount per turn if turns > 0, otherwise per token
    lam: Share = 1.0  # the critic's GAE lambda
    value_lr: NotNegative = 3e-4  # the critic's step size
    kl: str = "none"  # estimator of the KL from the initial model: none, k1, k2, k3
    kl_in: str = "loss"  # where the KL counts: loss or reward
    kl_coef: NotNegative = 0.04  # beta: weight of the KL
    kl_corrected: bool = False  # multiply the KL in the loss by the ratio (exact gradient)
    reset: Whole = 0  # updates between copies of the model to the reference; 0: never
    entropy_coef: NotNegative = 0.0  # c: weight of the entropy
    decoupled: bool = False  # ratios to the policy at the iteration's start; stale answers weighted
    cap: Limit = 2.0  # upper bound of the weights of stale answers (decoupled)
    overlong: Whole | None = 0  # last tokens of limit, where the score falls by 1; None: limit / 5
    truncated: bool = True  # learn from truncated answers
    solved: bool = False  # learn only from right answers (expert iteration)
    rounds: Count = 1  # sampling rounds; above 1, groups with equal scores are replaced (DAPO)
    lag: Whole = 0  # iterations between sampling an answer and learning from it
    ahead: Whole = 0  # as lag, but the newest answers are sampled while older ones are learned from
    again: Whole = 0  # prompts of each batch replayed from earlier successes (RLEP)
    temperature: Positive = 1.0  # temperature of sampling and of the learned policy
    top_k: Whole = 0  # sample from the top_k most likely tokens; 0: all
    top_p: Part | None = None  # sample from the top tokens with this total probability; None: all


class State(eqx.Module):
    """Everything that changes during training."""

    model: LanguageModel
    reference: LanguageModel | None
    critic: Critic | None
    optimiser: optax.OptState
    updates: Int[Array, ""]
    config: Config


def needs(config: Config) -> Generations:
    """Ask for answers that the model itself generates."""
    return Generations(
        *(config.prompts, config.group, config.epochs * config.minibatches, config.limit),
        *(float(config.temperature), config.top_k, 1.0 if config.top_p is None else config.top_p),
        *(config.rounds, config.lag, config.again, config.ahead),
    )


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """Create a learner with an untrained model. Raises :class:`Mistake` without a text world."""
    key = random_keys.fold(key, "model")
    return begin(gradient_accumulation.new_model(key, spec, "policy gradient"), config)


def begin(model: LanguageModel, config: Config) -> State:
    """Create a learner from ``model``. Raises Mistake for settings that exclude each other."""
    for field, choices in FIELD_CHOICES.items():
        if (value := getattr(config, field)) not in choices:
            near = did_you_mean(value, choices, f"use one of {', '.join(choices)}")
            raise Mistake(f"Unknown {field} {value!r}{near}")
    if config.group < 2 and config.baseline in ("mean", "leave-one-out"):
        wrong = f"baseline {config.baseline} compares the answers of a group, but group=1 has one"
        raise Mistake(f"{wrong}. Set group=2 or more, or baseline=none.")
    if config.scale == "tokens" and (config.baseline == "critic" or config.turns):
        raise Mistake("scale=tokens does not support turns or baseline=critic. Remove them.")
    if config.kl_corrected and (config.kl == "none" or config.kl_in != "loss"):
        raise Mistake("kl_corrected needs a KL in the loss. Set kl=k3 and kl_in=loss as well.")
    if config.kl_corrected and config.kl == "k2":
        wrong = "kl_corrected with kl=k2 is not the gradient of any KL"
        raise Mistake(f"{wrong}. Use kl=k3 or kl=k1, or remove kl_corrected.")
    if token_credit.overlong_tokens(config) >= config.limit:
        wrong = f"overlong={config.overlong} must be below limit={config.limit}"
        raise Mistake(f"{wrong}. Set it to a fifth of limit (as DAPO), or to 0 for no penalty.")
    if stale := token_credit.uncorrected_staleness(config):
        wrong = f"{stale} with top_k or top_p is not corrected for stale answers"
        raise Mistake(f"{wrong}. Add decoupled, or remove top_k and top_p.")
    critic = Critic.create(model) if config.baseline == "critic" else None
    reference = None if config.kl == "none" else model
    optimiser, updates = gradient_accumulation.new_optimiser(model), jnp.zeros((), jnp.int32)
    return State(model, reference, critic, optimiser, updates, config)


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Make one iteration's updates on the texts ``(row, token)`` that the model generated."""
    config = state.config
    ids, mask = gradient_accumulation.batch_tokens(batch), gradient_accumulation.answer_mask(batch)
    before = token_credit.log_probs_before_update(state, ids, mask)
    sampled = batch.extras["log_prob"]
    advantage, values, metrics = token_credit.token_advantages(state, batch, ids, mask, before)
    rows = {
        "ids": ids,
        "mask": token_credit.learned_tokens(config, batch, mask),
        "counted": mask,
        "group": batch.extras["group"],
        "portion": line_rows.row_shares(token_credit.rows_before(batch)),
        "advantage": advantage,
        "old": before["model"] if token_credit.recomputes_log_probs(config) else sampled,
        "sampled": sampled,
        "weight": token_credit.staleness_weight(config, before, batch, mask),
        "reference": before["reference"],
        **values,
    }

    def epoch(state: State, key: Key[Array, ""]) -> tuple[State, dict[str, Array]]:
        order = jax.random.permutation(key, ids.shape[0]) if config.minibatches > 1 else None
        parts = jax.tree.map(lambda x: _split_minibatches(x, order, config.minibatches), rows)
        return jax.lax.scan(update, state, parts)

    state, found = jax.lax.scan(epoch, state, random_keys.split(key, "epoch", config.epochs))
    size = token_credit.row_mean(jnp.abs(advantage), mask)
    samples = {"advantage": size, "score": batch.extras["score"]}
    return state, Signals(jax.tree.map(jnp.mean, found) | metrics, samples)


def update(state: State, rows: dict[str, Array]) -> tuple[State, dict[str, Array]]:
    """Update the policy, and the critic if there is one, once on a minibatch."""
    config, critic, counted = state.config, state.critic, rows["counted"]
    more: dict[str, Any] = {"counted": counted, "portion": rows["portion"], "length": config.limit}
    share = token_weights(rows["mask"], rows["group"], config.aggregate, **more)
    even = token_weights(counted, rows["group"], "token")
    model, optimiser, metrics = gradient_accumulation.update(
        *(state.model, state.optimiser, make_loss(config), (rows["ids"], counted)),
        rows | {"share": share, "even": even},
        **update_options(config, state.updates),
    )
    updates, reference = state.updates + 1, state.reference
    if reference is not None and config.reset:
        due = updates % config.reset == 0
        reference = jax.tree.map(lambda new, old: jnp.where(due, new, old), model, reference)
    if critic is not None:
        lr, max_norm, piece = config.value_lr, config.max_grad_norm, config.piece
        critic, critic_metrics = critic.update(rows, lr=lr, max_norm=max_norm, piece=piece)
        metrics |= critic_metrics
    return State(model, reference, critic, optimiser, updates, config), metrics


def make_loss(config: Config) -> gradient_accumulation.Loss:
    """Return the function that computes L of the module docstring, and metrics, of a piece."""

    def loss(
        model: LanguageModel, lines: TokenRows, rows: Any
    ) -> tuple[Float[Array, ""], dict[str, Array]]:
        log_prob, entropy = lines.log_prob(model, config.temperature)
        ratio = log_ratio(log_prob, rows["old"], rows["counted"], config.level)
        limits = {"low": config.low, "high": config.high, "dual": config.dual}
        each, cut = surrogate_loss(ratio, log_prob, rows["advantage"], config.rule, **limits)
        each = each * rows["weight"] - config.entropy_coef * entropy
        mismatch = jnp.abs(log_prob - rows["sampled"])
        per_token = {"entropy": entropy, "cut": cut, "mismatch": mismatch}
        if config.kl != "none":
            per_token["kl"] = cost = estimate_kl(log_prob, rows["reference"], config.kl)
            if config.kl_corrected:
                ratio = log_ratio(log_prob, rows["old"], rows["counted"], "token")
                cost = ratio_corrected_kl(log_prob, rows["reference"], ratio, config.kl)
            each = each + (config.kl_coef * cost if config.kl_in == "loss" else 0.0)
        total = weighted_sum(each, rows["share"])
        metrics = {  # means over tokens, whatever the loss's denominator
            f"policy/{name}": weighted_sum(x.astype(jnp.float32), rows["even"])
            for name, x in per_token.items()
        }
        return total, metrics | {"loss/policy": total}

    return loss


def _split_minibatches(x: Array, order: Int[Array, "row"] | None, parts: int) -> Array:
    """Split rows into minibatches, in the given random order."""
    if x.shape[0] % parts:
        raise Mistake(
            f"{x.shape[0]} texts cannot be split into {parts} equal minibatches. Choose a divisor."
        )
    x = x if order is None else x[order]
    return x.reshape(parts, x.shape[0] // parts, *x.shape[1:])
