"""Any Gymnasium environment as a world that survives crashes and hangs.

Environments live in worker processes (``workers``) and are stepped together. Whatever an
environment does about its own resets, Sterling's convention holds: the step after an end resets
and is masked. An environment that raises, dies, hangs, or answers with NaN or a wrong shape is
built anew, and its episode is cut and marked invalid: the failed step is a row with ``mask`` False
and ``last`` True that keeps the observation before it, and the step after it resets as ever. Such a
row (``last & ~mask``, which nothing else produces) is no experience, and no terminal either.
"""

from __future__ import annotations

import collections
import functools
import importlib
import os
import time
import warnings
from collections.abc import Callable
from typing import Any

import gymnasium
import jax
import numpy as np
from gymnasium import spaces
from jaxtyping import Array, Bool, Int, Key

from sterling.channels import parse
from sterling.envs import reporting
from sterling.envs.board import BUILD, MASK, RESET, SKIP, STEP, leaves, own, tree
from sterling.envs.envpool import env_seed
from sterling.envs.host_judge import judged
from sterling.envs.masks import laid_out
from sterling.envs.options import check_seconds, check_whole
from sterling.envs.workers import Crew, Fault, Inline, Processes, WorldFailed
from sterling.naming import called
from sterling.notice import say
from sterling.types import Action, AnyArray, Mistake, Obs, Step

WINDOW = 300.0  # seconds within which failures of one environment add up


class Host:
    """``seeds x envs`` copies of one Gymnasium environment as a :class:`sterling.types.World`.

    ``factory`` builds one environment (any callable, a lambda or closure too) or is the id of a
    registered one. ``workers`` is the number of processes: by default one per core and at most one
    per environment; 0 steps in this process, which is fastest for very cheap environments but
    survives neither a hang nor a crash in C++. ``timeout`` (seconds) bounds one reset or step of
    one environment. ``max_failures`` failures of the same environment within five minutes raise
    :class:`~sterling.envs.workers.WorldFailed`; ``failures`` lists all of them as ``(index,
    reason)``, where ``index`` counts through ``seed, env``.

    Observations of type float64 become float32. Discrete actions count from 0 whatever the space's
    ``start``; those of boxes are clipped to the environment's own bounds. An environment that says
    which actions are allowed, by a method ``action_masks()`` or by ``info["action_mask"]``, is
    observed as a dict with the entry ``action_mask`` (beside ``observation``, unless it is a dict
    already): a row of all choices, or an array with an axis per choice as the environment gives it.

    ``channels`` declares what of ``info`` is reported beside the reward, as
    :func:`sterling.channels.parse` reads it. A reward that is a vector is reported as the channel
    "objectives", and learned from as the sum of its entries, times ``reward_weights`` ("1,0.5").
    A factory may also build one of PettingZoo's environments, of several agents: see
    ``envs/parallel.py``. An environment that observes a dict may have an attribute ``unseen``,
    names of entries that policies do not get and critics may: see ``sterling/unseen.py``.

    A process that must be ended takes the episodes of the other environments it steps along; they
    are cut likewise and listed, but do not count towards ``max_failures``. Raises ``Mistake`` where
    one reset and one step show that the environment breaks Gymnasium's contract, ``WorldFailed``
    where it cannot even be built.
    """

    traced = False
    exact = False  # episodes live in foreign processes: a resumed run starts fresh ones
    stack = 1

    def __init__(
        self,
        factory: Any,  # Callable[[], gymnasium.Env] or str; anything else is told so in words
        seeds: tuple[int, ...],
        envs: int,
        *,
        purpose: str = "train",
        name: str = "",
        workers: Any = None,  # int or None, and two numbers: likewise
        timeout: Any = 60.0,
        max_failures: Any = 3,
        channels: Any = "",
        reward_weights: Any = "",
    ):
        if workers is not None:
            check_whole("workers", workers, 0)
        check_seconds("timeout", timeout)
        check_whole("max_failures", max_failures, 1)
        self.name = name or (factory if isinstance(factory, str) else called(factory))
        self.seeds, self.envs = len(seeds), envs
        self.failures: list[tuple[int, str]] = []
        self._origins = [(seed, env) for seed in seeds for env in range(envs)]
        self._purpose, self._max_failures = purpose, max_failures
        total = len(self._origins)
        self._recent = [collections.deque[float](maxlen=max_failures) for _ in range(total)]
        self._builds, self._absent = np.zeros(total, int), np.ones(total, bool)
        self._due = np.zeros(total, bool)  # reset at the next step
        build, wanted = _builder(factory, self.name), parse(str(channels))
        asked: Asked = (tuple(wanted), reporting.weights(reward_weights))
        count = min(os.cpu_count() or 1, total) if workers is None else min(workers, total)
        self._crew: Crew = Inline(build, self.name, total, asked) if not count else Processes(
            build, self.name, total, count, timeout=timeout, asked=asked
        )  # fmt: skip
        spec = reporting.spec_of(self._crew.problem, envs, wanted, self.name)
        self.spec = judged(spec, build, self.name, vectors=bool(self._crew.problem.weights))
        self._unreported: set[str] = set()  # channels of which a step has already lacked a value
        self._actions = [leaf for _, leaf in leaves(self.action_space)]
        self._obs: list[np.ndarray] = []

    @property
    def action_space(self) -> spaces.Space[Any]:
        """The environment's own."""
        return self._crew.problem.action

    def reset(self, keys: Key[Array, "seed"]) -> tuple[None, Obs]:
        """Start every episode anew; seeded by the world's own seeds, ``keys`` are not used."""
        self._due[:] = True
        self._serve_until_reset(np.where(self._absent, BUILD, RESET))
        self._due[:] = False
        self._obs = [array.copy() for array in self._board("obs")]
        return None, self._tree(self._obs)

    def step(self, state: None, action: Action, keys: Key[Array, "seed"]) -> tuple[None, Step]:
        """One step of every environment; those whose episode is over reset instead."""
        due, board = self._due.copy(), self._crew.board
        # a diverged policy is not the environment's fault: its episode is cut, nobody is blamed
        absurd = ~self._write(action) & ~due
        order = np.where(due, np.where(self._absent, BUILD, RESET), STEP)
        lost = self._serve_until_reset(np.where(absurd, SKIP, order))
        cut = (lost | absurd) & ~due
        stepped = ~due & ~cut
        terminated = board["terminated"] & stepped
        ended = terminated | (board["truncated"] & stepped)
        obs = [array.copy() for array in self._board("obs")]  # JAX may go on reading these
        for new, old in zip(obs, self._obs, strict=True):
            new[cut] = old[cut]
        self._obs, self._due = obs, ended | cut
        answer = Step(
            self._tree(obs),
            self._shape(np.where(stepped, board["reward"], np.float32(0.0))),
            self._shape(np.where(terminated, np.float32(0.0), np.float32(1.0))),
            self._shape(self._due),
            self._shape(stepped),
            channels=self._channels(stepped),
        )
        return None, answer

    def _channels(self, stepped: Bool[np.ndarray, "total"]) -> dict[str, AnyArray]:
        """What was reported in this step, 0 where nothing was."""
        board = self._crew.board
        made: dict[str, AnyArray] = {}
        for number, (name, entries) in enumerate(self._crew.problem.channels):
            values, there = board[f"channel{number}"], stepped
            if name not in self._unreported and (board["missing"][:, number] & stepped).any():
                self._unreported.add(name)
                say(f"{self.name}: some steps have no info[{name!r}]; they count as 0")
            there = there[:, None] if entries else there
            made[name] = self._shape(np.where(there, values, np.float32(0.0)))
        return made

    def to_world(self, action: Action) -> Action:
        """Actions with any leading axes as the environment itself takes them."""
        spaces = iter(self._actions)
        return jax.tree.map(lambda part: own(next(spaces), np.asarray(part)), action)

    def to_agent(self, obs: Obs) -> Obs:
        """One observation of the environment, given with its mask, as an agent sees it."""
        problem = self._crew.problem
        if not (problem.mask and isinstance(obs, dict) and MASK in obs):
            return obs
        return {**obs, MASK: laid_out(problem.action, obs[MASK]).astype(np.int8)}

    def close(self) -> None:
        """Close every environment and end every process."""
        self._crew.close()

    def _serve_until_reset(self, order: Int[np.ndarray, "total"]) -> Bool[np.ndarray, "total"]:
        """Carry out the orders; resets that fail are tried again. Which episodes were lost."""
        failed = self._serve(order)
        lost = failed
        while (again := failed & self._due).any():
            failed = self._serve(np.where(again, BUILD, SKIP))
            lost = lost | failed
        return lost

    def _serve(self, order: Int[np.ndarray, "total"]) -> Bool[np.ndarray, "total"]:
        """Carry out the orders once; which environments are gone afterwards."""
        board, build = self._crew.board, order == BUILD
        for index in np.flatnonzero(build):
            seed, env = self._origins[index]
            again = f"/{self._builds[index]}" if self._builds[index] else ""
            board["seed"][index] = env_seed(seed, env, self._purpose + again)
        board["order"][:] = order
        self._builds += build
        faults = self._crew.run()
        failed = np.zeros(len(order), bool)
        for fault in faults:
            failed[list(fault.lost)] = True
        self._absent = (self._absent & ~build) | failed
        for fault in faults:
            self._book(fault)
        return failed

    def _book(self, fault: Fault) -> None:
        """Count a failure; raises :class:`WorldFailed` when there were too many."""
        now = time.monotonic()
        also = "its neighbour's process was ended: " if fault.blamed else ""
        for index in set(fault.lost) - set(fault.blamed):
            self.failures.append((index, also + fault.reason))
        for index in fault.blamed:
            self.failures.append((index, fault.reason))
            recent = self._recent[index]
            recent.append(now)
            if len(recent) == self._max_failures and now - recent[0] <= WINDOW:
                seed, env = self._origins[index]
                raise WorldFailed(
                    f"environment {self.name}, copy {env} of seed {seed}, failed {len(recent)} "
                    f"times within {now - recent[0]:.0f} s, last: {fault.reason}; "
                    "mend the environment or allow more with --env max_failures=N"
                )

    def _write(self, action: Action) -> Bool[np.ndarray, "total"]:
        """Put the actions on the board; which of them are finite."""
        total = len(self._origins)
        finite = np.ones(total, bool)
        parts = zip(self._board("action"), jax.tree.leaves(action), self._actions, strict=True)
        for board, part, space in parts:
            rows = np.asarray(part).reshape(board.shape)
            finite &= np.isfinite(rows).reshape(total, -1).all(1)
            board[...] = own(space, rows)
        return finite

    def _board(self, kind: str) -> list[np.ndarray]:
        """All parts of the observations or actions."""
        space = self._crew.problem.obs if kind == "obs" else self._crew.problem.action
        return [self._crew.board[f"{kind}{number}"] for number in range(len(leaves(space)))]

    def _tree(self, arrays: list[np.ndarray]) -> Obs:
        return tree(self.spec.obs, iter([self._shape(array) for array in arrays]))

    def _shape(self, array: np.ndarray) -> np.ndarray:
        """(seed * env, ...) -> (seed, env, ...)."""
        return array.reshape(self.seeds, self.envs, *array.shape[1:])


def _builder(factory: Any, name: str) -> Callable[[], Any]:
    """The factory itself, or one for a registered id."""
    if not isinstance(factory, str):
        if not callable(factory):
            kind, built = type(factory).__name__, isinstance(factory, gymnasium.Env)
            remedy = f"; write `lambda: {kind}(...)`" if built else ""
            raise Mistake(
                "an environment is given by its id or by a function that builds it; "
                f"got {factory!r:.60}, which is neither{remedy}"
            )
        return factory
    module, _, identity = factory.rpartition(":")
    try:
        if module:
            importlib.import_module(module)
        spec = gymnasium.spec(identity)  # sent along: a worker knows no registrations of ours
    except (gymnasium.error.Error, ImportError) as error:
        raise Mistake(f"environment {name}: {error}") from error
    return functools.partial(registered, spec)


def registered(spec: Any, /, **options: Any) -> gymnasium.Env[Any, Any]:
    """A registered environment, unchecked (that is done by ``Host``), and without what packages
    warn of while they build theirs: screens that are missing, precision (some build their spaces
    anew whenever they are asked for them)."""
    warnings.filterwarnings("ignore", ".*precision lowered by casting")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return gymnasium.make(spec, disable_env_checker=True, **options)
