"""Policy distillation from two teachers (Rusu 2015, arXiv:1511.06295), on the student's own
observations (Ross 2011, arXiv:1011.0686).

    target   p(a|s) = w_1 pi_1(a|s) + w_2 pi_2(a|s)
    loss     L      = E_replay[ -sum_a p(a|s) log pi(a|s) ]

pi_1 and pi_2 are the policies of two finished runs of PPO in the same world. By ``mixture`` w is
(1/2, 1/2); by ``better`` it is 1 for the run whose final evaluation was better, so that the student
matches that one. The student acts, the teachers say in every row what they would have done.
Deviations: one world and not many games; probabilities of temperature 1; actions must be discrete;
every seed of the student imitates the best seed of each teacher. Without ``teachers`` they are two
PPO agents that have not learned, which `sterling check` uses. Of teachers of returns
131.7 and 500 (means of two seeds) two seeds learned to reach 500 by

    sterling train examples/methods/distill_two.py CartPole-v1 --steps 5_000 --seeds 2 \\
        --teachers runs/weak,runs/strong
"""

from __future__ import annotations

import functools
from typing import Annotated, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Key

import sterling
from sterling import random_keys
from sterling.algorithms.online import ppo
from sterling.equations.masked_average import masked_mean
from sterling.field_types import Count, NotNegative, OneOf, Whole
from sterling.nets.action_heads import ONLINE, Actions, supported_actions
from sterling.nets.mlp import MLP
from sterling.nets.optimiser import adam, descend
from sterling.types import Action, Mistake, Obs, Record, Signals, Spec, Transitions, config

checked_in = {"environment": "probe:observation"}


@config
class Config:
    """The student's settings, and who teaches it."""

    teachers: str = ""  # folders of two runs of PPO, joined by a comma
    weights: Annotated[str, OneOf(("better", "mixture"))] = "better"  # how much each counts
    lr: NotNegative = 1e-3  # Adam's step size
    batch: Count = 64  # transitions per update
    capacity: Count = 50_000  # replay capacity in transitions, per seed
    warmup: Whole = 500  # steps with random actions before the first update
    width: Count = 64  # units of each of the two hidden layers


class State(eqx.Module):
    """Everything that changes during training, and the teachers."""

    policy: MLP
    optimiser: optax.OptState
    teachers: tuple[ppo.State, ...]
    weights: Float[Array, "teacher"]
    config: Config
    actions: Actions = eqx.field(static=True)


def needs(config: Config) -> Transitions:
    """Ask for transitions of the student."""
    return Transitions(config.batch, capacity=config.capacity, warmup=config.warmup)


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """Create a student, and read its teachers. Raise Mistake for actions that are not discrete."""
    actions = supported_actions("distill_two", spec.action, ("discrete",), ONLINE)
    with jax.ensure_compile_time_eval():
        if config.teachers:
            found = read_teachers(config.teachers)
        else:
            keys = jax.random.key(0), jax.random.key(1)
            found = [(ppo.init(each, spec, ppo.Config()), 0.0) for each in keys]
    scores = jnp.array([score for _, score in found], jnp.float32)
    best = jax.nn.one_hot(scores.argmax(), 2)
    weights = best if config.weights == "better" else jnp.full(2, 0.5)
    sizes = (spec.obs.shape[0], config.width, config.width, actions.outputs)
    policy = MLP.uniform(random_keys.fold(key, "policy"), sizes, "relu")
    teachers = tuple(jax.tree.map(jnp.asarray, state) for state, _ in found)
    return State(policy, adam().init(policy), teachers, weights, config, actions)


@functools.cache
def read_teachers(folders: str) -> list[tuple[Any, float]]:
    """Return the agent of each run's best seed, and its return in the final evaluation."""
    found = []
    for folder in folders.split(","):
        run = sterling.load(folder.strip())
        returns = run.result["final"]["return"]["per_seed"]
        best = max(range(len(returns)), key=returns.__getitem__)
        state = jax.tree.map(lambda x, best=best: x[best], run.agent.state)
        if not isinstance(state, ppo.State):
            raise Mistake(f"{folder} is no run of ppo: give --teachers two runs of ppo.")
        found.append((state, float(returns[best])))
    if len(found) != 2:
        raise Mistake("Give --teachers two folders, such as runs/one,runs/other.")
    return found


def act(
    state: State, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, dict[str, Array]]:
    """Return a sample of the student's policy, or its mode without ``explore``."""
    pi = state.actions.distribution(state.policy(obs))
    return state.actions.shaped(pi.sample(key) if explore else pi.mode()), {}


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Make one update on transitions ``(batch, ...)``."""
    said = taught(state, batch.obs)

    def loss(policy: MLP) -> Float[Array, ""]:
        log_pi = jax.nn.log_softmax(policy(batch.obs))
        return masked_mean(-(said * log_pi).sum(-1), batch.mask)

    value, grads = jax.value_and_grad(loss)(state.policy)
    direction, optimiser = adam().update(grads, state.optimiser)
    policy = descend(state.policy, direction, state.config.lr)
    moved = State(policy, optimiser, state.teachers, state.weights, state.config, state.actions)
    agreed = state.policy(batch.obs).argmax(-1) == said.argmax(-1)
    agreement = masked_mean(agreed.astype(jnp.float32), batch.mask)
    return moved, Signals({"loss/policy": value, "teachers/agreement": agreement})


def taught(state: State, obs: Obs) -> Float[Array, "row actions"]:
    """Return p(a|s) of the module docstring."""
    every = jnp.arange(state.actions.outputs)

    def probabilities(teacher: ppo.State) -> Float[Array, "actions row"]:
        rows = obs.shape[0]
        one = lambda action: ppo.log_prob(teacher, obs, jnp.full(rows, action))  # noqa: E731
        return jnp.exp(jax.vmap(one)(every))

    each = jnp.stack([probabilities(teacher) for teacher in state.teachers])
    return (state.weights[:, None, None] * each).sum(0).T
