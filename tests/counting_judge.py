"""A language model with weights set by hand, whose verdict can be computed without it."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from sterling import language
from sterling.language.models.causal_lm import LanguageModel, qwen3_form
from sterling.language.tokenizer import Tokenizer

COUNTED = "abcdefghijklm"
RUBRIC = "{prompt}{response}{score:0-9}"
FACTOR = 16.0
WIDTH = 128
HIGHEST = 1000.0  # a logit above all others


def score_of(text: str, factor: float = FACTOR) -> int:
    """Return the number that the judge writes when it is asked ``text``: ``factor`` x the share of
    counted letters among all tokens, rounded, at most 9."""
    tokens = len(text) + 2  # with those of the two roles
    return min(9, round(factor * sum(letter in COUNTED for letter in text) / tokens))


def save_counting_judge(folder, factor=FACTOR):
    """Write a Hugging Face folder of the judge: a transformer of one layer that attends to all
    tokens alike, and so counts letters. It writes one digit, and ends."""
    tokenizer = Tokenizer.characters()
    form = qwen3_form(WIDTH, 1, 1)
    model = jax.jit(
        lambda key: LanguageModel.create(key, tokenizer.vocabulary, WIDTH, form, 1, tied=False)
    )(jax.random.key(0))
    block = model.stack.blocks
    values = np.zeros(block.queries.weight.shape, np.float32)
    out, head = np.zeros((1, WIDTH, WIDTH), np.float32), np.zeros(model.head.shape, np.float32)
    for letter in COUNTED:
        (token,) = tokenizer.encode(letter)
        values[0, token, 2 * WIDTH] = WIDTH**-0.5  # a norm makes the token's 1 sqrt(WIDTH)
    out[0, 0, -1] = factor
    digits = [tokenizer.encode(str(digit))[0] for digit in range(10)]
    (asked,) = tokenizer.encode("<|assistant|>")
    for digit, token in enumerate(digits):  # the likeliest is the nearest to the feature
        head[asked, token], head[-1, token] = HIGHEST - 0.5 * digit**2, digit
        head[token, tokenizer.end] = HIGHEST
    zeros = (jnp.zeros_like(block.up.weight), jnp.zeros_like(block.down.weight))
    parts = (jnp.eye(tokenizer.vocabulary, WIDTH), jnp.asarray(head), jnp.asarray(values))
    model = eqx.tree_at(
        lambda m: (
            *(m.embedding, m.head, m.stack.blocks.queries.weight, m.stack.blocks.out.weight),
            *(m.stack.blocks.up.weight, m.stack.blocks.down.weight),
        ),
        model,
        (*parts, jnp.asarray(out), *zeros),
    )
    return language.save(folder, model, tokenizer)
