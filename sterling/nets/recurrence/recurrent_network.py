"""Recurrent networks: the GRU, and the core that agents with memory of any kind share."""

from __future__ import annotations

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from sterling import random_keys
from sterling.actor import Past
from sterling.nets.action_heads import Actions
from sterling.nets.mlp import MLP, Linear, orthogonal_matrix
from sterling.nets.obs_encoder import Encoder
from sterling.nets.recurrence.linear_recurrence import LRU
from sterling.nets.recurrence.lstm_unit import LSTM
from sterling.nets.recurrence.state_space import S5
from sterling.types import Action, Obs, Spec


class GRU(eqx.Module):
    """A gated recurrent unit (Cho 2014, arXiv:1406.1078, with the reset gate after the product, as
    cuDNN has it):

        r, z = sigmoid(W x + U h + b)        n = tanh(W_n x + b_n + r (U_n h + c_n))
        h'   = (1 - z) n + z h
    """

    inputs: Linear  # to r, z and n side by side
    hidden: Linear

    @classmethod
    def create(cls, key: Key[Array, ""], size: int, width: int) -> GRU:
        """Create a unit with orthogonal weights (each gate by itself) and zero biases."""

        def weights(name: str, rows: int) -> Float[Array, "rows three_widths"]:
            raw = jax.random.normal(random_keys.fold(key, name), (3, rows, width))
            return jnp.concatenate([orthogonal_matrix(raw[gate]) for gate in range(3)], 1)

        zeros = jnp.zeros(3 * width)
        return cls(Linear(weights("inputs", size), zeros), Linear(weights("hidden", width), zeros))

    def __call__(
        self, hidden: Float[Array, "... width"], x: Float[Array, "... inputs"]
    ) -> Float[Array, "... width"]:
        """Return the memory after input ``x``."""
        return self._after(hidden, self.inputs(x))

    def unroll(
        self,
        hidden: Float[Array, "env width"],
        x: Float[Array, "time env inputs"],
        begins: Bool[Array, "time env"],
    ) -> Float[Array, "time env width"]:
        """Return the memory after every row; before a row that ``begins`` an episode it is 0."""

        def step(hidden: Array, row: tuple[Array, Array]) -> tuple[Array, Array]:
            given, first = row
            hidden = self._after(jnp.where(first[:, None], 0.0, hidden), given)
            return hidden, hidden

        return jax.lax.scan(step, hidden, (self.inputs(x), begins))[1]

    @property
    def size(self) -> int:
        """Return how many numbers the memory has."""
        return self.hidden.weight.shape[0]

    def read(
        self, hidden: Float[Array, "... width"], x: Float[Array, "... inputs"]
    ) -> Float[Array, "... width"]:
        """Return the features of memories: the memories themselves."""
        return hidden

    def _after(self, hidden: Array, given: Float[Array, "... gates"]) -> Array:
        """Return the next memory; ``given`` is W x + b of all gates."""
        own = self.hidden(hidden)
        reset, keep = (
            jax.nn.sigmoid(a + b)
            for a, b in zip(jnp.split(given, 3, -1)[:2], jnp.split(own, 3, -1)[:2], strict=True)
        )
        new = jnp.tanh(jnp.split(given, 3, -1)[2] + reset * jnp.split(own, 3, -1)[2])
        return (1.0 - keep) * new + keep * hidden


UNITS: dict[str, Any] = {
    "gru": GRU,
    "lstm": LSTM,
    "lru": LRU,
    "s5": S5,
}  # by the field ``memory`` of a Config


class RecurrentCore(eqx.Module):
    """A memory of past observations, actions and rewards, shared by agents with memory.

    h_t = unit(h_{t-1}, x_t), x_t = tanh(W [features(s_t), a_{t-1}, r_{t-1}]); the rest of the
    network reads ``unit.read(h_t, x_t)``.
    """

    torso: Encoder
    before: MLP
    memory: GRU | LSTM | LRU | S5
    actions: Actions = eqx.field(static=True)

    @staticmethod
    def parts(
        key: Key[Array, ""], spec: Spec, width: int, unit: str = "gru", activation: str = "tanh"
    ) -> tuple[Encoder, MLP, Any, Actions]:
        """Create the fields of this class, for a unit of the kind ``unit`` and of ``width``."""
        torso, actions = (
            Encoder.create(random_keys.fold(key, "torso"), spec),
            Actions.from_space(spec.action),
        )
        sizes = (torso.size + actions.outputs + 1, width)
        before = MLP.orthogonal(random_keys.fold(key, "before"), sizes, activation, 2**0.5, True)
        made = UNITS[unit].create(random_keys.fold(key, "memory"), width, width)
        return torso, before, made, actions

    def inputs(
        self, obs: Obs, action: Action, reward: Float[Array, "..."], first: Bool[Array, "..."]
    ) -> Float[Array, "... width"]:
        """Return the unit's inputs: observations with the actions and rewards of the previous step.
        In the ``first`` step of an episode these are 0. If observations and actions have an axis
        of agents behind those of ``reward`` and ``first``, each agent gets the team's reward."""
        features = self.torso(obs)
        reward, first = (_for_agents(x, features.shape[:-1]) for x in (reward, first))
        past_action = jnp.where(first[..., None], 0.0, self.actions.encode(action))
        past_reward = jnp.where(first, 0.0, reward)[..., None]
        return self.before(jnp.concatenate([features, past_action, past_reward], -1))

    def remember(
        self, past: Past, obs: Obs
    ) -> tuple[Float[Array, "env *agent numbers"], Float[Array, "env *agent width"]]:
        """Return h_t while acting, from what ``past`` remembers and the new observation, and what
        the rest of the network reads of it."""
        inputs = self.inputs(obs, past.action, past.reward, past.first)
        hidden: Any = self.memory(past.memory, inputs)
        return hidden, self.memory.read(hidden, inputs)

    def unroll(
        self,
        hidden: Float[Array, "env *agent numbers"],
        inputs: Float[Array, "time env *agent width"],
        begins: Bool[Array, "time env"],
    ) -> Float[Array, "time env *agent width"]:
        """Return what the rest of the network reads after every row, given the memory before."""
        return self.memory.read(self.memories(hidden, inputs, begins), inputs)

    def memories(
        self,
        hidden: Float[Array, "env *agent numbers"],
        inputs: Float[Array, "time env *agent width"],
        begins: Bool[Array, "time env"],
    ) -> Float[Array, "time env *agent numbers"]:
        """Return the memory after every row, given the one before; each agent has its own."""
        if inputs.ndim == begins.ndim + 1:
            return self.memory.unroll(hidden, inputs, begins)
        rows, own = inputs.shape[0], hidden.shape[-1]
        count = math.prod(inputs.shape[1:-1])  # agents of all envs; there may be no rows
        each = _for_agents(begins, inputs.shape[:-1]).reshape(rows, count)
        flat = inputs.reshape(rows, count, inputs.shape[-1])
        found = self.memory.unroll(hidden.reshape(count, own), flat, each)
        return found.reshape(*inputs.shape[:-1], own)


def _for_agents(x: Array, shape: tuple[int, ...]) -> Array:
    """Return ``x`` of environments repeated for the agents that ``shape`` has behind its axes."""
    return jnp.broadcast_to(x[..., None], shape) if x.ndim < len(shape) else x
