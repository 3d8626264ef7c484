"""What a user calls: train, resume, load; and what they get back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sterling import keys
from sterling.report.metrics import MetricsFile
from sterling.statistics import estimate
from sterling.training import checkpoint, folder
from sterling.training.agent import Agent
from sterling.training.evaluate import evaluate
from sterling.training.run import Driver, Sink, restored, stored
from sterling.training.settings import Settings, resolve, warmup_steps
from sterling.training.start import build, make_agent, make_world, remember_programs
from sterling.types import Mistake


class TrainedRun:
    """A run that was trained or loaded: its settings, its agents (one per seed), its result."""

    def __init__(
        self, settings: Settings, agent: Agent, result: dict[str, Any], path: Path | None
    ):
        self.settings, self.agent, self.result, self.path = settings, agent, result, path
        self._world: Any = None

    def __repr__(self) -> str:
        final = self.result.get("final", {}).get("return")
        return f"TrainedRun({self.settings.algorithm}, {self.settings.name}, return={final})"

    def policy(self, obs: Any, seed: int | None = None, explore: bool = False) -> Any:
        """The action for one observation, as a Gymnasium environment takes it.

        ``seed`` chooses which seed's agent acts (default: the first).
        """
        index = self.settings.seeds.index(self.settings.seeds[0] if seed is None else seed)
        count = len(self.settings.seeds)
        batch = jax.tree.map(
            lambda x: jnp.broadcast_to(jnp.asarray(x), (count, 1, *np.shape(x))), obs
        )
        noise = np.random.default_rng().integers(2**31) if explore else 0
        seeds = jnp.asarray(self.settings.seeds, jnp.int32)
        action, _ = self.agent.act(batch, keys.at(seeds, "policy", noise), explore)
        return jax.tree.map(lambda x: np.asarray(x)[index, 0], self._world_units(action))

    def evaluate(self, episodes: int = 20) -> dict[str, Any]:
        """Fresh deterministic episodes: per-seed means and their estimate with interval."""
        world = make_world(self.settings, "evaluate", episodes)
        try:
            seeds = jnp.asarray(self.settings.seeds, jnp.int32)
            scores = evaluate(self.agent, world, seeds)
        finally:
            world.close()
        failed = self.result.get("failed_seeds", [])
        return {"return": _final(scores["return"].mean(1), self.settings.seeds, failed)}

    def _world_units(self, action: Any) -> Any:
        """Actions as the environment itself takes them (agents act in [-1, 1])."""
        if self._world is None:
            self._world = make_world(self.settings, "evaluate", 1)
        scale = getattr(self._world, "to_world", None)
        return scale(action) if scale else action


def train(
    algorithm: str,
    environment: str | Callable[[], Any],
    *,
    steps: int,
    seeds: int | list[int] = 1,
    out: str | Path | None = None,
    sinks: Sequence[Sink] = (),
    **options: Any,
) -> TrainedRun:
    """Train ``algorithm`` on ``environment`` for ``steps`` environment steps per seed.

    Args:
        algorithm: a name from ``sterling list algorithms``.
        environment: a name (EnvPool, gymnax or Gymnasium), or a factory of Gymnasium environments.
        steps: environment steps per seed; the run takes as many whole iterations as fit.
        seeds: how many (0, 1, ...), or which.
        out: run folder to make; without one nothing is written.
        sinks: further takers of metrics rows.
        **options: ``envs`` (parallel environments per seed), ``strategy`` (map, vmap, processes),
            ``preset`` (use the tuned settings for this environment where there are some; default
            True), ``env_options``, ``evaluate_episodes`` (20), ``log_every`` (steps),
            ``checkpoint_minutes`` (5), and every field of the algorithm's Config.

    Raises:
        Mistake: wrong use, in one line.
        SystemExit: code 75 after SIGTERM or Ctrl-C, when the run has been saved.
    """
    names = ("envs", "strategy", "preset", "env_options", "evaluate_episodes", "log_every")
    known = {k: options.pop(k) for k in (*names, "checkpoint_minutes") if k in options}
    remember_programs()
    settings = resolve(algorithm, environment, steps=steps, seeds=seeds, fields=options, **known)
    path = None if out is None else folder.create(Path(out))
    if settings.strategy == "processes":
        from sterling.training.processes import train_apart

        return train_apart(settings, path, sinks)
    driver = Driver(settings, build(settings), path, _with_file(path, sinks))
    if path is not None:
        folder.write_config(path, settings.to_json())
    return _carry_out(driver)


def resume(
    path: str | Path,
    *,
    sinks: Sequence[Sink] = (),
    environment: Callable[[], Any] | None = None,
) -> TrainedRun:
    """Go on with a stopped run from its last checkpoint; a finished one is returned as it is."""
    path = Path(path)
    remember_programs()
    settings = Settings.from_json(folder.read_config(path), environment)
    if folder.read_result(path) is not None:
        return load(path, environment=environment)
    if settings.strategy == "processes":
        from sterling.training.processes import train_apart

        return train_apart(settings, path, sinks)
    with folder.lock(path):
        if checkpoint.latest(folder.checkpoints(path)) is None:
            return _carry_out(Driver(settings, build(settings), path, _with_file(path, sinks, 0)))
        fresh = build(settings, warm=False)
        saved, meta = checkpoint.load(folder.checkpoints(path), stored(fresh))
        driver = Driver(settings, restored(saved, fresh), path, (), meta)
        driver.sinks = _with_file(path, sinks, driver.step)
        return _carry_out(driver)


def load(path: str | Path, *, environment: Callable[[], Any] | None = None) -> TrainedRun:
    """A run's agents and result, from its folder."""
    path = Path(path)
    remember_programs()
    settings = Settings.from_json(folder.read_config(path), environment)
    world = make_world(settings, "evaluate", 1)
    try:
        template = make_agent(settings, world)
    finally:
        world.close()
    agent, _ = checkpoint.load_part(folder.checkpoints(path), "agent", template)
    return TrainedRun(settings, agent, folder.read_result(path) or {}, path)


def _carry_out(driver: Driver) -> TrainedRun:
    """Run to the end, evaluate, write the result."""
    driver.go()
    settings = driver.settings
    run = TrainedRun(settings, driver.run.agent, {}, driver.path)
    run.result = _result(driver)
    if settings.evaluate_episodes and driver.alive.any():
        run.result["final"] = run.evaluate(settings.evaluate_episodes)
    if driver.path is not None:
        from sterling.report.curve import draw

        folder.write_result(driver.path, run.result)
        draw(driver.path)
    for sink in driver.sinks:
        sink.close()
    driver.run.source.world.close()
    return run


def _result(driver: Driver) -> dict[str, Any]:
    """What ``result.json`` says, but for the final evaluation."""
    settings = driver.settings
    learned = (driver.step - warmup_steps(settings)) * len(settings.seeds)
    return {
        "algorithm": settings.algorithm,
        "environment": settings.name,
        "steps": driver.step,
        "seeds": list(settings.seeds),
        "final": {},
        "failed_seeds": [int(seed) for seed in driver.failures],
        "failures": driver.failures,
        "wall_seconds": round(driver.seconds, 3),
        "compile_seconds": round(driver.compile_seconds, 3),
        "steps_per_second": round(learned / max(driver.seconds, 1e-9), 1),
    }


def _final(scores: np.ndarray, seeds: tuple[int, ...], failed: list[int]) -> dict[str, Any]:
    """Per-seed scores and the estimate over the seeds that did not fail."""
    per_seed = [None if s in failed else float(x) for s, x in zip(seeds, scores, strict=True)]
    good = [x for x in per_seed if x is not None]
    return {"per_seed": per_seed, **estimate(good).to_json()}


def _with_file(path: Path | None, sinks: Sequence[Sink], step: int | None = None) -> list[Sink]:
    """The sinks, with the folder's metrics file (cut back to ``step`` when resuming)."""
    if path is None:
        return list(sinks)
    file = MetricsFile(folder.metrics(path))
    if step is not None:
        file.truncate(step)
    return [file, *sinks]


__all__ = ["Mistake", "TrainedRun", "load", "resume", "train"]
