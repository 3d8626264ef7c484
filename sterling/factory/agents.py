"""Agents to make data with: one training gives the expert and, on its way, the medium agent.

    <agents>/<algorithm>-<environment>-<steps>-<seed>/expert   run folders, for ``sterling
                                                      medium    evaluate`` and ``play`` too

Training can be lived through again up to any point, number by number, which is how the replay
qualities are made without keeping what may be gigabytes of pictures.
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

from sterling.envs.registry import find
from sterling.experience.replay import Replay
from sterling.experience.storage import Place
from sterling.factory import rollouts
from sterling.factory.counted import Counted
from sterling.factory.pace import Pace
from sterling.leaving import saying
from sterling.report.guarded import Guarded
from sterling.report.metrics import Sink
from sterling.training import checkpoint, folder
from sterling.training.agent import Agent
from sterling.training.loop import Run, lived
from sterling.training.phases import iteration_steps, iterations, warmup_steps
from sterling.training.programs import remember_programs
from sterling.training.settings import Settings, resolve
from sterling.training.start import beginning, make_world
from sterling.training.trained import load
from sterling.training.visits import live
from sterling.types import Mistake, Record, World

MILESTONES = 50  # agents that are looked at for the medium one
MEDIUM = 1 / 3  # of the way from a random policy's score to the expert's
TRIAL = 10  # envs in which agents are judged; a milestone by two episodes of each
REFERENCE = 100  # episodes of each reference score
LOST = "stopped; nothing of the training is kept: the same command begins it anew"
Say = Callable[[str], None]
Watch = Callable[[Settings], Sink]


@dataclasses.dataclass(frozen=True)
class Trained:
    """The agents of one training."""

    settings: Settings
    medium: Agent
    expert: Agent
    iterations: int  # collect-and-learn rounds until the medium agent
    scores: dict[str, float]  # mean returns of random, medium, expert; the last two not exploring


def settings_of(
    environment: str, algorithm: str, steps: int, seed: int, env_options: dict[str, Any]
) -> Settings:
    """What is trained; raises Mistake for names and numbers that cannot be."""
    find(environment)
    return resolve(algorithm, environment, steps=steps, seeds=[seed], env_options=env_options)


def obtain(settings: Settings, where: Path, say: Say, watch: Watch | None = None) -> Trained:
    """The agents kept under ``where``; trained now, and kept, where there are none. ``watch``, with
    what is trained, gives a sink for the rows of a training."""
    name = settings.name.replace("/", "-").replace(":", "-")
    home = where / f"{settings.title}-{name}-{settings.steps}-{settings.seeds[0]}"
    if folder.read_result(home / "expert") is not None:
        return _kept(settings, home)
    remember_programs()
    with saying(LOST):
        made = _train(settings, say, watch)
    partial = home.with_name(f".{home.name}.partial-{os.getpid()}")
    try:
        for kind in ("medium", "expert"):
            _keep(made, partial / kind, kind)
        if not home.exists():  # another process may have been as quick
            partial.rename(home)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return _kept(settings, home)


def relive(trained: Trained, until: int, size: int, say: Say) -> tuple[Record, World]:
    """The newest ``size`` rows, or a few more, of the first ``until`` rounds of training, as
    ``(time, env, ...)``, and the world they were lived in. Rewards are those that scores count,
    also where others were learned from. What an actor recorded besides is there where the
    algorithm learns from rollouts."""
    settings = trained.settings
    run, total = _begun(settings), iterations(settings)
    recent: list[Record] = []
    for count in _chunks(total):
        left = until - int(run.iteration)
        if not left:
            break
        run, seen = _live(run, min(count, left))
        recent += [jax.tree.map(lambda x: np.asarray(x)[0], one) for one in seen]
        while sum(int(one.mask.sum()) for one in recent[1:]) >= size:
            recent.pop(0)
        say(f"living through {_steps(settings, int(run.iteration)):,} steps again")
    world = run.source.world
    is_replay = run.agent.needs.replays
    rows = _remembered(run.source, size) if is_replay else rollouts.joined(recent)
    return world.of(rows), world


def policy_hash(agent: Agent) -> str:
    """SHA-256 of everything an agent knows."""
    digest = hashlib.sha256()
    for path, leaf in jax.tree_util.tree_leaves_with_path(agent.state):
        array = np.asarray(leaf)
        digest.update(f"{jax.tree_util.keystr(path)} {array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def rounds(settings: Settings) -> int:
    """Collect-and-learn rounds of the whole training."""
    return iterations(settings)


def steps_of(trained: Trained) -> int:
    """Environment steps that the medium agent has learned from."""
    return _steps(trained.settings, trained.iterations)


def _steps(settings: Settings, rounds: int) -> int:
    return warmup_steps(settings) + rounds * iteration_steps(settings)


def _train(settings: Settings, say: Say, watch: Watch | None) -> Trained:
    """Train to the end, then find the medium agent among the milestones."""
    with contextlib.closing(Guarded([watch(settings)] if watch else [])) as sink:
        run, passed = _begun(settings), {}
        pace = Pace(_steps(settings, iterations(settings)))
        for count in _chunks(iterations(settings)):
            run, _ = _live(run, count)
            passed[int(run.iteration)] = jax.device_get(run.agent)
            step = _steps(settings, int(run.iteration))
            say(f"training {settings.title} on {settings.name}: {step:,} of {settings.steps:,}")
            sink.write(pace.row(step, jax.device_get(run.source.tally)))
    run.source.world.close()
    world = make_world(settings, "evaluate", TRIAL)
    try:
        return _judged(settings, passed, world, say)
    finally:
        world.close()


def _judged(settings: Settings, passed: dict[int, Agent], world: World, say: Say) -> Trained:
    """The medium agent is, of those until the first that is a third of the way to the expert's
    return while exploring, the one nearest to it."""

    def score(actor: Any, episodes: int) -> float:
        each = rollouts.returns(world, actor, episodes // TRIAL, settings.seeds[0])
        return float(each.mean())

    say(f"judging the agents over {REFERENCE} episodes")
    expert = passed[max(passed)]
    low = score(rollouts.Chance(world), REFERENCE)
    wanted = low + MEDIUM * (score(expert, REFERENCE) - low)
    found: dict[int, float] = {}
    for step, agent in passed.items():
        found[step] = score(agent, TRIAL * 2)
        if found[step] >= wanted > low:
            break
    medium = min(found, key=lambda step: abs(found[step] - wanted))
    ends = {"medium": passed[medium], "expert": expert}
    scores = {kind: score(rollouts.Best(agent), REFERENCE) for kind, agent in ends.items()}
    return Trained(settings, passed[medium], expert, medium, {"random": low, **scores})


def _begun(settings: Settings) -> Run:
    """A run at iteration 0. It is begun alike to be trained and to be lived through again: programs
    that differ round differently, and a training that is lived again must be the same."""
    world = Counted(make_world(settings))
    return beginning(settings, world)(jnp.asarray(settings.seeds, jnp.int32), None, True)


def _live(run: Run, count: int) -> tuple[Run, list[Record]]:
    """So many rounds, and what was lived in them where that is what was learned from."""
    if run.agent.needs.replays:
        return live(run, count), []
    seen = []
    for _ in range(count):
        run, batch = (_compiled_round if run.source.traced else _round)(run)
        seen.append(batch)
    return run, seen


def _round(run: Run) -> tuple[Run, Record]:
    """One collect-and-learn round, and its rollout."""
    run, _, draws = lived(run)
    rows: Any = draws  # of rollouts: all that was lived
    return run, rows.record


_compiled_round = jax.jit(_round)


def _chunks(total: int) -> list[int]:
    """Rounds between milestones."""
    marks = np.unique(np.ceil(np.linspace(0, total, MILESTONES + 1)).astype(int))
    return [int(count) for count in np.diff(marks)]


def _remembered(replay: Replay, size: int) -> Record:
    """The newest rows of a replay in the order in which they were lived, ``(time, env, ...)``."""
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


def _keep(made: Trained, where: Path, kind: str) -> None:
    """Write one agent as a run folder."""
    settings, agent = made.settings, getattr(made, kind)
    rounds = made.iterations if kind == "medium" else iterations(settings)
    step = _steps(settings, rounds)
    folder.write_config(folder.create(where), settings.to_json())
    checkpoint.save(folder.checkpoints(where), step, {"agent": agent}, {})
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
    folder.write_result(where, result)


def _kept(settings: Settings, home: Path) -> Trained:
    """Read the agents; raises Mistake where they were trained otherwise."""
    medium, expert = load(home / "medium"), load(home / "expert")
    if _plain(expert.settings) != _plain(settings):
        raise Mistake(f"{home} holds agents with other settings; choose another --agents")
    rounds, scores = medium.result["iterations"], expert.result["scores"]
    return Trained(settings, medium.agent, expert.agent, rounds, scores)


def _plain(settings: Settings) -> dict[str, Any]:
    """As it is read back from a file."""
    return json.loads(json.dumps(settings.to_json(), default=folder.plain))
