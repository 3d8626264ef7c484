"""BBF (Schwarzer 2023, arXiv:2305.19452): SPR with a larger network that is partly renewed.

    loss        L     = L_c51 - coef E[ w C ]                          (double, dueling; C is spr's)
    horizon     n     = n0^(1-p) n1^p,   1 - gamma = (1 - gamma0)^(1-p) (1 - gamma1)^p,
                p     = min(j / horizon_updates, 1)
    steps       theta <- theta - lr (Adam's direction + weight_decay theta)
    target      theta' <- theta' + tau (theta - theta')
    renewal     of encoder and model   theta <- shrink theta + (1 - shrink) phi
                of all other layers    theta <- phi                every ``reset_period`` updates
    behaviour   a uniformly at random with probability epsilon, else argmax_a Q'(s, a)

j counts updates since the last renewal, phi are new initial weights, drawn for networks and targets
apart; the optimiser begins anew, and no renewal comes where fewer than ``reset_period`` updates
would follow. The agent acts by the target network, in evaluation too. Of pictures the encoder is
IMPALA's with 4 times as many channels (``--encoder impala-wide``) unless another is chosen; g is
one layer, which both streams read after a ReLU. Weights decay, biases do not.

Deviations from the paper: weights begin as elsewhere in Sterling (theirs: Xavier's, uniform);
encoder and model keep no moments of the optimiser through a renewal; priorities are KL(m || p)
(theirs: the cross entropy); time limits bootstrap from the true successor; epsilon is 0 in
evaluation (theirs: 0.001).
Evidence: none at published scale yet; probe worlds and an oracle in tests/contract/.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Key

from sterling import random_keys
from sterling.algorithms.online import dqn
from sterling.algorithms.q_learning import c51, rainbow, spr
from sterling.equations.picture_augmentation import OnPictures, picture_layouts
from sterling.equations.polyak import polyak
from sterling.equations.value_losses import annealed_discount, annealed_steps
from sterling.field_types import Activation, Count, Depth, Finite, NotNegative, Share, Sizes, Whole
from sterling.nets.action_heads import ONLINE, Actions, supported_actions
from sterling.nets.mlp import MLP
from sterling.nets.obs_encoder import Encoder
from sterling.nets.optimiser import adam, descend, global_norm
from sterling.nets.special_layers.latent_transition import LatentTransition, unit_range
from sterling.types import Action, Needs, Obs, Record, Signals, Spec, config


@config
class Config:
    """Defaults are those of the paper for 100,000 steps of Atari games, with 4 frames to a step and
    2 updates."""

    lr: NotNegative = 1e-4  # AdamW's step size
    adam_eps: NotNegative = 1.5e-4  # added to the root in Adam's denominator
    weight_decay: NotNegative = 0.1  # AdamW's weight decay
    gamma: Share = 0.997  # discount per step
    gamma_initial: Share = 0.97  # discount after a renewal, which approaches gamma
    n_step: Count = 10  # rewards summed before bootstrapping, after a renewal
    n_step_final: Count = 3  # rewards summed later
    horizon_updates: Count = 10_000  # updates over which n_step and the discount change
    reset_period: Whole = 40_000  # updates between renewals; 0: none
    shrink: Share = 0.5  # share of old weights in renewed encoders and models
    atoms: Count = 51  # of every action's return
    v_min: Finite = -10.0  # lowest return that can be represented
    v_max: Finite = 10.0  # highest return that can be represented
    batch: Count = 32  # stretches per update
    collect: Count = 1  # steps of each env per iteration
    learn: Count = 2  # updates per iteration
    capacity: Count = 200_000  # replay capacity in transitions, per seed
    warmup: Whole = 2_000  # steps with random actions before the first update
    tau: Share = 0.005  # share by which the target network moves in each update
    exploration_initial: Share = 1.0  # initial epsilon
    exploration_final: Share = 0.0  # final epsilon
    exploration_fraction: Share = 0.02  # share of the planned updates in which epsilon falls
    priority: NotNegative | None = 0.5  # exponent of prioritised replay; None: uniform
    correction: Share = 0.5  # exponent of the importance weights of prioritised replay
    prediction_steps: Count = 5  # K: steps ahead for which latents are predicted
    prediction_coef: NotNegative = 2.0  # weight of the predictions in the loss
    shift: Whole = 4  # pixels by which pictures are shifted at most; 0: no augmentation
    width: Sizes = 2048  # units per hidden layer, or of each layer such as 400,300
    depth: Depth = 2  # hidden layers, for vectors (after convolutions: one)
    activation: Activation = "relu"  # tanh, relu, silu, elu or gelu


class BBFNetwork(eqx.Module):
    """The logits of p(s, .), for every action, on predictable latents."""

    torso: Encoder
    psi: MLP | None  # the first hidden layer; None: the latent is made of the encoder's features
    transition: LatentTransition  # h
    projection: MLP  # g: the last hidden layer, before its ReLU, and those before it
    value: MLP
    advantage: MLP  # of the first action's atoms, then of the second's ...
    predictor: MLP  # q
    actions: Actions = eqx.field(static=True)

    def latent(self, obs: Obs) -> Float[Array, "... latent"]:
        """Return z."""
        features = self.torso(obs)
        return unit_range(features if self.psi is None else self.psi(features))

    def __call__(self, obs: Obs, key: Any = None) -> Float[Array, "... actions atom"]:
        """Return the logits of every action; nothing is random."""
        return self.logits(self.latent(obs))

    def logits(
        self, latent: Float[Array, "... latent"], key: Any = None
    ) -> Float[Array, "... actions atom"]:
        """Return the logits of every action, given z."""
        hidden = jax.nn.relu(self.project(latent))
        value, advantage = self.value(hidden), self.advantage(hidden)
        return rainbow.dueling_logits(value, advantage, self.actions.outputs)

    def project(self, latent: Float[Array, "... latent"]) -> Float[Array, "... units"]:
        """Return g(z)."""
        return self.projection(latent)

    @classmethod
    def create(cls, key: Key[Array, ""], spec: Spec, config: Config) -> BBFNetwork:
        """Create a network with new weights."""
        actions = supported_actions("bbf", spec.action, ("discrete",), ONLINE)
        torso, psi, sizes = spr.latent_parts(key, spec, config)

        def part(name: str, *widths: int) -> MLP:
            return MLP.uniform(random_keys.fold(key, name), widths, config.activation)

        units, grid = sizes[-1], None if psi is not None else torso.grid
        transition_key = random_keys.fold(key, "transition")
        return cls(
            torso,
            psi,
            LatentTransition.create(transition_key, sizes[0], actions.outputs, grid),
            part("projection", *sizes, *(() if len(sizes) > 1 else (units,))),
            part("value", units, config.atoms),
            part("advantage", units, actions.outputs * config.atoms),
            part("predictor", units, units),
            actions,
        )


@dataclasses.dataclass(frozen=True)
class Problem:
    """What new weights are drawn for. Two are equal if their words are."""

    words: str
    spec: Spec = dataclasses.field(compare=False, repr=False)


class State(eqx.Module):
    """Everything that changes during training."""

    net: BBFNetwork
    target: BBFNetwork
    optimiser: optax.OptState
    updates: Int[Array, ""]
    since: Int[Array, ""]  # updates since the last renewal: j
    planned: Float[Array, ""]  # updates planned
    config: Config
    augment: OnPictures | None = eqx.field(static=True)
    problem: Problem = eqx.field(static=True)


def needs(config: Config) -> Needs:
    """Ask for stretches of K + 1 rows from a prioritised replay buffer, with windows for the larger
    n of n-step sums."""
    return spr.stretches(config, max(config.n_step, config.n_step_final))


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """Create an agent. Raises :class:`Mistake` for actions that are not one choice, and for atoms
    that are no interval."""
    c51.check_support(config)
    if not spec.encoder and any(picture_layouts(spec)):
        spec = dataclasses.replace(spec, encoder="impala-wide")
    net = BBFNetwork.create(key, spec, config)
    return State(
        net,
        jax.tree.map(jnp.copy, net),
        adam().init(net),
        jnp.zeros((), jnp.int32),
        jnp.zeros((), jnp.int32),
        jnp.asarray(float(spec.iterations * config.learn)),
        config,
        spr.augmentation(spec, config.shift),
        Problem(f"{spec.obs} {spec.action} {spec.encoder}", spec),
    )


def act(
    state: State, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, dict[str, Array]]:
    """Return the best action by Q'; with ``explore`` and probability epsilon a random one."""
    q = c51.q_values(state.target(obs), state.config)
    return dqn.act_by_values(state, q, obs, key, explore)


def log_prob(state: State, obs: Obs, action: Action) -> Float[Array, "env"]:
    """Return log pi(a|s) of the greedy policy: 0 for the best action, -inf for others."""
    q = c51.q_values(state.target(obs), state.config)
    return dqn.greedy_log_prob(state.net.actions, q, obs, action)


def value(state: State, obs: Obs) -> Float[Array, "env"]:
    """Return max_a Q'(s, a), the expected return of the policy that acts."""
    q = c51.q_values(state.target(obs), state.config)
    return dqn.mask_forbidden(q, obs, state.net.actions.sizes).max(-1)


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Make one update on stretches ``(batch, time, ...)``; renew the networks if that is due."""
    n_step, gamma = n_step_now(state)
    current = eqx.tree_at(lambda config: config.gamma, state.config, gamma)
    grads, metrics, divergence = spr.gradients(state, batch, key, current)
    metrics |= {"loss/grad_norm": global_norm(grads), "policy/epsilon": dqn.epsilon(state)}
    metrics |= {"value/n_step": n_step.astype(jnp.float32), "value/gamma": gamma}
    learned = descended(state, grads)
    if period := state.config.reset_period:
        left = state.planned - learned.updates.astype(jnp.float32)
        due = (learned.since >= period) & (left >= period)
        learned = jax.lax.cond(due, lambda: renewed(learned, key), lambda: learned)
    return learned, Signals(metrics, {"td_error": divergence})


def descended(state: State, grads: BBFNetwork) -> State:
    """Return the state after one step of AdamW down ``grads``, and of the target network."""
    config = state.config
    direction, optimiser = adam(config.adam_eps).update(grads, state.optimiser)
    steps = jax.tree.map(
        lambda d, p: d + config.weight_decay * p if p.ndim > 1 else d, direction, state.net
    )
    net = descend(state.net, steps, config.lr)
    target, updates = polyak(state.target, net, config.tau), state.updates + 1
    fresh = {"net": net, "target": target, "optimiser": optimiser, "updates": updates}
    return dataclasses.replace(state, **fresh, since=state.since + 1)


def renewed(state: State, key: Key[Array, ""]) -> State:
    """Return the state after a renewal of its networks."""

    def renew(net: BBFNetwork, name: str) -> BBFNetwork:
        new_key = random_keys.fold(key, f"new {name}")
        fresh = BBFNetwork.create(new_key, state.problem.spec, state.config)
        new, old = ((each.torso, each.psi, each.transition) for each in (fresh, net))
        torso, psi, transition = polyak(new, old, state.config.shrink)
        return dataclasses.replace(fresh, torso=torso, psi=psi, transition=transition)

    net, target = renew(state.net, "net"), renew(state.target, "target")
    fresh = {"net": net, "target": target, "optimiser": adam().init(net)}
    return dataclasses.replace(state, **fresh, since=jnp.zeros_like(state.since))


def n_step_now(state: State) -> tuple[Int[Array, ""], Float[Array, ""]]:
    """Return the current n and gamma."""
    config = state.config
    p = jnp.minimum(state.since.astype(jnp.float32) / config.horizon_updates, 1.0)
    n = annealed_steps(config.n_step, config.n_step_final, p)
    return n, annealed_discount(config.gamma_initial, config.gamma, p)
