"""The policy gradient of language models: GRPO, RLOO, DAPO and their kin, by four switches.

An answer y to a question is one of a group; with mask over the tokens that the model said,

    L = sum_t w_t [ l(r_t, A_t) + beta KL_t - c H_t ],    r = pi(y_t) / pi_old(y_t)

    A   ``baseline`` and ``scale`` of the scores in a group     equations/group.py
    r   ``level``: of a token, or of the whole answer           equations/likelihood.py
    l   ``rule``: how the ratio is limited                      equations/clip.py
    w   ``aggregate``: the denominator of the sum               equations/aggregate.py

The names of papers are settings of these (algorithms/language/named.json says which; the run's
config.json has all of them): reinforce, rloo, grpo, dr-grpo, dapo, gspo, cispo, reinforce++,
lite-ppo, token-ppo (with a critic and GAE) and expert-iteration. docs/language_losses.md compares
them with other systems'; losses and gradients equal TRL's (tests/equations/test_trl.py).

pi_old is the policy that spoke; where it was sampled without unlikely tokens (``top_k``, ``top_p``)
it is the policy as it was when the iteration began, for the probabilities that were cut are others.
It is that with ``decoupled`` too, and what was said by a staler one then counts pi_old / pi_spoke,
at most ``cap`` (Hilton 2022). Without ``decoupled`` nothing would count the age of old answers
(``lag``, ``again``) that were sampled with ``top_k`` or ``top_p``: that is refused.
Evidence: benchmarks/language.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Key

from sterling import keys
from sterling.algorithms.language import credit, critic, teaching
from sterling.equations import aggregate, clip, divergence, group, likelihood
from sterling.field_types import Count, Limit, NotNegative, Number, Part, Positive, Share, Whole
from sterling.language.generate import Answers, Prompts, generate
from sterling.language.model import LanguageModel
from sterling.language.packing import Lines
from sterling.naming import hint
from sterling.nets.optimiser import risen
from sterling.types import Generations, Mistake, Record, Signals, Spec, config

WORDS = {
    "baseline": (*group.BASELINES, "critic"),
    "scale": (*group.SCALES, "tokens"),
    "level": likelihood.LEVELS,
    "rule": clip.RULES,
    "aggregate": aggregate.WAYS,
    "kl": ("none", *divergence.KINDS),
    "kl_in": ("loss", "reward"),
}


@config
class Config:
    """Defaults for models of up to some million parameters; large ones want lr of 1e-6."""

    prompts: Count = 32  # questions per iteration
    group: Count = 16  # answers to each
    limit: Count = 32  # tokens of one answer
    lr: NotNegative = 3e-4  # Adam's step size
    rise: Whole = 5  # updates over which the step size rises
    max_grad_norm: Limit = 1.0  # larger gradients are scaled down to it
    weight_decay: NotNegative = 0.0  # AdamW's
    epochs: Count = 1  # times that a batch is gone through
    minibatches: Count = 1  # updates in each epoch
    piece: Whole = 16  # full rows read at a time, shorter ones packed together; 0: all, unpacked
    baseline: str = "mean"  # none, mean, leave-one-out or critic
    scale: str = "group"  # none, group, batch, whiten; or tokens (REINFORCE++)
    level: str = "token"  # of the ratio: token, sequence (GSPO) or sum
    rule: str = "clip"  # none, clip, dual, cispo or reinforce
    low: Number = 0.2  # the ratio is limited to 1 - low
    high: Number = 0.2  # and to 1 + high
    dual: Limit = 3.0  # rule dual: -c A at most, where A < 0
    aggregate: str = "token"  # token, sequence, sum, sum-constant or prompt
    turns: Whole = 0  # credit by turns, of which there are so many; 0: by answers
    gamma: Share = 1.0  # discount: per turn where there are turns, else per token
    lam: Share = 1.0  # the critic's GAE lambda
    value_lr: NotNegative = 3e-4  # the critic's step size
    kl: str = "none"  # estimator of the divergence from the model at first: none, k1, k2, k3
    kl_in: str = "loss"  # or reward
    kl_coef: NotNegative = 0.04  # beta
    kl_corrected: bool = False  # in the loss, times the ratio: then its gradient is the KL's
    reset: Whole = 0  # updates after which the reference becomes the model; 0: never
    entropy_coef: NotNegative = 0.0  # c
    decoupled: bool = False  # ratios to the iteration's first policy, importance weights to it
    cap: Limit = 2.0  # of those weights
    overlong: Whole | None = 0  # last tokens, over which the score falls by 1; None: limit / 5
    truncated: bool = True  # learn from answers that were cut off
    solved: bool = False  # learn only from answers of full score (expert iteration)
    rounds: Count = 1  # of asking; above 1, groups all right or all wrong are asked anew (DAPO)
    lag: Whole = 0  # iterations that experience waits before it is learned from
    again: Whole = 0  # questions of each batch that are remembered successes (RLEP)
    temperature: Positive = 1.0  # of sampling, and of the policy that learns
    top_k: Whole = 0  # sample from so many of the likeliest tokens; 0: all
    top_p: Part | None = None  # sample from so much of the probability; None: from all


class State(eqx.Module):
    """Everything that changes."""

    model: LanguageModel
    reference: LanguageModel | None
    critic: critic.Critic | None
    optimiser: optax.OptState
    updates: Int[Array, ""]
    config: Config


def needs(config: Config) -> Generations:
    """What the model itself says."""
    return Generations(
        *(config.prompts, config.group, config.epochs * config.minibatches, config.limit),
        *(float(config.temperature), config.top_k, 1.0 if config.top_p is None else config.top_p),
        *(config.rounds, config.lag, config.again),
    )


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """A new model that knows nothing; raises :class:`Mistake` outside of worlds of text."""
    name = "the policy gradient of text"
    return begin(teaching.model_of(keys.fold(key, "model"), spec, name), config)


def begin(model: LanguageModel, config: Config) -> State:
    """A learner that goes on from ``model``; Mistake for settings that do not go together."""
    for field, words in WORDS.items():
        if (said := getattr(config, field)) not in words:
            near = hint(said, words, f"use one of {', '.join(words)}")
            raise Mistake(f"{field} {said!r} is not known{near}")
    if config.group < 2 and config.baseline in ("mean", "leave-one-out"):
        said = f"a group of {config.group} has no other answer for baseline {config.baseline}"
        raise Mistake(f"{said}, so nothing is learned; give group=2 or more, or baseline none")
    if config.scale == "tokens" and (config.baseline == "critic" or config.turns):
        raise Mistake("scale tokens is for whole answers: leave out turns and the critic")
    if config.kl_corrected and (config.kl == "none" or config.kl_in != "loss"):
        raise Mistake("kl_corrected is for a KL in the loss; say kl k3 and kl_in loss as well")
    if credit.overlong(config) >= config.limit:
        said = f"overlong={config.overlong} takes from every answer of limit={config.limit}"
        raise Mistake(f"{said}; give a part of it (DAPO's is a fifth), or 0 for none")
    if old := credit.uncounted_age(config):
        said = f"{old} with top_k or top_p makes every first ratio 1, as if no answer were old"
        raise Mistake(f"{said}; add decoupled, or leave out top_k and top_p")
    judge = critic.Critic.create(model) if config.baseline == "critic" else None
    reference = None if config.kl == "none" else model
    none = jnp.zeros((), jnp.int32)
    return State(model, reference, judge, teaching.optimiser(model), none, config)


def act(
    state: State, obs: Prompts, key: Key[Array, ""], explore: bool
) -> tuple[Answers, dict[str, Array]]:
    """Answers to prompts; without ``explore`` always the likeliest token."""
    return generate(state.model, obs if explore else obs.greedy(), key), {}


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """One iteration's updates on the lines ``(row, token)`` that the model took part in."""
    config, ids, mask = state.config, teaching.tokens(batch), teaching.said(batch)
    before = credit.likelihoods(state, ids, mask)
    worth, judged, found = credit.advantages(state, batch, ids, mask, before)
    rows = {
        "ids": ids,
        "mask": credit.kept(config, batch, mask),
        "counted": mask,
        "group": batch.extras["group"],
        "advantage": worth,
        "old": before["model"] if credit.asks_anew(config) else batch.extras["log_prob"],
        "spoke": batch.extras["log_prob"],
        "weight": credit.staleness(config, before, batch, mask),
        "reference": before["reference"],
        **judged,
    }

    def epoch(state: State, key: Key[Array, ""]) -> tuple[State, dict[str, Array]]:
        order = jax.random.permutation(key, ids.shape[0]) if config.minibatches > 1 else None
        parts = jax.tree.map(lambda x: _split(x, order, config.minibatches), rows)
        return jax.lax.scan(update, state, parts)

    state, metrics = jax.lax.scan(epoch, state, keys.deal(key, "epoch", config.epochs))
    last = jax.tree.map(jnp.mean, metrics) | found
    told = {"advantage": credit.row_mean(jnp.abs(worth), mask), "score": batch.extras["score"]}
    return state, Signals(last, told)


def update(state: State, rows: dict[str, Array]) -> tuple[State, dict[str, Array]]:
    """One update of the policy, and of the critic if there is one, on a minibatch."""
    config, judge = state.config, state.critic
    share = aggregate.weights(
        *(rows["mask"], rows["group"], config.aggregate),
        length=config.limit,
        counted=rows["counted"],
    )
    even = aggregate.weights(rows["counted"], rows["group"], "token")
    model, optimiser, found = teaching.update(
        *(state.model, state.optimiser, loss_of(config), (rows["ids"], rows["counted"])),
        rows | {"share": share, "even": even},
        lr=risen(config.lr, state.updates, config.rise),
        max_norm=config.max_grad_norm,
        decay=config.weight_decay,
        piece=config.piece,
    )
    updates, reference = state.updates + 1, state.reference
    if reference is not None and config.reset:
        anew = updates % config.reset == 0
        reference = jax.tree.map(lambda new, old: jnp.where(anew, new, old), model, reference)
    if judge is not None:
        how = {"lr": config.value_lr, "max_norm": config.max_grad_norm}
        judge, told = judge.learned(rows, piece=config.piece, **how)
        found |= told
    return State(model, reference, judge, optimiser, updates, config), found


def loss_of(config: Config) -> teaching.Loss:
    """L of the module docstring on the rows of a piece, and what to report."""

    def loss(
        model: LanguageModel, lines: Lines, rows: Any
    ) -> tuple[Float[Array, ""], dict[str, Array]]:
        log_prob, entropy = lines.log_prob(model, config.temperature)
        ratio = likelihood.log_ratio(log_prob, rows["old"], rows["counted"], config.level)
        each, cut = clip.surrogate(
            *(ratio, log_prob, rows["advantage"], config.rule),
            low=config.low,
            high=config.high,
            dual=config.dual,
        )
        each = each * rows["weight"] - config.entropy_coef * entropy
        told = {"entropy": entropy, "cut": cut, "mismatch": jnp.abs(log_prob - rows["spoke"])}
        if config.kl != "none":
            told["kl"] = cost = divergence.estimate(log_prob, rows["reference"], config.kl)
            if config.kl_corrected:
                own = likelihood.log_ratio(log_prob, rows["old"], rows["counted"], "token")
                cost = divergence.corrected(log_prob, rows["reference"], own, config.kl)
            each = each + (config.kl_coef * cost if config.kl_in == "loss" else 0.0)
        total = aggregate.weighted_sum(each, rows["share"])
        found = {  # means over tokens, whatever the loss's denominator is
            f"policy/{name}": aggregate.weighted_sum(x.astype(jnp.float32), rows["even"])
            for name, x in told.items()
        }
        return total, found | {"loss/policy": total}

    return loss


def _split(x: Array, order: Int[Array, "row"] | None, parts: int) -> Array:
    """Rows dealt into minibatches, in an order by chance."""
    if x.shape[0] % parts:
        raise Mistake(
            f"{x.shape[0]} lines cannot be dealt into {parts} minibatches; choose another"
        )
    x = x if order is None else x[order]
    return x.reshape(parts, x.shape[0] // parts, *x.shape[1:])
