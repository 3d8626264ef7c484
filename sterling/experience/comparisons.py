"""Pairs of answers, of which one is better: the source of preference learning.

Pairs come from a file, or are made from a world of text: its solution, and that solution with slips
in it which the world itself finds worse. They all lie on the device.
"""

from __future__ import annotations

import dataclasses
import string
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key

from sterling import keys as named
from sterling.experience.draws import Still, Unheard
from sterling.language.adapters import jsonl
from sterling.language.scene import Message, TextWorld
from sterling.language.tokenizer import Tokenizer
from sterling.types import Comparisons, Feed, Mistake, Record

ALIKE = (string.ascii_lowercase, string.ascii_uppercase, string.digits)
TRIES = 20  # slips that are tried to make one answer worse, and questions for one pair


@dataclasses.dataclass(frozen=True)
class Pair:
    """Two answers to one question."""

    messages: tuple[Message, ...]  # the conversation up to where the assistant answers
    chosen: str
    rejected: str


def of_file(path: str | Path) -> list[Pair]:
    """The pairs of a JSON-lines file: ``{"prompt": ..., "chosen": ..., "rejected": ...}``, and
    ``system`` if there is a system message.

    Raises :class:`Mistake` as :func:`sterling.language.adapters.jsonl.records` does, for answers
    that do not differ, and for a ``system`` that is no text.
    """
    pairs, name = [], Path(path).name
    records = jsonl.records(path, ("prompt", "chosen", "rejected"))
    for number, record in enumerate(records, start=1):
        if record["chosen"] == record["rejected"]:
            raise Mistake(f"{name}, record {number}: both answers are the same; leave it out")
        system = record.get("system", "")
        if not isinstance(system, str):
            raise Mistake(f"{name}, record {number}: 'system' must be a text")
        before = (Message("system", system),) if system else ()
        asked = (*before, Message("user", record["prompt"]))
        pairs.append(Pair(asked, record["chosen"], record["rejected"]))
    return pairs


def of_world(world: TextWorld, levels: Sequence[int], count: int, seed: int = 0) -> list[Pair]:
    """``count`` pairs of a world that can solve its own scenes, levels in turn; always the same.

    The rejected answer is the solution with characters changed, moved, dropped or doubled, from one
    slip to as many as it has characters; the world has given it less than the solution. Raises
    :class:`Mistake` for worlds of several seats, without solutions, whose solutions take several
    turns, or where slips make nothing worse.
    """
    if world.seats != 1 or not hasattr(world, "solve"):
        why = "has several seats" if world.seats != 1 else "cannot solve its scenes"
        raise Mistake(f"{world.name} {why}, so it makes no pairs; give pairs in a file")
    random, pairs = Random(f"comparisons/{world.name}/{seed}"), []
    for number in range(count):
        level = levels[number % len(levels)]
        tried = (_pair(world, random, level) for _ in range(TRIES))
        pair = next((pair for pair in tried if pair is not None), None)
        if pair is None:
            raise Mistake(f"slips make no answer of {world.name} worse; give pairs in a file")
        pairs.append(pair)
    return pairs


def _pair(world: Any, random: Random, level: int) -> Pair | None:
    """A pair of one question; None where no slip made the solution worse."""
    seed = random.randrange(2**31)
    scene = world.begin(seed, level)
    messages, chosen = scene.turn.messages, world.solve(scene)
    scene.say(chosen)
    if scene.turn is not None:
        raise Mistake(f"solutions of {world.name} take several turns; give pairs in a file")
    best = scene.verdicts[0][0].reward
    for _ in range(TRIES):
        rejected = slipped(chosen, random)
        other = world.begin(seed, level)
        other.say(rejected)
        if other.verdicts[0][0].reward < best:
            return Pair(messages, chosen, rejected)
    return None


def slipped(text: str, random: Random) -> str:
    """The text with slips in it: from one to as many as it has characters."""
    for _ in range(random.randint(1, max(len(text), 1))):
        at, kind = random.randrange(max(len(text), 1)), random.randrange(4)
        letter = text[at : at + 1]
        before, after = text[:at], text[at + 1 :]
        if kind == 0:
            text = before + _alike(letter, random) + after
        elif kind == 1:
            text = before + after[:1] + letter + after[1:]
        elif kind == 2:
            text = before + after
        else:
            text = before + letter * 2 + after
    return text


def _alike(letter: str, random: Random) -> str:
    """Another character of the same kind."""
    known = next((kind for kind in ALIKE if letter and letter in kind), string.ascii_lowercase)
    return random.choice([each for each in known if each != letter])


class Compared(Still, Unheard, eqx.Module):
    """Draws pairs as rows of tokens ``(row, token)``; all seeds share them.

    A record is that of :mod:`sterling.experience.lines`: first the better rows of all pairs, then
    the others. ``extras["group"]`` is the pair's number in its batch, ``score`` is 1 for the better
    answer and 0 for the other, and that is the reward at its last token.
    """

    ids: Int[Array, "pair 2 time"] | None  # None while a run is written: they are made again
    begin: Int[Array, "pair 2"] | None  # the answers' first tokens
    length: Int[Array, "pair 2"] | None  # tokens before the padding
    needs: Comparisons = eqx.field(static=True)

    @classmethod
    def create(
        cls, pairs: Sequence[Pair], needs: Comparisons, tokenizer: Tokenizer, context: int = 0
    ) -> Compared:
        """Pairs as tokens, in rows of ``context`` (0: of the longest text). Raises
        :class:`Mistake` for texts that are longer, and where there are no pairs."""
        if not pairs:
            raise Mistake("there are no pairs to learn from; give at least one")
        texts = [_tokens(pair, tokenizer) for pair in pairs]
        length = np.array([[len(ids) for ids in both] for _, both in texts], np.int32)
        room = context or int(length.max())
        if length.max() > room:
            number = 1 + int(length.max(1).argmax())
            said = f"pair {number} has {length.max()} tokens, more than the context of {room}"
            raise Mistake(f"{said}; shorten it, or allow more")
        ids = np.full((len(pairs), 2, room), tokenizer.pad, np.int32)
        for number, (_, both) in enumerate(texts):
            for side, own in enumerate(both):
                ids[number, side, : len(own)] = own
        begin = np.array([[first] * 2 for first, _ in texts], np.int32)
        return cls(jnp.asarray(ids), jnp.asarray(begin), jnp.asarray(length), needs)

    @property
    def traced(self) -> bool:
        """Drawing may be compiled."""
        return True

    def collect(self, agent: Any, keys: Key[Array, "seed"]) -> tuple[Compared, Compared]:
        """Itself: nothing is lived."""
        return self, self

    def rows(self, feed: Feed) -> int:
        """Rows of one batch: two of each pair."""
        return 2 * feed.batch

    def chances(self, feed: Feed, keys: Key[Array, "seed"]) -> Int[Array, "seed update batch"]:
        """Which pairs, each as likely as every other."""
        assert self.ids is not None  # only while a run is written
        shape, pairs = (feed.updates, feed.batch), self.ids.shape[0]

        def choose(key: Key[Array, ""]) -> Int[Array, "update batch"]:
            return jax.random.randint(key, shape, 0, pairs, jnp.int32)

        return jax.vmap(choose)(named.fold_each(keys, "compare"))

    def draw(
        self, feed: Feed, seed: Int[Array, ""], heard: None, chance: Int[Array, "batch"]
    ) -> Record:
        """Both answers of these pairs, ``(row, token)``."""
        return self._record(chance)

    def stored(self) -> Compared:
        """Nothing: pairs are read or made again."""
        return Compared(None, None, None, self.needs)

    def restored(self, fresh: Compared) -> Compared:
        """The pairs again."""
        return fresh

    def _record(self, index: Int[Array, "batch"]) -> Record:
        def rows(of: Any) -> Any:
            """The better halves of the pairs drawn, then the others."""
            return jnp.concatenate([of[index, 0], of[index, 1]])

        ids, begin, length = (rows(each) for each in (self.ids, self.begin, self.length))
        at = (jnp.arange(ids.shape[-1] - 1, dtype=jnp.int32) + 1)[None]
        mask = (at >= begin[..., None]) & (at < length[..., None])
        last = at == length[..., None] - 1
        batch, shape = index.shape[0], ids.shape[:-1]
        number = jnp.arange(2 * batch, dtype=jnp.int32)
        score = jnp.broadcast_to((number < batch).astype(jnp.float32), shape)
        return Record(
            obs=ids[..., :-1],
            action=ids[..., 1:],
            reward=jnp.where(last, score[..., None], 0.0),
            discount=1.0 - last.astype(jnp.float32),
            next_obs=None,
            last=last,
            mask=mask,
            extras={
                "log_prob": jnp.zeros(mask.shape),
                "turn": jnp.zeros(mask.shape, jnp.int32),
                "group": jnp.broadcast_to(number % batch, shape),
                "score": score,
                "valid": jnp.ones(shape, bool),
            },
        )


def _tokens(pair: Pair, tokenizer: Tokenizer) -> tuple[int, tuple[list[int], ...]]:
    """Tokens of the prompt, and of both texts from their beginnings to their ends."""
    opening = tokenizer.opening(pair.messages)
    both = (pair.chosen, pair.rejected)
    return len(opening), tuple([*opening, *tokenizer.encode(x), tokenizer.end] for x in both)
