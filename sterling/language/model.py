"""A causal language model: tokens in, scores of the next token out."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from sterling import keys
from sterling.nets.transformer import Cache, Form, Transformer, rotary_rates
from sterling.types import Mistake

CHUNK = 1 << 22  # scores (rows x vocabulary) that are held at once when log-probabilities are taken
SIZES = {  # name -> width, layers, heads, key heads; parameters without the embedding
    "nano": (64, 2, 4, 1),  # 0.1 million
    "tiny": (128, 4, 4, 1),  # 0.8 million
    "small": (256, 8, 8, 2),  # 6 million
}


class LanguageModel(eqx.Module):
    """Embedding, transformer, and scores by the embedding again or by weights of their own."""

    embedding: Float[Array, "vocabulary width"]
    stack: Transformer
    head: Float[Array, "width vocabulary"] | None  # None: the embedding's transpose
    origin: str = eqx.field(static=True, default="")  # the config.json it was read from

    @classmethod
    def create(
        cls,
        key: Key[Array, ""],
        vocabulary: int,
        width: int,
        form: Form,
        layers: int,
        *,
        tied: bool = True,
    ) -> LanguageModel:
        """Random weights; embeddings of deviation 0.02, as in GPT-2."""
        parts = ("embedding", "head")
        drawn = [
            0.02 * jax.random.normal(keys.fold(key, name), (vocabulary, width)) for name in parts
        ]
        stack = Transformer.of(keys.fold(key, "stack"), width, form, layers)
        return cls(drawn[0], stack, None if tied else drawn[1].T)

    @property
    def vocabulary(self) -> int:
        """Number of tokens known."""
        return self.embedding.shape[0]

    @property
    def parameters(self) -> int:
        """Number of numbers learned."""
        return sum(leaf.size for leaf in jax.tree.leaves(self))

    def __call__(
        self, ids: Int[Array, "batch time"], mask: Bool[Array, "batch time"] | None = None
    ) -> Float[Array, "batch time vocabulary"]:
        """Scores (logits, float32) of the token that follows each."""
        return self.scores(self.hidden(ids, mask))

    def hidden(
        self,
        ids: Int[Array, "batch time"],
        mask: Bool[Array, "batch time"] | None = None,
        *,
        at: Int[Array, "#batch time"] | None = None,
        allowed: Bool[Array, "#batch time time"] | None = None,
    ) -> Float[Array, "batch time width"]:
        """What the last layer says, before it is compared with the vocabulary (see
        :meth:`Transformer.__call__`)."""
        return self.stack(self.embedding[ids], mask, at=at, allowed=allowed)

    def scores(self, hidden: Float[Array, "... width"]) -> Float[Array, "... vocabulary"]:
        """Logits in float32."""
        head = self.embedding.T if self.head is None else self.head
        return jnp.dot(hidden, head, preferred_element_type=jnp.float32)

    def next_tokens(
        self,
        ids: Int[Array, "batch new"],
        cache: Cache,
        place: Int[Array, ""] | int,
        mask: Bool[Array, "batch new"] | None = None,
        at: Int[Array, "batch new"] | None = None,
    ) -> tuple[Float[Array, "batch vocabulary"], Cache]:
        """Feed tokens (see :meth:`Transformer.step`); the logits that follow the last of them."""
        hidden, cache = self.stack.step(self.embedding[ids], cache, place, mask, at)
        return self.scores(hidden[:, -1]), cache

    def log_prob(
        self,
        ids: Int[Array, "batch time"],
        temperature: Float[Array, ""] | float = 1.0,
    ) -> tuple[Float[Array, "batch _"], Float[Array, "batch _"]]:
        """log p(token | those before it) of all tokens but the first, and the entropy of the
        distributions they were chosen from, both ``(batch, time - 1)``.

        The array (batch, time, vocabulary) is never made where it would be large: the scores of a
        few tokens at a time are made, used and, for the gradient, made again.
        """
        return self.judge(self.hidden(ids)[:, :-1], ids[:, 1:], temperature)

    def judge(
        self,
        hidden: Float[Array, "batch time width"],
        chosen: Int[Array, "batch time"],
        temperature: Float[Array, ""] | float = 1.0,
    ) -> tuple[Float[Array, "batch time"], Float[Array, "batch time"]]:
        """Log-probabilities of the tokens chosen after ``hidden``, and entropies."""
        rows = chosen.size
        each = max(1, CHUNK // self.vocabulary)
        flat, tokens = hidden.reshape(rows, -1), chosen.reshape(rows)
        if rows <= each:
            found = self._judged(flat, tokens, temperature)
        else:
            chunks = -(-rows // each)
            spare = chunks * each - rows
            flat = jnp.pad(flat, ((0, spare), (0, 0))).reshape(chunks, each, -1)
            tokens = jnp.pad(tokens, (0, spare)).reshape(chunks, each)
            judged = jax.checkpoint(lambda pair: self._judged(pair[0], pair[1], temperature))
            first, second = jax.lax.map(judged, (flat, tokens))
            found = first.reshape(-1)[:rows], second.reshape(-1)[:rows]
        return found[0].reshape(chosen.shape), found[1].reshape(chosen.shape)

    def _judged(
        self,
        hidden: Float[Array, "row width"],
        chosen: Int[Array, "row"],
        temperature: Float[Array, ""] | float,
    ) -> tuple[Float[Array, "row"], Float[Array, "row"]]:
        log_p = jax.nn.log_softmax(self.scores(hidden) / temperature)
        entropy = -jnp.sum(jnp.exp(log_p) * log_p, -1)
        return jnp.take_along_axis(log_p, chosen[:, None], 1)[:, 0], entropy


def tiny(
    vocabulary: int, size: str = "tiny", *, key: Key[Array, ""] | None = None
) -> LanguageModel:
    """A small model of Qwen3's form with random weights: "nano" (0.1 million parameters), "tiny"
    (0.8 million, the default) or "small" (6.3 million), and the embedding of ``vocabulary`` tokens.

    Raises :class:`Mistake` for other sizes.
    """
    if size not in SIZES:
        raise Mistake(f"model size {size!r} is not known; use {', '.join(SIZES)} or a folder")
    width, layers, heads, few = SIZES[size]
    form, start = form_of(width, heads, few), jax.random.key(0) if key is None else key
    create = jax.jit(lambda key: LanguageModel.create(key, vocabulary, width, form, layers))
    return create(start)


def form_of(width: int, heads: int, key_heads: int) -> Form:
    """Qwen3's form at ``width``: RMS norm, SwiGLU of 3 widths, rotary positions, normed heads."""
    size = width // heads
    return Form(
        *(heads, key_heads, size, 3 * width),
        norm="rms",
        gated=True,
        biases=(False, False, False),
        normed_heads=True,
        rates=rotary_rates(size),
    )


def forgetful(model: LanguageModel, forget: bool = True) -> LanguageModel:
    """The same model, whose layers are computed twice in a gradient instead of kept in memory."""
    form = dataclasses.replace(model.stack.form, remember=not forget)
    stack = Transformer(model.stack.blocks, model.stack.norm, model.stack.places, form)
    return LanguageModel(model.embedding, stack, model.head, model.origin)
