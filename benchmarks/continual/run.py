"""Train PPO in one world, then in another of the same spaces: what of the first is forgotten.

    python benchmarks/continual/run.py        # two minutes on two cores

Writes benchmarks/results/continual.json.
"""

from __future__ import annotations

import sys
from pathlib import Path

import sterling
from sterling.envs.native.classic_control import CartPole

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


def main() -> None:
    """Write the results."""
    begun, seeds = evidence.begin(), list(range(SEEDS))
    how = {"seeds": seeds, "envs": 8, "preset": False, "evaluate_episodes": EPISODES}
    how["return_within"] = (0.0, 500.0)
    options = {"max_episode_steps": 500}
    following = {"steps": STEPS, "environment": second, "env_options": options}
    run = sterling.train(
        "ppo", first, steps=STEPS, then=following, env_options=options, **how, **FIELDS
    )
    found = {"steps": STEPS, "episodes": EPISODES, "fields": FIELDS}
    found |= {name: run.result[name] for name in ("phases", "forgotten")}
    evidence.write(RESULTS, found, begun, seeds)


if __name__ == "__main__":
    main()
