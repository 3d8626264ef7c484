"""What whole runs of an algorithm must keep to, on the probe worlds, whose answers are known."""

from __future__ import annotations

import contextlib
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

import sterling
from sterling.checking.finding import Check, Unseen, Wrong
from sterling.envs.probe import ProbeState, probe
from sterling.needs import FRESH
from sterling.training.phases import iteration_steps, warmup_steps
from sterling.training.settings import resolve

KINDS = ("both", "limits", "constant", "observation", "delay", "action", "cut")
FORMS = {"discrete": "", "continuous": "-continuous"}
SHOWN = {  # what a probe world is about
    "constant": "the value of anything at all",
    "observation": "values that depend on observations",
    "delay": "discounting over one step",
    "action": "policies at all",
    "both": "policies that look",
    "cut": "a cut bootstraps",
    "limits": "ends and cuts told apart",
}
ENVS = 8
STEPS = {"rollouts": 40_000, "replay": 12_000}  # enough to solve a probe world
DRAWS = 1_000  # actions by which a policy is judged as it explores
FEW = 12  # iterations of runs that are only to be equal


class Trials:
    """Trains one algorithm with small settings."""

    def __init__(self, word: Any, fields: dict[str, Any], needs: Any, form: str):
        self.word, self.fields, self.form = word, fields, FORMS[form]
        self.learner = needs.feeds[0].learner
        self.steps = STEPS["rollouts" if needs.of(FRESH) else "replay"]

    def train(self, world: str, steps: int, seeds: Any, **how: Any) -> Any:
        """A run on a probe world."""
        given = {"evaluate_episodes": 0, **how, **self.fields}
        return sterling.train(
            self.word, f"probe:{world}", steps=steps, seeds=seeds, envs=ENVS, preset=False, **given
        )

    def few(self) -> int:
        """Steps of a short run."""
        asked: dict[str, Any] = {
            "steps": self.steps,
            "envs": ENVS,
            "preset": False,
            "fields": self.fields,
        }
        settings = resolve(self.word, f"probe:both{self.form}", **asked)
        return warmup_steps(settings) + FEW * iteration_steps(settings)


def training_checks(trials: Trials, algorithm: Any, quick: bool) -> Iterator[Check]:
    """Yield the checks of runs; ``quick`` leaves out most probe worlds."""
    code = getattr(algorithm, trials.learner)
    yield "a seed alone equals the same among several", lambda: _seeds(trials), code
    yield "stopped and resumed equals uninterrupted", lambda: _resumed(trials), code
    valued = _is_valued(algorithm)
    worlds = [kind for kind in KINDS if valued or kind in ("both", "action")]
    for kind in worlds[: 1 if quick else None]:
        name = f"{kind}{trials.form}"
        what = f"it solves probe:{name} ({SHOWN[kind]})"
        yield what, partial(_solves, trials, name), code


def _seeds(trials: Trials) -> str:
    world, steps = f"both{trials.form}", trials.few()
    together, alone = (
        trials.train(world, steps, seeds, strategy="map").agent.state for seeds in ([0, 1], [1])
    )
    for (path, many), one in zip(
        jax.tree_util.tree_leaves_with_path(together), jax.tree.leaves(alone), strict=True
    ):
        if not np.array_equal(_plain(many)[1], _plain(one)[0], equal_nan=True):
            raise Wrong(
                f"the state's {jax.tree_util.keystr(path)} of seed 1 differs when seed 0 is "
                "trained beside it",
                "write the algorithm for one seed; keep nothing outside its state",
            )
    return f"bit for bit, after {steps} steps"


class _Stop:
    """A sink that asks to save and leave at its second row."""

    def __init__(self) -> None:
        self.rows = 0

    def write(self, row: Any) -> None:
        """Count."""
        self.rows += 1
        if self.rows == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    def close(self) -> None:
        """Nothing to release."""


def _resumed(trials: Trials) -> str:
    world, steps = f"both{trials.form}", trials.few()
    how = {"log_every": max(steps // 6, 1)}
    with tempfile.TemporaryDirectory() as folder, open(os.devnull, "w") as nowhere:
        broken = Path(folder, "broken")
        whole = trials.train(world, steps, 1, out=Path(folder, "whole"), **how)
        with contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
            try:
                trials.train(world, steps, 1, out=broken, sinks=[_Stop()], **how)
            except SystemExit:
                pass
            else:
                raise Unseen("the run was over before it could be stopped")
            given = {} if isinstance(trials.word, str) else {"algorithm": trials.word}
            resumed = sterling.resume(broken, **given)
    pairs = zip(
        jax.tree_util.tree_leaves_with_path(whole.agent.state),
        jax.tree.leaves(resumed.agent.state),
        strict=True,
    )
    for (path, one), other in pairs:
        if not np.array_equal(_plain(one), _plain(other), equal_nan=True):
            raise Wrong(
                f"the state's {jax.tree_util.keystr(path)} is another one after resuming",
                "keep everything that changes in the state, as arrays",
            )
    return "bit for bit"


def _solves(trials: Trials, world: str) -> str:
    run = trials.train(world, trials.steps, 2)
    if run.result["failed_seeds"]:
        raise Wrong("it diverges: numbers become NaN", "look at the losses; try a smaller lr")
    answer = probe(world).solution(float(trials.fields.get("gamma", 0.99)))
    said = []
    if _is_valued(run.agent.algorithm):
        obs = jnp.asarray(answer.obs)
        value = jax.vmap(lambda state: run.agent.algorithm.value(state, obs))(run.agent.state)
        earned = None if answer.action is None else _earned(run.agent, world, obs)
        _near("values", np.asarray(value), answer.value, trials, earned)
        said.append("values")
    if answer.action is not None:
        player = run.player()
        actions = []
        for row in answer.obs:
            actions.append(player(row))
            player.notice(0.0, True)
        _near("actions", np.asarray(actions)[None], np.asarray(answer.action), trials)
        said.append("actions")
    return f"{' and '.join(said) or 'nothing to compare'} right after {trials.steps} steps"


def _earned(agent: Any, world: str, obs: jax.Array) -> np.ndarray:
    """What each seed's policy earns at each observation as it explores, (seed, row). A policy that
    never stops exploring earns less than the best, and rightly values what it earns."""
    played = probe(world)
    rows = jnp.repeat(obs, DRAWS, 0)

    def reward(seen: jax.Array, action: jax.Array) -> jax.Array:
        begun = ProbeState(seen, jnp.zeros((), jnp.int32), seen)
        earned: jax.Array = played.step(begun, action, jax.random.key(0))[2]
        return earned

    def of_seed(state: Any) -> jax.Array:
        action = agent.algorithm.act(state, rows, jax.random.key(0), True)[0]
        if played.continuous:
            action = jnp.clip(action, -1.0, 1.0)
        return jax.vmap(reward)(rows, action).reshape(len(obs), DRAWS).mean(1)

    return np.asarray(jax.vmap(of_seed)(agent.state))


def _is_valued(algorithm: Any) -> bool:
    """Whether ``value(state, obs)`` can be asked; who remembers needs more than an observation."""
    return hasattr(algorithm, "value") and hasattr(algorithm, "act")


def _near(
    what: str, found: np.ndarray, wanted: np.ndarray, trials: Trials, least: Any = None
) -> None:
    """Hold what was ``found`` (seed, row, ...) near what is ``wanted``, or between that and the
    ``least`` that is right as well."""
    allowed = 0.1 * max(1.0, float(np.abs(wanted).max())) if what == "values" else 0.2
    low = wanted if least is None else np.minimum(least, wanted)
    if np.maximum(found - wanted, low - found).max() > allowed:
        shown = ", ".join(f"{x:.3g}" for x in np.ravel(found[0]))
        right = ", ".join(f"{x:.3g}" for x in np.ravel(wanted))
        wide = "; if it explores as widely as at first, let it learn how widely"
        raise Wrong(
            f"after {trials.steps} steps its {what} are {shown} where {right} are right",
            "if it only learns slowly, give other settings (as --lr 1e-3) and check again"
            + (wide if trials.form and what == "actions" else ""),
        )


def _plain(leaf: Any) -> np.ndarray:
    """A leaf as numbers; keys of randomness by their data."""
    keyed = hasattr(leaf, "dtype") and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(leaf) if keyed else leaf)
