"""A state in the middle of a run, and a batch: no two numbers in them are equal by chance."""

from __future__ import annotations

import dataclasses
import types
import zlib
from typing import Any

import goal_rows
import jax
import jax.numpy as jnp
import numpy as np
from oracles.pieces.leaves import Leaves

from sterling.actor import Past
from sterling.experience.rollouts.population_episodes import PopulationInfo
from sterling.experience.rollouts.whole_episodes import ObsMoments
from sterling.needs.feed import EPISODES
from sterling.types import Feed, Record, Rollouts, Sequences

ENVS, FEATURES, CHOICES, NUMBERS = 4, 3, 3, 2
COUNTED = 50.0  # observations in a normaliser
MEMBERS = 10  # episodes in a batch of them
REMAINDER = ".remainder"  # end of the path of what float32 rounds off a mean


def stirred(state: Any, counters: dict[str, Any], nudges: dict[str, Any]) -> Any:
    """Return the state with every leaf but the settings moved, each by numbers of its own.

    ``counters`` gives the values of those leaves that count, by the ends of their paths; ``nudges``
    adds numbers to a leaf, so that bounds are reached.
    """

    def one(path: Any, leaf: Any) -> Any:
        name = jax.tree_util.keystr(path)
        if ".config." in name or name.endswith(".planned"):
            return leaf
        is_axes = name.endswith((".covariance", ".root", ".scales"))
        found = axes(name, leaf) if is_axes else moved(name, np.asarray(leaf), counters)
        if (rest := name.removesuffix(".mean") + REMAINDER) in names:
            found = found - remainder(rest, leaf.shape)  # so that both add up to what it was
        value = found + np.asarray(nudges.get(name, 0))
        return jnp.asarray(value.astype(leaf.dtype))

    names = {jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(state)}
    return jax.tree_util.tree_map_with_path(one, state)


def remainder(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return what is added to a mean: more than float32 rounds off, so that it is not ignored."""
    return 1e-3 * np.random.default_rng(zlib.crc32(name.encode())).normal(size=shape)


def moved(name: str, leaf: np.ndarray, counters: dict[str, Any]) -> np.ndarray:
    """Return what stands at a path in the middle of a run."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    for end, value in counters.items():
        if name.endswith(end):
            return np.asarray(value)
    if name.endswith(".count"):
        is_whole = np.issubdtype(leaf.dtype, np.integer)
        return np.asarray(rng.integers(5, 40) if is_whole else COUNTED)
    if ".mu." in name:
        return 0.003 * rng.normal(size=leaf.shape)
    if ".nu." in name:
        return rng.uniform(1e-7, 1e-5, leaf.shape)
    if name.endswith((".variance", ".reward_scale")) or name == ".scale":
        return rng.uniform(0.5, 2.0, leaf.shape)
    if np.issubdtype(leaf.dtype, np.integer):
        raise AssertionError(f"{name} counts something; name it in counters")
    rest = name.endswith(REMAINDER)
    return leaf + (remainder(name, leaf.shape) if rest else 0.3 * rng.normal(size=leaf.shape))


def axes(name: str, leaf: np.ndarray) -> np.ndarray:
    """Return a covariance matrix, another for its root, or lengths of axes."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    if leaf.ndim == 1:
        return rng.uniform(0.5, 2.0, leaf.shape)
    wide = rng.normal(size=leaf.shape)
    return np.eye(len(leaf)) + wide @ wide.T / len(leaf)


def leaves_of(tree: Any) -> Leaves:
    """Return a tree's leaves by their paths, in float64."""
    found = jax.tree_util.tree_flatten_with_path(tree)[0]
    return Leaves((jax.tree_util.keystr(path), np.array(leaf, np.float64)) for path, leaf in found)


def make_batch(
    needs: Any,
    continuous: bool,
    *,
    garbage: float = 50.0,
    allowed: bool = False,
    remembered: int = 0,
    costly: bool = False,
) -> Record:
    """Return a batch of what ``needs`` asks for, with ends, cuts and rows without a mask, which
    hold ``garbage``. With ``allowed`` observations say which choices there are; a rollout of
    ``remembered`` numbers a memory says what was remembered; a ``costly`` one has a channel "cost".
    """
    if is_stretch(needs):
        return stretches(needs, garbage, allowed, remembered, continuous)
    if getattr(needs, "of", None) == EPISODES:
        return whole_episodes(garbage)
    is_rollout, compared = isinstance(needs, Rollouts), getattr(needs, "labels", None)
    shape = (needs.length, ENVS) if is_rollout else (needs.batch,)
    if isinstance(needs, Sequences):
        shape = (needs.batch, needs.length)
    if compared is not None:
        shape = (needs.batch, 2, compared.segment)
    rng = np.random.default_rng(7)
    kind = rng.random(shape)
    last, mask = kind < 0.25, np.ones(shape, bool)
    mask[1:] = ~last[:-1]
    mask.flat[1] = False
    if is_rollout:  # a world crashed in the middle of an episode
        mask[3, 1] = False
    if compared is not None:  # of pairs all rows count, or none
        mask = np.broadcast_to(mask[:, :1, :1], shape)
    last &= mask
    wrong = np.where(mask, 0.0, garbage)
    everything = rng.normal(size=(shape[0] + 1, *shape[1:], FEATURES))
    obs, following = everything[:-1], everything[1:] if is_rollout else 1.5 * everything[:-1] + 0.3
    if not is_rollout:  # in a rollout these are the successors of the rows before
        obs, following = obs + wrong[..., None], following - wrong[..., None]
    action = np.tanh(rng.normal(size=(*shape, NUMBERS))) if continuous else None
    parts = {
        "obs": obs.astype(np.float32),
        "action": rng.integers(CHOICES, size=shape).astype(np.int32),
        "reward": (rng.normal(size=shape) + wrong).astype(np.float32),
        "discount": np.where(kind < 0.12, 0.0, np.where(kind > 0.8, 0.64, 1.0)).astype(np.float32),
        "next_obs": following.astype(np.float32),
        "last": last,
        "mask": mask,
        "extras": extras(needs, shape, continuous, wrong, rng),
    }
    if action is not None:
        parts["action"] = action.astype(np.float32)
    if allowed:
        parts = with_choices(parts, shape, rng)
    if costly:
        for name, most in (("cost", 1.0), ("episode/cost", 3.0)):
            found = most * rng.random(shape) + wrong
            parts["extras"][name] = found.astype(np.float32)
    if remembered:
        parts = with_past(parts, remembered, rng)
    return Record(**jax.tree.map(jnp.asarray, parts))


def is_step(needs: Any) -> bool:
    """Whether a batch is one step of one environment."""
    return isinstance(needs, Rollouts) and needs.length == 1


def one_step(
    kind: str, continuous: bool, *, garbage: float = 50.0, allowed: bool = False
) -> Record:
    """Return a row ``(1, 1, ...)`` of a rollout: one that "goes on", "ends", is "cut", or is
    "masked"."""
    rows = make_batch(Rollouts(6), continuous, garbage=garbage, allowed=allowed)
    rows = jax.tree.map(np.asarray, rows)
    ends, stops = rows.last & (rows.discount == 0.0), rows.last & (rows.discount > 0.0)
    goes_on = rows.mask & ~rows.last & (rows.discount < 1.0)
    kinds = {"goes on": goes_on, "ends": ends, "cut": stops, "masked": ~rows.mask}
    time, env = np.argwhere(kinds[kind])[-1]
    return jax.tree.map(lambda x: jnp.asarray(x[time : time + 1, env : env + 1]), rows)


def whole_episodes(garbage: float) -> Record:
    """Return ten episodes, of which three have equal returns and two are no experience."""
    rng = np.random.default_rng(7)
    mask = ~np.isin(np.arange(MEMBERS), (3, 8))
    wrong = np.where(mask, 0.0, garbage)
    returns = rng.normal(size=MEMBERS)
    returns[[1, 4, 7]] = 0.25
    count = rng.integers(2, 9, size=MEMBERS)
    mean, squares = rng.normal(size=(2, MEMBERS, FEATURES))
    rest = remainder("seen", mean.shape)
    looks = (mean - rest + wrong[:, None], rest, squares**2 + wrong[:, None])
    means, rests, spread = ((jnp.asarray(x, jnp.float32),) for x in looks)
    seen = ObsMoments(jnp.asarray(count, jnp.float32), means, rests, spread)
    parts = {
        "reward": (returns + wrong).astype(np.float32),
        "discount": np.zeros(MEMBERS, np.float32),
        "last": np.ones(MEMBERS, bool),
        "mask": mask,
        "extras": {"episode/length": (count + wrong).astype(np.int32)},
    }
    start = PopulationInfo(jax.random.key(5), seen)
    return Record(
        obs=None, action=None, next_obs=None, start=start, **jax.tree.map(jnp.asarray, parts)
    )


def with_choices(parts: dict[str, Any], shape: tuple[int, ...], rng: Any) -> dict[str, Any]:
    """Return the batch with observations that forbid some choices, never one that was made."""
    made = [parts["action"], parts["extras"].get("teacher_action", parts["action"])]
    for name in ("obs", "next_obs"):
        mask = rng.random((*shape, CHOICES)) < 0.6
        for action in made:
            np.put_along_axis(mask, action[..., None], True, -1)
        parts[name] = {"action_mask": mask.astype(np.int8), "x": parts[name]}
    return parts


def with_past(parts: dict[str, Any], width: int, rng: Any) -> dict[str, Any]:
    """Return the rollout with its past before the first row: none in the first environment."""
    first = np.arange(ENVS) == 0
    past = {
        "memory": rng.normal(size=(ENVS, width)).astype(np.float32),
        "action": parts["action"][::-1][0],
        "reward": rng.normal(size=ENVS).astype(np.float32),
        "discount": np.ones(ENVS, np.float32),
    }
    start = {k: np.where(first.reshape(-1, *(1,) * (x.ndim - 1)), np.zeros_like(x), x)
             for k, x in past.items()}  # fmt: skip
    begins = np.concatenate([first[None], ~parts["mask"][:-1]])
    extras = {**parts["extras"], "begins": begins}
    return {
        **parts,
        "extras": extras,
        "start": Past(**jax.tree.map(jnp.asarray, start), first=jnp.asarray(first)),
    }


def is_stretch(needs: Any) -> bool:
    """Whether batches are stretches of a replay, which cross episodes."""
    return isinstance(needs, Feed) and bool(needs.length)


def stretches(
    needs: Feed, garbage: float, allowed: bool, remembered: int, continuous: bool
) -> Record:
    """Return stretches ``(batch, time, ...)``: rollouts of so many environments side by side, whose
    pasts say what was remembered before them."""
    rollout = Rollouts(needs.length)
    rows = make_batch(rollout, continuous, garbage=garbage, allowed=allowed, remembered=remembered)
    rng, batch = np.random.default_rng(8), needs.batch
    assert batch == ENVS
    kept, start = ({"begins": rows.extras["begins"]}, rows.start) if remembered else ({}, None)
    rows = dataclasses.replace(rows, extras=kept, start=None)
    rows = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), rows)
    weight = jnp.asarray(rng.uniform(0.3, 1.0, batch), jnp.float32)
    return dataclasses.replace(rows, extras={**rows.extras, "weight": weight}, start=start)


def extras(
    needs: Any, shape: tuple[int, ...], continuous: bool, wrong: np.ndarray, rng: Any
) -> dict[str, np.ndarray]:
    """Return what stands beside the rows: what their learner asks for."""
    found: dict[str, np.ndarray] = {}
    if isinstance(needs, Rollouts):
        found["log_prob"] = (-2.4 if continuous else -1.1) + 0.3 * rng.normal(size=shape)
    elif isinstance(needs, Sequences):
        found["time"] = np.broadcast_to(2 + np.arange(shape[1], dtype=np.int32), shape)
    else:
        found["weight"] = rng.uniform(0.3, 1.0, shape) + wrong
    if getattr(needs, "labels", None) is not None:
        found["preference"] = np.array([0.0, 1.0, 0.5, 1.0, 0.0, 1.0])[: shape[0]]
    if "place" in getattr(needs, "add", ()):
        found["place"] = rng.permutation(40).astype(np.int32)[: shape[0]]
    if "next_action" in getattr(needs, "add", ()):
        found["next_action"] = np.tanh(rng.normal(size=(*shape, NUMBERS)))
    if "teacher_action" in getattr(needs, "keep", ()):
        chosen = rng.integers(CHOICES, size=shape).astype(np.int32)
        found["teacher_action"] = (
            np.tanh(rng.normal(size=(*shape, NUMBERS))) if continuous else chosen
        )
    if isinstance(needs, Sequences) or getattr(needs, "monte_carlo", None) is not None:
        found["monte_carlo"] = 2.0 * rng.normal(size=shape)
    return {k: x if x.dtype == np.int32 else x.astype(np.float32) for k, x in found.items()}


def rows_of(batch: Record, whole: bool) -> dict[str, np.ndarray]:
    """Return a batch as an oracle reads it: NumPy, and unless ``whole`` without the rows that do
    not count."""
    extras = {"own_reward" if k == "reward" else k: x for k, x in batch.extras.items()}
    rows = {"allowed": None, "next_allowed": None, **vars(batch), **extras}
    for name in ("extras", "beside"):
        rows.pop(name)
    rows |= goal_rows.goals_of(batch)
    start = rows.pop("start")
    if isinstance(start, PopulationInfo):
        mean = np.float64(start.seen.mean[0]) + np.float64(start.seen.remainder[0])
        seen = {"count": start.seen.count, "mean": mean}
        start = types.SimpleNamespace(**seen, squares=start.seen.squares[0])
    begun = {} if start is None else {k: x for k, x in vars(start).items() if k != "channels"}
    rows |= {f"start_{name}": x for name, x in begun.items()}
    for name, forbidden in (("obs", "allowed"), ("next_obs", "next_allowed")):
        if isinstance(rows[name], dict):
            seen = rows[name]
            if "desired_goal" in seen:
                rows[name] = seen["observation"]
                continue
            rows[forbidden], rows[name] = seen.get("action_mask"), seen["x"]
            rows[name.replace("obs", "alive")] = seen.get("alive")
            rows[name.replace("obs", "state")] = seen.get("state")
    found = {name: np.asarray(x) for name, x in rows.items() if x is not None}
    wide = {k: x.astype(np.float64) if x.dtype == np.float32 else x for k, x in found.items()}
    wide |= {k: x.astype(bool) for k, x in wide.items() if k.endswith("allowed")}
    if whole:
        return wide
    counts = wide["mask"].reshape(len(wide["mask"]), -1).all(-1)  # of pairs both, or neither
    return {name: x[counts] for name, x in wide.items()}
