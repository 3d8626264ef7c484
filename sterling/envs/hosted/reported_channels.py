"""What a Gymnasium environment reports beside a scalar reward: entries of ``info``, or a vector
reward.

Workers import this file, so it imports nothing slow.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from sterling.envs.hosted.shared_memory import (
    LARGEST_NUMBER,
    ContractViolation,
    EnvDescription,
    SharedArrays,
    read_numbers,
)
from sterling.problem.agent_axis import REWARD
from sterling.problem.channels import channel_name
from sterling.system.shown_values import shown_value

OBJECTIVES = "objectives"  # the channel of a vector reward

Entries = tuple[tuple[str, int], ...]
Parts = tuple[tuple[str, ...], ...]


def infer_channels(
    names: tuple[str, ...],
    weights: tuple[float, ...],
    reward: Any,
    info: dict[str, Any],
    agents: tuple[str, ...] = (),
) -> dict[str, Any]:
    """Infer an environment's channels, their parts and its reward weights from the ``reward`` and
    ``info`` of its first step: fields of ``EnvDescription``, by name.

    The weights of a vector reward are 1 each if none are given; a scalar reward has none. A vector
    has one entry per agent in ``agents``, or one per objective if there are no agents.
    """
    vector, called = np.ndim(reward) == 1, REWARD if agents else OBJECTIVES
    given = {**({called: reward} if vector else {}), **{n: find_entry(info, n) for n in names}}
    if vector:
        given[called] = reward
    if weights and agents:
        raise ContractViolation(
            "reward_weights are for objectives. Leave them out: the rewards of several agents "
            "are summed"
        )
    if weights and len(weights) != np.size(reward):
        raise ContractViolation(
            f"reward_weights has {len(weights)} numbers, but the reward has {np.size(reward)}. "
            "Give one weight per entry"
        )
    parts = tuple(_part_names(name, value) for name, value in given.items())
    sizes = tuple(
        (name, _channel_array(name, value, own).size * (np.ndim(value) + bool(own)))
        for (name, value), own in zip(given.items(), parts, strict=True)
    )
    own = (weights or (1.0,) * len(reward)) if vector else ()
    same = entries_with_one_path(info, names)
    return {"channels": sizes, "parts": parts, "weights": own, "same_paths": same}


def write_step(
    description: EnvDescription,
    shared: SharedArrays,
    index: int,
    reward: Any,
    info: dict[str, Any],
    *,
    step: int,
) -> None:
    """Write a step's reward and channels to row ``index``; of a vector reward the weighted sum.
    ``step`` is the number of the step in its episode, for messages."""
    weights = description.weights
    if np.shape(reward) != ((len(weights),) if weights else ()):
        raise ContractViolation(
            f"step() returned a reward of shape {np.shape(reward)}, unlike the first step's. "
            "Return the same shape at every step"
        )
    total = np.dot(reward, weights) if weights else reward
    if not abs(total) <= LARGEST_NUMBER:
        raise ContractViolation(
            f"the weighted sum of the reward {reward} is {total:.4g}, beyond the "
            f"{LARGEST_NUMBER:.3g} of float32. Give smaller rewards"
        )
    shared["reward"][index] = total
    for number, (name, entries) in enumerate(description.channels):
        is_reward, parts = _is_reward(description, name), description.parts[number]
        found = reward if is_reward else find_entry(info, name)
        # of a dict, whether it lacks an entry
        shared["missing"][index, number] = found is None or (
            isinstance(found, dict) and len(dict(_flat_entries(found))) < len(parts)
        )
        try:
            value = _channel_array(name, np.zeros(entries or ()) if found is None else found, parts)
        except ContractViolation as error:
            remedy = "" if is_reward else f", or leave out the channel {name}"
            raise ContractViolation(f"step {step} of its episode: {error}{remedy}") from None
        if value.shape != ((entries,) if entries else ()):
            raise ContractViolation(
                f"info[{name!r}] has shape {value.shape}, unlike in the first step. Give the same "
                "shape at every step"
            )
        shared[f"channel{number}"][index] = value


def find_entry(info: Any, name: str) -> Any:
    """Return the entry ``name`` of ``info``, or of the dicts in it ("terms.speed", "terms/speed");
    None if there is none."""
    if isinstance(info, dict) and info.get(name) is not None:  # for speed
        return info[name]
    return next((value for _, value in _found_entries(info, name)), None)


def _found_entries(info: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield every entry of ``info`` and of the dicts in it that ``name`` may mean, and how it is
    written in Python."""
    if not isinstance(info, dict):
        return
    if info.get(name) is not None:
        yield f"[{name!r}]", info[name]
    for at in (at for at, letter in enumerate(name) if letter in "./"):
        inside = _found_entries(info.get(name[:at]), name[at + 1 :])
        yield from ((f"[{name[:at]!r}]{place}", value) for place, value in inside)


def entries_with_one_path(info: dict[str, Any], names: tuple[str, ...]) -> Parts:
    """Return the places in ``info``, as written in Python, that a channel's name may mean, of each
    name that may mean several; the first is the one that is read."""
    found = (tuple(f"info{place}" for place, _ in _found_entries(info, name)) for name in names)
    return tuple(places for places in found if len(places) > 1)


def _is_reward(description: EnvDescription, name: str) -> bool:
    return bool(description.weights) and name == (REWARD if description.agents else OBJECTIVES)


def _part_names(name: str, value: Any) -> tuple[str, ...]:
    """Return the names of a dict's numbers; () for anything else."""
    if not isinstance(value, dict):
        return ()
    names = tuple(path for path, _ in _flat_entries(value))
    if not names or len(set(map(channel_name, names))) < len(names):
        raise ContractViolation(
            f"info[{name!r}] has the entries {', '.join(names) or 'none'}. Give at least one, and "
            "names that differ in letters or digits"
        )
    return names


def _flat_entries(value: dict[Any, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the entries of a dict and of the dicts in it, with their paths."""
    for key, part in value.items():
        if isinstance(part, dict):
            yield from _flat_entries(part, f"{before}{key}.")
        else:
            yield f"{before}{key}", part


def _channel_array(name: str, value: Any, parts: tuple[str, ...]) -> np.ndarray:
    """Return a channel's numbers; of a dict those of its ``parts``, 0 where one is missing."""
    if isinstance(value, dict):
        return _dict_array(name, dict(_flat_entries(value)), parts)
    array = read_numbers(0.0 if value is None else value, f"info[{name!r}] is").astype(np.float32)
    if array.ndim > 1:
        raise ContractViolation(
            f"info[{name!r}] is {shown_value(value)}. A channel must be a number or a vector of "
            "numbers"
        )
    return array


def _dict_array(name: str, entries: dict[str, Any], parts: tuple[str, ...]) -> np.ndarray:
    if unknown := [path for path in entries if path not in parts]:
        raise ContractViolation(
            f"info[{name!r}] has the entry {unknown[0]!r}, which the first step lacked. Give all "
            "entries at every step"
        )
    arrays = [read_numbers(entries.get(path, 0.0), f"info[{name!r}][{path!r}] is")
              for path in parts]  # fmt: skip
    for path, array in zip(parts, arrays, strict=True):
        if array.ndim:
            raise ContractViolation(
                f"info[{name!r}][{path!r}] has shape {array.shape}. Give one number, or name the "
                f"entry itself: channels={name}.{path}"
            )
    return np.array(arrays, np.float32)
