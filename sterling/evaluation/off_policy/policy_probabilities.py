"""Policies for off-policy evaluation: they sample actions and, if possible, give
log-probabilities."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from sterling.nets.action_heads import FORBIDDEN_LOGIT, Actions
from sterling.nets.distributions import Categorical
from sterling.types import Action, Mistake, Obs, Spec


@runtime_checkable
class Policy(Protocol):
    """The interface of an evaluated policy: a tree of arrays (an ``eqx.Module``), called with
    ``(row, ...)`` arrays.

    Actions are in the agent's units (bounded boxes in [-1, 1], choices from 0). ``has_log_prob`` is
    False for deterministic policies of continuous actions, which have no density; these can be
    evaluated by ``fqe`` and ``model`` only.
    """

    @property
    def has_log_prob(self) -> bool:
        """Whether ``log_prob`` is available."""

    def sample(self, obs: Obs, key: Key[Array, ""]) -> Action:
        """Return an action for every row."""

    def log_prob(self, obs: Obs, action: Action) -> Float[Array, "row"]:
        """Return log pi(a|s); -inf for actions of probability 0."""


class TrainedPolicy(eqx.Module):
    """The policy of a trained agent, for one seed.

    ``sampled``: act stochastically (as ``log_prob`` describes; greedy for ``dqn``), otherwise by
    the mode. Algorithms without ``log_prob`` (``td3``) have only the mode.
    """

    state: Any
    algorithm: Any = eqx.field(static=True)
    actions: Actions = eqx.field(static=True)
    sampled: bool = eqx.field(static=True)

    @classmethod
    def from_run(
        cls, run: Any, spec: Spec, seed: int | None = None, sampled: bool = True
    ) -> TrainedPolicy:
        """Create the policy of a ``TrainedRun`` for the spaces of ``spec`` (a dataset's); ``seed``
        is one of its seeds (None: the first).

        Raises :class:`Mistake` for agents with a memory.
        """
        run.agent.check_memoryless("evaluate it in the world")
        seeds = list(run.settings.seeds)
        index = 0 if seed is None else seeds.index(seed)
        state = jax.tree.map(lambda x: x[index], run.agent.state)
        algorithm = run.agent.algorithm
        has = hasattr(algorithm, "log_prob")
        return cls(state, algorithm, Actions.from_space(spec.action), sampled and has)

    @property
    def has_log_prob(self) -> bool:
        """Return False for a deterministic policy of continuous actions."""
        return self.sampled or self.actions.kind != "box"

    def sample(self, obs: Obs, key: Key[Array, ""]) -> Action:
        """Draw actions; discrete ones with exactly the probabilities of ``log_prob``."""
        if self.sampled and self.actions.kind == "discrete":
            return Categorical(action_log_probs(self, obs, self.actions.outputs)).sample(key)
        return self.algorithm.act(self.state, obs, key, self.sampled)[0]

    def log_prob(self, obs: Obs, action: Action) -> Float[Array, "row"]:
        """Return the algorithm's log-probability; for a deterministic policy 0 for its action and
        -inf for others."""
        if self.sampled:
            return self.algorithm.log_prob(self.state, obs, action)
        same = self.algorithm.act(self.state, obs, jax.random.key(0), False)[0] == action
        return jnp.where(same.reshape(same.shape[0], -1).all(-1), 0.0, -jnp.inf)


class TabularPolicy(eqx.Module):
    """A policy given as a table, for worlds whose states are integers or one-hot vectors."""

    table: Float[Array, "state action"]

    @classmethod
    def from_table(cls, table: Float[np.ndarray, "state action"]) -> TabularPolicy:
        """Create the policy from probabilities; every row sums to 1."""
        return cls(jnp.asarray(table, jnp.float32))

    @property
    def has_log_prob(self) -> bool:
        """Return True."""
        return True

    def sample(self, obs: Obs, key: Key[Array, ""]) -> Action:
        """Draw actions."""
        logits = jnp.maximum(jnp.log(self.table[state_numbers(obs)]), FORBIDDEN_LOGIT)
        return Categorical(logits).sample(key)

    def log_prob(self, obs: Obs, action: Action) -> Float[Array, "row"]:
        """Return the logarithm of the table's entry."""
        return jnp.log(self.table[state_numbers(obs), action])


def state_numbers(obs: Array) -> Array:
    """Return the state numbers of observations that are integers or one-hot vectors."""
    is_number = jnp.issubdtype(obs.dtype, jnp.integer)
    return obs if is_number else jnp.argmax(obs, -1).astype(jnp.int32)


def action_log_probs(policy: Policy, obs: Obs, choices: int) -> Float[Array, "row choice"]:
    """Return log pi of each of ``choices`` discrete actions."""
    rows = jax.tree.leaves(obs)[0].shape[0]

    def each(action: Array) -> Array:
        return policy.log_prob(obs, jnp.broadcast_to(action, (rows,)))

    return jax.vmap(each, out_axes=-1)(jnp.arange(choices, dtype=jnp.int32))


def check_log_prob(policy: Policy, method: str) -> None:
    """Raise Mistake if an importance-sampling ``method`` cannot evaluate the policy."""
    if not policy.has_log_prob:
        raise Mistake(
            f"{method} needs the probability of logged actions, but a deterministic policy of "
            "continuous actions has none; use fqe"
        )


def check_same_problem(ours: Spec, logged: Spec) -> None:
    """Raise Mistake if the dataset has other spaces than the policy."""
    for what, here, there in (
        ("observations", ours.obs, logged.obs),
        ("actions", ours.action, logged.action),
    ):
        known = [(type(one), one.shape, getattr(one, "n", None)) for one in (here, there)]
        if known[0] != known[1]:
            raise Mistake(
                f"the dataset's {what} are {there}, but the policy's are {here}; "
                "use a dataset of the policy's environment"
            )
