"""Games of two sides in turn, against a pool of older selves.

In half of the envs the agent moves for both sides, as the world has it. In the others a member of
the pool holds the other side: a row is then the agent's move and its answer. Where the world's
discount alternates, two of its steps are one of the agent's by the same equation that bootstraps:
reward + discount * (reward of the answer), and the product of the discounts, which is 1 while the
game goes on.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Key, PyTree

from sterling import keys as named
from sterling.actor import Actor
from sterling.envs.traced import select
from sterling.envs.wrappers import Wrapper
from sterling.experience import acting
from sterling.experience.chance import Chance
from sterling.experience.layers import Layer, Numbers
from sterling.experience.rollout import Rollout
from sterling.experience.stepwise import Around
from sterling.types import Action, Mistake, Obs, Record, Step, World

SEATED = 0.5  # share of the envs in which somebody else holds the other side


class Seats(eqx.Module):
    """The game's own state, who is in the pool, and who begins."""

    world: PyTree
    pool: PyTree  # of actors the arrays, leaves ``(seed, member, ...)``
    theirs: Bool[Array, "seed env"]  # whether the other side begins the next game


class Seated(Wrapper):
    """A game in which pool members hold the other side in the first ``seated`` envs, so many for
    each of ``members``; the opponent begins half of the games."""

    def __init__(self, world: World, actor: Any, members: int, seated: int):
        super().__init__(world)
        self._rest = eqx.partition(actor, eqx.is_array)[1]  # of an actor all but its arrays
        self.members, self._seated = members, seated

    def step(self, state: Seats, action: Action, keys: Key[Array, "seed"]) -> tuple[Seats, Step]:
        """The agent's move, and where it is their turn the answer."""
        moved, step = self.world.step(state.world, action, keys)
        here = (jnp.arange(self.spec.envs) < self._seated)[None]
        turn = here & ~step.last & (step.mask | state.theirs)
        theirs = self._moves(state.pool, step.obs, named.fold_each(keys, "opponent"))
        again, answer = self.world.step(moved, theirs, named.fold_each(keys, "answer"))
        world, step = select(turn, (again, answered(step, answer)), (moved, step))
        begins = jax.vmap(lambda key: jax.random.bernoulli(key, 0.5, (self.spec.envs,)))(
            named.fold_each(keys, "side")
        )
        return Seats(world, state.pool, jnp.where(step.last, begins, state.theirs)), step

    def _moves(self, pool: PyTree, obs: Obs, keys: Key[Array, "seed"]) -> Action:
        """What every env's member does; in the other envs anything."""
        seeds, count, each = self.seeds, self.members, self._seated // self.members

        def dealt(leaf: Array) -> Array:  # (seed, env) -> (seed * member, env of its)
            return leaf[:, : self._seated].reshape(seeds * count, each, *leaf.shape[2:])

        def back(leaf: Array) -> Array:
            own = leaf.reshape(seeds, self._seated, *leaf.shape[2:])
            rest = [(0, 0), (0, self.spec.envs - self._seated)] + [(0, 0)] * (own.ndim - 2)
            return jnp.pad(own, rest)

        own = jax.vmap(lambda key: named.deal(key, "member", count))(keys).reshape(-1)
        flat = jax.tree.map(lambda x: x.reshape(seeds * count, *x.shape[2:]), pool)
        actor = eqx.combine(flat, self._rest)
        action, _ = actor.act(jax.tree.map(dealt, obs), own, True)
        return jax.tree.map(back, action)


def answered(step: Step, answer: Step) -> Step:
    """Two steps of a game as one of the agent's. A row in which the world resets stays one, also
    where the other side has begun."""
    reward = jnp.asarray(step.reward + step.discount * answer.reward)
    return dataclasses.replace(
        answer,
        reward=jnp.where(step.mask, reward, 0.0),
        discount=jnp.asarray(step.discount * answer.discount),
        mask=step.mask,
    )


class Opponents(Around, eqx.Module):
    """Lives what ``source`` lives, in a :class:`Seated` world, and puts the agent as it is now into
    the pool every ``every`` steps, in place of any member, each as likely as every other.

    So the pool is of the recent past for the most part, and of all of it a little. A member that
    leaves is replaced in the games it is in, too.
    """

    source: Rollout
    lived: Int[Array, "seed"]  # steps
    every: int = eqx.field(static=True)

    @classmethod
    def create(
        cls, source: Rollout, numbers: Numbers, keys: Key[Array, "seed"], actor: Actor
    ) -> Opponents:
        """A pool of ``actor`` alone, of so many members, of whom one is replaced every so many
        steps. Raises Mistake where that cannot be."""
        members, every = (int(each) for each in numbers)
        world = source.world
        seated = members * _check(world, actor, members, keys)
        arrays = eqx.partition(actor, eqx.is_array)[0]
        pool = jax.tree.map(lambda x: jnp.repeat(x[:, None], members, 1), arrays)
        none = jnp.zeros((world.seeds, world.spec.envs), bool)
        game = Seated(world, actor, members, seated)
        state = Seats(source.state, pool, none)
        source = dataclasses.replace(source, world=game, state=state)
        return cls(source, jnp.zeros(world.seeds, jnp.int32), every)

    def live(self, agent: Actor, keys: Key[Array, "seed"]) -> tuple[Opponents, Record]:
        """Act for ``length`` steps, after the pool has taken in whoever is due."""
        begun = self.source
        if not isinstance(agent, Chance):  # who moves by chance is no older self
            state = begun.state
            pool = self._renewed(agent, state.pool, named.fold_each(keys, "leaves"))
            begun = dataclasses.replace(begun, state=dataclasses.replace(state, pool=pool))
        source, rows = begun.live(agent, keys)
        steps = self.length * self.world.spec.envs
        return Opponents(source, self.lived + steps, self.every), rows

    def _renewed(self, agent: Actor, pool: PyTree, keys: Key[Array, "seed"]) -> PyTree:
        steps = self.length * self.world.spec.envs
        due = (self.lived + steps) // self.every != self.lived // self.every
        members = jax.tree.leaves(pool)[0].shape[1]
        place = jax.vmap(lambda key: jax.random.randint(key, (), 0, members))(keys)
        into = due[:, None] & (jnp.arange(members)[None] == place[:, None])
        now = eqx.partition(agent, eqx.is_array)[0]
        now = jax.tree.map(lambda new, old: jnp.broadcast_to(new[:, None], old.shape), now, pool)
        return select(into, now, pool)


def _check(world: World, actor: Actor, members: int, keys: Key[Array, "seed"]) -> int:
    """Return how many envs there are for every member; Mistake where nobody can sit down."""
    if not getattr(world, "alternating", False):
        raise Mistake(
            "a pool of older selves is for games of two sides that move in turn, such as "
            "tictactoe:self; leave out sources=pool"
        )
    if not world.exact:
        raise Mistake(
            "a pool lets some envs answer while the others wait, which takes a world whose state "
            "can be kept; leave out sources=pool"
        )
    if world.spec.channels:
        raise Mistake("a pool cannot add up what a game reports beside its reward; leave it out")
    if acting.memory_of(actor, 1, keys) is not None:
        raise Mistake("a pool is of actors that go by what they see; use ppo or dqn")
    each = int(world.spec.envs * SEATED) // members
    if not each:
        raise Mistake(
            f"half of {world.spec.envs} envs cannot seat a pool of {members}; give at least "
            f"--envs {2 * members}"
        )
    return each


def _right(numbers: Numbers) -> bool:
    return all(each >= 1.0 and each == int(each) for each in numbers)


LAYER = Layer(
    "pool",
    "older selves hold the other side of a game in half of the envs",
    (4.0, 10_000.0),
    "pool:4,10000, its members and the steps after which one is replaced",
    right=_right,
    rollouts=Opponents.create,
)
