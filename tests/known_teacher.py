"""A language model with weights set by hand: its probabilities of the next token are always the
same."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from sterling import language
from sterling.language.models.causal_lm import LanguageModel, qwen3_form
from sterling.language.tokenizer import Tokenizer

WIDTH = 24  # no other model in the tests is as wide
LIKELY = {"a": 0.9, "b": 0.05}  # the rest is shared by all other tokens


def probabilities(tokenizer):
    """Return the teacher's probabilities of all tokens."""
    rest = 1.0 - sum(LIKELY.values())
    found = np.full(tokenizer.vocabulary, rest / (tokenizer.vocabulary - len(LIKELY)))
    for letter, share in LIKELY.items():
        found[tokenizer.encode(letter)] = share
    return found


def save_known_teacher(folder, tokenizer=None):
    """Write a Hugging Face folder of the teacher: its layer adds nothing, all tokens have the same
    embedding, and the head turns that into the logits."""
    tokenizer = tokenizer or Tokenizer.characters()
    size, form = tokenizer.vocabulary, qwen3_form(WIDTH, 2, 1)
    model = jax.jit(lambda key: LanguageModel.create(key, size, WIDTH, form, 1, tied=False))(
        jax.random.key(0)
    )
    embedding, head = np.zeros((size, WIDTH), np.float32), np.zeros((WIDTH, size), np.float32)
    embedding[:, 0] = 1.0  # a norm makes it sqrt(WIDTH)
    head[0] = np.log(probabilities(tokenizer)) / np.sqrt(WIDTH)
    block = model.stack.blocks
    nothing = (jnp.zeros_like(block.out.weight), jnp.zeros_like(block.down.weight))
    model = eqx.tree_at(
        lambda m: (m.embedding, m.head, m.stack.blocks.out.weight, m.stack.blocks.down.weight),
        model,
        (jnp.asarray(embedding), jnp.asarray(head), *nothing),
    )
    return language.save(folder, model, tokenizer)
