"""Train PPO in one world, then in another of the same spaces: what of the first is forgotten.

    python benchmarks/continual/run.py        # two minutes on two cores

Writes benchmarks/results/continual.json. The second phase is made here by hand, of what a run is:
the agents and the counters go over, and only the source of experience is another one.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import jax.numpy as jnp

from sterling.envs.classic import CartPole
from sterling.statistics import estimate
from sterling.training.judge import Judge
from sterling.training.loop import Run, advance
from sterling.training.phases import iterations
from sterling.training.settings import Settings, resolve
from sterling.training.start import beginning, make_world

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))

from benchmarks import evidence  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "continual.json"
SEEDS, STEPS, EPISODES = 5, 60_000, 20  # steps of each phase
FIELDS = {
    **{"length": 32, "minibatch": 256, "epochs": 20, "gae_lambda": 0.8, "gamma": 0.98},
    **{"lr": 1e-3, "anneal": False, "normalise_obs": False, "normalise_reward": False},
}


class Weak(CartPole):
    """A pole of twice the length, and a third of the force."""

    half_length, force = 1.0, 3.0


def first() -> CartPole:
    """The cart pole as it is known."""
    return CartPole()


def second() -> CartPole:
    """The other one."""
    return Weak()


def phased(seeds: Any) -> list[dict[str, list[float]]]:
    """Return each seed's mean return in both worlds: before, after the first phase, and after the
    second."""
    both = {"first": asked(first, seeds), "second": asked(second, seeds)}
    found, run = [], None
    judges = {name: Judge(settings, EPISODES) for name, settings in both.items()}
    for settings in both.values():
        run = begun(settings, run)
        found += [judged(judges, run)] if not found else []
        run, _ = advance(run, iterations(settings))
        found.append(judged(judges, run))
        run.source.close()
    return found


def asked(world: Any, seeds: Any) -> Settings:
    """Return the settings of one phase."""
    how = {"steps": STEPS, "seeds": seeds, "envs": 8, "env_options": {"max_episode_steps": 500}}
    return resolve("ppo", world, preset=False, fields=FIELDS, **how)


def begun(settings: Settings, before: Run | None) -> Run:
    """Return a run at its beginning, or where another one goes on in this world."""
    seeds = jnp.asarray(settings.seeds, jnp.int32)
    fresh: Run = beginning(settings, make_world(settings))(seeds, None, True)
    if before is None:
        return fresh
    return Run(before.agent, fresh.source, before.seeds, before.iteration)


def judged(judges: dict[str, Judge], run: Run) -> dict[str, list[float]]:
    """Return each seed's mean return in every world."""
    return {name: judge(run.agent)["return"].mean(1).tolist() for name, judge in judges.items()}


def main() -> None:
    """Write the results."""
    begun_at, seeds = evidence.begin(), list(range(SEEDS))
    stages = phased(seeds)
    names = ("before", "after first", "after second")
    found: dict[str, Any] = {"steps": STEPS, "episodes": EPISODES, "fields": FIELDS}
    for name, stage in zip(names, stages, strict=True):
        found[name] = {
            world: {"per_seed": each, **estimate(each).to_json()} for world, each in stage.items()
        }
    lost = [a - b for a, b in zip(stages[1]["first"], stages[2]["first"], strict=True)]
    found["forgotten"] = {"per_seed": lost, **estimate(lost).to_json()}
    evidence.write(RESULTS, found, begun_at, seeds)


if __name__ == "__main__":
    main()
