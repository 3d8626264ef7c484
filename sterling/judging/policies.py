"""Policies to be judged: what can be asked for actions and, better, for their probabilities."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from sterling.nets.distributions import Categorical
from sterling.nets.heads import IMPOSSIBLE, Actions
from sterling.types import Action, Mistake, Obs, Spec


@runtime_checkable
class Policy(Protocol):
    """What is judged: a tree of arrays (an ``eqx.Module``), called with ``(row, ...)`` arrays.

    Actions are in an agent's units (bounded boxes in [-1, 1], choices from 0). ``has_log_prob`` is
    False for deterministic policies of continuous actions, which have no density; such a one can
    be judged by ``fqe`` and ``model`` only.
    """

    @property
    def has_log_prob(self) -> bool:
        """Whether ``log_prob`` can be asked."""

    def sample(self, obs: Obs, key: Key[Array, ""]) -> Action:
        """An action for every row."""

    def log_prob(self, obs: Obs, action: Action) -> Float[Array, "row"]:
        """log pi(a|s); -inf for what the policy never does."""


class Trained(eqx.Module):
    """The policy of a trained agent, one seed's.

    ``sampled``: as it acts by chance (what its ``log_prob`` speaks of; greedy for ``dqn``), else
    its mode. Algorithms without ``log_prob`` (``td3``) have only the latter.
    """

    state: Any
    algorithm: Any = eqx.field(static=True)
    actions: Actions = eqx.field(static=True)
    sampled: bool = eqx.field(static=True)

    @classmethod
    def of(cls, run: Any, spec: Spec, seed: int | None = None, sampled: bool = True) -> Trained:
        """Of a ``TrainedRun`` on the problem ``spec`` (a log's); ``seed`` is one of its seeds (the
        first). Raises :class:`Mistake` for agents that act by what they remember."""
        run.agent.needs_no_memory("evaluate it in the world")
        seeds = list(run.settings.seeds)
        index = 0 if seed is None else seeds.index(seed)
        state = jax.tree.map(lambda x: x[index], run.agent.state)
        algorithm = run.agent.algorithm
        has = hasattr(algorithm, "log_prob")
        return cls(state, algorithm, Actions.of(spec.action), sampled and has)

    @property
    def has_log_prob(self) -> bool:
        """Not for one point of a continuous space."""
        return self.sampled or self.actions.kind != "box"

    def sample(self, obs: Obs, key: Key[Array, ""]) -> Action:
        """Draw; choices by the very probabilities that ``log_prob`` speaks of."""
        if self.sampled and self.actions.kind == "discrete":
            return Categorical(log_probs(self, obs, self.actions.outputs)).sample(key)
        return self.algorithm.act(self.state, obs, key, self.sampled)[0]

    def log_prob(self, obs: Obs, action: Action) -> Float[Array, "row"]:
        """The algorithm's own; of a mode 0 for it and -inf for the rest."""
        if self.sampled:
            return self.algorithm.log_prob(self.state, obs, action)
        same = self.algorithm.act(self.state, obs, jax.random.key(0), False)[0] == action
        return jnp.where(same.reshape(same.shape[0], -1).all(-1), 0.0, -jnp.inf)


class Chances(eqx.Module):
    """A policy given by its table, for worlds whose states are numbers or one-hot vectors."""

    table: Float[Array, "state action"]

    @classmethod
    def of(cls, table: Float[np.ndarray, "state action"]) -> Chances:
        """From probabilities; every row sums to 1."""
        return cls(jnp.asarray(table, jnp.float32))

    @property
    def has_log_prob(self) -> bool:
        """Always."""
        return True

    def sample(self, obs: Obs, key: Key[Array, ""]) -> Action:
        """Draw."""
        logits = jnp.maximum(jnp.log(self.table[numbers(obs)]), IMPOSSIBLE)
        return Categorical(logits).sample(key)

    def log_prob(self, obs: Obs, action: Action) -> Float[Array, "row"]:
        """log of the table's entry."""
        return jnp.log(self.table[numbers(obs), action])


def numbers(obs: Array) -> Array:
    """The numbers of states observed as numbers or as one-hot vectors."""
    is_number = jnp.issubdtype(obs.dtype, jnp.integer)
    return obs if is_number else jnp.argmax(obs, -1).astype(jnp.int32)


def log_probs(policy: Policy, obs: Obs, choices: int) -> Float[Array, "row choice"]:
    """log pi of every one of ``choices`` discrete actions."""
    rows = jax.tree.leaves(obs)[0].shape[0]

    def each(action: Array) -> Array:
        return policy.log_prob(obs, jnp.broadcast_to(action, (rows,)))

    return jax.vmap(each, out_axes=-1)(jnp.arange(choices, dtype=jnp.int32))


def needs_log_prob(policy: Policy, method: str) -> None:
    """Raises Mistake for a policy that an importance-sampling ``method`` cannot judge."""
    if not policy.has_log_prob:
        raise Mistake(
            f"{method} needs the probability of logged actions, which a deterministic policy of "
            "continuous actions has not; take fqe"
        )


def same_problem(ours: Spec, logged: Spec) -> None:
    """Raises Mistake where a log is not of the problem that a policy is for."""
    for what, here, there in (
        ("observations", ours.obs, logged.obs),
        ("actions", ours.action, logged.action),
    ):
        known = [(type(one), one.shape, getattr(one, "n", None)) for one in (here, there)]
        if known[0] != known[1]:
            raise Mistake(f"the log's {what} are {there}, the policy's {here}; take its own log")
