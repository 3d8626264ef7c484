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
from sterling.language.scene import Scene, TextWorld
from sterling.language.talk import Line, Speaker, Voice, converse, patience
from sterling.types import Generations, Mistake, Record, Signals


@dataclasses.dataclass(eq=False)
class Stage:
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

    def begin(self, seed: int, level: int) -> Scene | str:
        """A scene, or in a word why it could not begin."""
        try:
            with patience(self.voice.patience):
                return self.world.begin(seed, level)
        except Exception as error:
            return f"{type(error).__name__}: {error}"[:200]

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

    stage: Stage = eqx.field(static=True)
    curriculum: Curriculum
    asked: Int[Array, "seed row"]  # arm of each row of the latest batch; -1: padding
    tally: Tally

    @classmethod
    def create(cls, stage: Stage, seeds: int, curriculum: str = "uniform") -> Conversation:
        """Nothing said yet. ``curriculum`` is a word of
        :data:`sterling.experience.curriculum.KINDS`."""
        asked = jnp.full((seeds, stage.rows), -1, jnp.int32)
        arms = Curriculum.create(curriculum, seeds, len(stage.levels))
        return cls(stage, arms, asked, Tally.empty(seeds))

    @property
    def traced(self) -> bool:
        """Scenes are heard on the host."""
        return False

    @property
    def rows(self) -> int:
        """Rows of a batch."""
        return self.stage.rows

    @property
    def world(self) -> Stage:
        """Whose failures a run reports."""
        return self.stage

    def draw(self, agent: Speaker, keys: Key[Array, "seed"]) -> tuple[Conversation, Record]:
        """One batch of conversations for every seed."""
        needs = self.stage.needs
        kept: list[list[list[Line]]] = [[] for _ in range(keys.size)]  # [seed][group][line]
        arms: list[list[int]] = [[] for _ in kept]
        tally = self.tally
        for turn in range(needs.rounds):
            missing = [needs.prompts - len(groups) for groups in kept]
            if not any(missing):
                break
            chosen = self.curriculum.choose(named.fold_each(keys, "arm", turn), needs.prompts)
            groups = self._asked(agent, chosen, named.fold_each(keys, "ask", turn))
            tally = _counted(tally, groups)
            final = turn == needs.rounds - 1
            for seed, own in enumerate(groups):
                for arm, group in zip(chosen[seed], own, strict=True):
                    wanted = final or _tells(group)
                    if wanted and len(kept[seed]) < needs.prompts:
                        kept[seed].append(group)
                        arms[seed] += [int(arm)] * len(group)
        rows = self.stage.rows
        asked = np.array([own + [-1] * (rows - len(own)) for own in arms], np.int32)
        source = Conversation(self.stage, self.curriculum, jnp.asarray(asked), tally)
        return source, record([Rows.of(groups) for groups in kept], self.stage.voice, rows)

    def heed(self, signals: Signals) -> Conversation:
        """Tell the curriculum how much was learned from each row."""
        told = self.curriculum.heed(self.asked, signals.samples)
        return Conversation(self.stage, told, self.asked, self.tally)

    def cleared(self) -> Conversation:
        """With an empty tally."""
        empty = Tally.empty(self.asked.shape[0])
        return Conversation(self.stage, self.curriculum, self.asked, empty)

    def stored(self) -> Conversation:
        """All of it is written."""
        return self

    def restored(self, fresh: Conversation) -> Conversation:
        """What was written, in the world as it is now."""
        return Conversation(fresh.stage, self.curriculum, self.asked, self.tally)

    def close(self) -> None:
        """Release the world."""
        self.stage.close()

    def _asked(
        self, agent: Speaker, arms: np.ndarray, keys: Key[Array, "seed"]
    ) -> list[list[list[Line]]]:
        """Lines by [seed][question]: every question is asked ``group`` times."""
        group, stage = self.stage.needs.group, self.stage
        scenes = []
        for key, own in zip(keys, arms, strict=True):
            random = np.random.default_rng(np.asarray(jax.random.key_data(key)))
            seeds = random.integers(2**31, size=own.size)
            pairs = [(int(s), stage.levels[arm]) for s, arm in zip(seeds, own, strict=True)]
            scenes.append([stage.begin(*pair) for pair in pairs for _ in range(group)])
        lines = converse(agent, scenes, stage.voice, keys)
        found = []
        for own in lines:
            stage.note(own)
            by: list[list[Line]] = [[] for _ in range(arms.shape[1])]
            for line in own:
                by[line.scene // group].append(line)
            found.append(by)
        return found


def _tells(group: Sequence[Line]) -> bool:
    """Whether a group teaches: some of its answers were better than others (DAPO, eq. 11)."""
    rewards = [line.reward for line in group if not line.failed]
    return bool(rewards) and max(rewards) - min(rewards) > 1e-6


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
