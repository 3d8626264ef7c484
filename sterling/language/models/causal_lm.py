"""A causal language model: token ids in, logits of the next token out."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, Shaped

from sterling import random_keys
from sterling.nets.attention.rotary import rotary_rates
from sterling.nets.attention.segments import Segments
from sterling.nets.transformer import Cache, Transformer, TransformerForm
from sterling.system.mistake import Mistake

LOGITS_AT_ONCE = 1 << 22  # logits (rows x vocabulary) in memory at once for log-probabilities
LEAST_ROWS = 256  # but of so many rows at least: the head is read again for every chunk of rows
MODEL_SIZES = {  # name -> width, layers, heads, key heads; parameters without the embedding
    "nano": (64, 2, 4, 1),  # 0.1 million
    "tiny": (128, 4, 4, 1),  # 0.8 million
    "small": (256, 8, 8, 2),  # 6 million
}


class LanguageModel(eqx.Module):
    """Token embedding, transformer, and a head that is the embedding's transpose or a matrix of its
    own."""

    embedding: Float[Array, "vocabulary width"]
    stack: Transformer
    head: Float[Array, "width vocabulary"] | None  # None: the embedding's transpose
    origin: str = eqx.field(static=True, default="")  # text of the config.json it was loaded from

    @classmethod
    def create(
        cls,
        key: Key[Array, ""],
        vocabulary: int,
        width: int,
        form: TransformerForm,
        layers: int,
        *,
        tied: bool = True,
    ) -> LanguageModel:
        """Return a model with random weights; embeddings have standard deviation 0.02, as in
        GPT-2."""
        parts = ("embedding", "head")
        drawn = [
            0.02 * jax.random.normal(random_keys.fold(key, name), (vocabulary, width))
            for name in parts
        ]
        stack = Transformer.with_form(random_keys.fold(key, "stack"), width, form, layers)
        return cls(drawn[0], stack, None if tied else drawn[1].T)

    @property
    def vocabulary(self) -> int:
        """Return the number of tokens in the vocabulary."""
        return self.embedding.shape[0]

    @property
    def parameters(self) -> int:
        """Return the number of parameters."""
        return sum(leaf.size for leaf in jax.tree.leaves(self))

    def __call__(
        self, ids: Int[Array, "batch time"], mask: Bool[Array, "batch time"] | None = None
    ) -> Float[Array, "batch time vocabulary"]:
        """Return the logits (float32) of the token that follows each position."""
        return self.scores(self.hidden(ids, mask))

    def hidden(
        self,
        ids: Int[Array, "batch time"],
        mask: Bool[Array, "batch time"] | None = None,
        *,
        at: Int[Array, "#batch time"] | None = None,
        segments: Segments | None = None,
    ) -> Float[Array, "batch time width"]:
        """Return the last layer's output, before the head (arguments: see
        :meth:`Transformer.__call__`)."""
        return self.stack(self.embedding[ids], mask, at=at, segments=segments)

    def scores(self, hidden: Float[Array, "... width"]) -> Float[Array, "... vocabulary"]:
        """Return the logits of hidden states, in float32."""
        head = self.embedding.T if self.head is None else self.head
        return jnp.dot(hidden, head, preferred_element_type=jnp.float32)

    def feed(
        self,
        ids: Int[Array, "batch new"],
        cache: Cache,
        begin: Int[Array, "batch"],
    ) -> tuple[Float[Array, "batch new width"], Cache]:
        """Feed tokens, of each row those from position ``begin`` on, through the cache (see
        :meth:`Transformer.step`); return the last layer's output, and the new cache."""
        return self.stack.step(self.embedding[ids], cache, begin)

    def log_prob(
        self,
        ids: Int[Array, "batch time"],
        temperature: Float[Array, ""] | float = 1.0,
    ) -> tuple[Float[Array, "batch _"], Float[Array, "batch _"]]:
        """Return log p(token | tokens before it) of all tokens but the first, and the entropy of
        the distribution at each of them; both have shape ``(batch, time - 1)``.

        A large array (batch, time, vocabulary) is never built: the logits of a few tokens at a time
        are computed, used and, for the gradient, computed again.
        """
        return self.token_log_probs(self.hidden(ids)[:, :-1], ids[:, 1:], temperature)

    def token_log_probs(
        self,
        hidden: Float[Array, "batch time width"],
        chosen: Int[Array, "batch time"],
        temperature: Float[Array, ""] | float = 1.0,
    ) -> tuple[Float[Array, "batch time"], Float[Array, "batch time"]]:
        """Return the log-probabilities of ``chosen``, the tokens that follow ``hidden``, and the
        entropies of the distributions."""
        found = map_token_chunks(
            lambda hidden, chosen: self._chunk_log_probs(hidden, chosen, temperature),
            (hidden.reshape(chosen.size, -1), chosen.reshape(-1)),
            self.vocabulary,
        )
        return found[0].reshape(chosen.shape), found[1].reshape(chosen.shape)

    def _chunk_log_probs(
        self,
        hidden: Float[Array, "row width"],
        chosen: Int[Array, "row"],
        temperature: Float[Array, ""] | float,
    ) -> tuple[Float[Array, "row"], Float[Array, "row"]]:
        log_p = jax.nn.log_softmax(self.scores(hidden) / temperature)
        entropy = -jnp.sum(jnp.exp(log_p) * log_p, -1)
        return jnp.take_along_axis(log_p, chosen[:, None], 1)[:, 0], entropy


def map_token_chunks(
    read: Callable[..., tuple[Float[Array, "row"], Float[Array, "row"]]],
    rows: tuple[Shaped[Array, "row ..."], ...],
    logits: int,
) -> tuple[Float[Array, "row"], Float[Array, "row"]]:
    """Return ``read(*rows)``, computed for a few rows at a time, which has ``logits`` numbers a row
    in memory; for the gradient they are computed again."""
    count, per_chunk = rows[0].shape[0], max(LEAST_ROWS, LOGITS_AT_ONCE // logits)
    if count <= per_chunk:
        return read(*rows)
    chunks = -(-count // per_chunk)
    per_chunk = -(-count // chunks)
    spare = chunks * per_chunk - count
    parts = [
        jnp.pad(x, ((0, spare), *((0, 0),) * (x.ndim - 1))).reshape(chunks, per_chunk, *x.shape[1:])
        for x in rows
    ]
    first, second = jax.lax.map(jax.checkpoint(lambda part: read(*part)), parts)
    return first.reshape(-1)[:count], second.reshape(-1)[:count]


def tiny(
    vocabulary: int, size: str = "tiny", *, key: Key[Array, ""] | None = None
) -> LanguageModel:
    """Return a small model of Qwen3's architecture with random weights: "nano" (0.1 million
    parameters), "tiny" (0.8 million, the default) or "small" (6.3 million), plus the embedding of
    ``vocabulary`` tokens.

    Raises :class:`Mistake` for other sizes.
    """
    if size not in MODEL_SIZES:
        raise Mistake(f"unknown model size {size!r}; use {', '.join(MODEL_SIZES)} or a folder")
    width, layers, heads, few = MODEL_SIZES[size]
    form, start = qwen3_form(width, heads, few), jax.random.key(0) if key is None else key
    create = jax.jit(lambda key: LanguageModel.create(key, vocabulary, width, form, layers))
    return create(start)


def qwen3_form(width: int, heads: int, key_heads: int) -> TransformerForm:
    """Return Qwen3's architecture at ``width``: RMS norm, SwiGLU of 3 x ``width``, rotary
    positions, normalised queries and keys."""
    size = width // heads
    return TransformerForm(
        *(heads, key_heads, size, 3 * width),
        norm="rms",
        gated=True,
        biases=(False, False, False),
        normed_heads=True,
        rates=rotary_rates(size),
    )


def with_remat(model: LanguageModel, forget: bool = True) -> LanguageModel:
    """Return the model with rematerialisation: a gradient computes the layers a second time instead
    of keeping their activations in memory."""
    form = dataclasses.replace(model.stack.form, remember=not forget)
    stack = Transformer(model.stack.blocks, model.stack.norm, model.stack.places, form)
    return LanguageModel(model.embedding, stack, model.head, model.origin)
