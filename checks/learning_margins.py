"""How far what tests of learning assert lies from what 20 seeds reach.

A test that trains and asserts a score holds on every machine only if its threshold is out of luck's
reach: at least 3 standard deviations from the mean over seeds, and beyond the worst of them.

    python checks/learning_margins.py                # the tests that make test runs, in this order
    python checks/learning_margins.py paid gcivl     # those with one of these words
    python checks/learning_margins.py --list

Each test runs as it stands, again and again with other seeds; it stops at no assertion about
numbers, which are noted instead. Every measurement replaces its row of learning_margins.md.
"""

# ruff: noqa: E402  (the repository is put on the path before)
from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import numpy as np
import pytest

SEEDS = 20
LEAST_MARGIN = 3.0  # standard deviations
TABLE = Path(__file__).with_suffix(".md")
PROBES = "tests/contract/test_probes.py"
SOLVED = f"{PROBES}::test_probe_values_and_actions_are_solved_by_every_algorithm"
TESTS = (  # those that make test runs
    *(f"{SOLVED}[{case}]" for case in ("ppo-limits", "dqn-limits", "iql-both-continuous")),
    *(f"{SOLVED}[{case}]" for case in ("openes-both-continuous", "ippo-both-continuous-team")),
    f"{PROBES}::test_zero_sum_return_alternates_sign_in_the_turn_probe[dqn]",
    f"{PROBES}::test_recurrent_algorithms_solve_the_memory_probe[recurrent-ppo-paid-continuous]",
    f"{PROBES}::test_safe_algorithms_meet_the_cost_limit_with_the_best_return"
    "[-continuous-ppo-lagrangian]",
    "tests/contract/test_objectives_probe.py::test_objectives_probe_is_solved_for_every_preference"
    "[ppo-objectives-continuous]",
    "tests/contract/test_goal_logs.py::test_the_way_to_any_goal_is_learned_from_chance[gcivl-]",
    "tests/training/test_offline_to_online.py::test_bc_with_top_trains_on_the_best_episodes_only",
)
HEAD = f"""# Margins of tests of learning

Written by `python checks/learning_margins.py`: {SEEDS} seeds with a test's settings, as many a run
as in the test. "Room" is the distance of a number from where its assertion would fail, as a share
of what is allowed; of each run, the least one of all its seeds and assertions about numbers. The
margin is its mean in standard deviations over the runs: it must be at least {LEAST_MARGIN:g}, and
no run's room may be 0 or less. "Other failures" counts the runs that failed another assertion.

| test | runs x seeds | mean room | sd | least | margin | other failures | holds |
|---|---|---|---|---|---|---|---|
"""


class Runs:
    """Plugin of pytest: a test runs with one set of seeds after another, and fails for none."""

    def __init__(self) -> None:
        self.seeds_each = 1
        self.rooms: list[float] = []  # the least one of each run
        self.failures = 0

    @pytest.hookimpl(tryfirst=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> bool:
        """Run the test in place of pytest, until ``SEEDS`` seeds have been trained."""
        wanted = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
        number = 0
        while number * self.seeds_each < SEEDS:
            if "tmp_path" in wanted:
                wanted["tmp_path"] = pyfuncitem.funcargs["tmp_path"] / str(number)
                wanted["tmp_path"].mkdir()
            self.rooms.append(np.inf)
            with self._other_seeds(number), self._noted_rooms():
                try:
                    pyfuncitem.obj(**wanted)
                except AssertionError as failure:
                    self.failures += 1
                    print(f"run {number}: {str(failure).strip().splitlines()[0]}", flush=True)
            number += 1
        return True

    @contextmanager
    def _other_seeds(self, number: int) -> Iterator[None]:
        """While entered, training takes the seeds of this run of the test."""
        import sterling
        from sterling.training.trained_run import TrainedRun

        train, player = sterling.train, TrainedRun.player

        def train_others(*args: Any, seeds: int = 1, **fields: Any) -> TrainedRun:
            self.seeds_each = seeds
            others = [number * seeds + seed for seed in range(seeds)]
            return train(*args, seeds=others, **fields)

        def player_at(run: TrainedRun, seed: int = 0, explore: bool = False) -> Any:
            return player(run, run.settings.seeds[seed], explore)

        with mock.patch.object(sterling, "train", train_others), \
                mock.patch.object(TrainedRun, "player", player_at):  # fmt: skip
            yield

    @contextmanager
    def _noted_rooms(self) -> Iterator[None]:
        """While entered, assertions about numbers note the room that they had, and hold."""

        def note(room: Any) -> None:
            self.rooms[-1] = min(self.rooms[-1], float(np.min(room)))

        def close(actual: Any, desired: Any, *, atol: float, err_msg: str = "") -> None:
            note(1.0 - np.abs(np.asarray(actual, float) - np.asarray(desired, float)) / atol)

        def less(smaller: Any, larger: Any) -> None:
            note(np.asarray(larger, float) - np.asarray(smaller, float))

        with mock.patch.object(np.testing, "assert_allclose", close), \
                mock.patch.object(np.testing, "assert_array_less", less):  # fmt: skip
            yield

    def row(self, test: str) -> str:
        """Return the test's row of the table."""
        mean, sd, least = np.mean(self.rooms), np.std(self.rooms, ddof=1), min(self.rooms)
        margin = mean / sd if sd else np.inf
        holds = margin >= LEAST_MARGIN and least > 0.0 and not self.failures
        numbers = " | ".join(f"{x:.3g}" for x in (mean, sd, least, margin))
        runs = f"{len(self.rooms)} x {self.seeds_each}"
        return f"| {test} | {runs} | {numbers} | {self.failures} | {'yes' if holds else 'NO'} |"


def known_rows() -> dict[str, str]:
    """Return the rows that the table has, by test."""
    lines = TABLE.read_text().splitlines() if TABLE.exists() else []
    return {line.split("|")[1].strip(): line for line in lines if line.startswith("| tests/")}


def measure(test: str) -> str:
    """Run one test with other seeds, and return its row of the table."""
    runs = Runs()
    code = pytest.main([test, "-n", "0", "-s", "--timeout", "3600"], plugins=[runs])
    if code != 0 or not runs.rooms:
        raise SystemExit(f"{test} did not run")
    return runs.row(test)


def main() -> None:
    """Measure, test by test, and keep what was known of the others."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("words", nargs="*")
    parser.add_argument("--list", action="store_true", help="print the tests and end")
    chosen = parser.parse_args()
    asked = [x for x in TESTS if not chosen.words or any(word in x for word in chosen.words)]
    if chosen.list or not asked:
        print("\n".join(asked or ["no test has one of these words; see --list"]))
        return
    os.chdir(ROOT)
    for test in asked:
        rows = known_rows() | {test: measure(test)}
        TABLE.write_text(HEAD + "\n".join(rows[x] for x in TESTS if x in rows) + "\n")
        print(rows[test], flush=True)


if __name__ == "__main__":
    main()
