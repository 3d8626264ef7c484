"""A trained agent at play, one observation after another, outside of any training."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jaxtyping import Array, Key

from sterling import keys, unseen
from sterling.envs.board import MASK, PROPER, as_seen, leaves
from sterling.experience import acting
from sterling.types import Mistake, Step

if TYPE_CHECKING:
    from sterling.training.trained import TrainedRun


class Player:
    """One seed's agent in one environment, with what it remembers of the episode.

        player = run.player()
        obs, _ = env.reset()
        action = player(obs)
        obs, reward, terminated, truncated, _ = env.step(action)
        player.notice(reward, terminated or truncated)

    Agents that act by what they see alone, which most are, need no ``notice``. Those that draw
    their actions also without ``explore``, as FQL does, draw each by a chance of its own: what a
    run is asked is counted from where it was trained or loaded, so that it can be repeated.
    """

    def __init__(self, run: TrainedRun, seed: int | None, explore: bool):
        self._run, self._at, self._explore = run, run.place(seed), explore
        shape = len(run.settings.seeds), 1
        self._past = acting.begin(run.agent, run.world().spec.action, shape, self._keys(0))
        self._memory: Any = None  # what is remembered when the world answers
        self._done: Any = None  # what is done last

    def __call__(self, obs: Any) -> Any:
        """The action for one observation, both as a Gymnasium environment gives and takes them; of
        agents that remember nothing also the actions for several, ``(n, ...)``. Entries that only
        critics see may be left out.

        Raises :class:`Mistake` for what is no observation of the run's environment.
        """
        world = self._run.world()
        hidden, do = world.spec.unseen, getattr(world, "to_world", np.asarray)
        space, obs = unseen.space_without(world.spec.obs, hidden), unseen.without(obs, hidden)
        nested = isinstance(space, (spaces.Dict, spaces.Tuple))
        given = jax.tree.map(np.asarray, obs) if nested else _array(obs)
        parts = [self._seen(given)]
        several = self._past is None and _shapes(parts[0]) != _expected(space)
        if several and (rows := [self._seen(row) for row in _rows(given)]):
            several = _shapes(rows[0]) == _expected(space)
            parts = rows if several else parts
        for part in parts:
            fits(space, part)
        batch = jax.tree.map(lambda *x: np.stack(x), *parts)
        actions = jax.tree.map(np.asarray, do(self._acts(as_seen(space, batch))))
        return actions if several else jax.tree.map(lambda x: x[0], actions)

    def _seen(self, obs: Any) -> Any:
        """An observation as the agent sees it; as it is where it is none, to be named."""
        see = getattr(self._run.world(), "to_agent", None)
        with contextlib.suppress(TypeError, LookupError, ValueError):
            return see(obs) if see else obs
        return obs

    def act(self, obs: Any) -> Any:
        """The agent's action for one observation, both as the run's own world has them: frames
        stacked, masks in one row, actions of bounded boxes in [-1, 1]."""
        return self._acts(jax.tree.map(lambda x: np.asarray(x)[None], obs))[0]

    def _acts(self, obs: Any) -> Any:
        """The same for several at once."""
        seeds, asked = self._run.settings.seeds, next(self._run.asked)
        noise = int(np.random.default_rng().integers(2**31)) if self._explore else asked
        chance = keys.at(jnp.asarray(seeds, jnp.int32), "policy", noise)
        every = jax.tree.map(lambda x: _for_all(x, len(seeds)), obs)
        agent, explore = self._run.agent, self._explore
        action, self._memory, _ = _choose(agent, self._past, every, chance, explore)
        self._done = action
        return np.asarray(action)[self._at]

    def notice(self, reward: float, last: bool) -> None:
        """What the environment answered to the last action; after the ``last`` one of an episode
        the next begins."""
        if self._memory is not None:
            shape = len(self._run.settings.seeds), 1
            answer = jnp.full(shape, reward, jnp.float32), jnp.full(shape, last, bool)
            step = Step(None, answer[0], jnp.ones(shape), jnp.zeros(shape, bool), ~answer[1])
            chance = self._keys(next(self._run.asked))
            self._past = _answered(self._run.agent, self._memory, self._done, step, chance)

    def _keys(self, asked: int) -> Key[Array, "seed"]:
        """Chances of memories that are begun with."""
        seeds = jnp.asarray(self._run.settings.seeds, jnp.int32)
        return keys.at(seeds, "policy-memory", asked)


def fits(space: Any, obs: Any) -> None:
    """Raises :class:`Mistake` where an observation has other parts or shapes than its space."""
    expected, found = _expected(space), _shapes(obs)
    if found != expected:
        said = [", ".join(f"{name} {shape}".strip() for name, shape in one.items())
                for one in (expected, found)]  # fmt: skip
        raise Mistake(
            f"an observation should be of shape {said[0]}; got {said[1]}{_remedy(space, obs)}"
        )
    if any(np.isnan(x).any() for x in jax.tree.leaves(obs) if x.dtype.kind == "f"):
        raise Mistake("an observation has NaN; there is no action for that")


def _expected(space: Any) -> dict[str, tuple[int, ...]]:
    return {"/".join(map(str, path)): leaf.shape or () for path, leaf in leaves(space)}


def _shapes(obs: Any) -> dict[str, tuple[int, ...]]:
    paths = jax.tree_util.tree_leaves_with_path(obs)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): x.shape for path, x in paths}


def _rows(obs: Any) -> list[Any]:
    """The observations of a batch; none where it is no batch."""
    lengths = {x.shape[:1] for x in jax.tree.leaves(obs)}
    if len(lengths) != 1 or lengths == {()}:
        return []
    return [jax.tree.map(lambda x, at=at: x[at], obs) for at in range(lengths.pop()[0])]


def _array(obs: Any) -> Any:
    """Numbers, in a list as well; what is none of that in its parts, to be named."""
    with contextlib.suppress(ValueError):  # rows of several lengths
        return np.asarray(obs) if not isinstance(obs, dict) else jax.tree.map(np.asarray, obs)
    return jax.tree.map(np.asarray, obs)


def _remedy(space: Any, obs: Any) -> str:
    """What to do where a mask is missing that the environment gives beside its observations."""
    is_dict = isinstance(obs, dict)
    if not isinstance(space, spaces.Dict) or MASK not in space.spaces or (is_dict and MASK in obs):
        return ""
    if set(space.spaces) == {PROPER, MASK}:
        return f'; give {{"{PROPER}": obs, "{MASK}": mask}}'
    return f'; give {{**obs, "{MASK}": mask}}' * is_dict


_choose = eqx.filter_jit(acting.choose)
_answered = eqx.filter_jit(acting.answered)


def _for_all(x: Any, seeds: int) -> Any:
    x = np.asarray(x)
    x = x.astype(np.float32) if x.dtype == np.float64 else x
    return jnp.broadcast_to(x, (seeds, *x.shape))
