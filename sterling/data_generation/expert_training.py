"""Train the agents that datasets are generated with: an expert, and a medium agent on the way.

    <agents>/<algorithm>-<environment>-<steps>-<seed>/expert   run folders, for ``sterling
                                                      medium    evaluate`` and ``play`` too

Training can be repeated exactly, number by number, up to any point. The replay qualities are
generated in this way, without storing gigabytes of pictures.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sterling.data_generation import policy_rollouts
from sterling.data_generation.dataset_order import Say
from sterling.data_generation.generation_progress import ProgressRows
from sterling.data_generation.score_units import ScoreRecorder
from sterling.envs.registry import find_backend
from sterling.experience.replay.replay_buffer import Replay
from sterling.experience.replay.ring_buffer import Place
from sterling.report.live.guarded_sinks import GuardedSinks
from sterling.report.live.metric_sinks import Sink
from sterling.system.interrupts import interrupt_message
from sterling.training.agent import Agent
from sterling.training.assembly.build_run import make_world, run_builder
from sterling.training.config.resolve_settings import resolve_settings
from sterling.training.config.settings import Settings
from sterling.training.host_visits import advance_with_visits
from sterling.training.loop import Run, iterate_with_draws
from sterling.training.phases.phase_sequence import (
    steps_per_iteration,
    total_iterations,
    warmup_steps,
)
from sterling.training.runtime.compilation import enable_compilation_cache
from sterling.training.saving import checkpoint, run_folder
from sterling.training.trained_run import load
from sterling.types import Mistake, Record, World

MILESTONES = 50  # agents kept during training, among which the medium one is chosen
MEDIUM_SHARE = 1 / 3  # of the way from a random policy's score to the expert's
JUDGING_ENVS = 10  # envs in which agents are evaluated; a milestone plays two episodes in each
REFERENCE_EPISODES = 100  # episodes of each reference score
STOPPED_MESSAGE = (
    "Training was stopped and is not kept. The same command starts it from the beginning."
)
Watch = Callable[[Settings], Sink]


@dataclasses.dataclass(frozen=True)
class TrainedAgents:
    """The agents of one training run, and their scores."""

    settings: Settings
    medium: Agent
    expert: Agent
    iterations: int  # iterations until the medium agent
    scores: dict[str, float]  # mean returns of random, medium, expert; the last two act greedily


def training_settings(
    environment: str, algorithm: str, steps: int, seed: int, env_options: dict[str, Any]
) -> Settings:
    """Return the settings of the training run; raise Mistake for invalid names and numbers."""
    find_backend(environment)
    return resolve_settings(
        algorithm, environment, steps=steps, seeds=[seed], env_options=env_options
    )


def load_or_train(
    settings: Settings, where: Path, say: Say, watch: Watch | None = None
) -> TrainedAgents:
    """Load the agents stored under ``where``; if there are none, train and store them.
    ``watch(settings)`` returns a sink for the metrics of the training run."""
    name = settings.name.replace("/", "-").replace(":", "-")
    home = where / f"{settings.title}-{name}-{settings.steps}-{settings.seeds[0]}"
    if run_folder.read_result(home / "expert") is not None:
        return _load_agents(settings, home)
    enable_compilation_cache()
    with interrupt_message(STOPPED_MESSAGE):
        made = _train(settings, say, watch)
    partial = home.with_name(f".{home.name}.partial-{os.getpid()}")
    try:
        for kind in ("medium", "expert"):
            _save_agent(made, partial / kind, kind)
        if not home.exists():  # another process may have finished first
            partial.rename(home)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return _load_agents(settings, home)


def repeat_training(
    trained: TrainedAgents, until: int, size: int, say: Say
) -> tuple[Record, World]:
    """Repeat training and return the newest ``size`` rows, or a few more, of its first ``until``
    iterations, as ``(time, env, ...)``, and the environment. Rewards are those that scores count,
    even if the agent learned from others. The actor's extras are included if the algorithm learns
    from rollouts."""
    settings = trained.settings
    run, total = _start_run(settings), total_iterations(settings)
    recent: list[Record] = []
    for count in _rounds_between_milestones(total):
        left = until - int(run.iteration)
        if not left:
            break
        run, seen = _run_rounds(run, min(count, left))
        recent += [jax.tree.map(lambda x: np.asarray(x)[0], one) for one in seen]
        while sum(int(one.mask.sum()) for one in recent[1:]) >= size:
            recent.pop(0)
        say(f"repeating the agent's first {_steps_after(settings, int(run.iteration)):,} steps")
    world = run.source.world
    is_replay = run.agent.needs.replays
    rows = (
        _newest_replay_rows(run.source, size)
        if is_replay
        else policy_rollouts.concatenate_records(recent)
    )
    return world.with_scored_rewards(rows), world


def policy_hash(agent: Agent) -> str:
    """Return the SHA-256 of an agent's whole state."""
    digest = hashlib.sha256()
    for path, leaf in jax.tree_util.tree_leaves_with_path(agent.state):
        array = np.asarray(leaf)
        digest.update(f"{jax.tree_util.keystr(path)} {array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def total_rounds(settings: Settings) -> int:
    """Return the number of iterations of the whole training run."""
    return total_iterations(settings)


def medium_agent_steps(trained: TrainedAgents) -> int:
    """Return the environment steps that the medium agent was trained for."""
    return _steps_after(trained.settings, trained.iterations)


def _steps_after(settings: Settings, rounds: int) -> int:
    return warmup_steps(settings) + rounds * steps_per_iteration(settings)


def _train(settings: Settings, say: Say, watch: Watch | None) -> TrainedAgents:
    """Train to the end, then choose the medium agent among the milestones."""
    with contextlib.closing(GuardedSinks([watch(settings)] if watch else [])) as sink:
        run, passed = _start_run(settings), {}
        pace = ProgressRows(_steps_after(settings, total_iterations(settings)))
        for count in _rounds_between_milestones(total_iterations(settings)):
            run, _ = _run_rounds(run, count)
            passed[int(run.iteration)] = jax.device_get(run.agent)
            step = _steps_after(settings, int(run.iteration))
            say(f"training {settings.title} on {settings.name}: {step:,} of {settings.steps:,}")
            sink.write(pace.row(step, jax.device_get(run.source.tally)))
    run.source.world.close()
    world = make_world(settings, "evaluate", JUDGING_ENVS)
    try:
        return _find_medium_agent(settings, passed, world, say)
    finally:
        world.close()


def _find_medium_agent(
    settings: Settings, passed: dict[int, Agent], world: World, say: Say
) -> TrainedAgents:
    """Evaluate the milestones and choose the medium agent.

    Milestones are evaluated in order, exploring, until one reaches a third of the way from random
    to the expert's return. The medium agent is the evaluated one nearest to that return.
    """

    def score(actor: Any, episodes: int) -> float:
        each = policy_rollouts.episode_returns(
            world, actor, episodes // JUDGING_ENVS, settings.seeds[0]
        )
        return float(each.mean())

    say(f"evaluating the agents over {REFERENCE_EPISODES} episodes")
    expert = passed[max(passed)]
    low = score(policy_rollouts.RandomActor(world), REFERENCE_EPISODES)
    wanted = low + MEDIUM_SHARE * (score(expert, REFERENCE_EPISODES) - low)
    found: dict[int, float] = {}
    for step, agent in passed.items():
        found[step] = score(agent, JUDGING_ENVS * 2)
        if found[step] >= wanted > low:
            break
    medium = min(found, key=lambda step: abs(found[step] - wanted))
    ends = {"medium": passed[medium], "expert": expert}
    scores = {
        kind: score(policy_rollouts.GreedyActor(agent), REFERENCE_EPISODES)
        for kind, agent in ends.items()
    }
    return TrainedAgents(settings, passed[medium], expert, medium, {"random": low, **scores})


def _start_run(settings: Settings) -> Run:
    """Build a run at iteration 0, the same way for training and for repeating it: different
    programs round differently, and a repeated training run must give the same numbers."""
    world = ScoreRecorder(policy_rollouts.require_one_agent(make_world(settings), settings.name))
    return run_builder(settings, world)(jnp.asarray(settings.seeds, jnp.int32), None, True)


def _run_rounds(run: Run, count: int) -> tuple[Run, list[Record]]:
    """Run ``count`` iterations; return the run, and its rollouts if it learns from rollouts."""
    if run.agent.needs.replays:
        return advance_with_visits(run, count), []
    seen = []
    for _ in range(count):
        run, batch = (_compiled_round if run.source.traced else _run_round)(run)
        seen.append(batch)
    return run, seen


def _run_round(run: Run) -> tuple[Run, Record]:
    """Run one iteration, and return the run and the iteration's rollout."""
    run, _, draws = iterate_with_draws(run)
    rows: Any = draws  # of learners from rollouts: the whole rollout
    return run, rows.record


_compiled_round = jax.jit(_run_round)


def _rounds_between_milestones(total: int) -> list[int]:
    """Return the numbers of iterations between milestones."""
    marks = np.unique(np.ceil(np.linspace(0, total, MILESTONES + 1)).astype(int))
    return [int(count) for count in np.diff(marks)]


def _newest_replay_rows(replay: Replay, size: int) -> Record:
    """Return the newest rows of a replay buffer in the order of time, ``(time, env, ...)``."""
    ring = replay.ring
    envs, kept = ring.words.shape[2], int(ring.count)
    count = min(kept, -(-2 * size // envs))  # masked rows are among them
    time = (int(ring.head) - count + np.arange(count)) % ring.rows
    row = jnp.asarray(np.repeat(time, envs).reshape(1, count, envs), jnp.int32)
    env = jnp.broadcast_to(jnp.arange(envs, dtype=jnp.int32), row.shape)
    place = Place.of_all(row, env)
    reward, discount, last, mask = ring.scalars(place)
    following = ring.obs(place.at(jnp.mod(row + 1, ring.rows)))
    record = Record(ring.obs(place), ring.action(place), reward, discount, following, last, mask)
    return jax.tree.map(lambda x: np.asarray(x)[0], record)


def _save_agent(made: TrainedAgents, where: Path, kind: str) -> None:
    """Write one agent as a run folder."""
    settings, agent = made.settings, getattr(made, kind)
    rounds = made.iterations if kind == "medium" else total_iterations(settings)
    step = _steps_after(settings, rounds)
    run_folder.write_config(run_folder.create(where), settings.to_json())
    checkpoint.save(run_folder.checkpoints_path(where), step, {"agent": agent}, {})
    result = {
        "algorithm": settings.title,
        "environment": settings.name,
        "steps": step,
        "seeds": list(settings.seeds),
        "final": {"return": {"per_seed": [made.scores[kind]]}},
        "failed_seeds": [],
        "iterations": rounds,
        "scores": made.scores,
    }
    run_folder.write_result(where, result)


def _load_agents(settings: Settings, home: Path) -> TrainedAgents:
    """Load stored agents; raise Mistake if they were trained with other settings."""
    medium, expert = load(home / "medium"), load(home / "expert")
    if _settings_as_json(expert.settings) != _settings_as_json(settings):
        raise Mistake(
            f"{home} holds agents trained with other settings. Choose another folder with --agents."
        )
    rounds, scores = medium.result["iterations"], expert.result["scores"]
    return TrainedAgents(settings, medium.agent, expert.agent, rounds, scores)


def _settings_as_json(settings: Settings) -> dict[str, Any]:
    """Return the settings as JSON values, as they are read back from a file."""
    return json.loads(json.dumps(settings.to_json(), default=run_folder.json_default))
