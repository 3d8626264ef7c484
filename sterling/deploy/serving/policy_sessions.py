"""Choose actions for batches of requests, each with the memory of its own session."""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from sterling import random_keys
from sterling.actor import Past
from sterling.deploy.graph.world_conversion import env_action_space, env_obs_space
from sterling.envs.hosted.shared_memory import arrange_leaves, cast_observations, space_leaves
from sterling.experience import acting
from sterling.experience.channels_read import check_reads_no_channels
from sterling.problem import critic_only_obs
from sterling.problem.agent_axis import unread_entries
from sterling.problem.observation_values import cast_leaf
from sterling.training.policy_player import check_options
from sterling.training.trained_run import TrainedRun
from sterling.types import Mistake, Step

BATCH_SIZES = (1, 8, 64)  # each is a compiled program; smaller batches are padded
MAX_BATCH = BATCH_SIZES[-1]  # requests that are answered by one call
MAX_SESSIONS = 10_000  # with a memory; the session that was silent longest is forgotten


@dataclasses.dataclass(frozen=True)
class ActRequest:
    """One request: an observation in the environment's own form, and what happened before it."""

    obs: Any
    session: str = ""
    reward: float = 0.0  # of the session's last action
    begin: bool = False  # the observation is an episode's first


class PolicySessions:
    """One seed's policy, asked by many sessions. Batches are padded to few sizes, so that
    there are few compiled programs."""

    def __init__(self, run: TrainedRun, seed: int | None = None, sample: bool = False):
        at = run.place(seed)
        self.world, self.sample = run.world(), sample
        self.algorithm, self._name = run.settings.algorithm, run.settings.name
        self.seed = run.settings.seeds[at]
        self._agent = jax.tree.map(lambda x: x[at : at + 1], run.agent)
        self._seeds = jnp.asarray([self.seed], jnp.int32)
        self.recurrent = hasattr(run.agent.algorithm, "memory")
        self.space = env_obs_space(self.world)
        self._agent_space = critic_only_obs.space_without(
            self.world.spec.obs, unread_entries(self.world.spec)
        )
        self._count = itertools.count()
        self._pasts: collections.OrderedDict[str, Past] = collections.OrderedDict()
        self._choose = jax.jit(self._chosen)
        self._first = self._new_past() if self.recurrent else None
        if self.recurrent:
            check_reads_no_channels(self._agent, self.world.spec, self.algorithm)

    def _new_past(self) -> Any:
        """Return the past of a new episode."""
        keys = random_keys.for_seeds(self._seeds, "serve-memory", 0)
        past = acting.initial_past(self._agent, self.world.spec, (1, 1), keys)
        return jax.tree.map(lambda x: np.asarray(x)[:, 0], past)

    def warm_up(self) -> None:
        """Compile the programs of all batch sizes before the first request comes."""
        obs = [np.zeros(leaf.shape or (), leaf.dtype) for _, leaf in space_leaves(self.space)]
        tree = arrange_leaves(self.space, iter(obs))
        see = getattr(self.world, "to_agent", None)
        one = cast_observations(self._agent_space, see(tree) if see else tree)
        for size in BATCH_SIZES:
            self.act([ActRequest(one, f"warm-up-{at}", 0.0, True) for at in range(size)])
        self._pasts.clear()
        self._count = itertools.count()

    def _chosen(self, agent: Any, kept: Any, obs: Any, counter: Any) -> Any:
        """Return actions ``(batch, ...)`` and what their sessions keep."""
        keys = random_keys.for_seeds(self._seeds, "serve", counter)
        past = None if kept is None else jax.tree.map(lambda x: jnp.asarray(x)[None], kept)
        every = jax.tree.map(lambda x: jnp.asarray(x)[None], obs)
        action, memory, _ = acting.choose(agent, past, every, keys, self.sample)
        if past is None:
            return jax.tree.map(lambda x: x[0], action), None
        width = jax.tree.leaves(every)[0].shape[:2]
        ones, never = jnp.ones(width), jnp.zeros(width, bool)
        none: Any = {name: jnp.zeros((*width, *x.shape[2:])) for name, x in past.channels.items()}
        step = Step(None, jnp.zeros(width), ones, never, ~never, channels=none)
        following = acting.next_past(agent, memory, action, step, keys)
        return jax.tree.map(lambda x: x[0], (action, following))

    def parse(self, body: Any) -> ActRequest:
        """Return a request from its JSON body; raise :class:`Mistake` for a wrong one."""
        if not isinstance(body, dict) or "obs" not in body:
            raise Mistake('send an object with the observation: {"obs": [...]}')
        known = ("obs", "session", "reward", "begin")
        wrong = [key for key in body if key not in known]
        if wrong:
            raise Mistake(f"unknown field {wrong[0]!r}; known are {', '.join(known)}")
        session, reward, begin = (
            body.get(k, d) for k, d in zip(known[1:], ("", 0.0, False), strict=True)
        )
        if not isinstance(session, str) or not isinstance(begin, bool):
            raise Mistake("session must be text, and begin true or false")
        if (
            isinstance(reward, bool)
            or not isinstance(reward, (int, float))
            or not np.isfinite(reward)
        ):
            raise Mistake("reward must be a finite number")
        if self.recurrent and not session:
            raise Mistake(f'{self.algorithm} has a memory: send "session", a text of your choice')
        return ActRequest(self._observation(body["obs"]), session, float(reward), begin)

    def _observation(self, given: Any) -> Any:
        """Return an observation in the agent's form."""
        parts = [_leaf(space, path, given) for path, space in space_leaves(self.space)]
        obs = arrange_leaves(self.space, iter(parts))
        see = getattr(self.world, "to_agent", None)
        seen = cast_observations(self._agent_space, see(obs) if see else obs)
        check_options(self.world.spec, seen, self._name)
        return seen

    def act(self, requests: Sequence[ActRequest]) -> list[Any]:
        """Return the action for each request, in the environment's own form. Two requests of one
        session must not be in one batch."""
        size = next(size for size in BATCH_SIZES if size >= len(requests))
        padded = [*requests, *[requests[-1]] * (size - len(requests))]
        obs = jax.tree.map(lambda *x: np.stack(x), *[each.obs for each in padded])
        kept = self._remembered(padded) if self.recurrent else None
        found, following = self._choose(self._agent, kept, obs, next(self._count))
        if self.recurrent:
            self._remember(requests, jax.tree.map(np.asarray, following))
        do = getattr(self.world, "to_world", None)
        own = jax.tree.map(np.asarray, found)
        own = do(own) if do else own
        return [
            jax.tree.map(lambda x, at=at: np.asarray(x)[at], own) for at in range(len(requests))
        ]

    def _remembered(self, requests: Sequence[ActRequest]) -> Past:
        """Return the pasts of the requests' sessions, with the rewards that they report."""
        pasts = []
        for each in requests:
            known = None if each.begin else self._pasts.get(each.session)
            if known is None:
                pasts.append(self._first)
            else:
                reward: Any = np.full(1, each.reward, np.float32)
                pasts.append(eqx.tree_at(lambda past: past.reward, known, reward))
        joined: Past = jax.tree.map(lambda *x: np.concatenate(x), *pasts)
        return joined

    def _remember(self, requests: Sequence[ActRequest], following: Any) -> None:
        """Keep the pasts of the sessions' next requests."""
        for at, each in enumerate(requests):
            past = jax.tree.map(lambda x, at=at: x[at : at + 1], following)
            self._pasts[each.session] = past
            self._pasts.move_to_end(each.session)
        while len(self._pasts) > MAX_SESSIONS:
            self._pasts.popitem(last=False)

    def forget(self, session: str) -> bool:
        """End a session; return whether it was known."""
        return self._pasts.pop(session, None) is not None

    def spec(self) -> dict[str, Any]:
        """Return what a client must know: the forms of observations and actions."""
        return {
            **{"algorithm": self.algorithm, "seed": self.seed, "memory": self.recurrent},
            "observation": [
                {
                    "path": list(map(str, path)),
                    "shape": list(leaf.shape or ()),
                    "dtype": str(leaf.dtype),
                }
                for path, leaf in space_leaves(self.space)
            ],
            "action": str(env_action_space(self.world)),
            "stack": int(getattr(self.world, "stack", 1)),
            "max_batch": MAX_BATCH,
        }


def _leaf(space: Any, path: tuple[Any, ...], given: Any) -> np.ndarray:
    """Return one entry of a JSON observation as an array of its space; raise Mistake if it does
    not fit."""
    name = "obs" + "".join(f"[{key!r}]" for key in path)
    for key in path:
        try:
            given = given[key]
        except (KeyError, IndexError, TypeError) as error:
            raise Mistake(f"{name} is missing") from error
    shape = tuple(space.shape or ())
    try:
        array = np.asarray(given)
    except ValueError as error:  # rows of several lengths
        raise Mistake(f"{name} must be numbers, of shape {shape}") from error
    if array.dtype.kind not in "biuf":
        raise Mistake(f"{name} must be numbers, of shape {shape}")
    if array.shape != shape:
        raise Mistake(f"{name} must have the shape {shape}; got {array.shape}")
    try:
        return cast_leaf(space, array)
    except ValueError as error:
        raise Mistake(f"{name} {error}") from error
