"""Renew the weights of an agent's networks while it trains, as the setting ``plasticity`` says.

    reset and perturb    w <- keep w + (1 - keep) w_0       every ``period`` iterations
    decay                w <- (1 - decay) w                 of matrices, after every iteration

w_0 are newly drawn initial weights. keep = 0 is the reset of Nikishin 2022 (arXiv:2205.07802), who
keeps the replay buffer, from which the new networks learn; keep > 0 is shrink and perturb (Ash
2020, arXiv:1910.08475). Target networks are renewed with the same w_0 as their networks, and
optimisers begin anew, because their moments belong to the old weights. Normalisers, learned numbers
(such as SAC's log alpha) and counters stay. No weights are renewed in the last ``period``
iterations of a run, so its last policy has learned for at least that long.

Decay is not a part of the gradient (Loshchilov 2019, arXiv:1711.05101); it spares vectors (biases,
the scales of normalisations).
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
from jaxtyping import Array, Int, Key, PyTree

from sterling import algorithms, random_keys
from sterling.problem.joined_path import map_named, named_leaves
from sterling.training.config.settings import Settings
from sterling.training.phases.phase_sequence import PlannedPhase, plan_phases
from sterling.training.plasticity.plasticity_words import Plasticity, parse_plasticity
from sterling.training.warm_start.learned_parts import NETWORK, OPTIMISER, Part, learned_parts
from sterling.types import Algorithm, Mistake, Spec


@dataclasses.dataclass(frozen=True)
class Upkeep:
    """What is done to the networks of an agent after every iteration, and measured of them. Static:
    two are equal if their numbers and the words for their problem are."""

    problem: str  # the environment and its spaces
    spec: Spec = dataclasses.field(compare=False, repr=False)  # that initial weights are drawn for
    period: int = 0  # iterations between renewals; 0: never
    last: int = 0  # iterations after which no more weights are renewed
    keep: float = 0.0  # share of the old weights
    decay: float = 0.0  # share of matrices that an iteration takes away
    units: bool = False  # whether hidden units are measured in every update

    def renewed(
        self, algorithm: Algorithm, state: PyTree, iteration: Int[Array, ""], key: Key[Array, ""]
    ) -> PyTree:
        """Return one seed's state after the learning of ``iteration`` (the first is 0)."""
        if not (self.period or self.decay):
            return state
        parts = learned_parts(_with_seed_axis(state))
        paths = {kind: _paths(parts, kind) for kind in (NETWORK, OPTIMISER)}
        if self.decay:
            state = map_named(lambda path, x: self._decayed(x, path in paths[NETWORK]), state)
        if not self.period:
            return state
        done = iteration + 1
        due = (done % self.period == 0) & (done <= self.last)
        return jax.lax.cond(due, lambda: self._renewed(algorithm, state, paths, key), lambda: state)

    def _decayed(self, x: Array, in_network: bool) -> Array:
        return x * (1.0 - self.decay) if in_network and x.ndim >= 2 else x

    def _renewed(
        self, algorithm: Any, state: Any, paths: dict[str, set[str]], key: Key[Array, ""]
    ) -> PyTree:
        fresh = algorithm.init(random_keys.fold(key, "renew"), self.spec, state.config)
        begun = dict(named_leaves(fresh))

        def renew(path: str, old: Array) -> Array:
            if path in paths[OPTIMISER]:
                return begun[path]
            if path in paths[NETWORK]:
                return self.keep * old + (1.0 - self.keep) * begun[path]
            return old

        return map_named(renew, state)


def plan_upkeep(settings: Settings, spec: Spec) -> Upkeep | None:
    """Return what the setting ``plasticity`` asks for in this problem; None if nothing."""
    asked = parse_plasticity(settings.plasticity)
    if asked == Plasticity():
        return None
    part = plan_phases(settings)[0]
    period = _iterations_of(asked.every, part)
    problem = f"{settings.name} {spec.obs} {spec.action}"
    last = part.end - period
    return Upkeep(problem, spec, period, last, asked.keep, asked.decay, asked.units)


def _iterations_of(every: int, part: PlannedPhase) -> int:
    return max(round(every / part.per_iteration), 1) if every else 0


def check_plasticity(settings: Settings) -> None:
    """Raise :class:`Mistake` if the setting ``plasticity`` does not suit the run."""
    asked = parse_plasticity(settings.plasticity)
    if asked == Plasticity():
        return
    algorithm: Any = algorithms.find(settings.algorithm)
    if settings.speech is not None:
        raise Mistake("plasticity is for networks that control. Leave it out of language models.")
    if settings.phases or (settings.updates and settings.steps):
        raise Mistake("plasticity is for runs of one phase. Leave it or the further phases out.")
    if asked.units and hasattr(algorithm, "memory"):
        raise Mistake(f"plasticity=units does not measure {settings.title}, which acts with a "
                      "memory. Leave out units.")  # fmt: skip
    part = plan_phases(settings)[0]
    if part.end < 2 * _iterations_of(asked.every, part):
        raise Mistake(
            f"plasticity: EVERY={asked.every:,} renews no weights in {settings.budget:,} "
            f"{settings.unit}: new ones must still learn for EVERY. Use less than half "
            "of the budget after its warm-up."
        )


def _paths(parts: list[Part], kind: str) -> set[str]:
    return {path for part in parts if part.kind == kind for path in part.leaves.values()}


def _with_seed_axis(state: PyTree) -> PyTree:
    """Return the shapes of one seed's ``state`` with a leading axis of seeds, as ``learned_parts``
    expects them."""
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct((1, *x.shape), x.dtype), state)
