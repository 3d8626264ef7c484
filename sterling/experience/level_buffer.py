"""Sources that try new levels without learning from them, and learn in those of high scores."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from sterling import keys as named
from sterling.envs import levels
from sterling.envs.starts import able
from sterling.envs.traced import select
from sterling.envs.wrappers import Wrapper
from sterling.equations import level_replay
from sterling.experience.layers import Layer, Numbers
from sterling.experience.level_rollout import LEVEL, LevelRollout
from sterling.experience.rollout import Rollout
from sterling.experience.stepwise import Around
from sterling.seeds import over_seeds
from sterling.types import Mistake, Record, World

EDITED = 0.8  # share of new levels that are edits, where any level was replayed before
ROOM = 4  # levels kept for each env, at least: the present one, the next, a new one, a replayed one

Maker = Callable[[Key[Array, ""], PyTree, Bool[Array, ""]], PyTree]


@dataclasses.dataclass(frozen=True)
class Rules:
    """How levels are chosen."""

    size: int  # levels kept
    share: float  # of episodes that are replays
    beta: float  # temperature of the ranks
    rho: float  # share of staleness
    edits: int = 0  # of each edited level; 0: none is edited


class Kept(eqx.Module):
    """What is known of the levels in the book; leaves ``(seed, ...)``."""

    scores: Float[Array, "*seed level"]
    tried: Bool[Array, "*seed level"]  # whether it has a score
    replayed: Int[Array, "*seed env"]  # the levels chosen for replays in the newest iteration
    chosen: Bool[Array, "*seed env"]  # where there was one


class LevelBuffer(Around, eqx.Module):
    """Robust prioritised level replay (Jiang 2021, "Replay-guided adversarial environment design",
    arXiv:2110.02439, algorithm 1) around rollouts, and with ``edits`` ACCEL (Parker-Holder 2022,
    "Evolving curricula with regret-based environment design", arXiv:2203.01302, algorithm 1).

    Each seed keeps ``size`` levels. A share of its episodes is played in levels chosen among those
    that have a score, and learned from. The others are trials of levels that have none: they are
    scored and masked, so that nothing is learned from them. A score is the mean over an iteration's
    rows of max(A, 0), A the learner's advantage ("positive value loss", section 4 of the first). At
    the beginning of an iteration new levels take the places of the lowest scores, one for each env.
    They are the world's (any, or with ``levels=N`` one of those), or mostly edits of those replayed
    in the iteration before.

    Deviations from the papers: trials and replays lie side by side in one iteration; there as many
    levels are replayed as there are envs, drawn without replacement; episodes go over from one
    iteration to the next, and such a level is scored by the part of an episode in each; the first
    ``size`` levels are all new ones, tried before any is edited; no two levels are compared, so one
    may be kept twice.
    """

    source: LevelRollout  # type: ignore[assignment]
    kept: Kept
    trying: Bool[Array, "seed env"]  # which envs are in an episode that is not learned from
    rules: Rules = eqx.field(static=True)

    @classmethod
    def create(cls, source: Rollout, keys: Key[Array, "seed"], rules: Rules) -> LevelBuffer:
        """Keep new levels, of which none was tried. Raises Mistake where the world has no levels,
        cannot edit them, or has more envs than so many levels can serve."""
        world, envs = source.world, source.world.spec.envs
        if rules.size < ROOM * envs:
            raise Mistake(
                f"{rules.size} levels are too few for {envs} envs; keep at least {ROOM * envs}"
            )
        make, none = _maker(world, rules.edits), jnp.zeros((), bool)

        def first(key: Key[Array, ""]) -> PyTree:
            own = named.deal(key, "first-level", rules.size)
            return jax.vmap(lambda key: make(key, None, none))(own)

        begun = LevelRollout.create(source, keys, jax.vmap(first)(keys))
        shape, each = (world.seeds, rules.size), (world.seeds, envs)
        kept = Kept(
            jnp.zeros(shape), jnp.zeros(shape, bool), jnp.zeros(each, jnp.int32),
            jnp.zeros(each, bool),
        )  # fmt: skip
        return cls(begun, kept, jnp.zeros(each, bool), rules)

    @property
    def recorded(self) -> dict[str, Array]:
        """What is recorded beside the actor's extras and the world's channels."""
        return self.source.recorded

    def live(self, agent: Any, keys: Key[Array, "seed"]) -> tuple[LevelBuffer, Record]:
        """Act for ``length`` steps; rows of trials are masked."""
        begun = self._renewed(named.fold_each(keys, "levels"))
        source, rows = begun.source.live(agent, keys)
        gain = jnp.maximum(agent.advantage(rows), 0.0)
        level, begins = rows.extras[LEVEL], ~rows.mask & ~rows.last
        known = begun.kept
        trial = over_seeds("map", trials)(self.trying, begins, level, known.tried)
        scores, tried = over_seeds("map", _scored)(known, gain, level, rows.mask)
        kept = dataclasses.replace(known, scores=scores, tried=tried)
        after = LevelBuffer(source, kept, trial[:, -1], self.rules)
        return after, dataclasses.replace(rows, mask=rows.mask & ~trial)

    def _renewed(self, keys: Key[Array, "seed"]) -> LevelBuffer:
        """With new levels in place of the lowest scores, and the chances of the next episodes."""
        lived, rules = self.source, self.rules
        make = _maker(lived.world, rules.edits)

        def renew(key: Key[Array, ""], kept: Kept, told: Any, known: _Known) -> tuple[Any, ...]:
            book, kept, last = _replaced(key, kept, told, known, make)
            chance = level_replay.replays(
                kept.scores, last, known.episodes, kept.tried, beta=rules.beta, rho=rules.rho
            )
            own = named.fold(key, "replays")
            replayed, chosen = level_replay.several(chance, own, kept.chosen.size)
            kept = dataclasses.replace(kept, replayed=replayed, chosen=chosen)
            return book, kept, last, jnp.cumsum(_chances(kept, rules.share))

        known = _Known(lived.book, lived.last, lived.count)
        book, kept, last, edges = over_seeds("map", renew)(keys, self.kept, lived.told, known)
        source = dataclasses.replace(lived, book=book, last=last, edges=edges)
        return dataclasses.replace(self, source=source, kept=kept)


class _Known(NamedTuple):
    """The levels, when each was begun, and how many episodes were."""

    book: PyTree
    last: Int[Array, "level"]
    episodes: Int[Array, ""]


def _replaced(
    key: Key[Array, ""], kept: Kept, told: Any, known: _Known, make: Maker
) -> tuple[PyTree, Kept, Int[Array, "level"]]:
    """The book with new levels where scores were lowest, as many as there are envs less those that
    wait to be tried; levels that an env is in, or is to begin next, stay."""
    taken = jnp.zeros_like(kept.tried).at[told.now].set(True).at[told.following].set(True)
    order = jnp.where(taken, jnp.inf, jnp.where(kept.tried, kept.scores, -1.0))
    place = jnp.argsort(order)[: kept.chosen.size]
    over = kept.tried[place] & ~taken[place]
    own = named.deal(key, "new-level", kept.chosen.size)
    new = jax.vmap(make)(own, levels.at(known.book, kept.replayed), kept.chosen)
    new = select(over, new, levels.at(known.book, place))
    book = jax.tree.map(lambda leaf, x: leaf.at[place].set(x), known.book, new)
    gone = jnp.zeros_like(kept.tried).at[place].set(over)
    scores = jnp.where(gone, 0.0, kept.scores)
    kept = dataclasses.replace(kept, scores=scores, tried=kept.tried & ~gone)
    return book, kept, jnp.where(gone, 0, known.last)


def _chances(kept: Kept, share: float) -> Float[Array, "level"]:
    """Of every level to be the next: those chosen for replays have ``share`` together, those that
    were never tried the rest, each as likely as every other."""
    new = (~kept.tried).astype(jnp.float32)
    again = jnp.zeros_like(new).at[kept.replayed].add(kept.chosen.astype(jnp.float32))
    part = jnp.where(kept.chosen.any(), jnp.where(kept.tried.all(), 1.0, share), 0.0)
    again, new = (each / jnp.maximum(each.sum(), 1.0) for each in (again, new))
    return part * again + (1.0 - part) * new


def trials(
    trying: Bool[Array, "env"],
    begins: Bool[Array, "time env"],
    level: Int[Array, "time env"],
    tried: Bool[Array, "level"],
) -> Bool[Array, "time env"]:
    """Which rows belong to episodes that began in a level without a score; ``trying`` says it of
    those that were under way before the first row."""

    def row(now: Array, each: tuple[Array, Array]) -> tuple[Array, Array]:
        begins, new = each
        now = jnp.where(begins, new, now)
        return now, now

    return jax.lax.scan(row, trying, (begins, ~tried[level]))[1]


def _scored(
    kept: Kept, gain: Float[Array, "..."], level: Int[Array, "..."], mask: Bool[Array, "..."]
) -> tuple[Float[Array, "level"], Bool[Array, "level"]]:
    """Scores after these rows, and which levels have one."""
    scores = level_replay.scored(kept.scores, gain, level, mask, 1.0)
    return scores, kept.tried.at[level].max(mask)


def _maker(world: World, edits: int) -> Maker:
    """``make(key, parent, may)``: a new level of the world, or where it ``may`` be, mostly an edit
    of its ``parent``."""
    book, inner = able(world).book, world
    while isinstance(inner, Wrapper):
        inner = inner.world
    task: Any = getattr(inner, "task", None)
    if not _has_levels(task):
        raise Mistake("this world has no levels to choose among; use one that has, as maze:5x5")
    if edits and not hasattr(task, "edit"):
        raise Mistake("this world's levels cannot be edited: its Task has no edit(level, key)")

    def make(key: Key[Array, ""], parent: PyTree, may: Bool[Array, ""]) -> PyTree:
        own = named.fold(key, "level")
        if book is None:
            level = task.level(own)
        else:
            number = jax.random.randint(own, (), 0, levels.size(book), jnp.int32)
            level = levels.at(book, number)
        if not edits or parent is None:
            return level
        for each in named.deal(key, "edit", edits):
            parent = task.edit(parent, each)
        may = may & jax.random.bernoulli(named.fold(key, "edited"), EDITED)
        return select(may, parent, level)

    return make


def _has_levels(task: Any) -> bool:
    """Whether its levels are of anything: those of trials may be of nothing."""
    if not isinstance(task, levels.Levelled):
        return False
    return bool(jax.tree.leaves(jax.eval_shape(task.level, jax.random.key(0))))


def _right(numbers: Numbers) -> bool:
    size, share, beta, rho, *edits = numbers
    whole = all(each >= 1.0 and each == int(each) for each in (size, *edits))
    return whole and 0.0 < share < 1.0 and 0.0 < beta < float("inf") and 0.0 <= rho <= 1.0


def _around(source: Any, numbers: Numbers, keys: Key[Array, "seed"], actor: Any) -> LevelBuffer:
    actor.needs_advantage()
    size, share, beta, rho, *edits = numbers
    rules = Rules(int(size), share, beta, rho, *map(int, edits))
    return LevelBuffer.create(source, keys, rules)


NUMBERS = "levels kept, share of episodes replayed, temperature, share of staleness"
ROBUST = Layer(
    "plr-robust",
    "robust level replay: new levels are tried without learning, those of high scores learned in",
    (1000.0, 0.5, 0.3, 0.3),
    f"plr-robust:1000,0.5,0.3,0.3: {NUMBERS}",
    right=_right,
    rollouts=_around,
    begins=True,
)
ACCEL = Layer(
    "accel",
    "robust level replay in which most new levels are edits of those replayed",
    (1000.0, 0.5, 0.3, 0.3, 3.0),
    f"accel:1000,0.5,0.3,0.3,3: {NUMBERS}, edits of each",
    right=_right,
    rollouts=_around,
    begins=True,
)
