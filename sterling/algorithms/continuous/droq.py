"""Dropout Q-functions (Hiraoka 2022, arXiv:2110.02034), for continuous actions.

    networks     Q_i:  in each hidden layer linear, dropout, layer norm and ReLU; then linear
    target       y     = r + g (min_i Q'_i(s', a') - alpha log pi(a'|s')),     a' ~ pi(.|s')
    critics      L_Q   = 1/2 sum_i E[ w (Q_i(s, a) - y)^2 ]
    actor        L_pi  = E[ alpha log pi(a|s) - mean_i Q_i(s, a) ],            a ~ pi(.|s)
    temperature  L_a   = E[ alpha (H(pi(.|s)) + dim(A)) ]

It is redq.py with two critics in place of ten: dropout makes each of them an ensemble, and layer
normalisation keeps their losses steady under it. Units are dropped at rate ``dropout`` in all three
losses, with draws of their own for the targets, the critics' loss and the actor's, and for each row
and critic; none are dropped where values are asked for. Target networks follow at rate ``tau`` per
update; actor and temperature are updated at every ``delay``-th of the ``learn`` updates for each
collected step, on its batch (algorithm 2). The rest is as redq.py says.

Deviations from the paper: those of redq.py; one rate of dropout, where the paper's is chosen for
each of MuJoCo's tasks (0.0001 for Hopper, 0.005 for Walker2d, 0.01 for Ant, 0.1 for Humanoid).
Evidence: none at published scale yet; probe worlds and an oracle in tests/contract/.
"""

from __future__ import annotations

from typing import Any

from jaxtyping import Array, Float, Key

from sterling.algorithms.continuous import redq
from sterling.algorithms.continuous.redq import State
from sterling.field_types import ShareBelowOne
from sterling.nets.q_ensemble import CriticEnsemble
from sterling.nets.special_layers.dropout import DroppedCritics
from sterling.types import Action, Obs, Record, Signals, Spec, Transitions, config

can_use_unseen = True  # by the critics


@config
class Config(redq.Config):
    """Defaults are those of the paper for MuJoCo (table 3), with its dropout rate for Ant."""

    members = 2  # critics
    dropout: ShareBelowOne = 0.01  # share of hidden units left out
    layer_norm = True  # normalise the critics' hidden layers


def needs(config: Config) -> Transitions:
    """Ask for transitions from a uniform or prioritised replay buffer."""
    return redq.needs(config)


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """Create an agent. Raises :class:`Mistake` for actions that are no Box, and for a ``subset`` of
    more critics than there are."""
    return redq.create("droq", key, spec, config)


def act(
    state: State, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, dict[str, Array]]:
    """Return a sample of the policy, or its mode without ``explore``, in the space's shape."""
    return redq.act(state, obs, key, explore)


def log_prob(state: State, obs: Obs, action: Action) -> Float[Array, "env"]:
    """Return log pi(a|s) of actions in the form that ``act`` returns."""
    return redq.log_prob(state, obs, action)


def value(state: State, obs: Obs) -> Float[Array, "env"]:
    """Return the critics' mean value of the policy's mode, without dropout."""
    return redq.value(state, obs)


def action_value(state: State, obs: Obs, action: Action) -> Float[Array, "env"]:
    """Return the mean of all Q_i(s, a), without dropout."""
    return redq.action_value(state, obs, action)


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Update the critics once on transitions ``(batch, ...)``, every ``delay``-th time also actor
    and temperature, all with dropout."""

    def dropping(critics: CriticEnsemble, key: Key[Array, ""]) -> Any:
        return DroppedCritics(critics, state.config.dropout, key)

    return redq.learn(state, batch, key, dropping)
