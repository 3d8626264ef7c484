"""Preference learning without a reward model (DPO: Rafailov 2023, arXiv:2305.18290) and its kin.

Of each pair of answers one was preferred. With m the *merit* of an answer, ``loss`` is one of

    dpo     -log sigma(beta (m_c - m_r))                             m: gain
    ipo     (m_c - m_r - 1 / (2 beta))^2                             m: gain
    hinge   max(0, 1 - beta (m_c - m_r))                             m: gain
    kto     1 - sigma(beta (m_c - kl)), 1 - sigma(beta (kl - m_r))   m: gain; mean of the two
    orpo    -m_c - beta log sigma(log odds(m_c) - log odds(m_r))     m: log pi per token
    simpo   -log sigma(beta (m_c - m_r) - margin)                    m: log pi per token

averaged over pairs. An answer's gain is log pi - log pi_ref, summed over its tokens, pi_ref the
model that learning began with. Equations and sources: :mod:`sterling.equations.preference`.

KTO's reference point kl is the mean gain of *mismatched* answers, never below 0: the prompts of a
batch with the answers to the next pair's prompt, put together from the batch's own tokens.

Deviations: ORPO's likelihood of the preferred answer is that of its own tokens, per token and
averaged over pairs (TRL's is over the prompt's tokens too, all of a batch alike). KTO takes pairs
here, so that it sees as many good answers as bad ones.
"""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, Key

from sterling import keys
from sterling.algorithms.language import teaching
from sterling.algorithms.language.pairs import Pairs
from sterling.equations import preference
from sterling.field_types import Count, Finite, Limit, NotNegative, Share, Whole
from sterling.language.generate import Answers, Prompts, generate
from sterling.language.model import LanguageModel
from sterling.language.packing import Lines
from sterling.naming import hint
from sterling.nets.optimiser import risen
from sterling.types import Comparisons, Mistake, Record, Signals, Spec, config

Merit = Float[Array, "pair 2"]
ANCHORED, FREE = ("dpo", "ipo", "hinge", "kto"), ("orpo", "simpo")  # with a reference, and without
OWN = {
    **{"smoothing": "dpo", "per_token": "ipo", "margin": "simpo"},
    **{"desirable": "kto", "undesirable": "kto"},
}


@config
class Config:
    """Defaults for models of up to some million parameters; large ones want lr of 1e-6."""

    loss: str = "dpo"  # dpo, ipo, hinge, kto, orpo or simpo
    lr: NotNegative = 3e-4  # Adam's step size
    beta: NotNegative = 0.1  # how strongly preferences count; simpo wants 2.0
    smoothing: Share = 0.0  # dpo: share of pairs that are believed the wrong way round
    margin: Finite = 1.0  # simpo: by how much the preferred answer is to win
    per_token: bool = False  # ipo: gains per token, as its authors ran it
    desirable: NotNegative = 1.0  # kto: weight of preferred answers
    undesirable: NotNegative = 1.0  # kto: weight of the others
    batch: Count = 32  # pairs per update
    learn: Count = 1  # updates per iteration
    rise: Whole = 20  # updates over which the step size rises
    max_grad_norm: Limit = 1.0  # larger gradients are scaled down to it
    weight_decay: NotNegative = 0.0  # AdamW's
    piece: Whole = 16  # full pairs read at a time, shorter ones packed together; 0: all, unpacked
    limit: Count = 32  # tokens of one answer, when the model is judged


class State(eqx.Module):
    """Everything that changes, and the reference, which does not."""

    model: LanguageModel
    reference: LanguageModel | None  # where the loss has one
    optimiser: optax.OptState
    updates: Int[Array, ""]
    config: Config


def needs(config: Config) -> Comparisons:
    """Pairs of answers; raises :class:`Mistake` for a Config that contradicts itself."""
    if config.loss not in (*ANCHORED, *FREE):
        near = hint(config.loss, (*ANCHORED, *FREE), f"use {', '.join((*ANCHORED, *FREE))}")
        raise Mistake(f"loss {config.loss!r} is not known{near}")
    if config.loss == "kto" and config.batch < 2:
        raise Mistake("kto compares prompts with others' answers; give it a batch of at least 2")
    usual = {field.name: field.default for field in dataclasses.fields(config)}  # type: ignore[arg-type]
    for name, owner in OWN.items():
        given = getattr(config, name)
        if owner != config.loss and isinstance(given, (bool, int, float)) and given != usual[name]:
            raise Mistake(f"{name} belongs to loss {owner}, not {config.loss}; leave it out")
    return Comparisons(config.batch, config.learn)


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """A new model that knows nothing; raises :class:`Mistake` outside of worlds of text."""
    return begin(teaching.model_of(keys.fold(key, "model"), spec, "dpo"), config)


def begin(model: LanguageModel, config: Config) -> State:
    """A learner that goes on from ``model``, which is the reference from now on."""
    needs(config)  # raises what is wrong with it
    reference = jax.tree.map(jnp.copy, model) if config.loss in ANCHORED else None
    return State(model, reference, teaching.optimiser(model), jnp.zeros((), jnp.int32), config)


def act(
    state: State, obs: Prompts, key: Key[Array, ""], explore: bool
) -> tuple[Answers, dict[str, Array]]:
    """Answers to prompts; without ``explore`` always the likeliest token."""
    return generate(state.model, obs if explore else obs.greedy(), key), {}


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """One update on pairs: of rows ``(row, token)`` the first half are the better ones."""
    config, pairs = state.config, Pairs.of(batch)
    kl = reference_point(state, pairs) if config.loss == "kto" else jnp.zeros(())
    model, optimiser, found = teaching.update(
        *(state.model, state.optimiser, loss_of(state.reference, config, kl)),
        *(pairs.flat(), pairs),
        lr=risen(config.lr, state.updates, config.rise),
        max_norm=config.max_grad_norm,
        decay=config.weight_decay,
        piece=config.piece,
    )
    if config.loss == "kto":
        found |= {"reward/reference": config.beta * kl}
    learned = State(model, state.reference, optimiser, state.updates + 1, config)
    return learned, Signals(found)


def loss_of(reference: LanguageModel | None, config: Config, kl: Float[Array, ""]) -> teaching.Loss:
    """The loss of the share of a piece's pairs, and the rewards beta m which the model implies."""

    def loss(
        model: LanguageModel, lines: Lines, pairs: Pairs
    ) -> tuple[Float[Array, ""], dict[str, Array]]:
        found, said = merit(model, reference, lines, pairs.flat()[1], per_token=config.per_token)
        lost = jnp.sum(pairs.share * per_pair(found, kl, config))
        chosen, rejected = (config.beta * found[:, side] for side in (0, 1))
        told = {
            "reward/chosen": chosen,
            "reward/rejected": rejected,
            "reward/margin": chosen - rejected,
            "reward/accuracy": (chosen > rejected).astype(jnp.float32),
            "policy/log_prob_chosen": said[:, 0],
            "policy/log_prob_rejected": said[:, 1],
        }
        sums = {name: jnp.sum(pairs.share * value) for name, value in told.items()}
        return lost, {"loss/preference": lost} | jax.lax.stop_gradient(sums)

    return loss


def merit(
    model: LanguageModel,
    reference: LanguageModel | None,
    lines: Lines,
    mask: Bool[Array, "row token"],
    *,
    per_token: bool = False,
) -> tuple[Merit, Merit]:
    """m of the module docstring, and the answers' log-probabilities. Gains are sums over tokens,
    or with ``per_token`` means."""
    said = lines.log_prob(model)[0]
    own = preference.total(said, mask)
    if reference is None:
        found = preference.mean(said, mask)
    else:
        gain = said - jax.lax.stop_gradient(lines.log_prob(reference)[0])
        found = (preference.mean if per_token else preference.total)(gain, mask)
    return found.reshape(-1, 2), own.reshape(-1, 2)


def per_pair(found: Merit, kl: Float[Array, ""], config: Config) -> Float[Array, "pair"]:
    """``config.loss`` of every pair's merits."""
    chosen, rejected, beta = found[:, 0], found[:, 1], config.beta
    if config.loss == "dpo":
        return preference.dpo(chosen, rejected, beta, config.smoothing)
    if config.loss == "ipo":
        return preference.ipo(chosen, rejected, beta)
    if config.loss == "hinge":
        return preference.hinge(chosen, rejected, beta)
    if config.loss == "orpo":
        return preference.orpo(chosen, rejected, beta) - chosen
    if config.loss == "simpo":
        return preference.simpo(chosen, rejected, beta, config.margin)
    good = jnp.broadcast_to(jnp.arange(2)[None] == 0, found.shape).ravel()
    weigh = {"weight_desirable": config.desirable, "weight_undesirable": config.undesirable}
    return preference.kto(found.ravel(), good, kl, beta, **weigh).reshape(found.shape).mean(-1)


def reference_point(state: State, pairs: Pairs) -> Float[Array, ""]:
    """KTO's kl, of the whole batch."""
    other = pairs.mismatched()

    def gained(lines: Lines, pairs: Pairs) -> Merit:
        return merit(state.model, state.reference, lines, pairs.flat()[1])[0]

    gain = teaching.in_pieces(gained, other.flat(), state.config.piece, other)
    return preference.kto_reference(jnp.sum(other.share * gain.mean(-1))[None])
