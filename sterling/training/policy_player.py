"""Play with a trained agent in any environment, one observation after another."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Iterator, Mapping
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jaxtyping import Array, Key

from sterling import random_keys
from sterling.actor import Past
from sterling.envs.hosted.shared_memory import (
    OBSERVATION,
    arrange_leaves,
    cast_observations,
    space_leaves,
)
from sterling.experience import acting
from sterling.experience.channels_read import all_channels, channels_read
from sterling.experience.rollouts.adaptation_rollout import adapt_agent, steps_to_adapt
from sterling.problem import critic_only_obs
from sterling.problem.action_choices import (
    ACTION_MASK,
    choice_sizes,
    describe_empty_choice,
    without_option,
)
from sterling.problem.agent_axis import ALIVE, unread_entries
from sterling.problem.joined_path import joined_path, path_words
from sterling.problem.observation_values import cast_leaf
from sterling.training.agent import Agent
from sterling.training.config.settings import Settings
from sterling.training.single_seed_actor import SingleSeedActor
from sterling.types import Mistake, Spec, World


@runtime_checkable
class PlayableRun(Protocol):
    """What a Player needs of a trained run."""

    settings: Settings
    agent: Agent
    asked: Iterator[int]  # the counter of random keys of actions

    def world(self) -> Any:
        """Return the run's world, for the forms of its observations and actions."""
        ...

    def place(self, seed: int | None = None) -> int:
        """Return the index of a seed (default: the first)."""
        ...


class Player:
    """One seed's agent in one environment, with its memory of the episode.

        player = run.player()
        obs, _ = env.reset()
        action = player(obs)
        obs, reward, terminated, truncated, _ = env.step(action)
        player.notice(reward, terminated or truncated)

    Most agents have no memory, and need no ``notice``. Agents that sample their actions even
    without ``explore``, such as FQL's, use a new random key for each action, counted since the run
    was trained or loaded, so that a sequence of actions can be repeated.
    """

    def __init__(self, run: PlayableRun, seed: int | None, explore: bool):
        if run.settings.speech is not None:
            raise Mistake("a language model has no player. Ask it: run.policy('a text')")
        at = run.place(seed)
        self._run, self._explore, self._seed = run, explore, run.settings.seeds[at]
        world = run.world()
        self._spec, self._to_world = world.spec, getattr(world, "to_world", np.asarray)
        self._to_agent = getattr(world, "to_agent", None)
        self._unread = unread_entries(world.spec)  # they may be left out
        self._space = critic_only_obs.space_without(world.spec.obs, self._unread)
        self._set_agent(jax.tree.map(lambda x: x[at : at + 1], run.agent))

    def _set_agent(self, agent: Agent) -> None:
        """Act with an agent of one seed from now on, from the start of an episode."""
        self._agent = agent
        self._actor = SingleSeedActor(agent, self._seed, self._explore)
        self._kept = self._empty_past(1)
        self._memory: Any = None  # the memory after the last action
        self._done: Any = None  # the last action

    def __call__(self, obs: Any) -> Any:
        """Return the action for one observation, in the forms of a Gymnasium environment; for
        agents without a memory, or with one that may be empty, also the actions for several,
        ``(n, ...)``. Critic-only entries may be left out.

        Raise :class:`Mistake` for anything but an observation of the run's environment.
        """
        if (quick := self._quickly_checked(obs)) is not None:
            return jax.tree.map(lambda x: x[0], self._to_world(self._acts(quick)))
        space = self._space
        given = _as_arrays(space, critic_only_obs.without_entries(obs, self._unread))
        parts = [self._seen(given)]
        alone = self._kept is None or self._agent.forgetful
        several = alone and _array_shapes(parts[0]) != _space_shapes(space)
        if several and (rows := [self._seen(row) for row in _batch_rows(given)]):
            several = _array_shapes(rows[0]) == _space_shapes(space)
            parts = rows if several else parts
        checked = [check_observation(space, part) for part in parts]
        for part in checked:
            check_options(self._spec, part, self._run.settings.name)
        batch = jax.tree.map(lambda *x: np.stack(x), *checked)
        chosen = self._to_world(self._acts(cast_observations(space, batch), several=several))
        actions = jax.tree.map(np.asarray, chosen)
        return actions if several else jax.tree.map(lambda x: x[0], actions)

    def _quickly_checked(self, obs: Any) -> np.ndarray | None:
        """Return one observation that is an array, as a batch, if it is of the simplest kind: a
        vector or picture in the agent's own form and type. None: check it in full."""
        space = self._space
        if type(space) is not spaces.Box or type(obs) is not np.ndarray or obs.shape != space.shape:
            return None
        seen = obs if self._to_agent is None else self._to_agent(obs)
        if seen is not obs or obs.dtype.kind not in "fiu":
            return None
        with contextlib.suppress(ValueError):
            return cast_leaf(space, obs)[None]
        return None

    @property
    def _past(self) -> Past | None:
        """Return what the agent remembers."""
        return self._actor.past(self._kept)

    def _seen(self, obs: Any) -> Any:
        """Return an observation in the agent's form; unchanged if it is not a valid observation,
        for the error message."""
        see = self._to_agent
        with contextlib.suppress(TypeError, LookupError, ValueError, AttributeError):
            return _as_arrays(self._space, see(obs) if see else obs)
        return obs

    def act(self, obs: Any) -> Any:
        """Return the agent's action for one observation, in the forms of the run's own world:
        frames stacked, masks in one row, actions of bounded boxes in [-1, 1]."""
        return self._acts(jax.tree.map(lambda x: np.asarray(x)[None], obs))[0]

    def _empty_past(self, count: int) -> Any:
        """Return the past before the first step of ``count`` episodes, as the actor takes it."""
        past = acting.initial_past(self._agent, self._spec, (1, count), self._keys(0))
        return self._actor.remember(past)

    def _acts(self, obs: Any, *, several: bool = False) -> Any:
        """Return the actions for a batch of observations, ``several`` of no common episode."""
        asked = next(self._run.asked)
        noise = int(np.random.default_rng().integers(2**31)) if self._explore else asked
        kept = self._empty_past(len(jax.tree.leaves(obs)[0])) if several else self._kept
        action, memory = self._actor.choose(kept, obs, noise)
        self._memory, self._done = None if several else memory, action
        return np.asarray(action)[0]

    def notice(self, reward: float, last: bool, channels: Mapping[str, Any] | None = None) -> None:
        """Pass on the reward of the last action; ``last``: the episode has ended; ``channels``:
        what else the world reported, by name, for agents that act by it."""
        if self._memory is None:
            return
        every = all_channels(self._spec, self._reads, channels or {}, self._run.settings.title)
        answer = float(reward), bool(last), every
        asked = next(self._run.asked)
        self._kept = self._actor.follow(self._memory, self._done, answer, asked)

    @functools.cached_property
    def _reads(self) -> tuple[str, ...]:
        """The channels that the agent acts by."""
        return channels_read(self._agent, self._spec)

    def adapt(self, world: World, levels: Key[Array, "seed"]) -> None:
        """Adapt the agent to a level and act with it from now on; no-op if it does not adapt.

        Args:
            world: of one seed and one environment; the agent takes as many steps in it as it
                adapts to in training.
            levels: the random key that draws the level, ``(1,)``.
        """
        if not steps_to_adapt(self._run.agent):
            return
        chance = self._keys(next(self._run.asked))
        at = self._run.place(self._seed)
        agent = jax.tree.map(lambda x: x[at : at + 1], self._run.agent)
        adapted = adapt_agent(agent, world, levels, chance).states
        state = jax.tree.map(lambda x: x[0], adapted)
        self._set_agent(dataclasses.replace(agent, state=state))

    def _keys(self, asked: int) -> Key[Array, "1"]:
        """Return the random key for a new memory."""
        seed = jnp.asarray([self._seed], jnp.int32)
        return random_keys.for_seeds(seed, "policy-memory", asked)


def check_observation(space: Any, obs: Any) -> Any:
    """Return an observation in the types of its space. Raise :class:`Mistake` if it does not fit:
    another shape, NaN or infinity, fractions of whole numbers, choices that there are not."""
    expected, found = _space_shapes(space), _array_shapes(obs)
    if found != expected:
        said = [", ".join(f"{name} {shape}".strip() for name, shape in one.items())
                for one in (expected, found)]  # fmt: skip
        raise Mistake(
            f"an observation must have the shape {said[0]}; got {said[1]}{_mask_remedy(space, obs)}"
        )
    if not all(np.isfinite(x).all() for x in jax.tree.leaves(obs) if x.dtype.kind == "f"):
        raise Mistake(
            "an observation contains NaN or infinity, for which no action can be computed"
        )
    made = []
    for (path, leaf), value in zip(space_leaves(space), jax.tree.leaves(obs), strict=True):
        try:
            made.append(cast_leaf(leaf, value))
        except ValueError as error:
            name = "".join(f"[{key!r}]" for key in path)
            what = f"the observation's entry {name}" if name else "an observation"
            raise Mistake(f"{what} {error}, so no action can be computed") from error
    return arrange_leaves(space, iter(made))


def check_options(spec: Spec, obs: Any, name: str) -> None:
    """Raise :class:`Mistake` if an observation's action mask leaves a choice without an option;
    ``name`` is the environment's."""
    if not (isinstance(spec.obs, spaces.Dict) and ACTION_MASK in spec.obs.spaces):
        return
    mask, agents = obs[ACTION_MASK], spec.agents
    sizes = mask.shape[-1:] if agents is not None else choice_sizes(spec.action)
    empty = without_option(mask, sizes)
    if ALIVE in obs:
        empty &= np.asarray(obs[ALIVE], bool)[:, None]
    if empty.any():
        at = np.argwhere(empty)[0].tolist()
        whose = f" to agent {agents.names[at[0]]}" if agents is not None else ""
        raise Mistake(
            f"{describe_empty_choice(at[-1], sizes)}{whose}, so no action can be chosen in {name}. "
            "Allow at least one."
        )


def _space_shapes(space: Any) -> dict[str, tuple[int, ...]]:
    return {joined_path(path): leaf.shape or () for path, leaf in space_leaves(space)}


def _array_shapes(obs: Any) -> dict[str, tuple[int, ...]]:
    paths = jax.tree_util.tree_leaves_with_path(obs)
    return {joined_path(path_words(path)): x.shape for path, x in paths}


def _batch_rows(obs: Any) -> list[Any]:
    """Return the observations of a batch; [] if it is not a batch."""
    lengths = {x.shape[:1] for x in jax.tree.leaves(obs)}
    if len(lengths) != 1 or lengths == {()}:
        return []
    return [jax.tree.map(lambda x, at=at: x[at], obs) for at in range(lengths.pop()[0])]


def _as_arrays(space: Any, obs: Any) -> Any:
    """Return an observation's parts as arrays, arranged as the space's: also lists, and a list for
    a tuple. Entries that the space has not are left out. What has another structure is returned as
    it is, its parts as arrays, for the conversion to the agent's form or the error message."""
    if (
        isinstance(space, spaces.Dict)
        and isinstance(obs, Mapping)
        and space.spaces.keys() <= {*obs}
    ):
        return {name: _as_arrays(part, obs[name]) for name, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple) and isinstance(obs, (tuple, list)):
        if len(obs) == len(space.spaces):
            return tuple(_as_arrays(*each) for each in zip(space.spaces, obs, strict=True))
    elif not isinstance(space, (spaces.Dict, spaces.Tuple)) and not isinstance(obs, Mapping):
        with contextlib.suppress(ValueError):  # rows of several lengths
            return np.asarray(obs)
    return jax.tree.map(np.asarray, obs)


def _mask_remedy(space: Any, obs: Any) -> str:
    """Return the remedy if the action mask is missing that the environment gives separately."""
    is_dict = isinstance(obs, dict)
    if (
        not isinstance(space, spaces.Dict)
        or ACTION_MASK not in space.spaces
        or (is_dict and ACTION_MASK in obs)
    ):
        return ""
    if set(space.spaces) == {OBSERVATION, ACTION_MASK}:
        return f'; give {{"{OBSERVATION}": obs, "{ACTION_MASK}": mask}}'
    return f'; give {{**obs, "{ACTION_MASK}": mask}}' * is_dict
