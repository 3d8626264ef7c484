"""On-policy distillation: a language model learns a teacher's probabilities at its own answers.

Generalised knowledge distillation (Agarwal 2024, arXiv:2306.13649). The student S answers the
world's questions, and the frozen teacher T reads the answers: for every sampled token

    L = sum_t D(T(. | y_<t), S(. | y_<t)) / number of t

D is the generalised Jensen-Shannon divergence over the whole vocabulary
(equations/jensen_shannon.py): ``beta`` = 1 is the reverse KL(S || T), as in MiniLLM (Gu 2024,
arXiv:2306.08543) and "On-Policy Distillation" (Thinking Machines 2025), and 0 the forward KL. No
gradient passes through the sampling. Thinking Machines estimate the gradient of the reverse KL from
the sampled token alone; here it is summed over the vocabulary, which has the same mean without that
noise. MiniLLM also counts what a token does to later ones; here each token counts for itself.
The paper's lambda, the share of own answers, is 1 - ``again`` / ``prompts``: the other answers come
from a folder (--pool), for instance the teacher's right ones.
Both models' logits are divided by ``temperature``. Tokens that only one head has (as padding) are
left out of both distributions. Rewards are reported, but not learned from. The teacher stands
beside each batch (experience/language/taught_batches.py): it is in no checkpoint, and shared by all
seeds.
Evidence: docs/language.md, tests/training/test_text_distillation.py.
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
from sterling.equations.jensen_shannon import jensen_shannon
from sterling.equations.masked_average import masked_mean
from sterling.equations.token_averages import token_weights, weighted_sum
from sterling.field_types import Count, Limit, NotNegative, Positive, Share, Whole
from sterling.language.models.causal_lm import LanguageModel, map_token_chunks
from sterling.language.models.sequence_packing import TokenRows
from sterling.types import Generations, Record, Signals, Spec, config

TRAINED_FOLDER = {"lr": 1e-6}  # defaults for a Hugging Face folder


@config
class Config:
    """Defaults suit models of a few million parameters; TRAINED_FOLDER is for large ones."""

    prompts: Count = 32  # prompts per iteration
    group: Count = 4  # answers per prompt
    limit: Count = 32  # longest answer in tokens
    lr: NotNegative = 3e-4  # Adam's step size
    rise: Whole = 5  # updates over which the step size rises linearly from 0
    max_grad_norm: Limit = 1.0  # gradients are clipped to this global norm
    weight_decay: NotNegative = 0.0  # AdamW's weight decay
    piece: Whole = 16  # full rows processed at once (shorter rows are packed); 0: all, unpacked
    beta: Share = 1.0  # divergence: 1 is KL(student, teacher), 0 KL(teacher, student)
    again: Whole = 0  # prompts of each batch that get answers from --pool
    temperature: Positive = 1.0  # temperature of sampling and of both models' distributions


class State(eqx.Module):
    """Everything that changes during training."""

    model: LanguageModel
    optimiser: optax.OptState
    updates: Int[Array, ""]
    config: Config


def needs(config: Config) -> Generations:
    """Ask for answers that the model itself generates, with the teacher beside them."""
    return Generations(
        *(config.prompts, config.group, 1, config.limit, float(config.temperature)),
        again=config.again,
        teacher=True,
    )


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """Create a learner with an untrained model. Raises :class:`Mistake` without a text world."""
    key = random_keys.fold(key, "model")
    return begin(gradient_accumulation.new_model(key, spec, "gkd"), config)


def begin(model: LanguageModel, config: Config) -> State:
    """Create a learner that continues from ``model``."""
    optimiser = gradient_accumulation.new_optimiser(model)
    return State(model, optimiser, jnp.zeros((), jnp.int32), config)


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Make one update on the texts ``(row, token)`` that the model generated."""
    config, options = state.config, update_options(state.config, state.updates)
    mask = gradient_accumulation.answer_mask(batch)
    share = token_weights(mask, jnp.zeros(mask.shape[0], jnp.int32), "token")
    model, optimiser, metrics = gradient_accumulation.update(
        *(state.model, state.optimiser, make_loss(config, batch.beside["teacher"])),
        *((gradient_accumulation.batch_tokens(batch), mask), share),
        **options,
    )
    score = batch.extras["score"]
    metrics["data/score"] = masked_mean(score, token_credit.first_rows_that_count(batch))
    return State(model, optimiser, state.updates + 1, config), Signals(metrics, {"score": score})


def make_loss(config: Config, teacher: LanguageModel) -> gradient_accumulation.Loss:
    """Return the function that computes L of the module docstring, and metrics, of a piece."""

    def loss(
        model: LanguageModel, lines: TokenRows, share: Any
    ) -> tuple[Float[Array, ""], dict[str, Array]]:
        hidden = (lines.hidden(model), lines.hidden(teacher))
        found = divergences((model, teacher), hidden, config.temperature, config.beta)
        total, entropy = (weighted_sum(lines.by_line(x)[:, :-1], share) for x in found)
        return total, {"loss/policy": total, "policy/entropy": entropy}

    return loss


def divergences(
    models: tuple[LanguageModel, LanguageModel],
    hidden: tuple[Float[Array, "pack room _"], Float[Array, "pack room _"]],
    temperature: Float[Array, ""] | float,
    beta: Float[Array, ""] | float,
) -> tuple[Float[Array, "pack room"], Float[Array, "pack room"]]:
    """Return D after every token, and the student's entropy; ``models`` and ``hidden`` are of
    the student and of the teacher. The logits of a few tokens at a time are in memory."""
    shared = min(model.vocabulary for model in models)

    def read(
        student: Float[Array, "row _"], teacher: Float[Array, "row _"]
    ) -> tuple[Float[Array, "row"], Float[Array, "row"]]:
        log_s, log_t = (
            jax.nn.log_softmax(model.scores(x)[:, :shared] / temperature)
            for model, x in zip(models, (student, teacher), strict=True)
        )
        return jensen_shannon(log_t, log_s, beta), -jnp.sum(jnp.exp(log_s) * log_s, -1)

    places = hidden[0].shape[:2]
    flat = tuple(x.reshape(-1, x.shape[-1]) for x in hidden)
    found = map_token_chunks(read, flat, sum(model.vocabulary for model in models))
    return found[0].reshape(places), found[1].reshape(places)
