"""Conversations of a language model as experience: the source of reinforcement learning on text.

A batch is a number of questions, each asked ``group`` times; every line of tokens that the model
took part in is one row. Which questions come next is decided by a curriculum over *arms*, the
difficulties of the world: it reads the learner's signals through ``heed``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from sterling import keys as named
from sterling.experience.curriculum import Curriculum
from sterling.experience.lines import Rows, record
from sterling.experience.rollout import Tally
from sterling.language.scene import TextWorld
from sterling.language.talk import Line, Speaker, Voice, converse, opened
from sterling.types import Generations, Mistake, Record, Signals


@dataclasses.dataclass(eq=False)
class Host:
    """Where a model talks: the world, how it speaks, and what went wrong so far."""

    world: TextWorld
    voice: Voice
    needs: Generations
    levels: tuple[int, ...]  # the arms
    failures: list[tuple[int, str]] = dataclasses.field(default_factory=list)

    @property
    def rows(self) -> int:
        """Lines of one batch."""
        return self.needs.prompts * self.needs.group * self.world.seats

    def close(self) -> None:
        """Release what the world holds."""
        getattr(self.world, "close", lambda: None)()

    def note(self, lines: Sequence[Line]) -> None:
        """Keep the first failures for the run's result, and stop where nothing works at all."""
        broken = [line for line in lines if line.failed]
        room = max(0, 100 - len(self.failures))
        self.failures += [(line.scene, line.failed) for line in broken[:room]]
        if lines and len(broken) == len(lines):
            raise Mistake(f"every scene of {self.world.name} failed, as: {broken[0].failed}")


class Conversation(eqx.Module):
    """Draws what the agents say in the scenes of a world, leaves ``(seed, row, token)``.

    The world, its verifiers and the tokenizer live on the host; the answers of all rows are
    written in one compiled program for each turn.
    """

    host: Host = eqx.field(static=True)
    curriculum: Curriculum
    asked: Int[Array, "seed row"]  # arm of each row of the latest batch; -1: padding
    tally: Tally

    @classmethod
    def create(cls, host: Host, seeds: int, curriculum: str = "uniform") -> Conversation:
        """Nothing said yet. ``curriculum`` is a word of
        :data:`sterling.experience.curriculum.KINDS`."""
        asked = jnp.full((seeds, host.rows), -1, jnp.int32)
        arms = Curriculum.create(curriculum, seeds, len(host.levels))
        return cls(host, arms, asked, Tally.empty(seeds))

    @property
    def traced(self) -> bool:
        """Scenes are heard on the host."""
        return False

    @property
    def rows(self) -> int:
        """Rows of a batch."""
        return self.host.rows

    @property
    def world(self) -> Host:
        """Whose failures a run reports."""
        return self.host

    def draw(self, agent: Speaker, keys: Key[Array, "seed"]) -> tuple[Conversation, Record]:
        """One batch of conversations for every seed."""
        needs = self.host.needs
        kept: list[list[list[Line]]] = [[] for _ in range(keys.size)]  # [seed][group][line]
        arms: list[list[int]] = [[] for _ in kept]
        tally = self.tally
        for turn in range(needs.rounds):
            if all(len(groups) == needs.prompts for groups in kept):
                break
            chosen = self.curriculum.choose(named.fold_each(keys, "arm", turn), needs.prompts)
            groups = self._asked(agent, chosen, named.fold_each(keys, "ask", turn))
            tally = _counted(tally, groups)
            final = turn == needs.rounds - 1
            for seed, own in enumerate(groups):
                room = needs.prompts - len(kept[seed])
                places = _worthy(own, room, final=final)
                kept[seed] += [own[place] for place in places]
                arms[seed] += [int(chosen[seed][n]) for n in places for _ in own[n]]
        rows = self.host.rows
        asked = np.array([own + [-1] * (rows - len(own)) for own in arms], np.int32)
        source = Conversation(self.host, self.curriculum, jnp.asarray(asked), tally)
        return source, record([Rows.of(groups) for groups in kept], self.host.voice, rows)

    def heed(self, signals: Signals) -> Conversation:
        """Tell the curriculum how much was learned from each row."""
        told = self.curriculum.heed(self.asked, signals.samples)
        return Conversation(self.host, told, self.asked, self.tally)

    def cleared(self) -> Conversation:
        """With an empty tally."""
        empty = Tally.empty(self.asked.shape[0])
        return Conversation(self.host, self.curriculum, self.asked, empty)

    def stored(self) -> Conversation:
        """All of it is written."""
        return self

    def restored(self, fresh: Conversation) -> Conversation:
        """What was written, in the world as it is now."""
        return Conversation(fresh.host, self.curriculum, self.asked, self.tally)

    def close(self) -> None:
        """Release the world."""
        self.host.close()

    def _asked(
        self, agent: Speaker, arms: np.ndarray, keys: Key[Array, "seed"]
    ) -> list[list[list[Line]]]:
        """Lines by [seed][question]: every question is asked ``group`` times."""
        group, host = self.host.needs.group, self.host
        scenes = []
        for key, own in zip(keys, arms, strict=True):
            random = np.random.default_rng(np.asarray(jax.random.key_data(key)))
            seeds = random.integers(2**31, size=own.size)
            pairs = [(int(s), host.levels[arm]) for s, arm in zip(seeds, own, strict=True)]
            patient = host.voice.patience
            scenes.append(
                [opened(host.world, *pair, patient) for pair in pairs for _ in range(group)]
            )
        lines = converse(agent, scenes, host.voice, keys)
        found = []
        for own in lines:
            host.note(own)
            by: list[list[Line]] = [[] for _ in range(arms.shape[1])]
            for line in own:
                by[line.scene // group].append(line)
            found.append(by)
        return found


def _worthy(groups: Sequence[Sequence[Line]], room: int, *, final: bool) -> list[int]:
    """Places of at most ``room`` groups that teach; in the ``final`` round others fill it up."""
    places = [n for n, group in enumerate(groups) if _tells(group)]
    if final:
        places += [n for n in range(len(groups)) if n not in places]
    return sorted(places[:room])


def _tells(group: Sequence[Line]) -> bool:
    """Whether a group teaches: some of its answers were better than others (DAPO, eq. 11), from
    one seat: of a game, whose seats are groups apart, one seat may always win."""
    by_seat: dict[int, list[float]] = {}
    for line in group:
        if not line.failed:
            by_seat.setdefault(line.seat, []).append(line.reward)
    return any(max(rewards) - min(rewards) > 1e-6 for rewards in by_seat.values())


def _counted(tally: Tally, groups: Sequence[Sequence[Sequence[Line]]]) -> Tally:
    """The tally with these lines in it; an episode's length is in tokens said."""
    lines = [[line for group in own for line in group] for own in groups]
    sound = [[line for line in own if not line.failed] for own in lines]

    def sums(values: Any) -> Float[Array, "seed"]:
        return jnp.asarray([float(sum(map(values, own))) for own in sound], jnp.float32)

    def counts(many: Sequence[Sequence[Line]]) -> Int[Array, "seed"]:
        return jnp.asarray([len(own) for own in many], jnp.int32)

    return Tally(
        tally.returns + sums(lambda line: line.reward),
        tally.lengths + sums(lambda line: sum(line.own)),
        tally.episodes + counts(sound),
        tally.invalid + counts(lines) - counts(sound),
    )
