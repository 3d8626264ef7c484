"""Any Gymnasium environment as a world that survives crashes and hangs.

Environments live in worker processes (``workers``) and are stepped together. Whatever an
environment does about its own resets, Sterling's convention holds: the step after an end resets and
is masked. An environment that raises, dies, hangs, or returns NaN or a wrong shape is built anew,
and its episode is truncated and marked invalid: the failed step is a row with ``mask`` False and
``last`` True that keeps the observation before it, and the next step resets as usual. Such a row
(``last & ~mask``, which nothing else produces) is not learned from, and it is not a terminal.
"""

from __future__ import annotations

import os
from typing import Any

import jax
import numpy as np
from gymnasium import spaces
from jaxtyping import Array, Bool, Int, Key

from sterling.envs import declared_channels
from sterling.envs.actions.action_bounds import to_env_action
from sterling.envs.compiled.envpool_env import env_seed
from sterling.envs.env_options import check_seconds, check_whole_number
from sterling.envs.goal_worlds.goal_tasks import seed_of_copy
from sterling.envs.goal_worlds.gymnasium_goals import with_host_judge
from sterling.envs.hosted.failure_limit import DEFAULT, MORE_FAILURES, FailureLimit
from sterling.envs.hosted.registered_env import env_builder
from sterling.envs.hosted.reported_masks import with_laid_out_mask
from sterling.envs.hosted.shared_memory import (
    BUILD,
    RESET,
    SKIP,
    STEP,
    ReportOptions,
    arrange_leaves,
    space_leaves,
)
from sterling.envs.hosted.worker_pool import Fault, WorldFailed, make_runner
from sterling.envs.padding.padded_observations import pad_factory, pad_for_agent
from sterling.lookup.factory_names import factory_name
from sterling.problem.channels import channel_name, parse_channels
from sterling.system.terminal_messages import print_notice
from sterling.system.windows_limits import IS_WINDOWS
from sterling.types import Action, AnyArray, Obs, Step


class HostWorld:
    """``seeds x envs`` copies of one Gymnasium environment as a :class:`sterling.types.World`.

    ``factory`` builds one environment (any callable, also a lambda or closure) or is the id of a
    registered one. ``workers`` is the number of processes: by default one per core and at most one
    per environment; 0 (on Windows the default) steps in this process, which is fastest for cheap
    environments but survives neither a hang nor a crash in C++. ``timeout`` (seconds) bounds one
    reset or step of one environment. ``max_failures`` failed episodes of one environment in a row,
    or more than 1 % of its last 1,000 steps (``envs/hosted/failure_limit.py``), raise
    :class:`~sterling.envs.hosted.worker_pool.WorldFailed`; ``failures`` is the list of ``(index,
    reason)``, where ``index`` counts through ``seed, env``.

    Observations of type float64 become float32. Discrete actions count from 0 whatever the space's
    ``start``; those of boxes are clipped to the environment's own bounds. An environment may say
    which actions are allowed, by a method ``action_masks()`` or by ``info["action_mask"]``. It is
    then observed as a dict with the entry ``action_mask`` (beside ``observation``, unless it is a
    dict already): a row of all choices, or an array with an axis per choice if it is given so.

    ``channels`` declares which entries of ``info`` are reported beside the reward, as
    :func:`sterling.problem.channels.parse_channels` reads it. A vector reward is reported as the
    channel "objectives"; the learner gets the sum of its entries times ``reward_weights``
    ("1,0.5"). A factory may also build a PettingZoo environment of several agents: see
    ``envs/hosted/pettingzoo_parallel.py``. An environment that observes a dict may have an
    attribute ``unseen``, the names of entries that critics may get and policies do not: see
    ``problem/critic_only_obs.py``. ``max_items`` and ``max_edges`` are
    what a Sequence or Graph is padded to.

    If a process must be ended, the episodes of all its environments are lost. The others' episodes
    are truncated and listed in the same way, but do not count towards ``max_failures``. Raises
    ``Mistake`` if one reset and one step show that the environment breaks Gymnasium's contract,
    ``WorldFailed`` if it cannot be built.
    """

    traced = False
    exact = False  # episodes live in other processes: a resumed run starts new ones
    stack = 1

    def __init__(
        self,
        factory: Any,  # Callable[[], gymnasium.Env] or str; anything else raises a Mistake
        seeds: tuple[int, ...],
        envs: int,
        *,
        purpose: str = "train",
        name: str = "",
        workers: Any = None,  # int or None; the next two are numbers
        timeout: Any = 60.0,
        max_failures: Any = DEFAULT,
        channels: Any = "",
        reward_weights: Any = "",
        max_items: Any = None,
        max_edges: Any = None,
    ):
        if workers is not None:
            check_whole_number("workers", workers, 0)
        check_seconds("timeout", timeout)
        check_whole_number("max_failures", max_failures, 1)
        self.name = name or (factory if isinstance(factory, str) else factory_name(factory))
        self.seeds, self.envs, self._purpose = len(seeds), envs, purpose
        self.failures: list[tuple[int, str]] = []
        self._seed_env_pairs = [(seed, env) for seed in seeds for env in range(envs)]
        total = len(self._seed_env_pairs)
        self._failure_limit = FailureLimit(total, max_failures)
        self._builds, self._has_tasks = np.zeros(total, int), hasattr(factory, "has_tasks")
        self._must_reset, self._unbuilt = np.zeros(total, bool), np.ones(total, bool)
        build = pad_factory(env_builder(factory, self.name), max_items, max_edges)
        wanted = parse_channels(str(channels))
        report: ReportOptions = (tuple(wanted), declared_channels.parse_weights(reward_weights))
        default = 0 if IS_WINDOWS else os.cpu_count() or 1
        count = min(default if workers is None else workers, total)
        self._runner = make_runner(build, self.name, total, count, timeout=timeout, report=report)
        description = self._runner.description
        spec = declared_channels.make_spec(description, envs, wanted, self.name)
        self.spec = with_host_judge(spec, build, self.name, vectors=bool(description.weights))
        self._unreported: set[str] = set()  # channels that some step lacked, as was printed
        self._actions = [leaf for _, leaf in space_leaves(self.action_space)]
        self._obs: list[np.ndarray] = []

    @property
    def action_space(self) -> spaces.Space[Any]:
        """The environment's own action space."""
        return self._runner.description.action

    def reset(self, keys: Key[Array, "seed"]) -> tuple[None, Obs]:
        """Start every episode anew; the world has its own seeds and ignores ``keys``."""
        self._must_reset[:] = True
        self._run_orders_until_reset(np.where(self._unbuilt, BUILD, RESET))
        self._must_reset[:] = False
        self._obs = [array.copy() for array in self._leaf_arrays("obs")]
        return None, self._to_obs(self._obs)

    def step(self, state: None, action: Action, keys: Key[Array, "seed"]) -> tuple[None, Step]:
        """Step every environment; those whose episode is over reset instead."""
        resetting, shared = self._must_reset.copy(), self._runner.shared
        # the policy caused actions that are not finite: its episode is cut, no failure is counted
        not_finite = ~self._write_actions(action) & ~resetting
        order = np.where(resetting, np.where(self._unbuilt, BUILD, RESET), STEP)
        lost = self._run_orders_until_reset(np.where(not_finite, SKIP, order))
        failed = (lost | not_finite) & ~resetting
        stepped = ~resetting & ~failed
        terminated = shared["terminated"] & stepped
        ended = terminated | (shared["truncated"] & stepped)
        self._failure_limit.count_steps(stepped, ended)
        # copies: JAX may still read the old ones
        obs = [array.copy() for array in self._leaf_arrays("obs")]
        for new, old in zip(obs, self._obs, strict=True):
            new[failed] = old[failed]
        self._obs, self._must_reset = obs, ended | failed
        return None, Step(
            self._to_obs(obs),
            self._by_seed(np.where(stepped, shared["reward"], np.float32(0.0))),
            self._by_seed(np.where(terminated, np.float32(0.0), np.float32(1.0))),
            self._by_seed(self._must_reset),
            self._by_seed(stepped),
            channels=self._channels(stepped),
        )

    def _channels(self, stepped: Bool[np.ndarray, "total"]) -> dict[str, AnyArray]:
        """Return the channels of this step, 0 where nothing was reported."""
        shared = self._runner.shared
        made: dict[str, AnyArray] = {}
        for number, (name, entries) in enumerate(self._runner.description.channels):
            values, there = shared[f"channel{number}"], stepped
            if name not in self._unreported and (shared["missing"][:, number] & stepped).any():
                self._unreported.add(name)
                print_notice(f"{self.name}: some steps have no info[{name!r}]; they count as 0.")
            there = there[:, None] if entries else there
            made[channel_name(name)] = self._by_seed(np.where(there, values, np.float32(0.0)))
        return made

    def to_world(self, action: Action) -> Action:
        """Convert agents' actions, with any leading axes, to the environment's own."""
        spaces = iter(self._actions)
        return jax.tree.map(lambda part: to_env_action(next(spaces), np.asarray(part)), action)

    def to_agent(self, obs: Obs) -> Obs:
        """Convert the environment's observation, with its mask, to the form that agents see. Raises
        Mistake for a sequence or graph that does not fit."""
        description = self._runner.description
        return with_laid_out_mask(description, pad_for_agent(description, obs))

    def close(self) -> None:
        """Close every environment and end every process."""
        self._runner.close()

    def _run_orders_until_reset(self, order: Int[np.ndarray, "total"]) -> Bool[np.ndarray, "total"]:
        """Carry out the orders, repeating failed resets; return which episodes were lost."""
        failed = self._run_orders(order)
        lost = failed
        while (again := failed & self._must_reset).any():
            failed = self._run_orders(np.where(again, BUILD, SKIP))
            lost = lost | failed
        return lost

    def _run_orders(self, order: Int[np.ndarray, "total"]) -> Bool[np.ndarray, "total"]:
        """Carry out the orders once; return which environments must be built anew."""
        shared, build = self._runner.shared, order == BUILD
        for index in np.flatnonzero(build):
            seed, env = self._seed_env_pairs[index]
            again = f"/{self._builds[index]}" if self._builds[index] else ""
            own = env_seed(seed, env, self._purpose + again)
            shared["seed"][index] = seed_of_copy(own, env) if self._has_tasks else own
        shared["order"][:] = order
        self._builds += build
        faults = self._runner.run()
        failed = np.zeros(len(order), bool)
        for fault in faults:
            failed[list(fault.lost)] = True
        self._unbuilt = (self._unbuilt & ~build) | failed
        for fault in faults:
            self._record_failure(fault)
        return failed

    def _record_failure(self, fault: Fault) -> None:
        """Record a failure; raise :class:`WorldFailed` if an environment has failed too often."""
        also = "another environment of its process failed: " if fault.blamed else ""
        for index in set(fault.lost) - set(fault.blamed):
            self.failures.append((index, also + fault.reason))
        for index in fault.blamed:
            self.failures.append((index, fault.reason))
            if how := self._failure_limit.count_failure(index):
                seed, env = self._seed_env_pairs[index]
                raise WorldFailed(
                    f"Environment {self.name}, copy {env} of seed {seed}, {how}; the last failure: "
                    f"{fault.reason}. Fix the environment, or {MORE_FAILURES}"
                )

    def _write_actions(self, action: Action) -> Bool[np.ndarray, "total"]:
        """Write the actions to the shared arrays; return which of them are finite."""
        total = len(self._seed_env_pairs)
        finite = np.ones(total, bool)
        parts = zip(
            self._leaf_arrays("action"), jax.tree.leaves(action), self._actions, strict=True
        )
        for array, part, space in parts:
            rows = np.asarray(part).reshape(array.shape)
            finite &= np.isfinite(rows).reshape(total, -1).all(1)
            array[...] = to_env_action(space, rows)
        return finite

    def _leaf_arrays(self, kind: str) -> list[np.ndarray]:
        """Return the shared arrays of all leaves of the observations or actions."""
        space = self._runner.description.obs if kind == "obs" else self._runner.description.action
        return [
            self._runner.shared[f"{kind}{number}"] for number in range(len(space_leaves(space)))
        ]

    def _to_obs(self, arrays: list[np.ndarray]) -> Obs:
        return arrange_leaves(self.spec.obs, iter([self._by_seed(array) for array in arrays]))

    def _by_seed(self, array: np.ndarray) -> np.ndarray:
        """Reshape (seed * env, ...) to (seed, env, ...)."""
        return array.reshape(self.seeds, self.envs, *array.shape[1:])
