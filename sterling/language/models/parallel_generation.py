"""Generate answers on all cores of a CPU.

A program that generates answers computes small matrix products one after another, which leave most
of a second core idle. Two such programs at the same time, with half of the prompts each, take two
thirds of the time of one program with all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np
from jaxtyping import Array

from sterling.language.models.generation import Answers, Prompts

CPU_PARTS = 2  # fixed, so that answers do not depend on the number of cores
MIN_PROMPTS = 8  # of a part
_compiled: set[Hashable] = set()  # parts and shapes whose program is compiled


def generate_in_parallel(
    write: Callable[[Prompts], Answers], prompts: Prompts, parts: int | None = None
) -> Answers:
    """Return ``write(prompts)`` as NumPy arrays, computed in ``parts`` at the same time (default: 2
    on a CPU, else 1), which change nothing but rounding."""
    parts = (CPU_PARTS if jax.default_backend() == "cpu" else 1) if parts is None else parts
    parts = max(1, min(parts, prompts.lengths.shape[-1] // MIN_PROMPTS))

    def one(number: int) -> Answers:
        return jax.device_get(write(_select_part(prompts, number, parts)))

    known = (parts, _leaf_shapes(prompts))
    if parts == 1 or known not in _compiled:  # compile for the first part, reuse for the others
        done = [one(number) for number in range(parts)]
        _compiled.add(known)
    else:
        with ThreadPoolExecutor(parts) as pool:
            done = list(pool.map(one, range(parts)))
    axis = prompts.lengths.ndim - 1
    return jax.tree.map(lambda *each: _interleave(each, axis), *done)


def _select_part(prompts: Prompts, number: int, parts: int) -> Prompts:
    """Return every ``parts``-th prompt, from ``number`` on; the parts share the slots."""
    axis = prompts.lengths.ndim - 1

    def few(x: Array) -> np.ndarray:
        return np.asarray(x)[_strided(axis, number, parts)]

    total = (np.asarray(prompts.total) - number + parts - 1) // parts
    every = (prompts.ids, prompts.lengths, prompts.number, prompts.sampling)
    (ids, lengths, own, how), total = jax.device_put((jax.tree.map(few, every), total))
    slots = -(-prompts.slots // parts)
    return Prompts(ids, lengths, total, own, how, prompts.limit, slots, prompts.stops)


def _leaf_shapes(prompts: Prompts) -> Hashable:
    leaves, structure = jax.tree.flatten(prompts)
    return structure, tuple(leaf.shape for leaf in leaves)


def _interleave(parts: tuple[np.ndarray, ...], axis: int) -> np.ndarray:
    """Return the parts' rows in the order of the whole."""
    shape = list(parts[0].shape)
    shape[axis] = sum(part.shape[axis] for part in parts)
    whole = np.empty(shape, parts[0].dtype)
    for number, part in enumerate(parts):
        whole[_strided(axis, number, len(parts))] = part
    return whole


def _strided(axis: int, first: int, step: int) -> tuple[slice, ...]:
    return (slice(None),) * axis + (slice(first, None, step),)
