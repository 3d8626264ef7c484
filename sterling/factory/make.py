"""Datasets by quality, after the recipe of D4RL (Fu 2020, arXiv:2004.07219), by our own agents.

    random          uniformly random actions
    medium          a policy stopped a third of the way from random to the expert
    expert          the policy at the end of training
    medium-replay   what training lived through until the medium policy
    full-replay     what training lived through until its end
    medium-expert   half of each
    scripted        hand-written policies: OGBench's collections, BabyAI's bot, Meta-World's

Policies act as they did while they learned, with exploration, as D4RL's do. Rewards are those that
scores count, whatever training learned from: Atari's are not clipped. Equal words and seeds give
equal bytes on one machine.
"""

from __future__ import annotations

import dataclasses
import zlib
from pathlib import Path
from typing import Any

from sterling.actor import Actor
from sterling.data.columns import Block, joined
from sterling.data.dataset import Dataset
from sterling.data.facts import Facts, Source
from sterling.data.formats import check_place
from sterling.disk import try_place
from sterling.envs import envpool
from sterling.envs.registry import find
from sterling.factory import agents, episodes, rollouts
from sterling.factory.agents import Say, Trained, Watch
from sterling.naming import hint
from sterling.training import folder
from sterling.training.settings import Settings
from sterling.training.start import make_world
from sterling.types import Mistake, World

ENVS = 8  # that a policy acts in side by side, where there is work for all
LEAST = 2000  # rows of each env, before there is one more
REPLAYS = ("medium-replay", "full-replay")
QUALITIES = (
    "random",
    "medium",
    "medium-replay",
    "medium-expert",
    "expert",
    "full-replay",
    "scripted",
)

LIVES = "an episode is one life of a game; reference scores are of whole games"


@dataclasses.dataclass(frozen=True)
class Order:
    """What is to be made."""

    environment: str
    quality: str
    size: int  # rows
    seed: int = 0
    agent: str = "ppo"
    steps: int = 1_000_000  # of training
    env_options: dict[str, Any] = dataclasses.field(default_factory=dict)
    workers: int = 1  # processes of scripted collections; they change no number

    @property
    def words(self) -> str:
        """The command that makes the same again."""
        said = f"sterling data make {self.environment} --quality {self.quality}"
        said += f" --size {self.size} --seed {self.seed}"
        if self.quality not in ("random", "scripted"):
            said += f" --agent {self.agent} --steps {self.steps}"
        return said + "".join(f" --env {key}={value}" for key, value in self.env_options.items())


def quiet(line: str) -> None:
    """Says nothing."""


def make(
    order: Order,
    out: Path,
    kept: Path | None = None,
    say: Say = quiet,
    watch: Watch | None = None,
) -> Dataset:
    """Make a dataset and write it, in Sterling's format, to the folder ``out``.

    ``kept``: folder of trained agents, which several qualities share (default: ``factory`` in the
    folder ``runs``). ``say`` is told how it goes; ``watch``, with the settings of a training, gives
    a sink for its rows. Raises Mistake for words that cannot be.
    """
    if order.quality not in QUALITIES:
        near = hint(order.quality, QUALITIES, f"there are {', '.join(QUALITIES)}")
        raise Mistake(f"no quality is called {order.quality!r}{near}")
    if order.size < 1 or order.workers < 1:
        raise Mistake(f"size and workers must be positive; got {order.size} and {order.workers}")
    check_place(out)
    if order.quality == "scripted":
        from sterling.factory import scripted

        data = scripted.collect(order, say)
    else:
        data = _by_agents(order, kept or Path("runs") / "factory", say, watch)
    say(f"writing {out}")
    data.save(out)
    return Dataset(out)


def commit() -> str:
    """Of the code that makes the data; empty outside a repository."""
    found = folder.git(Path(__file__).parents[1]) or {}
    return found.get("commit", "") + ("-dirty" if found.get("dirty") else "")


def _by_agents(order: Order, kept: Path, say: Say, watch: Watch | None) -> Dataset:
    """Every quality but the scripted one."""
    settings = agents.settings_of(
        order.environment, order.agent, order.steps, order.seed, order.env_options
    )
    random = order.quality == "random"
    if not random:
        try_place(kept)
    trained = None if random else agents.obtain(settings, kept, say, watch)
    if order.quality in REPLAYS:
        assert trained is not None
        world, parts = _replay(order, trained, say)
    else:
        world, parts = _rollouts(order, settings, trained, say)
    blocks, sources = zip(*parts, strict=True)
    scores = trained.scores if trained else {}
    reference = (scores["random"], scores["expert"]) if scores else None
    facts = Facts(order.environment, reference, sources, settings.env_options)
    made = joined(blocks)
    return Dataset.of(made, world.spec.obs, episodes.own_action(world), facts)


Parts = list[tuple[Block, Source]]


def _replay(order: Order, trained: Trained, say: Say) -> tuple[World, Parts]:
    """The newest rows that training lived through."""
    until = trained.iterations
    steps, total = agents.steps_of(trained), trained.settings.steps
    if order.quality == "full-replay":
        until, steps = agents.rounds(trained.settings), total
    rows, world = agents.relive(trained, until, order.size, say)
    size = min(order.size, int(rows.mask.sum()))
    block = episodes.block(rows, world, size, 0, newest=True)
    world.close()
    name = f"training of {order.agent} on seed {order.seed} until step {steps:,} of {total:,}"
    notes = [f"{order.size:,} rows were asked for, and training left {size:,}"]
    return world, [(block, _source(order, name, "", *notes * (size < order.size)))]


def _rollouts(
    order: Order, settings: Settings, trained: Trained | None, say: Say
) -> tuple[World, Parts]:
    """Rows of one policy after the other."""
    kinds = order.quality.split("-")
    parts: Parts = []
    for number, kind in enumerate(kinds):
        size = order.size // len(kinds) + (number < order.size % len(kinds))
        seed = stream(order.seed, kind)
        world = make_world(dataclasses.replace(settings, seeds=(seed,)), "evaluate", _envs(size))
        world = rollouts.of_one_agent(world, order.environment)
        actor: Actor = getattr(trained, kind) if trained else rollouts.Chance(world)
        say(f"{size:,} rows of the {kind} policy")
        block = episodes.block(rollouts.rows(world, actor, size, seed), world, size, number)
        world.close()
        parts.append((block, _of_policy(order, trained, kind)))
    return world, parts


def _envs(size: int) -> int:
    return min(max(size // LEAST, 1), ENVS)


def _of_policy(order: Order, trained: Trained | None, kind: str) -> Source:
    """Where one policy's rows come from."""
    if trained is None:
        return _source(order, "uniformly random actions", "")
    steps = agents.steps_of(trained) if kind == "medium" else order.steps
    name = (
        f"{kind}: {order.agent} after {steps:,} steps of training on seed {order.seed}, exploring; "
        f"without that its mean return is {trained.scores[kind]:g} ({agents.REFERENCE} episodes)"
    )
    return _source(order, name, agents.policy_hash(getattr(trained, kind)))


def _source(order: Order, name: str, policy: str, *notes: str) -> Source:
    backend, game = find(order.environment)
    if backend == "envpool" and envpool.has_lives(game, order.env_options):
        notes = (*notes, LIVES)
    return Source(name, "made", order.words, commit(), policy, notes=notes)


def stream(seed: int, purpose: str) -> int:
    """A seed of its own for each purpose, so that no two see the same episodes: 31 bits."""
    return zlib.crc32(f"factory/{seed}/{purpose}".encode()) & 0x7FFFFFFF
