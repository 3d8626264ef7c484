"""Answers written on all cores of a CPU.

A program that writes answers makes small matrix products one after another, which leave most of a
second core idle. Two such programs with half of the prompts each, at the same time, are done in
two thirds of the time of one with all.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np
from jaxtyping import Array

from sterling.language.generate import Answers, Prompts

PARTS = 2  # always as many on a CPU, so that a seed's answers do not depend on its cores
LEAST = 8  # prompts of a part
_met: set[Hashable] = set()  # parts and shapes that were answered: their program is compiled


def side_by_side(
    write: Callable[[Prompts], Answers], prompts: Prompts, parts: int | None = None
) -> Answers:
    """``write(prompts)`` as NumPy arrays, written in ``parts`` (default: 2 on a CPU, else 1): they
    change nothing but rounding."""
    parts = (PARTS if jax.default_backend() == "cpu" else 1) if parts is None else parts
    parts = max(1, min(parts, prompts.lengths.shape[-1] // LEAST))

    def one(number: int) -> Answers:
        return jax.device_get(write(_part(prompts, number, parts)))

    known = (parts, _shapes(prompts))
    if parts == 1 or known not in _met:  # the first part's program serves the others
        done = [one(number) for number in range(parts)]
        _met.add(known)
    else:
        with ThreadPoolExecutor(parts) as pool:
            done = list(pool.map(one, range(parts)))
    axis = prompts.lengths.ndim - 1
    return jax.tree.map(lambda *each: _interleaved(each, axis), *done)


def _part(prompts: Prompts, number: int, parts: int) -> Prompts:
    """Every so many-th prompt, from ``number`` on; they share the slots."""
    axis = prompts.lengths.ndim - 1

    def few(x: Array) -> np.ndarray:
        return np.asarray(x)[_every(axis, number, parts)]

    total = (np.asarray(prompts.total) - number + parts - 1) // parts
    every = (prompts.ids, prompts.lengths, prompts.number, prompts.sampling)
    (ids, lengths, own, how), total = jax.device_put((jax.tree.map(few, every), total))
    slots = -(-prompts.slots // parts)
    return Prompts(ids, lengths, total, own, how, prompts.limit, slots, prompts.stops)


def _shapes(prompts: Prompts) -> Hashable:
    leaves, structure = jax.tree.flatten(prompts)
    return structure, tuple(leaf.shape for leaf in leaves)


def _interleaved(parts: tuple[np.ndarray, ...], axis: int) -> np.ndarray:
    """The parts' rows in the order of the whole."""
    shape = list(parts[0].shape)
    shape[axis] = sum(part.shape[axis] for part in parts)
    whole = np.empty(shape, parts[0].dtype)
    for number, part in enumerate(parts):
        whole[_every(axis, number, len(parts))] = part
    return whole


def _every(axis: int, first: int, step: int) -> tuple[slice, ...]:
    return (slice(None),) * axis + (slice(first, None, step),)
