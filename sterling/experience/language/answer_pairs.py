"""Pairs of answers of which one is preferred: the source of preference learning.

Pairs come from a file, or are made from a text world: its solution, and the same solution with
random typos that the world itself rewards less. All pairs lie on the device.
"""

from __future__ import annotations

import dataclasses
import string
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key

from sterling import random_keys as named
from sterling.experience.batch_draws import Due, NoFeedback, StaticSource, every_feed
from sterling.experience.language import conversation_files
from sterling.experience.language.epoch_order import EpochOrder, in_iteration
from sterling.language.scene import Message, TextWorld
from sterling.language.tokenizer import Tokenizer
from sterling.types import Comparisons, Feed, Mistake, Record

CHARACTER_CLASSES = (string.ascii_lowercase, string.ascii_uppercase, string.digits)
MAX_ATTEMPTS = 20  # tries to make one answer worse with typos, and questions tried per pair


@dataclasses.dataclass(frozen=True)
class PreferencePair:
    """Two answers to one prompt, one preferred."""

    messages: tuple[Message, ...]  # the conversation before the assistant's answer
    chosen: str
    rejected: str


def read_pairs(path: str | Path) -> list[PreferencePair]:
    """Read the pairs of a file; see
    :func:`~sterling.experience.language.conversation_files.read_comparisons`."""
    return [PreferencePair(*each) for each in conversation_files.read_comparisons(path)]


def make_pairs(
    world: TextWorld, levels: Sequence[int], count: int, seed: int = 0
) -> list[PreferencePair]:
    """Make ``count`` pairs from a world that can solve its own scenes, cycling through ``levels``;
    the same ``seed`` gives the same pairs.

    The rejected answer is the solution with one to as many typos as it has characters (characters
    replaced, swapped, dropped or doubled); the world rewards it less than the solution. Raises
    :class:`Mistake` for worlds with several seats, without solutions, with solutions of several
    turns, or where typos never lower the reward.
    """
    if world.seats != 1 or not hasattr(world, "solve"):
        why = "has several seats" if world.seats != 1 else "cannot solve its scenes"
        raise Mistake(f"{world.name} {why}, so no pairs can be made from it; give a file of pairs")
    random, pairs = Random(f"comparisons/{world.name}/{seed}"), []
    for number in range(count):
        level = levels[number % len(levels)]
        tried = (_make_pair(world, random, level) for _ in range(MAX_ATTEMPTS))
        pair = next((pair for pair in tried if pair is not None), None)
        if pair is None:
            raise Mistake(f"typos never lower the reward in {world.name}; give a file of pairs")
        pairs.append(pair)
    return pairs


def _make_pair(world: Any, random: Random, level: int) -> PreferencePair | None:
    """Make a pair for one question; None if no typo lowered the reward."""
    seed = random.randrange(2**31)
    scene = world.begin(seed, level)
    messages, chosen = scene.turn.messages, world.solve(scene)
    scene.say(chosen)
    if scene.turn is not None:
        raise Mistake(f"solutions of {world.name} take several turns; give a file of pairs")
    best = scene.verdicts[0][0].reward
    for _ in range(MAX_ATTEMPTS):
        rejected = add_typos(chosen, random)
        other = world.begin(seed, level)
        other.say(rejected)
        if other.verdicts[0][0].reward < best:
            return PreferencePair(messages, chosen, rejected)
    return None


def add_typos(text: str, random: Random) -> str:
    """Return the text with one to as many random typos as it has characters."""
    for _ in range(random.randint(1, max(len(text), 1))):
        at, kind = random.randrange(max(len(text), 1)), random.randrange(4)
        letter = text[at : at + 1]
        before, after = text[:at], text[at + 1 :]
        if kind == 0:
            text = before + _similar_character(letter, random) + after
        elif kind == 1:
            text = before + after[:1] + letter + after[1:]
        elif kind == 2:
            text = before + after
        else:
            text = before + letter * 2 + after
    return text


def _similar_character(letter: str, random: Random) -> str:
    """Return another character of the same class (lower case, upper case, digit)."""
    known = next(
        (kind for kind in CHARACTER_CLASSES if letter and letter in kind), string.ascii_lowercase
    )
    return random.choice([each for each in known if each != letter])


class PairSource(StaticSource, NoFeedback, eqx.Module):
    """Draws preference pairs as rows of tokens ``(row, token)``, shared by all seeds: each pair
    once before any comes again, in another order for every seed.

    A record is laid out as in :mod:`sterling.experience.language.token_rows`: first the preferred
    rows of all pairs, then the rejected ones. ``extras["group"]`` is the pair's number in its
    batch; ``score`` is 1 for the preferred answer and 0 for the other, and is the reward at its
    last token.
    """

    ids: Int[Array, "pair 2 time"] | None  # None in a checkpoint: made again on resuming
    begin: Int[Array, "pair 2"] | None  # position of each answer's first token
    length: Int[Array, "pair 2"] | None  # number of tokens before the padding
    order: EpochOrder | None  # None: every iteration begins anew
    needs: Comparisons = eqx.field(static=True)

    @classmethod
    def create(
        cls,
        pairs: Sequence[PreferencePair],
        needs: Comparisons,
        tokenizer: Tokenizer,
        context: int = 0,
        seeds: int = 0,
    ) -> PairSource:
        """Tokenize the pairs for so many ``seeds`` (0: any number, whose every iteration begins
        anew), in rows of ``context`` tokens (0: as long as the longest text).

        Raises :class:`Mistake` for texts that are longer, and if there are no pairs.
        """
        if not pairs:
            raise Mistake("there are no preference pairs to learn from; give at least one")
        texts = [_encode_pair(pair, tokenizer) for pair in pairs]
        length = np.array([[len(ids) for ids in both] for _, both in texts], np.int32)
        room = context or int(length.max())
        if length.max() > room:
            number = 1 + int(length.max(1).argmax())
            said = f"pair {number} has {length.max()} tokens, more than the context of {room}"
            raise Mistake(f"{said}; shorten it, or set a larger context")
        ids = np.full((len(pairs), 2, room), tokenizer.pad, np.int32)
        for number, (_, both) in enumerate(texts):
            for side, own in enumerate(both):
                ids[number, side, : len(own)] = own
        begin = np.array([[first] * 2 for first, _ in texts], np.int32)
        order = EpochOrder.create(seeds) if seeds else None
        return cls(jnp.asarray(ids), jnp.asarray(begin), jnp.asarray(length), order, needs)

    @property
    def traced(self) -> bool:
        """Return True: drawing can be compiled."""
        return True

    def collect(
        self, agent: Any, keys: Key[Array, "seed"], due: Due = every_feed
    ) -> tuple[PairSource, PairSource]:
        """Return the source after this iteration's pairs, and what updates draw them from: nothing
        is collected."""
        own = named.fold_each(keys, "compare")
        now, after = in_iteration(self.order, own, self.needs.feeds[0])
        return dataclasses.replace(self, order=after), dataclasses.replace(self, order=now)

    def rows(self, feed: Feed) -> int:
        """Return the number of rows in one batch: two per pair."""
        return 2 * feed.batch

    def presample(self, feed: Feed, keys: Key[Array, "seed"]) -> Int[Array, "seed update batch"]:
        """Return the indices of the next pairs."""
        assert self.ids is not None  # None only in a checkpoint
        assert self.order is not None  # None only before an iteration
        return self.order.choose(self.ids.shape[0], feed.updates, feed.batch)

    def draw(
        self, feed: Feed, seed: Int[Array, ""], feedback: None, sample: Int[Array, "batch"]
    ) -> Record:
        """Return both answers of the drawn pairs, ``(row, token)``."""
        return self._record(sample)

    def all_pairs(self) -> Record:
        """Return both answers of every pair once, ``(row, token)``."""
        assert self.ids is not None  # None only in a checkpoint
        return self._record(jnp.arange(self.ids.shape[0], dtype=jnp.int32))

    def to_checkpoint(self) -> PairSource:
        """Drop the pairs: on resuming they are read or made again."""
        return PairSource(None, None, None, self.order, self.needs)

    def from_checkpoint(self, fresh: PairSource) -> PairSource:
        """Take the pairs of ``fresh``."""
        return dataclasses.replace(fresh, order=self.order)

    def _record(self, index: Int[Array, "batch"]) -> Record:
        def rows(of: Any) -> Any:
            """Return the preferred rows of the drawn pairs, then the rejected ones."""
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


def _encode_pair(pair: PreferencePair, tokenizer: Tokenizer) -> tuple[int, tuple[list[int], ...]]:
    """Return the prompt's length in tokens, and both full texts as tokens."""
    opening = tokenizer.encode_opening(pair.messages)
    both = (pair.chosen, pair.rejected)
    return len(opening), tuple([*opening, *tokenizer.encode_answer(x)] for x in both)
