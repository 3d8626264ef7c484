"""Record episodes of a trained run's policies as a dataset: ``sterling data record RUN``."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, PyTree

from sterling.actor import Actor, Past
from sterling.data.dataset import Dataset
from sterling.data.dataset_metadata import Facts, Source
from sterling.data.episode_columns import Block, join_blocks
from sterling.data.formats import check_destination
from sterling.data.recording import stored_episodes
from sterling.data_generation import policy_rollouts
from sterling.data_generation.dataset_order import Say, code_commit, derive_seed, say_nothing
from sterling.data_generation.expert_training import policy_hash
from sterling.data_generation.policy_rollouts import RandomActor
from sterling.experience import acting
from sterling.nets.action_heads import Actions
from sterling.training.assembly.build_run import check_has_environment, make_world
from sterling.training.config.settings import EVALUATION_LIMIT
from sterling.training.trained_run import TrainedRun, load
from sterling.types import Action, Mistake, Obs, Record, World

MAX_ENVS = 8  # parallel envs that a policy acts in, at most


@dataclasses.dataclass(frozen=True)
class RunRecording:
    """What to record of a run."""

    run: Path
    episodes: int  # of every seed's policy
    seed: int | None = None  # whose policy acts; None: every seed's
    noise: float = 0.0  # standard deviation in an agent's units, or probability of a random choice
    explore: bool = False  # act as in training
    key: int = 0  # of all randomness
    env_options: dict[str, Any] = dataclasses.field(default_factory=dict)  # added to the run's

    @property
    def command(self) -> str:
        """Return the command that records the same episodes."""
        words = [f"sterling data record {self.run} --episodes {self.episodes}"]
        words += [] if self.seed is None else [f"--seed {self.seed}"]
        words += [f"--noise {self.noise:g}"] if self.noise else []
        words += ["--explore"] if self.explore else []
        words += [f"--key {self.key}"] if self.key else []
        return " ".join([*words, *(f"--env {k}={v}" for k, v in self.env_options.items())])


class NoisyActor(eqx.Module):
    """An actor that takes the mode of its policy, with noise: Gaussian with deviation ``noise`` for
    boxes, clipped to [-1, 1] where they are bounded; else, with probability ``noise``, a uniformly
    random choice."""

    actor: Actor
    random: RandomActor
    noise: float = eqx.field(static=True)

    def act(
        self, obs: Obs, keys: Key[Array, "seed"], explore: bool
    ) -> tuple[Action, dict[str, Array]]:
        """Return the mode of the policy with noise."""
        action, _, _ = acting.choose(self.actor, None, obs, keys, False)
        return self._with_noise(action, obs, keys), {}

    def memory(self, envs: int, keys: Key[Array, "seed"]) -> PyTree:
        """Return the actor's initial memory."""
        return acting.initial_memory(self.actor, envs, keys)

    def recall(
        self, past: Past, obs: Obs, keys: Key[Array, "seed"], explore: bool
    ) -> tuple[Action, PyTree, dict[str, Array]]:
        """Return the mode of the policy with noise, and the new memory."""
        action, memory, _ = acting.choose(self.actor, past, obs, keys, False)
        return self._with_noise(action, obs, keys), memory, {}

    def _with_noise(self, action: Action, obs: Obs, keys: Key[Array, "seed"]) -> Action:
        if not self.noise:
            return action
        space: Any = self.random.world.spec.action
        first, second = jax.vmap(lambda key: tuple(jax.random.split(jax.random.fold_in(key, 1))))(
            keys
        )
        if Actions.from_space(space).kind == "box":
            shape = action.shape[1:]
            drawn = jax.vmap(lambda key: self.noise * jax.random.normal(key, shape))(first)
            low, high = jnp.asarray(space.low)[None, None], jnp.asarray(space.high)[None, None]
            return jnp.clip(action + drawn, low, high)
        other, _ = self.random.act(obs, first, True)
        envs = action.shape[1]
        taken = jax.vmap(lambda key: jax.random.bernoulli(key, self.noise, (envs,)))(second)
        return jnp.where(taken.reshape(*taken.shape, *(1,) * (action.ndim - 2)), other, action)


def record_run(asked: RunRecording, out: Path, say: Say = say_nothing) -> Dataset:
    """Let the policies of a run act, and write their episodes to the folder ``out``.

    Raises Mistake for a run without an environment or with several agents, for one that trained a
    language model or adapts to levels, and if an episode does not end.
    """
    _check(asked)
    check_destination(out)
    run = load(asked.run)
    _check_run(run)
    seeds = run.settings.seeds if asked.seed is None else (asked.seed,)
    blocks, sources = [], []
    for number, seed in enumerate(seeds):
        say(f"{asked.episodes} episodes of seed {seed}")
        block, source, world = _record_seed(run, asked, seed, number)
        blocks.append(block)
        sources.append(source)
    options = {**run.settings.env_options, **asked.env_options}
    facts = Facts(run.settings.environment, None, tuple(sources), options)
    space = stored_episodes.stored_action_space(world)
    Dataset.from_block(join_blocks(blocks), world.spec.obs, space, facts).save(out)
    return Dataset(out)


def _check(asked: RunRecording) -> None:
    if asked.episodes < 1:
        raise Mistake(f"--episodes must be at least 1; got {asked.episodes}.")
    if not (math.isfinite(asked.noise) and asked.noise >= 0):
        raise Mistake(f"--noise must be 0 or more; got {asked.noise:g}.")
    if asked.noise and asked.explore:
        raise Mistake("--explore has its own noise. Leave out --noise or --explore.")


def _check_run(run: TrainedRun) -> None:
    if run.settings.speech is not None:
        raise Mistake(
            f"{run.path} trained a language model. Record its answers while it trains: --dump "
            "FOLDER"
        )
    check_has_environment(run.settings)
    if run.agent.needs.adapt:
        raise Mistake(
            f"{run.path} adapts its policy to every level, which data record does not. Record a "
            "run of another algorithm."
        )


def _record_seed(
    run: TrainedRun, asked: RunRecording, seed: int, number: int
) -> tuple[Block, Source, World]:
    """Return the episodes of one seed's policy, where they are from, and the (closed) world."""
    at = run.place(seed)
    one = jax.tree.map(lambda x: x[at : at + 1], run.agent.state)
    agent = dataclasses.replace(run.agent, state=one)
    drawn = derive_seed(asked.key, f"record/{seed}")
    options = {**run.settings.env_options, **asked.env_options}
    settings = dataclasses.replace(run.settings, seeds=(drawn,), env_options=options)
    world = make_world(settings, "evaluate", min(asked.episodes, MAX_ENVS))
    world = policy_rollouts.require_one_agent(world, run.settings.name)
    kind = Actions.from_space(world.spec.action).kind
    try:
        if kind != "box" and asked.noise > 1:
            raise Mistake(f"--noise is a probability for choices; got {asked.noise:g}.")
        greedy = NoisyActor(agent, RandomActor(world), asked.noise)
        actor: Actor = agent if asked.explore else greedy
        rows = collect_episodes(world, actor, asked.episodes, drawn)
        block = stored_episodes.rows_to_block(rows, world, int(rows.mask.sum()), number)
    finally:
        world.close()
    how = "exploring as in training" if asked.explore else "acting greedily"
    how += f", with noise {asked.noise:g}" if asked.noise else ""
    name = f"{run.settings.title} of {asked.run}, seed {seed}, {how}"
    return block, Source(name, "made", asked.command, code_commit(), policy_hash(agent)), world


def collect_episodes(
    world: World, actor: Actor, episodes: int, seed: int, limit: int = EVALUATION_LIMIT
) -> Record:
    """Collect ``episodes`` whole episodes in a fresh environment with one seed, on the host: rows
    ``(time, env, ...)``, whose mask is False after each env's last episode. Every env plays equally
    many, or one more: short episodes are not preferred. Raises Mistake if one does not end within
    ``limit`` steps."""
    envs = world.spec.envs
    wanted = episodes // envs + (np.arange(envs) < episodes % envs)
    drawn, count, age = [], np.zeros(envs, int), np.zeros(envs, int)
    for record in policy_rollouts.draw_records(world, actor, seed):
        over = record.last & record.mask
        before = count + np.cumsum(over, 0) - over  # episodes that ended before each row
        kept = record.mask & (before < wanted)
        drawn.append(eqx.tree_at(lambda rows: rows.mask, record, kept))
        count, age = count + over.sum(0), np.where(over.any(0), 0, age + len(over))
        if (count >= wanted).all():
            return policy_rollouts.concatenate_records(drawn)
        if age[count < wanted].max() >= limit:
            raise Mistake(
                f"an episode has not ended after {limit:,} steps. Limit their length with --env "
                "max_episode_steps=N."
            )
    raise AssertionError("records are drawn without end")
