"""Two-player turn-based games against a pool of older versions of the agent.

In half of the envs the agent moves for both sides, as the world has it. In the others a pool member
plays the other side: a row is then the agent's move and the reply. Because the world's discount
alternates in sign, two of its steps form one of the agent's by the equation used for bootstrapping:
reward + discount * (reward of the reply), and the product of the discounts, which is 1 while the
game goes on.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Key, PyTree

from sterling import random_keys as named
from sterling.actor import Actor, Past
from sterling.envs.traced_world import tree_where
from sterling.envs.world_wrappers import Wrapper
from sterling.experience import acting
from sterling.experience.rollouts.random_actions import RandomActor
from sterling.experience.rollouts.rollout import Rollout
from sterling.experience.rollouts.rollout_wrapper import Around
from sterling.experience.source_layers import Layer
from sterling.field_types import Count
from sterling.types import Action, Mistake, Obs, Record, Step, World, config

OPPONENT_SHARE = 0.5  # share of the envs in which a pool member plays the other side


@config
class Config:
    """The options of ``pool``."""

    members: Count = 4  # of the pool
    every: Count = 10_000  # steps between replacements of a member by the present agent


class GameState(eqx.Module):
    """The game's own state, the pool's parameters, and which side begins."""

    world: PyTree
    pool: PyTree  # the members' arrays, leaves ``(seed, member, ...)``
    theirs: Bool[Array, "seed env"]  # whether the opponent begins the next game
    past: Past | None = None  # what the opponents remember, ``(seed, env, ...)``


class OpponentGame(Wrapper):
    """A game in which pool members play the other side in the first ``seated`` envs.

    Each of ``members`` plays in the same number of envs; the opponent begins half of the games. A
    member with a memory has one of its own moves and their outcomes in each game, and one that
    plans acts by its ``prior``.
    """

    def __init__(self, world: World, actor: Any, members: int, seated: int):
        super().__init__(world)
        self._rest = eqx.partition(actor, eqx.is_array)[1]  # everything of an actor but its arrays
        self.members, self._seated = members, seated

    def step(
        self, state: GameState, action: Action, keys: Key[Array, "seed"]
    ) -> tuple[GameState, Step]:
        """Take the agent's move and, where it is the opponent's turn, the reply."""
        moved, step = self.world.step(state.world, action, keys)
        here = (jnp.arange(self.spec.envs) < self._seated)[None]
        turn = here & ~step.last & (step.mask | state.theirs)
        asked = named.fold_each(keys, "opponent")
        past = self._heard(state, step, asked)
        theirs, memory = self._moves(state.pool, past, step.obs, asked)
        again, answer = self.world.step(moved, theirs, named.fold_each(keys, "answer"))
        if past is not None:
            told = jnp.asarray(answer.reward), jnp.asarray(answer.discount)
            done = Past(memory, theirs, *told, jnp.zeros_like(turn))
            past = tree_where(turn, done, past)
        world, step = tree_where(turn, (again, merge_steps(step, answer)), (moved, step))
        begins = jax.vmap(lambda key: jax.random.bernoulli(key, 0.5, (self.spec.envs,)))(
            named.fold_each(keys, "side")
        )
        following = jnp.where(step.last, begins, state.theirs)
        return GameState(world, state.pool, following, past), step

    def empty_past(self, pool: PyTree, keys: Key[Array, "seed"]) -> Past | None:
        """Return what the members remember before their first moves, ``(seed, env, ...)``; None if
        they have no memory."""
        shape = self.seeds * self.members, self._seated // self.members
        own = self._member_keys(named.fold_each(keys, "memory"))
        past = acting.initial_past(self._actor(pool), self.spec, shape, own)
        return jax.tree.map(self._as_envs, past)

    def _heard(self, state: GameState, step: Step, keys: Key[Array, "seed"]) -> Past | None:
        """Return what the members remember after the agent's move: a member's own step ends with
        it, as :func:`merge_steps` says of the agent's."""
        past = state.past
        if past is None:
            return None
        reward = past.reward + past.discount * step.reward
        told = dataclasses.replace(past, reward=reward, discount=past.discount * step.discount)
        return tree_where(~step.mask | past.first, self.empty_past(state.pool, keys), told)

    def _moves(
        self, pool: PyTree, past: Past | None, obs: Obs, keys: Key[Array, "seed"]
    ) -> tuple[Action, PyTree]:
        """Return the pool members' moves and new memories; those of the other envs are
        arbitrary."""
        past, obs = jax.tree.map(self._as_members, (past, obs))
        actor, own = self._actor(pool), self._member_keys(keys)
        action, memory, _ = acting.choose(actor, past, obs, own, True)
        return jax.tree.map(self._as_envs, (action, memory))

    def _actor(self, pool: PyTree) -> Actor:
        """Return the members of all seeds as one actor, with an axis ``seed * member``."""
        arrays = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), pool)
        return acting.without_planning(eqx.combine(arrays, self._rest))

    def _member_keys(self, keys: Key[Array, "seed"]) -> Key[Array, "member"]:
        return jax.vmap(lambda key: named.split(key, "member", self.members))(keys).reshape(-1)

    def _as_members(self, leaf: Array) -> Array:
        """Turn the axes (seed, env) into (seed * member, env of its)."""
        shape = self.seeds * self.members, self._seated // self.members
        return leaf[:, : self._seated].reshape(*shape, *leaf.shape[2:])

    def _as_envs(self, leaf: Array) -> Array:
        """Turn the axes (seed * member, env of its) into (seed, env)."""
        own = leaf.reshape(self.seeds, self._seated, *leaf.shape[2:])
        rest = [(0, 0), (0, self.spec.envs - self._seated)] + [(0, 0)] * (own.ndim - 2)
        return jnp.pad(own, rest)


def merge_steps(step: Step, answer: Step) -> Step:
    """Merge the agent's step and the reply into one step. A reset row stays masked, even if the
    opponent has begun."""
    reward = jnp.asarray(step.reward + step.discount * answer.reward)
    return dataclasses.replace(
        answer,
        reward=jnp.where(step.mask, reward, 0.0),
        discount=jnp.asarray(step.discount * answer.discount),
        mask=step.mask,
    )


class OpponentPool(Around, eqx.Module):
    """Rollouts in an :class:`OpponentGame`; every ``every`` steps the present agent replaces a
    uniformly drawn pool member.

    So the pool mostly holds recent versions and a few old ones. A replaced member is also replaced
    in the games in progress.
    """

    source: Rollout
    lived: Int[Array, "seed"]  # steps
    every: int = eqx.field(static=True)

    @classmethod
    def create(
        cls, source: Rollout, config: Config, keys: Key[Array, "seed"], actor: Actor
    ) -> OpponentPool:
        """Create a pool filled with ``actor``.

        Raises Mistake if the world does not allow it.
        """
        members, every = config.members, config.every
        world = source.world
        seated = members * _envs_per_member(world, members)
        arrays = eqx.partition(actor, eqx.is_array)[0]
        pool = jax.tree.map(lambda x: jnp.repeat(x[:, None], members, 1), arrays)
        none = jnp.zeros((world.seeds, world.spec.envs), bool)
        game = OpponentGame(world, actor, members, seated)
        state = GameState(source.state, pool, none, game.empty_past(pool, keys))
        source = dataclasses.replace(source, world=game, state=state)
        return cls(source, jnp.zeros(world.seeds, jnp.int32), every)

    def live(self, agent: Actor, keys: Key[Array, "seed"]) -> tuple[OpponentPool, Record]:
        """Act for ``length`` steps, after updating the pool if it is due."""
        begun = self.source
        if not isinstance(
            agent, RandomActor
        ):  # random warm-up actions are no older version of the agent
            state = begun.state
            pool = self._renewed(agent, state.pool, named.fold_each(keys, "leaves"))
            begun = dataclasses.replace(begun, state=dataclasses.replace(state, pool=pool))
        source, rows = begun.live(agent, keys)
        steps = self.length * self.world.spec.envs
        return OpponentPool(source, self.lived + steps, self.every), rows

    def _renewed(self, agent: Actor, pool: PyTree, keys: Key[Array, "seed"]) -> PyTree:
        steps = self.length * self.world.spec.envs
        due = (self.lived + steps) // self.every != self.lived // self.every
        members = jax.tree.leaves(pool)[0].shape[1]
        place = jax.vmap(lambda key: jax.random.randint(key, (), 0, members))(keys)
        into = due[:, None] & (jnp.arange(members)[None] == place[:, None])
        now = eqx.partition(agent, eqx.is_array)[0]
        now = jax.tree.map(lambda new, old: jnp.broadcast_to(new[:, None], old.shape), now, pool)
        return tree_where(into, now, pool)


def _envs_per_member(world: World, members: int) -> int:
    """Return the number of envs per pool member. Raises Mistake if the world does not allow a
    pool."""
    if not world.spec.alternating:
        raise Mistake(
            "an opponent pool needs a two-player turn-based game, such as "
            "tictactoe:self; leave out sources=pool"
        )
    if not world.exact:
        raise Mistake(
            "an opponent pool needs an environment whose state can be saved, because some envs "
            "reply while the others wait; leave out sources=pool"
        )
    if world.spec.channels:
        raise Mistake(
            "an opponent pool does not support games with channels; leave out sources=pool"
        )
    each = int(world.spec.envs * OPPONENT_SHARE) // members
    if not each:
        raise Mistake(
            f"a pool of {members} needs more than {world.spec.envs} envs; use at least "
            f"--envs {2 * members}"
        )
    return each


LAYER = Layer(
    "pool",
    "older versions of the agent play the other side in half of the envs",
    Config,
    rollouts=OpponentPool.create,
)
