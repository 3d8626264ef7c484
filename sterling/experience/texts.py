"""Texts to imitate: demonstrations of a world, or a file of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key

from sterling import keys as named
from sterling.experience.draws import Still, Unheard
from sterling.experience.lines import Rows, record
from sterling.language.adapters.jsonl import records
from sterling.language.posing import posed
from sterling.language.scene import Message
from sterling.language.talk import Line, Voice, demonstrate
from sterling.types import Feed, Mistake, Record, Texts

HELD_OUT = "their questions are held out, to judge by"


class Demonstrations(Still, Unheard, eqx.Module):
    """Draws texts ``(row, token)`` by chance; all seeds share what there is."""

    texts: Record | None  # (row, token); None while a run is written: they can be made again
    needs: Texts = eqx.field(static=True)

    @classmethod
    def of(cls, lines: list[Line], voice: Voice, needs: Texts) -> Demonstrations:
        """From lines; those that failed or were cut are left out. Mistake if none is left."""
        whole = [line for line in lines if line.turns and not line.failed and not line.cut]
        if not whole:
            why = next((line.failed for line in lines if line.failed), "they are too long")
            raise Mistake(f"there is no text to imitate: {why}; raise context, or look at the data")
        made = record([Rows(whole, [0] * len(whole))], voice, len(whole))
        return cls(jax.tree.map(lambda x: x[0], made), needs)

    @property
    def traced(self) -> bool:
        """Everything is on the device."""
        return True

    def collect(
        self, agent: Any, keys: Key[Array, "seed"]
    ) -> tuple[Demonstrations, Demonstrations]:
        """Itself: nothing is lived."""
        return self, self

    def rows(self, feed: Feed) -> int:
        """Rows of one batch."""
        return feed.batch

    def chances(self, feed: Feed, keys: Key[Array, "seed"]) -> Int[Array, "seed update batch"]:
        """Which texts, each as likely as every other."""
        count, shape = self._texts.mask.shape[0], (feed.updates, feed.batch)

        def choose(key: Key[Array, ""]) -> Int[Array, "update batch"]:
            return jax.random.randint(key, shape, 0, count, jnp.int32)

        return jax.vmap(choose)(named.fold_each(keys, "sample"))

    def draw(
        self, feed: Feed, seed: Int[Array, ""], heard: None, chance: Int[Array, "batch"]
    ) -> Record:
        """A batch ``(row, token)``."""
        return jax.tree.map(lambda x: x[chance], self._texts)

    @property
    def _texts(self) -> Record:
        assert self.texts is not None  # only while a run is written
        return self.texts

    def stored(self) -> Demonstrations:
        """Nothing of it is written."""
        return dataclasses.replace(self, texts=None)

    def restored(self, fresh: Demonstrations) -> Demonstrations:
        """The texts again."""
        return fresh


def of_world(world: Any, levels: tuple[int, ...], voice: Voice, count: int) -> list[Line]:
    """``count`` demonstrations by the world's own solutions, the same every time; those that are
    longer than the voice's context are marked as cut."""
    if not hasattr(world, "solve"):
        raise Mistake(f"{world.name} cannot be demonstrated; give texts to imitate: texts=FILE")
    random = np.random.default_rng(0)
    asked = posed(world, [levels[i % len(levels)] for i in range(count)], random)
    return demonstrate(world, [world.begin(seed, level) for seed, level in asked], voice)


def of_file(
    path: str | Path, voice: Voice, kept_out: Callable[[Sequence[Message]], bool] | None = None
) -> list[Line]:
    """The lines of a JSONL file: ``{"prompt": ..., "response": ...}``, and ``system`` if there is
    a system message; those that are longer than the context are marked as cut, and as failed those
    whose opening is to be ``kept_out``.

    Raises :class:`Mistake` as :func:`sterling.language.adapters.jsonl.records` does, and for a
    ``system`` that is no text.
    """
    tokenizer, lines = voice.tokenizer, []
    for number, each in enumerate(records(str(path), ("prompt", "response"))):
        system = each.get("system", "")
        if not isinstance(system, str):
            name = f"{Path(path).name}, record {number + 1}"
            raise Mistake(f"{name}: 'system' must be a text")
        before = [Message("system", system)] if system else []
        opening = [*before, Message("user", each["prompt"])]
        line = Line(number, 0, failed=HELD_OUT if kept_out and kept_out(opening) else "")
        line.hear(tokenizer.opening(opening))
        ids = [*tokenizer.encode(each["response"]), tokenizer.end]
        line.say(ids, [0.0] * len(ids))
        line.cut = len(line.ids) > voice.context
        lines.append(line)
    return lines
