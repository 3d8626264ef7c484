"""Make datasets of a named quality, after the recipe of D4RL (Fu 2020, arXiv:2004.07219).

    random          uniformly random actions
    medium          a policy a third of the way from random to the expert's return
    expert          the policy at the end of training
    medium-replay   all transitions that training collected until the medium policy
    full-replay     all transitions that training collected until its end
    medium-expert   half of each
    scripted        hand-written policies: OGBench's collections, BabyAI's bot, Meta-World's

Policies act with exploration, as they did during training, and as D4RL's do. Rewards are those
that scores count, even if training used others: Atari's are not clipped. The same command gives the
same bytes on one machine.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from sterling.actor import Actor
from sterling.data.dataset import Dataset
from sterling.data.dataset_metadata import Facts, Source
from sterling.data.episode_columns import Block, join_blocks
from sterling.data.formats import check_destination
from sterling.data.recording import stored_episodes
from sterling.data_generation import expert_training, policy_rollouts
from sterling.data_generation.dataset_order import (
    DatasetOrder,
    Say,
    code_commit,
    derive_seed,
    say_nothing,
)
from sterling.data_generation.expert_training import TrainedAgents, Watch
from sterling.data_generation.scripts import scripted_policies
from sterling.envs.compiled import envpool_env
from sterling.envs.registry import find_backend
from sterling.lookup.name_suggestions import did_you_mean
from sterling.system.atomic_files import check_writable
from sterling.training.assembly.build_run import make_world
from sterling.training.config.settings import Settings
from sterling.types import Mistake, World

MAX_ENVS = 8  # parallel envs that a policy acts in, at most
MIN_ROWS_PER_ENV = 2000  # rows per env below which fewer envs are used
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

LIVES_NOTE = "an episode is one life of a game; reference scores are of whole games"


def make_dataset(
    order: DatasetOrder,
    out: Path,
    agents_folder: Path | None = None,
    say: Say = say_nothing,
    watch: Watch | None = None,
) -> Dataset:
    """Make a dataset and write it to the folder ``out``, in Sterling's format.

    ``agents_folder``: the folder of trained agents, which several qualities share (default:
    ``runs/factory``). ``say(line)`` is called with progress messages; ``watch(settings)`` returns a
    sink for the metrics of a training run. Raises Mistake for an invalid order.
    """
    if order.quality not in QUALITIES:
        near = did_you_mean(order.quality, QUALITIES, f"use one of {', '.join(QUALITIES)}")
        raise Mistake(f"Unknown quality {order.quality!r}{near}")
    if order.size < 1 or order.workers < 1:
        raise Mistake(f"size and workers must be positive; got {order.size} and {order.workers}.")
    check_destination(out)
    if order.quality == "scripted":
        data = scripted_policies.collect_scripted(order, say)
    else:
        data = _collect_with_agents(order, agents_folder or Path("runs") / "factory", say, watch)
    say(f"writing {out}")
    data.save(out)
    return Dataset(out)


def _collect_with_agents(
    order: DatasetOrder, agents_folder: Path, say: Say, watch: Watch | None
) -> Dataset:
    """Make a dataset of any quality except the scripted one."""
    settings = expert_training.training_settings(
        order.environment, order.agent, order.steps, order.seed, order.env_options
    )
    random = order.quality == "random"
    if not random:
        check_writable(agents_folder)
    trained = None if random else expert_training.load_or_train(settings, agents_folder, say, watch)
    if order.quality in REPLAYS:
        assert trained is not None
        world, parts = _replay_parts(order, trained, say)
    else:
        world, parts = _rollout_parts(order, settings, trained, say)
    blocks, sources = zip(*parts, strict=True)
    scores = trained.scores if trained else {}
    reference = (scores["random"], scores["expert"]) if scores else None
    facts = Facts(order.environment, reference, sources, settings.env_options)
    made = join_blocks(blocks)
    return Dataset.from_block(
        made, world.spec.obs, stored_episodes.stored_action_space(world), facts
    )


BlocksAndSources = list[tuple[Block, Source]]


def _replay_parts(
    order: DatasetOrder, trained: TrainedAgents, say: Say
) -> tuple[World, BlocksAndSources]:
    """Return the environment, and the newest rows that training collected."""
    until = trained.iterations
    steps, total = expert_training.medium_agent_steps(trained), trained.settings.steps
    if order.quality == "full-replay":
        until, steps = expert_training.total_rounds(trained.settings), total
    rows, world = expert_training.repeat_training(trained, until, order.size, say)
    size = min(order.size, int(rows.mask.sum()))
    block = stored_episodes.rows_to_block(rows, world, size, 0, newest=True)
    world.close()
    name = f"training of {order.agent} on seed {order.seed} until step {steps:,} of {total:,}"
    notes = [f"{order.size:,} rows were requested, but training collected only {size:,}"]
    return world, [(block, _make_source(order, name, "", *notes * (size < order.size)))]


def _rollout_parts(
    order: DatasetOrder, settings: Settings, trained: TrainedAgents | None, say: Say
) -> tuple[World, BlocksAndSources]:
    """Return the environment, and rows of each policy of the quality, one after the other."""
    kinds = order.quality.split("-")
    parts: BlocksAndSources = []
    for number, kind in enumerate(kinds):
        size = order.size // len(kinds) + (number < order.size % len(kinds))
        seed = derive_seed(order.seed, kind)
        world = make_world(
            dataclasses.replace(settings, seeds=(seed,)), "evaluate", _env_count(size)
        )
        world = policy_rollouts.require_one_agent(world, order.environment)
        actor: Actor = getattr(trained, kind) if trained else policy_rollouts.RandomActor(world)
        say(f"{size:,} rows of the {kind} policy")
        block = stored_episodes.rows_to_block(
            policy_rollouts.collect_rows(world, actor, size, seed), world, size, number
        )
        world.close()
        parts.append((block, _policy_source(order, trained, kind)))
    return world, parts


def _env_count(size: int) -> int:
    return min(max(size // MIN_ROWS_PER_ENV, 1), MAX_ENVS)


def _policy_source(order: DatasetOrder, trained: TrainedAgents | None, kind: str) -> Source:
    """Return the provenance of one policy's rows."""
    if trained is None:
        return _make_source(order, "uniformly random actions", "")
    steps = expert_training.medium_agent_steps(trained) if kind == "medium" else order.steps
    name = (
        f"{kind}: {order.agent} after {steps:,} steps of training on seed {order.seed}, exploring; "
        f"acting greedily its mean return is {trained.scores[kind]:g} "
        f"({expert_training.REFERENCE_EPISODES} episodes)"
    )
    return _make_source(order, name, expert_training.policy_hash(getattr(trained, kind)))


def _make_source(order: DatasetOrder, name: str, policy: str, *notes: str) -> Source:
    backend, game = find_backend(order.environment)
    if backend == "envpool" and envpool_env.has_lives(game, order.env_options):
        notes = (*notes, LIVES_NOTE)
    return Source(name, "made", order.command, code_commit(), policy, notes=notes)
