"""Texts to imitate (supervised fine-tuning): demonstrations of a text world, or a file."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Int, Key

from sterling import random_keys as named
from sterling.experience.batch_draws import Due, NoFeedback, StaticSource, every_feed
from sterling.experience.language.conversation_files import opening_of, read_conversations
from sterling.experience.language.epoch_order import EpochOrder, in_iteration
from sterling.experience.language.token_rows import GroupedLines, to_record
from sterling.language.engine.transcript import Transcript
from sterling.language.question_order import next_questions
from sterling.language.scene import Message
from sterling.language.scene_dialogue import ChatSettings
from sterling.language.tokenizer import Tokenizer
from sterling.language.worlds.world_solutions import demonstrate
from sterling.types import Feed, Mistake, Record, Texts

HELD_OUT_REASON = "their questions are held out for evaluation"


class Demonstrations(StaticSource, NoFeedback, eqx.Module):
    """Draws texts ``(row, token)``: each once before any comes again, in another order for every
    seed; all seeds share them."""

    texts: Record | None  # (row, token); None in a checkpoint: made again on resuming
    order: EpochOrder | None  # None: every iteration begins anew
    needs: Texts = eqx.field(static=True)

    @classmethod
    def from_transcripts(
        cls, lines: list[Transcript], voice: ChatSettings, needs: Texts, seeds: int = 0
    ) -> Demonstrations:
        """Create the source of so many ``seeds`` from lines (0: any number, whose every iteration
        begins anew); failed and cut ones are left out. Mistake if none is left."""
        whole = [line for line in lines if line.turns and not line.failed and not line.cut]
        if not whole:
            why = next((line.failed for line in lines if line.failed), "all are too long")
            raise Mistake(f"no text is left to imitate: {why}; raise context, or check the data")
        rows = sum(len(line.contexts) for line in whole)
        made = to_record([GroupedLines(whole, [0] * len(whole))], voice, rows)
        order = EpochOrder.create(seeds) if seeds else None
        return cls(jax.tree.map(lambda x: x[0], made), order, needs)

    @property
    def traced(self) -> bool:
        """Return True: everything is on the device."""
        return True

    def collect(
        self, agent: Any, keys: Key[Array, "seed"], due: Due = every_feed
    ) -> tuple[Demonstrations, Demonstrations]:
        """Return the source after this iteration's texts, and what updates draw them from: nothing
        is collected."""
        own = named.fold_each(keys, "sample")
        now, after = in_iteration(self.order, own, self.needs.feeds[0])
        return dataclasses.replace(self, order=after), dataclasses.replace(self, order=now)

    def rows(self, feed: Feed) -> int:
        """Return the number of rows in one batch."""
        return feed.batch

    def presample(self, feed: Feed, keys: Key[Array, "seed"]) -> Int[Array, "seed update batch"]:
        """Return the indices of the next texts."""
        assert self.order is not None  # None only before an iteration
        return self.order.choose(self._texts.mask.shape[0], feed.updates, feed.batch)

    def draw(
        self, feed: Feed, seed: Int[Array, ""], feedback: None, sample: Int[Array, "batch"]
    ) -> Record:
        """Return a batch ``(row, token)``."""
        return jax.tree.map(lambda x: x[sample], self._texts)

    @property
    def _texts(self) -> Record:
        assert self.texts is not None  # None only in a checkpoint
        return self.texts

    def to_checkpoint(self) -> Demonstrations:
        """Drop the texts: on resuming they are read or made again."""
        return dataclasses.replace(self, texts=None)

    def from_checkpoint(self, fresh: Demonstrations) -> Demonstrations:
        """Take the texts of ``fresh``."""
        return dataclasses.replace(self, texts=fresh.texts)


def make_demonstrations(
    world: Any, levels: tuple[int, ...], voice: ChatSettings, count: int
) -> list[Transcript]:
    """Make ``count`` demonstrations from the world's own solutions; always the same ones.

    Those longer than the voice's context are marked as cut.
    """
    if not hasattr(world, "solve"):
        raise Mistake(f"{world.name} has no solutions to imitate; give a file of texts: texts=FILE")
    random = np.random.default_rng(0)
    asked = next_questions(world, [levels[i % len(levels)] for i in range(count)], random)
    return demonstrate(world, [world.begin(seed, level) for seed, level in asked], voice)


def read_demonstrations(
    path: str | Path,
    voice: ChatSettings,
    kept_out: Callable[[Sequence[Message]], bool] | None = None,
    *,
    plain_kept_out: bool = False,
) -> list[Transcript]:
    """Read the conversations of a file
    (:func:`~sterling.experience.language.conversation_files.read_conversations`); only the
    assistant's messages, each with its end token, are imitated; of a plain text every token is,
    and the token that ends it.

    Those longer than the context are marked as cut; those whose messages before the first answer
    are to be ``kept_out`` are empty and marked as failed. A plain text has no question to keep out,
    so that with ``kept_out`` it raises :class:`Mistake`, unless it is kept out by all that it says
    (``plain_kept_out``).
    """
    lines = []
    for number, text in enumerate(read_conversations(path)):
        if isinstance(text, str) and not plain_kept_out:
            _check_not_kept_out(path, number, kept_out)
        elif kept_out and kept_out(opening_of(text)):
            lines.append(Transcript(number, 0, failed=HELD_OUT_REASON))
            continue
        tokenize: Callable[..., Transcript] = (
            _tokenize_plain if isinstance(text, str) else _tokenize
        )
        line = tokenize(text, number, voice.tokenizer)
        line.cut = len(line.ids) > voice.context
        lines.append(line)
    return lines


def _check_not_kept_out(path: str | Path, number: int, kept_out: Any) -> None:
    """Raise Mistake for a plain text in a run that holds questions out."""
    if kept_out:
        raise Mistake(
            f"{Path(path).name}, record {number + 1} is a plain text, in which no question can be "
            "recognised to hold it out. Leave out held_out, or write prompt and response."
        )


def _tokenize_plain(text: str, number: int, tokenizer: Tokenizer) -> Transcript:
    """Return a plain text as a transcript whose tokens are all the model's; nothing predicts the
    first one, which begins the row."""
    line, ids = Transcript(number, 0), tokenizer.encode_plain(text)
    line.say(ids, [0.0] * len(ids))
    line.failed = "" if len(ids) > 1 else "the tokenizer has no token for its characters"
    return line


def _tokenize(messages: Sequence[Message], number: int, tokenizer: Tokenizer) -> Transcript:
    """Return a conversation as a transcript in which the assistant's messages are the model's."""
    line, heard = Transcript(number, 0), list[Message]()
    for message in messages:
        if message.role != "assistant":
            heard.append(message)
            continue
        encode = tokenizer.encode_continuation if line.turns else tokenizer.encode_opening
        line.hear(encode(heard))
        ids = tokenizer.encode_answer(message.content)
        line.say(ids, [0.0] * len(ids))
        heard.clear()
    return line
