"""Preference learning without a reward model: DPO (Rafailov 2023, arXiv:2305.18290), IPO, KTO ...

Of each pair of answers one was preferred. With m the *merit* of an answer, ``loss`` is one of

    dpo     -log sigma(beta (m_c - m_r))                             m: gain
    ipo     (m_c - m_r - 1 / (2 beta))^2                             m: gain
    hinge   max(0, 1 - beta (m_c - m_r))                             m: gain
    kto     1 - sigma(beta (m_c - kl)), 1 - sigma(beta (kl - m_r))   m: gain; mean of the two
    orpo    -m_c - beta log sigma(log odds(m_c) - log odds(m_r))     m: log pi per token
    simpo   -log sigma(beta (m_c - m_r) - margin)                    m: log pi per token

averaged over pairs. An answer's gain is log pi - log pi_ref, summed over its tokens, with pi_ref
the initial model. Equations and sources: :mod:`sterling.equations.preference_losses`.

KTO's reference point kl is the mean gain of *mismatched* answers, at least 0: each prompt of the
batch is combined with the answers to the next pair's prompt.

Deviations: ORPO's likelihood of the chosen answer covers the answer's tokens, as a mean per token
averaged over pairs (TRL's covers the prompt's tokens too, averaged over all tokens of the batch).
KTO learns from pairs here, so it sees as many desirable answers as undesirable ones.
"""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, Key

from sterling import random_keys
from sterling.algorithms.language.gradient_accumulation import (
    Loss,
    map_pieces,
    new_model,
    new_optimiser,
    summed_metrics,
    update,
    update_options,
)
from sterling.algorithms.language.preference_pairs import Pairs
from sterling.equations import preference_losses
from sterling.field_types import Count, Finite, Limit, NotNegative, Share, Whole
from sterling.language.models.causal_lm import LanguageModel
from sterling.language.models.sequence_packing import TokenRows
from sterling.lookup.name_suggestions import did_you_mean
from sterling.types import Comparisons, Mistake, Record, Signals, Spec, config

PairMerits = Float[Array, "pair 2"]
WITH_REFERENCE, WITHOUT_REFERENCE = (
    ("dpo", "ipo", "hinge", "kto"),
    ("orpo", "simpo"),
)  # with and without a reference
LOSS_OF_FIELD = {
    **{"smoothing": "dpo", "per_token": "ipo", "margin": "simpo"},
    **{"desirable": "kto", "undesirable": "kto"},
}

TRAINED_FOLDER = {"lr": 1e-6}  # defaults for a Hugging Face folder


@config
class Config:
    """Defaults suit models of a few million parameters; TRAINED_FOLDER is for large ones."""

    loss: str = "dpo"  # dpo, ipo, hinge, kto, orpo or simpo
    lr: NotNegative = 3e-4  # Adam's step size
    beta: NotNegative = 0.1  # strength of preferences (inverse KL weight); simpo needs 2.0
    smoothing: Share = 0.0  # dpo: assumed share of pairs with swapped labels
    margin: Finite = 1.0  # simpo: wanted margin of the chosen answer
    per_token: bool = False  # ipo: mean gain per token instead of the sum, as the authors ran it
    desirable: NotNegative = 1.0  # kto: weight of chosen answers
    undesirable: NotNegative = 1.0  # kto: weight of rejected answers
    batch: Count = 32  # pairs per update
    learn: Count = 1  # updates per iteration
    rise: Whole = 20  # updates over which the step size rises linearly from 0
    max_grad_norm: Limit = 1.0  # gradients are clipped to this global norm
    weight_decay: NotNegative = 0.0  # AdamW's weight decay
    piece: Whole = 16  # full pairs processed at once (shorter pairs are packed); 0: all, unpacked
    limit: Count = 32  # longest answer in evaluation, in tokens


class State(eqx.Module):
    """Everything that changes during training, and the reference, which does not."""

    model: LanguageModel
    reference: LanguageModel | None  # None if the loss needs none
    optimiser: optax.OptState
    updates: Int[Array, ""]
    config: Config


def needs(config: Config) -> Comparisons:
    """Ask for preference pairs. Raises :class:`Mistake` for fields that do not fit the loss."""
    losses = (*WITH_REFERENCE, *WITHOUT_REFERENCE)
    if config.loss not in losses:
        near = did_you_mean(config.loss, losses, f"use {', '.join(losses)}")
        raise Mistake(f"Unknown loss {config.loss!r}{near}")
    if config.loss == "kto" and config.batch < 2:
        wrong = f"kto pairs each prompt with another prompt's answer, but batch={config.batch}"
        raise Mistake(f"{wrong}. Set batch=2 or more.")
    default = {field.name: field.default for field in dataclasses.fields(config)}  # type: ignore[arg-type]
    for name, owner in LOSS_OF_FIELD.items():
        value, known = getattr(config, name), (bool, int, float)
        if owner != config.loss and isinstance(value, known) and value != default[name]:
            raise Mistake(f"{name} belongs to loss {owner}, not {config.loss}. Remove it.")
    return Comparisons(config.batch, config.learn)


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """Create a learner with an untrained model. Raises :class:`Mistake` without a text world."""
    return begin(new_model(random_keys.fold(key, "model"), spec, "dpo"), config)


def begin(model: LanguageModel, config: Config) -> State:
    """Create a learner that continues from ``model``, which is also the reference."""
    needs(config)  # checks it
    reference = jax.tree.map(jnp.copy, model) if config.loss in WITH_REFERENCE else None
    return State(model, reference, new_optimiser(model), jnp.zeros((), jnp.int32), config)


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Make one update on pairs; of the rows ``(row, token)`` the first half are the chosen ones."""
    config, pairs = state.config, Pairs.from_batch(batch)
    loss, kl = _loss_of_batch(state, pairs)
    options = update_options(config, state.updates)
    model, optimiser, metrics = update(
        state.model, state.optimiser, loss, pairs.flat(), pairs, **options
    )
    if config.loss == "kto":
        metrics |= {"reward/reference": config.beta * kl}
    learned = State(model, state.reference, optimiser, state.updates + 1, config)
    return learned, Signals(metrics)


def held_out_metrics(state: State, batch: Record) -> dict[str, Array]:
    """Return the loss of pairs that are not learned from, and in which share of them the chosen
    answer has the higher implicit reward. Raises :class:`Mistake` for kto with a single pair."""
    config, pairs = state.config, Pairs.from_batch(batch)
    if config.loss == "kto" and pairs.ids.shape[0] < 2:
        raise Mistake("kto pairs each prompt with another prompt's answer, but one pair is held "
                      "out. Give a larger held_out.")  # fmt: skip
    loss, _ = _loss_of_batch(state, pairs)
    piece = config.piece or config.batch
    found = summed_metrics(state.model, loss, pairs.flat(), pairs, piece)
    return {"loss": found["loss/preference"], "accuracy": found["reward/accuracy"]}


def _loss_of_batch(state: State, pairs: Pairs) -> tuple[Loss, Float[Array, ""]]:
    """Return the loss function for the pieces of a batch, and KTO's reference point (else 0)."""
    kl = kto_reference_point(state, pairs) if state.config.loss == "kto" else jnp.zeros(())
    return make_loss(state.reference, state.config, kl), kl


def make_loss(reference: LanguageModel | None, config: Config, kl: Float[Array, ""]) -> Loss:
    """Return the function that computes the loss of a piece's pairs, and metrics: the implicit
    rewards beta m."""

    def loss(
        model: LanguageModel, lines: TokenRows, pairs: Pairs
    ) -> tuple[Float[Array, ""], dict[str, Array]]:
        mask, per_token = pairs.flat()[1], config.per_token
        merits, log_prob = answer_merits(model, reference, lines, mask, per_token=per_token)
        loss = jnp.sum(pairs.share * pair_losses(merits, kl, config))
        chosen, rejected = (config.beta * merits[:, side] for side in (0, 1))
        per_pair = {
            "reward/chosen": chosen,
            "reward/rejected": rejected,
            "reward/margin": chosen - rejected,
            "reward/accuracy": (chosen > rejected).astype(jnp.float32),
            "policy/log_prob_chosen": log_prob[:, 0],
            "policy/log_prob_rejected": log_prob[:, 1],
        }
        metrics = {name: jnp.sum(pairs.share * value) for name, value in per_pair.items()}
        return loss, {"loss/preference": loss} | jax.lax.stop_gradient(metrics)

    return loss


def answer_merits(
    model: LanguageModel,
    reference: LanguageModel | None,
    lines: TokenRows,
    mask: Bool[Array, "row token"],
    *,
    per_token: bool = False,
) -> tuple[PairMerits, PairMerits]:
    """Return m of the module docstring, and the answers' log-probabilities. Gains are sums over
    tokens, or means with ``per_token``."""
    log_prob = lines.log_prob(model)[0]
    total = preference_losses.sequence_log_prob(log_prob, mask)
    if reference is None:
        merits = preference_losses.mean_log_prob(log_prob, mask)
    else:
        gain = log_prob - jax.lax.stop_gradient(lines.log_prob(reference)[0])
        reduce = (
            preference_losses.mean_log_prob if per_token else preference_losses.sequence_log_prob
        )
        merits = reduce(gain, mask)
    return merits.reshape(-1, 2), total.reshape(-1, 2)


def pair_losses(merits: PairMerits, kl: Float[Array, ""], config: Config) -> Float[Array, "pair"]:
    """Return ``config.loss`` of every pair, given its merits."""
    chosen, rejected, beta = merits[:, 0], merits[:, 1], config.beta
    if config.loss == "dpo":
        return preference_losses.dpo(chosen, rejected, beta, config.smoothing)
    if config.loss == "ipo":
        return preference_losses.ipo(chosen, rejected, beta)
    if config.loss == "hinge":
        return preference_losses.hinge(chosen, rejected, beta)
    if config.loss == "orpo":
        return preference_losses.orpo(chosen, rejected, beta) - chosen
    if config.loss == "simpo":
        return preference_losses.simpo(chosen, rejected, beta, config.margin)
    desirable = jnp.broadcast_to(jnp.arange(2)[None] == 0, merits.shape).ravel()
    weights = {"weight_desirable": config.desirable, "weight_undesirable": config.undesirable}
    losses = preference_losses.kto(merits.ravel(), desirable, kl, beta, **weights)
    return losses.reshape(merits.shape).mean(-1)


def kto_reference_point(state: State, pairs: Pairs) -> Float[Array, ""]:
    """Return KTO's reference point kl of the whole batch."""
    other = pairs.mismatched()

    def gains(lines: TokenRows, pairs: Pairs) -> PairMerits:
        return answer_merits(state.model, state.reference, lines, pairs.flat()[1])[0]

    gain = map_pieces(gains, other.flat(), state.config.piece, other)
    return preference_losses.kto_reference(jnp.sum(other.share * gain.mean(-1))[None])
