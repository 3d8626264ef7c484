"""Robust level replay and ACCEL: try new levels without learning, and learn in levels with high
scores."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from sterling import random_keys as named
from sterling.envs import levels
from sterling.envs.episode_starts import require_startable
from sterling.envs.traced_world import tree_where
from sterling.equations import level_scores
from sterling.experience.levels.level_rollout import LEVEL, LevelRollout
from sterling.experience.levels.one_level import level_maker, task_of
from sterling.experience.rollouts.rollout import Rollout
from sterling.experience.rollouts.rollout_wrapper import Around
from sterling.experience.source_layers import Layer
from sterling.field_types import Count, Inside, Positive, Share
from sterling.seed_axis import over_seeds
from sterling.types import Mistake, Record, World, config

EDIT_PROBABILITY = 0.8  # share of edits among new levels, once some level was replayed
LEVELS_PER_ENV = 4  # minimum per env: the present level, the next, a new one, a replayed one

LevelMaker = Callable[[Key[Array, ""], PyTree, Bool[Array, ""]], PyTree]


@dataclasses.dataclass(frozen=True)
class BufferRules:
    """The settings of a level buffer."""

    size: int  # capacity, in levels
    share: float  # share of episodes that replay a level
    beta: float  # temperature of the ranks
    rho: float  # weight of staleness
    edits: int = 0  # edits per edited level; 0: levels are not edited


class LevelStats(eqx.Module):
    """Statistics of the levels in the buffer; leaves ``(seed, ...)``."""

    scores: Float[Array, "*seed level"]
    tried: Bool[Array, "*seed level"]  # whether it has a score
    replayed: Int[Array, "*seed env"]  # the levels chosen for replay in this iteration
    chosen: Bool[Array, "*seed env"]  # whether a level was chosen


class LevelBuffer(Around, eqx.Module):
    """Robust prioritised level replay (Jiang 2021, "Replay-guided adversarial environment design",
    arXiv:2110.02439, algorithm 1) around rollouts; with ``edits`` ACCEL (Parker-Holder 2022,
    "Evolving curricula with regret-based environment design", arXiv:2203.01302, algorithm 1).

    Each seed keeps ``size`` levels. A share of its episodes replays levels that have a score, and
    learns from them. The others are trials of levels without a score: these are scored, but their
    rows are masked, so nothing is learned from them. A score is the mean of max(A, 0) over an
    iteration's rows, A the learner's advantage ("positive value loss", section 4 of the first
    paper). Before each iteration new levels, one per env, replace those with the lowest scores. New
    levels are sampled from the world (with ``levels=N`` from its N), or are mostly edits of the
    levels replayed in the iteration before.

    Deviations from the papers: trials and replays share one iteration; each iteration replays as
    many levels as there are envs, drawn without replacement; episodes continue over iterations, and
    their level is scored by the part of an episode in each; the first ``size`` levels are all new,
    and are tried before any is edited; levels are not compared, so one may be kept twice.
    """

    source: LevelRollout  # type: ignore[assignment]
    kept: LevelStats
    trying: Bool[Array, "seed env"]  # which envs are in a trial
    rules: BufferRules = eqx.field(static=True)

    @classmethod
    def create(cls, source: Rollout, keys: Key[Array, "seed"], rules: BufferRules) -> LevelBuffer:
        """Create a buffer of new levels without scores.

        Raises Mistake if the world has no levels, cannot edit them, or has too many envs for
        ``size`` levels.
        """
        world, envs = source.world, source.world.spec.envs
        if rules.size < LEVELS_PER_ENV * envs:
            raise Mistake(
                f"{rules.size} levels are too few for {envs} envs; "
                f"use at least {LEVELS_PER_ENV * envs}"
            )
        make, none = _level_maker(world, rules.edits), jnp.zeros((), bool)

        def first(key: Key[Array, ""]) -> PyTree:
            own = named.split(key, "first-level", rules.size)
            return jax.vmap(lambda key: make(key, None, none))(own)

        begun = LevelRollout.create(source, keys, jax.vmap(first)(keys))
        shape, each = (world.seeds, rules.size), (world.seeds, envs)
        kept = LevelStats(
            jnp.zeros(shape), jnp.zeros(shape, bool), jnp.zeros(each, jnp.int32),
            jnp.zeros(each, bool),
        )  # fmt: skip
        return cls(begun, kept, jnp.zeros(each, bool), rules)

    @property
    def recorded(self) -> dict[str, Array]:
        """Return the extras that this source adds to those of the actor and the world."""
        return self.source.recorded

    def live(self, agent: Any, keys: Key[Array, "seed"]) -> tuple[LevelBuffer, Record]:
        """Act for ``length`` steps; rows of trials are masked."""
        begun = self._renewed(named.fold_each(keys, "levels"))
        source, rows = begun.source.live(agent, keys)
        gain = jnp.maximum(agent.advantage(rows), 0.0)
        level, begins = rows.extras[LEVEL], ~rows.mask & ~rows.last
        known = begun.kept
        trial = over_seeds("map", trial_rows)(self.trying, begins, level, known.tried)
        scores, tried = over_seeds("map", _update_scores)(known, gain, level, rows.mask)
        kept = dataclasses.replace(known, scores=scores, tried=tried)
        after = LevelBuffer(source, kept, trial[:, -1], self.rules)
        return after, dataclasses.replace(rows, mask=rows.mask & ~trial)

    def _renewed(self, keys: Key[Array, "seed"]) -> LevelBuffer:
        """Replace the levels with the lowest scores, and set the probabilities of the next
        episodes' levels."""
        lived, rules = self.source, self.rules
        make = _level_maker(lived.world, rules.edits)

        def renew(
            key: Key[Array, ""], kept: LevelStats, told: Any, known: _LevelBook
        ) -> tuple[Any, ...]:
            book, kept, last = _replace_lowest(key, kept, told, known, make)
            chance = level_scores.replay_probabilities(
                kept.scores, last, known.episodes, kept.tried, beta=rules.beta, rho=rules.rho
            )
            own = named.fold(key, "replays")
            replayed, chosen = level_scores.draw_distinct_levels(chance, own, kept.chosen.size)
            kept = dataclasses.replace(kept, replayed=replayed, chosen=chosen)
            return book, kept, last, jnp.cumsum(_level_probabilities(kept, rules.share))

        known = _LevelBook(lived.book, lived.last, lived.count)
        book, kept, last, edges = over_seeds("map", renew)(keys, self.kept, lived.told, known)
        source = dataclasses.replace(lived, book=book, last=last, edges=edges)
        return dataclasses.replace(self, source=source, kept=kept)


class _LevelBook(NamedTuple):
    """The levels, the number of the last episode begun in each, and the number of episodes
    begun."""

    book: PyTree
    last: Int[Array, "level"]
    episodes: Int[Array, ""]


def _replace_lowest(
    key: Key[Array, ""], kept: LevelStats, told: Any, known: _LevelBook, make: LevelMaker
) -> tuple[PyTree, LevelStats, Int[Array, "level"]]:
    """Replace levels with the lowest scores by new ones, as many as there are envs minus those
    still untried; levels that an env is in, or will begin next, stay."""
    taken = jnp.zeros_like(kept.tried).at[told.now].set(True).at[told.following].set(True)
    order = jnp.where(taken, jnp.inf, jnp.where(kept.tried, kept.scores, -1.0))
    place = jnp.argsort(order)[: kept.chosen.size]
    over = kept.tried[place] & ~taken[place]
    own = named.split(key, "new-level", kept.chosen.size)
    new = jax.vmap(make)(own, levels.take_levels(known.book, kept.replayed), kept.chosen)
    new = tree_where(over, new, levels.take_levels(known.book, place))
    book = jax.tree.map(lambda leaf, x: leaf.at[place].set(x), known.book, new)
    gone = jnp.zeros_like(kept.tried).at[place].set(over)
    scores = jnp.where(gone, 0.0, kept.scores)
    kept = dataclasses.replace(kept, scores=scores, tried=kept.tried & ~gone)
    return book, kept, jnp.where(gone, 0, known.last)


def _level_probabilities(kept: LevelStats, share: float) -> Float[Array, "level"]:
    """Return each level's probability of being next: replayed levels have ``share`` in total,
    untried levels the rest, both uniformly."""
    new = (~kept.tried).astype(jnp.float32)
    again = jnp.zeros_like(new).at[kept.replayed].add(kept.chosen.astype(jnp.float32))
    part = jnp.where(kept.chosen.any(), jnp.where(kept.tried.all(), 1.0, share), 0.0)
    again, new = (each / jnp.maximum(each.sum(), 1.0) for each in (again, new))
    return part * again + (1.0 - part) * new


def trial_rows(
    trying: Bool[Array, "env"],
    begins: Bool[Array, "time env"],
    level: Int[Array, "time env"],
    tried: Bool[Array, "level"],
) -> Bool[Array, "time env"]:
    """Return which rows belong to trials: episodes in a level that had no score when they began.

    ``trying`` says it for the episodes in progress before the first row.
    """

    def row(now: Array, each: tuple[Array, Array]) -> tuple[Array, Array]:
        begins, new = each
        now = jnp.where(begins, new, now)
        return now, now

    return jax.lax.scan(row, trying, (begins, ~tried[level]))[1]


def _update_scores(
    kept: LevelStats, gain: Float[Array, "..."], level: Int[Array, "..."], mask: Bool[Array, "..."]
) -> tuple[Float[Array, "level"], Bool[Array, "level"]]:
    """Return the scores after these rows, and which levels have one."""
    scores = level_scores.updated_scores(kept.scores, gain, level, mask, 1.0)
    return scores, kept.tried.at[level].max(mask)


def _level_maker(world: World, edits: int) -> LevelMaker:
    """Return ``make(key, parent, may)``: a new level of the world or, where ``may`` is True, mostly
    an edit of ``parent``."""
    require_startable(world)  # raises if episodes of this world cannot be started in a level
    draw, task = level_maker(world), task_of(world)
    if draw is None:
        raise Mistake(
            "this environment has no levels to choose from; use one that has, such as maze:5x5"
        )
    new_level = draw
    if edits and not hasattr(task, "edit"):
        raise Mistake("this environment's Task has no edit(level, key); use plr-robust instead")

    def make(key: Key[Array, ""], parent: PyTree, may: Bool[Array, ""]) -> PyTree:
        level = new_level(named.fold(key, "level"))
        if not edits or parent is None:
            return level
        for each in named.split(key, "edit", edits):
            parent = task.edit(parent, each)
        may = may & jax.random.bernoulli(named.fold(key, "edited"), EDIT_PROBABILITY)
        return tree_where(may, parent, level)

    return make


@config
class RobustConfig:
    """The options of ``plr-robust``."""

    levels: Count = 1000  # kept
    replay: Inside = 0.5  # share of episodes that replay a level
    temperature: Positive = 0.3  # of the ranks
    staleness: Share = 0.3  # weight of how long ago a level was played


@config
class AccelConfig(RobustConfig):
    """The options of ``accel``."""

    edits: Count = 3  # of each edited level


def _make_buffer(
    source: Any, config: RobustConfig, keys: Key[Array, "seed"], actor: Any
) -> LevelBuffer:
    actor.check_has_advantage()
    return LevelBuffer.create(source, keys, BufferRules(*vars(config).values()))


ROBUST = Layer(
    "plr-robust",
    "robust level replay: try new levels without learning, learn in those with high scores",
    RobustConfig,
    rollouts=_make_buffer,
    begins=True,
)
ACCEL = Layer(
    "accel",
    "robust level replay where most new levels are edits of replayed ones",
    AccelConfig,
    rollouts=_make_buffer,
    begins=True,
)
