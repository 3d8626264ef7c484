"""Convert between an environment's own observations and actions and those of an agent, as
operations of a policy graph: the same as ``to_agent`` and ``to_world`` of the world's wrappers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from gymnasium import spaces

from sterling.deploy.graph.graph_builder import GraphBuilder, Value
from sterling.envs.actions.action_bounds import is_bounded
from sterling.envs.actions.action_masks import FlattenActionMask
from sterling.envs.actions.bounded_actions import RescaleAction
from sterling.envs.actions.flat_actions import FlatActions
from sterling.envs.hosted.shared_memory import space_leaves
from sterling.envs.world_wrappers import Flatten
from sterling.problem import critic_only_obs
from sterling.problem.action_choices import ACTION_MASK, masked_choices
from sterling.problem.agent_axis import unread_entries
from sterling.types import Mistake


def wrappers(world: Any) -> Iterator[Any]:
    """Return a world and all worlds inside it, the outermost first."""
    while world is not None:
        yield world
        world = getattr(world, "world", None)


def env_obs_space(world: Any) -> spaces.Space[Any]:
    """Return the space of the observations that a policy of this world is given: the environment's
    own, with frames already stacked, without critic-only entries."""
    space = world.spec.obs
    for each in wrappers(world):
        if isinstance(each, (Flatten, FlattenActionMask)):
            space = each.world.spec.obs
    return critic_only_obs.space_without(space, unread_entries(world.spec))


def env_action_space(world: Any) -> spaces.Space[Any]:
    """Return the environment's own action space."""
    *_, innermost = wrappers(world)
    space: spaces.Space[Any] = getattr(innermost, "action_space", innermost.spec.action)
    return space


def to_env_obs(world: Any, obs: Any) -> Any:
    """Convert one observation of an agent back to the environment's own form."""
    for each in wrappers(world):
        inner: Any = getattr(each, "world", None)
        if isinstance(each, Flatten):
            space = inner.spec.obs
            scale = 255.0 if space.dtype == np.uint8 else 1.0
            raw = np.asarray(obs).reshape(space.shape) * scale
            whole = space.dtype.kind in "iu"
            obs = (np.rint(raw) if whole else raw).astype(space.dtype)
        elif isinstance(each, FlattenActionMask):
            space = inner.spec.obs[ACTION_MASK]
            mask = np.asarray(obs[ACTION_MASK]).reshape(space.shape).astype(space.dtype)
            obs = {**obs, ACTION_MASK: mask}
    return critic_only_obs.without_entries(obs, unread_entries(world.spec))


def agent_obs(builder: GraphBuilder, world: Any, leaves: list[Value]) -> list[Value]:
    """Convert the leaves of the environment's observation to those that the agent sees."""
    seen = critic_only_obs.space_without(world.spec.obs, unread_entries(world.spec))
    given = env_obs_space(world)
    paths = zip(space_leaves(given), space_leaves(seen), leaves, strict=True)
    return [
        _agent_leaf(builder, own, agent, leaf) if own is not agent else leaf
        for (_, own), (_, agent), leaf in paths
    ]


def _agent_leaf(builder: GraphBuilder, own: Any, agent: Any, leaf: Value) -> Value:
    """Flatten one leaf; bytes that become floats are scaled to [0, 1]."""
    if own.shape == agent.shape and own.dtype == agent.dtype:
        return leaf
    dtype = agent.dtype
    lead = leaf.tensor.shape[: len(leaf.tensor.shape) - len(own.shape)]
    shape = (*lead, *agent.shape)
    flat = builder.add("reshape", [leaf], shape, leaf.tensor.dtype)
    made = builder.add("cast", [flat], shape, dtype)
    if own.dtype == np.uint8 and np.issubdtype(dtype, np.floating):
        made = builder.add("mul", [made, np.float32(1.0 / 255.0)], shape, dtype)
    return made


def env_actions(builder: GraphBuilder, world: Any, leaves: list[Value]) -> list[Value]:
    """Convert the leaves of an agent's action to the environment's own."""
    for each in wrappers(world):
        if isinstance(each, RescaleAction):
            leaves = [_rescaled(builder, each.world.spec.action, leaf) for leaf in leaves]
        elif isinstance(each, FlatActions):
            raise Mistake(
                "The policy cannot be exported: its environment takes nested actions, "
                f"{each.world.spec.action}. Use run.policy in Python, or sterling serve."
            )
        elif isinstance(each, FlattenActionMask):
            leaves = [_split(builder, each, leaf) for leaf in leaves]
        elif (space := getattr(each, "action_space", None)) is not None:
            scaled = type(each).__name__ == "SpacesWorld"
            parts = zip(space_leaves(space), leaves, strict=True)
            leaves = [_env_leaf(builder, own, leaf, scaled) for (_, own), leaf in parts]
        elif not hasattr(each, "world") and hasattr(each, "to_world"):
            raise Mistake(
                f"The policy cannot be exported: its environment {type(each).__name__} converts "
                "actions by its own to_world."
            )
    return leaves


def _rescaled(builder: GraphBuilder, space: Any, leaf: Value) -> Value:
    """Scale from [-1, 1] to the bounds of a box, and round if it holds integers."""
    shape = leaf.tensor.shape
    low, high = space.low.astype(np.float32), space.high.astype(np.float32)
    middle, half = (_wide(x, shape) for x in ((low + high) / 2.0, (high - low) / 2.0))
    unit = builder.add("max", [leaf, np.float32(-1.0)], shape, np.float32)
    unit = builder.add("min", [unit, np.float32(1.0)], shape, np.float32)
    scaled = builder.add("mul", [unit, half], shape, np.float32)
    made = builder.add("add", [scaled, middle], shape, np.float32)
    return builder.add("rint", [made], shape, np.float32) if space.dtype.kind in "iu" else made


def _wide(x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    return x.reshape((1,) * (len(shape) - x.ndim) + x.shape)


def _split(builder: GraphBuilder, wrapper: Any, leaf: Value) -> Value:
    """Split the index of a combination into its choices."""
    if not wrapper.joint:
        return leaf
    sizes = [int(n) for n in wrapper.world.spec.action.nvec]
    shape, dtype = leaf.tensor.shape, leaf.tensor.dtype
    parts = []
    for at, size in enumerate(sizes):
        below = np.asarray(math.prod(sizes[at + 1 :]), dtype)
        index = builder.add("div", [leaf, below], shape, dtype)
        one = builder.add("rem", [index, np.asarray(size, dtype)], shape, dtype)
        parts.append(builder.add("reshape", [one], (*shape, 1), dtype))
    return builder.add("concat", parts, (*shape, len(sizes)), dtype, axis=len(shape))


def _env_leaf(builder: GraphBuilder, space: Any, leaf: Value, scaled: bool) -> Value:
    """Convert one leaf to an environment's values and type: clipped, or counted from ``start``."""
    if scaled and is_bounded(space):
        leaf = _rescaled_unclipped(builder, space, leaf)
    shape, dtype = leaf.tensor.shape, space.dtype
    if not isinstance(space, spaces.Box):
        made = _cast(builder, leaf, dtype)
        start = np.asarray(getattr(space, "start", 0), dtype)
        if not start.any():
            return made
        return builder.add("add", [made, _wide(start, shape)], shape, dtype)
    if dtype.kind in "iu":
        leaf = builder.add("rint", [leaf], shape, leaf.tensor.dtype)
        return _cast(builder, _clipped(builder, space, leaf), dtype)
    return _clipped(builder, space, _cast(builder, leaf, dtype))


def _rescaled_unclipped(builder: GraphBuilder, space: Any, leaf: Value) -> Value:
    """Scale a dataset's actions as ``to_stored_action`` does, in float64."""
    shape = leaf.tensor.shape
    low, high = (np.asarray(end, np.float64) for end in (space.low, space.high))
    wide = _cast(builder, leaf, np.dtype(np.float64))
    scaled = builder.add("mul", [wide, _wide((high - low) / 2, shape)], shape, np.float64)
    return builder.add("add", [scaled, _wide((low + high) / 2, shape)], shape, np.float64)


def _clipped(builder: GraphBuilder, space: Any, leaf: Value) -> Value:
    """Clip to the finite bounds of a box."""
    shape, dtype = leaf.tensor.shape, leaf.tensor.dtype
    for operation, end in (("max", space.low), ("min", space.high)):
        bound = np.asarray(end).astype(dtype)
        if np.isfinite(bound).any():
            leaf = builder.add(operation, [leaf, _wide(bound, shape)], shape, dtype)
    return leaf


def _cast(builder: GraphBuilder, leaf: Value, dtype: Any) -> Value:
    if leaf.tensor.dtype == str(dtype):
        return leaf
    return builder.add("cast", [leaf], leaf.tensor.shape, dtype)


def input_limits(world: Any, path: tuple[Any, ...], leaf: spaces.Space[Any]) -> dict[str, Any]:
    """Return a Port's ``low``, ``high`` and ``options`` for a leaf of the environment's
    observations."""
    if isinstance(leaf, spaces.Discrete | spaces.MultiDiscrete):
        sizes = leaf.n if isinstance(leaf, spaces.Discrete) else leaf.nvec
        low = np.ravel(leaf.start).astype(int)
        ends = {"low": tuple(low.tolist()), "high": tuple((low + np.ravel(sizes) - 1).tolist())}
    else:
        count = math.prod(leaf.shape or ()) if isinstance(leaf, spaces.MultiBinary) else 0
        ends = {"low": (0,) * count, "high": (1,) * count}
    if path != (ACTION_MASK,) or world.spec.agents is not None:
        return ends
    return {**ends, "options": masked_choices(env_action_space(world), leaf.shape or ())}
