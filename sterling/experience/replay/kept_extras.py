"""The extras of rows that a replay keeps: the actor's, the world's channels, and for an actor with
a memory the whole past before each row, so that a sequence knows how its first row began."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Key, PyTree, PyTreeDef

from sterling.actor import Actor, Past
from sterling.experience import acting
from sterling.experience.replay.ring_buffer import Place, Ring
from sterling.experience.replay.ring_layout import RowPart, to_words
from sterling.experience.rollouts.episode_totals import STANDARD_CHANNELS, empty_totals
from sterling.experience.rollouts.rollout import Rollout
from sterling.experience.stored_rows import RowsToStore
from sterling.needs.feed import MEMORY
from sterling.types import Action, AnyNeeds, Mistake, Obs, World

TOTAL = "episode/"  # before a channel's name: its value over the episode so far
PAST = "past/"  # the extras that hold the leaves of a past


class PastRecorder(eqx.Module):
    """Acts as ``actor``, which has a memory, and records the past before each row."""

    actor: Any

    def memory(self, envs: int, keys: Key[Array, "seed"]) -> Any:
        """Return the actor's initial memory."""
        return acting.initial_memory(self.actor, envs, keys)

    def recall(
        self, past: Past, obs: Obs, keys: Key[Array, "seed"], explore: bool
    ) -> tuple[Action, Any, dict[str, Array]]:
        """Return the actor's action and memory, and its extras with those of the past."""
        action, memory, extras = acting.choose(self.actor, past, obs, keys, explore)
        leaves = enumerate(jax.tree.leaves(past))
        return action, memory, {**extras, **{f"{PAST}{at}": jnp.asarray(x) for at, x in leaves}}


def recording(actor: Any, needs: AnyNeeds) -> Any:
    """Return the actor, recording what ``needs`` keep of its memory."""
    return PastRecorder(actor) if MEMORY in needs.keep else actor


def past_form(needs: AnyNeeds, actor: Actor | None, world: World, keys: Any) -> PyTreeDef | None:
    """Return the structure of the pasts that are kept; None if none are. Raise :class:`Mistake` for
    an actor without a memory."""
    if MEMORY not in needs.keep:
        return None
    shape = (world.seeds, world.spec.envs)
    known: Any = actor
    begun = partial(acting.initial_past, known, world.spec, shape)
    past = eqx.filter_eval_shape(begun, keys)
    if past is None:
        raise Mistake(
            f"keep names {MEMORY!r}, but the algorithm has no memory. Leave it out, or write "
            "memory and recall"
        )
    return jax.tree.structure(past)


def read_past(form: PyTreeDef | None, ring: Ring, place: Place) -> Past | None:
    """Return the pasts before the rows at ``place``; None if none are kept."""
    if form is None:
        return None
    kept = ring.kept(place, [f"{PAST}{at}" for at in range(form.num_leaves)])
    past: Past = jax.tree.unflatten(form, list(kept.values()))
    return past


def keeps_actor_extras(needs: AnyNeeds, world: World) -> bool:
    """Whether ``needs.keep`` names extras that only the actor can provide."""
    return any(name not in _world_shapes(world) for name in needs.keep)


def with_kept_totals(source: Any, needs: AnyNeeds) -> Any:
    """Return the source, whose rollout records the episode's return and length so far if ``needs``
    keep them."""
    names = tuple(name for name in STANDARD_CHANNELS if f"{TOTAL}{name}" in needs.keep)
    if not names:
        return source

    def recording(x: Any) -> Any:
        return dataclasses.replace(x, kept_totals=names) if isinstance(x, Rollout) else x

    return jax.tree.map(recording, source, is_leaf=lambda x: isinstance(x, Rollout))


def _world_shapes(world: World) -> dict[str, jax.ShapeDtypeStruct]:
    """Return the shapes and dtypes of what the world reports beside rewards, and of its totals over
    an episode."""
    spec, shape = world.spec, (world.seeds, world.spec.envs)
    totals: Any = eqx.filter_eval_shape(empty_totals, spec.channels, shape)
    steps = {name: totals[name] for name in spec.channels}
    return steps | {f"{TOTAL}{name}": each for name, each in totals.items()}


def _recorded(actor: Actor, needs: AnyNeeds, seen: Any, keys: Any) -> dict[str, Any]:
    """Return the shapes of the extras that an actor records with its actions."""
    shapes = eqx.filter_eval_shape(acting.choose, recording(actor, needs), *seen, keys, True)
    extras: dict[str, Any] = shapes[2]
    return extras


def empty_extras(
    needs: AnyNeeds, source: Any, actor: Actor | None, keys: Key[Array, "seed"]
) -> dict[str, Array]:
    """Return zeros like the extras to be stored; Mistake if nothing records one of them."""
    if not needs.keep:
        return {}
    world, own = source.world, {}
    if actor is not None:
        seen = (source.past, source.obs)
        own = _recorded(actor, needs, seen, keys)
        plain = acting.without_planning(actor)  # which acts in a random warm-up
        found = own if plain is actor else _recorded(plain, needs, seen, keys)
        lacking = set(needs.keep) & own.keys() - found.keys()
        if lacking:
            raise Mistake(
                f"prior does not return the extra {min(lacking)!r} that keep names. Return the "
                "extras of the function that plans"
            )
    own = {**own, **getattr(source, "recorded", {})}
    known = {**_world_shapes(world), **own}
    names = [name for name in needs.keep if name != MEMORY]
    for name in names:
        if name not in known:
            others = [each for each in known if not each.startswith(PAST)]
            raise Mistake(
                f"keep names {name!r}, but the recorded extras are {', '.join(others) or 'none'}; "
                "use one of those"
            )
    tasks = {name for feed in needs.feeds for name in feed.tasks}
    if wide := [name for name in tasks if known[name].ndim > 2]:
        raise Mistake(f"{wide[0]!r} tells tasks apart, so it must be one number a row")
    names += [name for name in known if name.startswith(PAST)]
    return {name: jnp.zeros(known[name].shape, known[name].dtype) for name in names}


def write_extras(
    ring: Ring, needs: AnyNeeds, form: PyTreeDef | None, stored: Mapping[str, RowsToStore]
) -> Ring:
    """Return the ring with what an iteration's updates stored, by the names of their feeds, leaves
    ``(seed, update, ...)``: in the order of the updates, so that the last one of a row wins.

    Raise :class:`Mistake` for extras that are not kept, or of other shapes or types.
    """
    for name, rows in stored.items():
        length = needs.feed(name).length

        def write(ring: Ring, each: RowsToStore, length: int = length) -> tuple[Ring, None]:
            values = _as_kept(form, each.values)
            return _written(ring, _places(ring, each, length), values), None

        by_update = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), rows)
        ring, _ = jax.lax.scan(write, ring, by_update)
    return ring


def _places(ring: Ring, each: RowsToStore, length: int) -> Place:
    """Return the places of all rows of every seed, ``(seed, batch, ...)``; those of masked rows lie
    beyond the ring."""
    place = Place.of_all(*jnp.divmod(each.place, ring.words.shape[2]))
    place = place.ahead(length, ring.rows) if length else place
    seed, row, env = (jnp.broadcast_to(x, each.mask.shape) for x in place)
    return Place(seed, jnp.where(each.mask, row, ring.rows), env)


def _as_kept(form: PyTreeDef | None, values: dict[str, PyTree]) -> dict[str, Array]:
    """Return the arrays to be written, by the names that the ring has for them."""
    found = dict(values)
    if form is not None and MEMORY in found:
        past: Any = jax.tree.unflatten(form, range(form.num_leaves))
        memory: Any = found.pop(MEMORY)
        own: Any = jax.tree.structure(past.memory)
        if jax.tree.structure(memory) != own:
            raise Mistake(f"{MEMORY!r} is stored as another tree than memory(...) returns")
        each = zip(jax.tree.leaves(past.memory), jax.tree.leaves(memory), strict=True)
        found |= {f"{PAST}{at}": leaf for at, leaf in each}
    return found


def _written(ring: Ring, place: Place, values: dict[str, Array]) -> Ring:
    """Return the ring with new values of kept extras, leaves ``(seed, batch, ...)``."""
    parts = dict(zip(ring.kept_names, ring.kept_parts, strict=True))
    words, wide = ring.words, list(ring.wide)
    for name, value in values.items():
        part = _find_part(parts, name, value, place)
        if part.packed:
            columns = slice(part.offset, part.offset + part.words)
            flat = value.reshape(-1, 1, 1, *part.shape)
            bits = to_words(flat).reshape(*place.row.shape, part.words)
            words = words.at[*place, columns].set(bits, mode="drop")
        else:
            wide[part.offset] = wide[part.offset].at[*place].set(value, mode="drop")
    return dataclasses.replace(ring, words=words, wide=tuple(wide))


def _find_part(parts: dict[str, RowPart], name: str, value: Array, place: Place) -> RowPart:
    """Return where an extra is stored, if the values can be."""
    if name not in parts:
        known = ", ".join(each for each in parts if not each.startswith(PAST)) or "nothing"
        raise Mistake(
            f"learning stores {name!r}, but the replay keeps {known}. Name it in keep, too."
        )
    part = parts[name]
    own = (*place.row.shape, *part.shape), part.dtype
    if (value.shape, str(value.dtype)) != own:
        raise Mistake(
            f"learning stores {name!r} of shape {value.shape[2:]} and type {value.dtype}, but the "
            f"replay keeps it of shape {own[0][2:]} and type {part.dtype}. Store what is kept."
        )
    return part
