"""Conversations of a language model as experience: the source of reinforcement learning on text.

A batch is a number of questions, each asked ``group`` times; every line of tokens that the model
took part in is one row. Which questions come next is decided by a curriculum over *arms*, the
difficulties of the world: it is told what every answer was worth as it is drawn, and the learner's
signals through ``heed``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key, PyTree

from sterling import keys as named
from sterling.experience.curriculum import Curriculum
from sterling.experience.draws import Ready, Unvisited
from sterling.experience.lines import Rows, record
from sterling.experience.rollout import Tally
from sterling.language import posing
from sterling.language.scene import TextWorld
from sterling.language.talk import Line, Speaker, Voice, converse, opened
from sterling.notice import say
from sterling.types import Feed, Generations, Mistake, Record, Signals

Group = tuple[int, list[Line]]  # the arm of a question, and all that was said to it


@dataclasses.dataclass(eq=False)
class Host:
    """Where a model talks: the world, how it speaks, and what went wrong so far."""

    world: TextWorld
    voice: Voice
    needs: Generations
    levels: tuple[int, ...]  # the arms
    failures: list[tuple[int, str]] = dataclasses.field(default_factory=list)
    late: int = 0  # verdicts that ran past their time limit

    @property
    def rows(self) -> int:
        """Lines of one batch."""
        return self.needs.prompts * self.needs.group * self.world.seats

    def close(self) -> None:
        """Release what the world holds, and say how many verdicts came too late."""
        if self.late:
            said = f"{self.late} verdicts of {self.world.name} ran past their time limit"
            say(f"{said}: each is worth 0")
        self.late = 0
        getattr(self.world, "close", lambda: None)()

    def note(self, lines: Sequence[Line]) -> None:
        """Keep the first failures for the run's result, and stop where nothing works at all."""
        broken = [line for line in lines if line.failed]
        self.late += sum(line.late for line in lines)
        room = max(0, 100 - len(self.failures))
        self.failures += [(line.scene, line.failed) for line in broken[:room]]
        if lines and len(broken) == len(lines):
            raise Mistake(f"every scene of {self.world.name} failed, as: {broken[0].failed}")


class Conversation(Unvisited, eqx.Module):
    """Draws what the agents say in the scenes of a world, leaves ``(seed, row, token)``.

    The world, its verifiers and the tokenizer live on the host; the answers of all rows are
    written in one compiled program for each turn.
    """

    host: Host = eqx.field(static=True)
    curriculum: Curriculum
    asked: Int[Array, "seed row"]  # arm of each row of the latest batch; -1: padding, or it failed
    flat: Float[Array, "seed arm"]  # answers of groups alike that it left out
    posed: Int[Array, "seed arm"]  # seed of the latest question, where they have an end; -1: none
    tally: Tally

    @classmethod
    def create(cls, host: Host, seeds: int, curriculum: str = "uniform") -> Conversation:
        """Nothing said yet. ``curriculum`` is a word of
        :data:`sterling.experience.curriculum.KINDS`."""
        asked = jnp.full((seeds, host.rows), -1, jnp.int32)
        arms = Curriculum.create(curriculum, seeds, len(host.levels))
        posed = jnp.full(arms.count.shape, -1, jnp.int32)
        return cls(host, arms, asked, jnp.zeros_like(arms.count), posed, Tally.empty(seeds))

    @property
    def traced(self) -> bool:
        """Scenes are heard on the host."""
        return False

    @property
    def worlds(self) -> tuple[Host, ...]:
        """Where it is talked, whose failures a run reports."""
        return (self.host,)

    @property
    def rows(self) -> int:
        """Rows of a batch."""
        return self.host.rows

    @property
    def note(self) -> tuple[Array, Array]:
        """What has to be known of a batch where signals about it come late; see :meth:`about`."""
        return self.asked, self.flat

    def about(self, note: tuple[Array, Array]) -> Conversation:
        """Itself, taking the next signals for those of the batch with this note."""
        return dataclasses.replace(self, asked=note[0], flat=note[1])

    def warm(self, agent: Speaker, keys: Key[Array, "seed"], *, chance: bool) -> Conversation:
        """Nothing is said before the first update."""
        return self

    def collect(self, agent: Speaker, keys: Key[Array, "seed"]) -> tuple[Conversation, Said]:
        """One batch of conversations for every seed.

        The curriculum is told of every group that was asked, before the worthy ones are chosen: of
        levels that are never solved it would hear nothing else.
        """
        needs = self.host.needs
        kept: list[list[Group]] = [[] for _ in range(keys.size)]
        left = [list(groups) for groups in kept]
        tally, curriculum, posed = self.tally, self.curriculum, np.asarray(self.posed)
        for turn in range(needs.rounds):
            room = [needs.prompts - len(groups) for groups in kept]
            if not any(room):
                break
            chosen = curriculum.choose(named.fold_each(keys, "arm", turn), needs.prompts)
            asking = named.fold_each(keys, "ask", turn)
            said, latest = self._asked(agent, chosen, posed, asking)
            # A seed that has its groups is asked only for the others' sake: alone it would not be.
            posed = np.where(np.reshape(room, (-1, 1)), latest, posed)
            groups = [
                list(zip(chosen[seed].tolist(), own, strict=True)) if room[seed] else []
                for seed, own in enumerate(said)
            ]
            tally = _counted(tally, groups)
            curriculum = curriculum.saw(self._sums(groups, "right"), self._sums(groups))
            final = turn == needs.rounds - 1
            for seed, own in enumerate(groups):
                places = _worthy([lines for _, lines in own], room[seed], final=final)
                kept[seed] += [own[place] for place in places]
                left[seed] += [own[n] for n in range(len(own)) if n not in places]
        flat = [[group for group in own if not _tells(group[1])] for own in left]
        arms = jnp.asarray(_arms(kept, self.host.rows))
        flats = jnp.asarray(self._sums(flat))
        source = Conversation(self.host, curriculum, arms, flats, jnp.asarray(posed), tally)
        rows = [Rows.of([lines for _, lines in own]) for own in kept]
        return source, source.said(record(rows, self.host.voice, self.host.rows))

    def said(self, batch: Record) -> Said:
        """The batch to be learned from; it is the one whose rows' arms are known here."""
        return Said(batch, (self.curriculum, self.asked, self.flat))

    def hearing(self, heard: PyTree) -> Conversation:
        """With what the curriculum was told."""
        return dataclasses.replace(self, curriculum=heard[0])

    def cleared(self) -> Conversation:
        """With an empty tally."""
        return dataclasses.replace(self, tally=Tally.empty(self.asked.shape[0]))

    def stored(self) -> Conversation:
        """All of it is written."""
        return self

    def restored(self, fresh: Conversation) -> Conversation:
        """What was written, in the world as it is now."""
        return dataclasses.replace(self, host=fresh.host)

    def close(self) -> None:
        """Release the world."""
        self.host.close()

    def _sums(self, groups: Sequence[Sequence[Group]], of: str = "sound") -> np.ndarray:
        """Answers of each arm ``(seed, arm)`` that are sound, or that are right."""
        found = np.zeros((len(groups), len(self.host.levels)), np.float32)
        for seed, own in enumerate(groups):
            for arm, lines in own:
                found[seed, arm] += sum(getattr(line, of) for line in lines)
        return found

    def _asked(
        self, agent: Speaker, arms: np.ndarray, posed: np.ndarray, keys: Key[Array, "seed"]
    ) -> tuple[list[list[list[Line]]], Int[np.ndarray, "seed arm"]]:
        """Lines by [seed][question], every question asked ``group`` times, and the seeds of the
        questions that were ``posed`` last."""
        group, host = self.host.needs.group, self.host
        scenes, latest = [], posed.copy()
        for key, own, last in zip(keys, arms, latest, strict=True):
            random = np.random.default_rng(np.asarray(jax.random.key_data(key)))
            pairs = self._next(own, last, random)
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
        return found, latest

    def _next(
        self, arms: np.ndarray, last: np.ndarray, random: np.random.Generator
    ) -> list[tuple[int, int]]:
        """Seed and level of the next question of each of these arms; ``last`` is brought up to
        date."""
        levels = self.host.levels
        latest = {level: int(s) for level, s in zip(levels, last, strict=True) if s >= 0}
        pairs = posing.posed(self.host.world, [levels[arm] for arm in arms], random, latest)
        last[:] = [latest.get(level, -1) for level in levels]
        return pairs


class Said(Ready):
    """A batch of conversations, and the curriculum that hears of it."""

    def heed(self, feed: Feed, heard: PyTree, signals: Signals, batch: Record) -> PyTree:
        """Tell the curriculum how much was learned from each row."""
        if "advantage" not in signals.samples:
            return heard
        curriculum, asked, flat = jax.tree.map(lambda x: x[None], heard)
        told = curriculum.heed(asked, signals.samples["advantage"][None], flat)
        return (jax.tree.map(lambda x: x[0], told), *heard[1:])


def _arms(kept: Sequence[Sequence[Group]], rows: int) -> Int[np.ndarray, "seed {rows}"]:
    """The arm of each row of a batch; -1 where there is no sound line."""
    found = np.full((len(kept), rows), -1, np.int32)
    for seed, own in enumerate(kept):
        arms = [arm if line.sound else -1 for arm, lines in own for line in lines]
        found[seed, : len(arms)] = arms
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


def _counted(tally: Tally, groups: Sequence[Sequence[Group]]) -> Tally:
    """The tally with these lines in it; an episode's length is in tokens said."""
    lines = [[line for _, group in own for line in group] for own in groups]
    sound = [[line for line in own if not line.failed] for own in lines]

    def sums(values: Any) -> Float[Array, "seed"]:
        return jnp.asarray([float(sum(map(values, own))) for own in sound], jnp.float32)

    def counts(many: Sequence[Sequence[Line]]) -> Int[Array, "seed"]:
        return jnp.asarray([len(own) for own in many], jnp.int32)

    return Tally(
        {
            "return": tally.returns + sums(lambda line: line.reward),
            "length": tally.lengths + sums(lambda line: sum(line.own)),
        },
        tally.episodes + counts(sound),
        tally.invalid + counts(lines) - counts(sound),
    )
