"""How far the thresholds of learning tests lie from what 20 seeds reach.

A test that trains and asserts a score holds on every machine only if its threshold is out of luck's
reach: at least 3 standard deviations from the mean over 20 seeds, and beyond the worst of them.

    python checks/learning_margins.py                # all tests that can be measured, in this order
    python checks/learning_margins.py ppo-limits     # these, by name
    python checks/learning_margins.py --list         # names

Every measurement replaces its row of learning_margins.md. Rows without numbers are not measured
yet. The settings are those of the tests, with more seeds; these are trained in one run, as there.
"""

# ruff: noqa: E402  (the tests' folder is put on the path, and JAX told where to run, before)
from __future__ import annotations

import argparse
import dataclasses
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")
ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "contract")]

import jax
import jax.numpy as jnp
import numpy as np

SEEDS = 20
LEAST_MARGIN = 3.0  # standard deviations
TABLE = Path(__file__).with_suffix(".md")
HEAD = """# Margins of learning tests

Written by `python checks/learning_margins.py`: {seeds} seeds with a test's settings. "Error" is the
largest deviation of a value or an action from the known one, as a share of what the test allows. A
margin is the distance of the threshold from the mean, in standard deviations over seeds; it must be
at least {least:g}, and no seed may reach the threshold. "?": not measured yet.

| name | test | asserts | seeds in the test | mean | sd | worst | margin | holds |
|---|---|---|---|---|---|---|---|---|
"""


@dataclasses.dataclass(frozen=True)
class LearningTest:
    """A test, what it asserts of every seed (``sense`` -1: below the threshold), and what gives
    this number for as many seeds as asked; None if that is not written yet."""

    name: str
    test: str
    what: str
    threshold: float
    sense: int
    seeds: int
    measure: Callable[[int], np.ndarray] | None = None

    def row(self, found: np.ndarray | None) -> str:
        """Return the test's row of the table."""
        asserts = f"{self.what} {'<' if self.sense < 0 else '>'} {self.threshold:g}"
        first = f"| {self.name} | {self.test} | {asserts} | {self.seeds}"
        if found is None:
            return f"{first} | ? | ? | ? | ? | ? |"
        away = self.sense * (np.asarray(found, float) - self.threshold)
        spread = float(np.std(found, ddof=1))
        margin = float(np.mean(away)) / spread if spread else np.inf
        holds = "yes" if margin >= LEAST_MARGIN and away.min() > 0.0 else "NO"
        worst = self.threshold + self.sense * away.min()
        numbers = (f"{x:.3g}" for x in (np.mean(found), spread, worst, margin))
        return f"{first} | {' | '.join(numbers)} | {holds} |"


def probe_errors(algorithm: str, world: str, seeds: int) -> np.ndarray:
    """Return every seed's largest error in a probe world, as ``test_probe_world_is_solved``
    allows it."""
    from cases import CASES
    from test_probes import actions

    import sterling
    from sterling.envs.probes.probe_worlds import make_probe

    case = CASES[algorithm]
    with tempfile.TemporaryDirectory() as folder:
        steps = case.steps or case.updates * case.envs
        budget = case.budget(world, steps, Path(folder))
        run = sterling.train(
            algorithm, f"probe:{world}", **budget, envs=case.envs, seeds=seeds, evaluate_episodes=0,
            preset=False, **case.fields,
        )  # fmt: skip
    answer = make_probe(world).solution(case.fields.get("gamma", 0.8))
    obs, errors = jax.tree.map(jnp.asarray, answer.obs), np.zeros(seeds)
    if hasattr(run.agent.algorithm, "value"):
        value = np.asarray(jax.vmap(lambda s: run.agent.algorithm.value(s, obs))(run.agent.state))
        allowed = 0.1 * max(1.0, np.abs(answer.value).max())
        off = np.abs(value - answer.value) / allowed
        errors = np.maximum(errors, off.reshape(seeds, -1).max(1))
    if answer.action is not None:
        done = [list(actions(run.player(seed), answer.obs)) for seed in range(seeds)]
        off = np.abs(np.asarray(done, float) - np.asarray(answer.action, float)) / 0.2
        errors = np.maximum(errors, off.reshape(seeds, -1).max(1))
    return errors


def turn_errors(algorithm: str, seeds: int) -> np.ndarray:
    """Return every seed's largest error of a value in ``test_what_the_other_side_gains_is_lost``;
    a wrong action counts 10."""
    from cases import CASES
    from test_probes import actions

    import sterling
    from sterling.envs.probes.turn_probe import TurnProbe

    case = CASES[algorithm]
    run = sterling.train(
        algorithm, "probe:turns", steps=case.steps, envs=case.envs, seeds=seeds,
        evaluate_episodes=0, preset=False, **{**case.fields, "gamma": 0.8},
    )  # fmt: skip
    obs, value, best = TurnProbe().solution(0.8)
    found = jax.vmap(lambda state: run.agent.algorithm.value(state, jnp.asarray(obs)))
    errors = np.abs(np.asarray(found(run.agent.state))[:, :2] - value[:2]).max(1) / 0.1
    right = [list(actions(run.player(seed), obs[:2])) == best[:2] for seed in range(seeds)]
    return np.where(right, errors, 10.0)


def cloned_returns(top: float, seeds: int) -> np.ndarray:
    """Return every seed's return in ``test_only_the_best_episodes``."""
    import logs

    import sterling

    world = "both-continuous"
    with tempfile.TemporaryDirectory() as folder:
        data = logs.write(world, False, Path(folder))
        result = sterling.train(
            "bc", f"probe:{world}", data=data, updates=600, width=16, batch=64, lr=3e-3,
            seeds=seeds, **({} if top == 1.0 else {"top": top}),
        ).result  # fmt: skip
    return np.asarray(result["final"]["return"]["per_seed"])


def probe(algorithm: str, world: str) -> LearningTest:
    """Return the row of one algorithm in one probe world."""
    return LearningTest(
        f"{algorithm}-{world}", "contract/test_probes.py::test_probe_world_is_solved", "error", 1.0,
        -1, 2, lambda seeds: probe_errors(algorithm, world, seeds),
    )  # fmt: skip


def turns(algorithm: str) -> LearningTest:
    """Return the row of one algorithm in the world of two sides."""
    test = "contract/test_probes.py::test_what_the_other_side_gains_is_lost"
    measure = lambda seeds: turn_errors(algorithm, seeds)  # noqa: E731
    return LearningTest(f"{algorithm}-turns", test, "error", 1.0, -1, 2, measure)


PROBES, LOG = (
    "contract/test_probes.py::",
    "training/test_offline_to_online.py::test_only_the_best_episodes",
)
LEVELS = "contract/test_level_probe.py::test_the_known_answers_are_reached_in_every_level"
OBJECTIVES = "contract/test_objectives_probe.py::test_every_preference_gets_what_is_best_for_it"
TESTS = [  # those that make test runs
    *(probe("bc", "both-continuous"), probe("ppo", "limits"), probe("dqn", "limits")),
    *(turns("ppo"), turns("dqn"), probe("sac", "both-continuous")),
    *(probe("iql", "both-continuous"), probe("openes", "both-continuous")),
    probe("ippo", "both-continuous-team"),
    LearningTest(
        "recurrent-ppo-paid-continuous",
        f"{PROBES}test_what_was_seen_first_is_remembered", "error", 1.0, -1, 2,
    ),
    LearningTest(
        "ppo-lagrangian-continuous",
        f"{PROBES}test_a_limit_is_met_and_no_more_is_given_up_than_it_asks", "error", 1.0, -1, 2,
    ),
    LearningTest("ppo-levels-continuous", LEVELS, "error", 1.0, -1, 2),
    LearningTest("dqn-levels", LEVELS, "error", 1.0, -1, 2),
    LearningTest("ppo-objectives-continuous", OBJECTIVES, "error", 1.0, -1, 2),
    LearningTest("dqn-objectives", OBJECTIVES, "error", 1.0, -1, 2),
    LearningTest("bc-top", LOG, "return", 0.95, 1, 1, lambda seeds: cloned_returns(0.1, seeds)),
    LearningTest("bc-whole", LOG, "return", 0.95, -1, 1, lambda seeds: cloned_returns(1.0, seeds)),
]  # fmt: skip


def known_rows() -> dict[str, str]:
    """Return the rows that the table has, by the name of the test."""
    lines = TABLE.read_text().splitlines() if TABLE.exists() else []
    return {line.split("|")[1].strip(): line for line in lines if line.startswith("| ")}


def main() -> None:
    """Measure, row by row, and keep what was known of the others."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--list", action="store_true", help="print the names and end")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    chosen = parser.parse_args()
    if chosen.list:
        print("\n".join(each.name for each in TESTS))
        return
    if unknown := set(chosen.names) - {each.name for each in TESTS}:
        parser.error(f"unknown names: {', '.join(sorted(unknown))}. See --list")
    for each in TESTS:
        if each.measure is not None and (not chosen.names or each.name in chosen.names):
            write_table({each.name: each.row(each.measure(chosen.seeds))})


def write_table(new: dict[str, str]) -> None:
    """Replace rows of the table, and print them."""
    rows = known_rows() | new
    lines = [rows.get(each.name, each.row(None)) for each in TESTS]
    TABLE.write_text(HEAD.format(seeds=SEEDS, least=LEAST_MARGIN) + "\n".join(lines) + "\n")
    print("\n".join(new.values()), flush=True)


if __name__ == "__main__":
    main()
