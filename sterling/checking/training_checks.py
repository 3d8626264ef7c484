"""Checks of whole runs of an algorithm on the probes, whose answers are known."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import os
import signal
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sterling.checking.problems.checked_problem import Problem
from sterling.checking.review_findings import Check, CheckFailed, NotChecked, leave_out
from sterling.checking.state_differences import ROUNDING, StateDifference, state_difference
from sterling.envs.probes.probe_worlds import ProbeState, make_probe
from sterling.needs.feed import FRESH
from sterling.training.api import resume, train

PROBE_KINDS = ("both", "limits", "constant", "observation", "delay", "action", "cut")
ACTION_PROBES = ("both", "action")  # those that are about actions, too
CONTINUOUS = "-continuous"  # ends the names of probes with continuous actions
PROBE_TOPICS = {  # what each probe is about
    "constant": "the value of one constant reward",
    "observation": "values that depend on observations",
    "delay": "discounting over one step",
    "action": "policies that prefer the better action",
    "both": "policies that use observations",
    "cut": "truncation bootstraps",
    "limits": "ends separated from truncations",
}
STEPS = {"rollouts": 40_000, "replay": 12_000}  # enough to solve a probe
ACTION_SAMPLES = 1_000  # samples to estimate an exploring policy's mean reward


class TrainingRuns:
    """Trains one algorithm with small settings, on a problem and on the probes."""

    def __init__(self, problem: Problem, needs: Any):
        self.problem, self.fields = problem, problem.fields
        self.learner = needs.feeds[0].learner
        self.steps = STEPS["rollouts" if needs.has_feed(FRESH) else "replay"]

    @property
    def continuous(self) -> bool:
        """Whether the problem is a probe with continuous actions."""
        return str(self.problem.options.get("environment")).endswith(CONTINUOUS)

    def train_probe(self, world: str, seeds: Any) -> Any:
        """Train on a probe until it should be solved."""
        options = {**self.problem.options, "environment": f"probe:{world}"}
        problem = dataclasses.replace(self.problem, options=options)
        return train(**problem.arguments(self.steps, seeds=seeds, quiet=True))

    def train_short(self, budget: int, seeds: Any, **how: Any) -> Any:
        """Train on the problem for a few iterations."""
        return train(**self.problem.arguments(budget, seeds=seeds, quiet=True, **how))


def comparison_checks(runs: TrainingRuns, algorithm: Any) -> Iterator[Check]:
    """Yield the checks of short runs that must be equal."""
    code = getattr(algorithm, runs.learner)
    yield "a seed alone equals the same seed among several", lambda: _check_seed_alone(runs), code
    yield (
        "a stopped and resumed run equals an uninterrupted one",
        lambda: _check_resumed(runs),
        code,
    )


def answer_checks(runs: TrainingRuns, algorithm: Any, quick: bool) -> Iterator[Check]:
    """Yield the checks of runs on the probes, with the kind of actions that the problem, one of
    them, has; ``quick`` leaves out most."""
    code = getattr(algorithm, runs.learner)
    kinds = PROBE_KINDS if _has_values(algorithm) else ACTION_PROBES  # the others are about values
    for kind in kinds:
        name = kind + CONTINUOUS * runs.continuous
        what = f"it solves probe:{name} ({PROBE_TOPICS[kind]})"
        if quick and kind != PROBE_KINDS[0]:
            yield what, leave_out, code
        else:
            yield what, partial(_check_solves, runs, name), code


def _check_seed_alone(runs: TrainingRuns) -> str:
    budget, unit = runs.problem.short_run(), runs.problem.budget
    after, rounds = f"after {budget} {unit}{runs.problem.late_feed()}", _rounds()
    together, apart = _compare_alone(runs, budget)
    if apart is None:
        return f"bit for bit, {after}"
    if rounds and apart.is_within(ROUNDING):
        return f"but for rounding, {after}: {apart}; {rounds}"
    if apart.whole or np.isinf(apart.size):
        raise _depends_on_others("when seed 0 is trained beside it", apart, rounds)
    # XLA compiles a single seed otherwise, but two and three seeds alike. In [1, 2, 3] all that the
    # state of seed 1 could take from outside differs from [0, 1]: its place, the seed before it,
    # the one after it, the first, the last, and the number of seeds. [2, 1] has the same place and
    # number. A third seed adds half the time of this run, which few algorithms need.
    elsewhere = _states_of_runs(runs, budget, [1, 2, 3])
    beside = state_difference(together, elsewhere, lambda two, three: (two[1], three[0]))
    if beside is not None and not (rounds and beside.is_within(ROUNDING)):
        when = "when seeds 2 and 3 are trained beside it in place of seed 0"
        raise _depends_on_others(when, beside, rounds)
    # Updates make rounding larger without a bound: Adam divides gradients that are nothing but
    # rounding by their own size, and a sample changes. So its size is judged before they do.
    begun = runs.problem.first_updates()
    early = _compare_alone(runs, begun)[1]
    if early is not None and not early.is_within(ROUNDING):
        when = f"when seed 0 is trained beside it, already after {begun} {unit}"
        raise _depends_on_others(when, early, rounds)
    held = "bit for bit" if beside is None else f"but for rounding ({beside}; {rounds})"
    return (
        f"{held} beside other seeds, {after}; alone XLA rounds it otherwise: after {begun} {unit} "
        f"{early or 'bit for bit'}; after {budget} {apart}"
    )


def _compare_alone(runs: TrainingRuns, budget: int) -> tuple[Any, StateDifference | None]:
    """Return the states of seeds 0 and 1, and how seed 1's differs from that of seed 1 alone."""
    together, alone = (_states_of_runs(runs, budget, seeds) for seeds in ([0, 1], [1]))
    return together, state_difference(together, alone, lambda many, one: (many[1], one[0]))


def _states_of_runs(runs: TrainingRuns, budget: int, seeds: list[int]) -> Any:
    """Return the states after a short run, one seed after another, with a leading seed axis."""
    return runs.train_short(budget, seeds, strategy="map").agent.state


def _depends_on_others(when: str, apart: StateDifference, rounds: str) -> CheckFailed:
    """Return the failure of a state that depends on the seeds trained beside it."""
    remedy = "write the algorithm for one seed; keep nothing outside its state"
    return CheckFailed(
        f"the state of seed 1 differs {when}: {apart}",
        f"{remedy}. As {rounds}, check again without it" if rounds else remedy,
    )


def _rounds() -> str:
    """Return why the number of seeds may change how each is rounded, "" if it may not, but for one
    seed alone: XLA's own programs for CPUs, as users' runs have them, round two and three alike."""
    if flags := os.environ.get("XLA_FLAGS", "").strip():
        return f"XLA_FLAGS={flags} may round one seed otherwise than two"
    backend = jax.default_backend()
    return "" if backend == "cpu" else f"a {backend} may round one seed otherwise than two"


class _StoppingSink:
    """A sink that stops the run at its second row, by a SIGTERM."""

    def __init__(self) -> None:
        self.rows = 0

    def write(self, row: Any) -> None:
        """Count the rows."""
        self.rows += 1
        if self.rows == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    def close(self) -> None:
        """No-op: there is nothing to release."""


def _check_resumed(runs: TrainingRuns) -> str:
    budget = runs.problem.short_run()
    how = {"log_every": max(budget // 6, 1)}
    with tempfile.TemporaryDirectory() as folder, open(os.devnull, "w") as nowhere:
        stopped = Path(folder, "broken")
        whole = runs.train_short(budget, 1, out=Path(folder, "whole"), **how)
        with contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
            try:
                runs.train_short(budget, 1, out=stopped, sinks=[_StoppingSink()], **how)
            except SystemExit:
                pass
            else:
                raise NotChecked("the run ended before it could be stopped")
            resumed = resume(stopped, quiet=True, **runs.problem.objects())
    if apart := state_difference(whole.agent.state, resumed.agent.state):
        raise CheckFailed(
            f"the state differs after resuming: {apart}",
            "keep everything that changes in the state, as arrays",
        )
    return "bit for bit"


def _check_solves(runs: TrainingRuns, world: str) -> str:
    run = runs.train_probe(world, 2)
    if run.result["failed_seeds"]:
        raise CheckFailed(
            "it diverges: numbers become NaN", "check the losses, or try a smaller lr"
        )
    answer = make_probe(world).solution(float(runs.fields.get("gamma", 0.99)))
    said = []
    if _has_values(run.agent.algorithm):
        obs = jnp.asarray(answer.obs)
        algorithm = run.agent.algorithm
        value = jax.vmap(lambda state: state_values(algorithm, state, obs))(run.agent.state)
        rewards = None if answer.action is None else _explored_reward(run.agent, world, obs)
        _check_near("values", np.asarray(value), answer.value, runs, rewards)
        said.append("values")
    if answer.action is not None:
        player = run.player()
        actions = []
        for row in answer.obs:
            actions.append(player(row))
            player.notice(0.0, True)
        _check_near("actions", np.asarray(actions)[None], np.asarray(answer.action), runs)
        said.append("actions")
    return f"correct {' and '.join(said)} after {runs.steps} steps" if said else "it runs"


def _explored_reward(agent: Any, world: str, obs: jax.Array) -> np.ndarray:
    """Return each seed's mean reward at each observation while it explores, (seed, row).

    A policy that never stops exploring earns less than the best one, and its correct values are
    lower too.
    """
    trajectory = make_probe(world)
    rows = jnp.repeat(obs, ACTION_SAMPLES, 0)

    def reward(seen: jax.Array, action: jax.Array) -> jax.Array:
        begun = ProbeState(seen, jnp.zeros((), jnp.int32), seen)
        rewards: jax.Array = trajectory.step(begun, action, jax.random.key(0))[2]
        return rewards

    def of_seed(state: Any) -> jax.Array:
        action = agent.algorithm.act(state, rows, jax.random.key(0), True)[0]
        if trajectory.continuous:
            action = jnp.clip(action, -1.0, 1.0)
        return jax.vmap(reward)(rows, action).reshape(len(obs), ACTION_SAMPLES).mean(1)

    return np.asarray(jax.vmap(of_seed)(agent.state))


def state_values(algorithm: Any, state: Any, obs: jax.Array) -> jax.Array:
    """Return ``value(state, obs)``, or ``value(state, obs, key)`` of a value that is drawn."""
    parameters = inspect.signature(algorithm.value).parameters
    keyed = list(parameters)[2:3] == ["key"]
    value: jax.Array = algorithm.value(state, obs, *([jax.random.key(0)] if keyed else []))
    return value


def _has_values(algorithm: Any) -> bool:
    """Whether ``value(state, obs)`` can be called; an algorithm with memory needs more than an
    observation."""
    return hasattr(algorithm, "value") and hasattr(algorithm, "act")


def _check_near(
    what: str, found: np.ndarray, wanted: np.ndarray, runs: TrainingRuns, least: Any = None
) -> None:
    """Raise CheckFailed unless ``found`` (seed, row, ...) is near ``wanted``, or between ``least``
    and ``wanted``."""
    allowed = 0.1 * max(1.0, float(np.abs(wanted).max())) if what == "values" else 0.2
    low = wanted if least is None else np.minimum(least, wanted)
    if np.maximum(found - wanted, low - found).max() > allowed:
        shown = ", ".join(f"{x:.3g}" for x in np.ravel(found[0]))
        right = ", ".join(f"{x:.3g}" for x in np.ravel(wanted))
        wide = "; if its exploration noise never shrinks, learn its standard deviation"
        raise CheckFailed(
            f"after {runs.steps} steps its {what} are {shown}; the correct ones are {right}",
            "if it only learns slowly, give other settings (such as --lr 1e-3) and check again"
            + (wide if runs.continuous and what == "actions" else ""),
        )
