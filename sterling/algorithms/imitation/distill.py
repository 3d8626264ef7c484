"""A student that imitates a trained run's policy, from observations of its own (DAgger).

Ross 2011, "A reduction of imitation learning and structured prediction to no-regret online
learning", arXiv:1011.0686, algorithm 3.1 with beta_1 = 1 and beta_i = 0 from then on; with a
teacher that observes more than the student, learning by cheating (Chen 2020, arXiv:1912.12294).

    data     states that the teacher visits during the warm-up, then those that the student visits;
             each with the teacher's deterministic action a*(s) in its own observation of the state
    policy   L_pi = -E[ log pi(a*|o) ],       o the student's observation of s

The run's setting ``obs`` names what the student observes; the teacher observes everything that it
was trained with. For Box actions pi is the normal of ``nets/imitation_policy.py``, with a learned
deviation; without ``likelihood`` only its mean is fitted, by squared error.
Deviations from the paper: the dataset is a ring of the newest rows, and the student is not trained
anew on it but continues; the statistics of observations are those of the drawn rows.
Evidence: docs/critic-obs.md.
"""

from __future__ import annotations

import dataclasses

from jaxtyping import Array, Float, Key

from sterling.algorithms.offline import bc
from sterling.field_types import Whole
from sterling.needs.feed import TEACHER_ACTION
from sterling.nets.running_statistics import ObsNormaliser
from sterling.types import Action, Obs, Record, Signals, Spec, Transitions, config


@config
class Config(bc.Config):
    """Defaults are those of bc.py."""

    normalise_obs: bool = True  # normalise observations by their running mean and deviation
    warmup: Whole = 1_000  # steps that the teacher takes before the first update


class State(bc.State):
    """Everything that changes during training."""


def needs(config: Config) -> Transitions:
    """Ask for single transitions, drawn uniformly, with the teacher's actions."""
    own = (config.batch, config.collect, config.learn, config.capacity, config.warmup)
    return Transitions(*own, keep=(TEACHER_ACTION,))


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """Create a student, for any action space that policies support."""
    created = bc.init(key, spec, config)
    normaliser = ObsNormaliser.create(spec.obs, config.normalise_obs)
    return State(**{**vars(created), "normaliser": normaliser})


def act(
    state: State, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, dict[str, Array]]:
    """Return a sample of the policy, or its mode without ``explore``."""
    return bc.act(state, obs, key, explore)


def log_prob(state: State, obs: Obs, action: Action) -> Float[Array, "..."]:
    """Return log pi(a|o)."""
    return bc.log_prob(state, obs, action)


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Make one update on transitions ``(batch, ...)`` with the teacher's actions."""
    normaliser = state.normaliser.update(batch.obs, batch.mask)
    labelled = dataclasses.replace(batch, action=batch.extras[TEACHER_ACTION])
    learned, signals = bc.learn(dataclasses.replace(state, normaliser=normaliser), labelled, key)
    return State(**vars(learned)), signals
