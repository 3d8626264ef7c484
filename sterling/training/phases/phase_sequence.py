"""The sequence of a run's phases, and the length of each: iterations, steps and updates.

The rest of a run after its first phase is a run too (:func:`after_first_phase`). So Settings
describe a phase as they describe a run, and functions of settings here refer to the first phase in
them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from sterling import algorithms
from sterling.lookup import user_imports
from sterling.training.config.settings import Settings
from sterling.training.field_schedules import Span
from sterling.training.fields.config_fields import check_iteration_count, make_config
from sterling.training.fields.schedule_fields import SplitFields, split_with_anneal
from sterling.training.phases.schedule_spans import schedule_spans
from sterling.types import AnyNeeds, Mistake


@dataclasses.dataclass(frozen=True)
class PlannedPhase:
    """One phase of a run, and its place in the run."""

    settings: Settings  # of the rest of the run, from this phase on
    begin: int = 0  # its first iteration
    fields: dict[str, Any] = dataclasses.field(default_factory=dict)  # that change when it begins
    source: int = 0  # number of online sources begun before its own
    keeps: bool = False  # whether it continues with the source of the previous phase
    room: int = 0  # steps per seed of its source, in all phases that share it
    schedules: dict[str, Span] = dataclasses.field(default_factory=dict)  # of fields, that hold now

    @property
    def acts(self) -> bool:
        """Whether agents act in an environment."""
        return acts_in_world(self.settings)

    @property
    def end(self) -> int:
        """Return the iteration at which it ends."""
        return self.begin + phase_iterations(self.settings, self.begin, fresh=not self.keeps)

    @property
    def budget(self) -> int:
        """Return the requested steps, or updates from a log or of a language model."""
        return self.settings.budget

    @property
    def warmup(self) -> int:
        """Return the steps per seed before its first iteration."""
        return warmup_steps(self.settings) if self.acts and not self.keeps else 0

    @property
    def per_iteration(self) -> int | float:
        """Return the steps of an iteration, or its mean updates in a phase without steps."""
        if self.acts:
            return steps_per_iteration(self.settings)
        return updates_per_iteration(self.settings, self.begin)

    @property
    def evaluate_every(self) -> int:
        """Return the steps or updates between evaluations; 0: only at the end."""
        if not (self.settings.evaluate_episodes or self.settings.holds_out_texts):
            return 0
        default = max(self.budget // 10, 1) if counts_updates(self.settings) else 0
        return self.settings.evaluate_every or default

    def steps(self, iteration: int) -> int:
        """Return its steps per seed so far, when the run is at ``iteration``."""
        if not self.acts or iteration < self.begin:
            return 0
        return self.warmup + self._rounds(iteration) * steps_per_iteration(self.settings)

    def updates(self, iteration: int) -> int:
        """Return its updates per seed so far, for learners that sample batches."""
        needs, done = learner_needs(self.settings), self.begin + self._rounds(iteration)
        return int(needs.updates_of(done) - needs.updates_of(self.begin))

    def _rounds(self, iteration: int) -> int:
        return min(max(iteration, self.begin), self.end) - self.begin


def plan_phases(settings: Settings) -> list[PlannedPhase]:
    """Return the run's phases; raise Mistake if a budget is too small for one iteration."""
    found = [PlannedPhase(settings, room=_source_steps(settings))]
    while (left := after_first_phase(found[-1].settings)) is not None:
        before = found[-1]
        kept = keeps_source(before.settings)
        how: dict[str, Any] = {
            "fields": _changed_numbers(before.settings),
            "source": before.source + int(before.acts and not kept),
            "keeps": kept,
            "room": before.room if kept else _source_steps(left),
        }
        found.append(PlannedPhase(left, before.end, **how))
    pairs = zip(found, schedule_spans(found), strict=True)
    return [dataclasses.replace(part, schedules=spans) for part, spans in pairs]


def last_phase(settings: Settings, stopped: dict[str, Any] | None = None) -> Settings:
    """Return the settings of the last phase; without further phases, the settings themselves.
    ``stopped``: of result.json, if the run stopped early; then the last phase that began."""
    reached = list(_remaining_settings(settings))[: phases_reached(stopped)]
    return reached[-1] if settings.phases else settings


def phases_reached(stopped: dict[str, Any] | None) -> int | None:
    """Return the number of phases that began in a run that stopped early; None if it did not."""
    return None if stopped is None else int(stopped.get("phase", 1))


def world_names(settings: Settings) -> list[str]:
    """Return the name of each phase's world. Different worlds of the same name get their options
    or a number added."""
    known: list[tuple[Any, dict[str, Any], str]] = []
    names = []
    for each in _remaining_settings(settings):
        found = [name for *place, name in known if place == [each.environment, each.env_options]]
        if not found:
            said = ", ".join(f"{key}={value}" for key, value in each.env_options.items())
            number = 1 + sum(user_imports.display_name(other) == each.name for other, *_ in known)
            taken = [name for *_, name in known]
            words = [each.name, *([f"{each.name} ({said})"] if said else [])]
            found = [x for x in (*words, f"{each.name} ({number})") if x not in taken]
            known.append((each.environment, each.env_options, found[0]))
        names.append(found[0])
    return names


def worlds_by_name(settings: Settings) -> dict[str, Settings]:
    """Return the settings of a phase in each world, by the names of :func:`world_names`."""
    return dict(zip(world_names(settings), _remaining_settings(settings), strict=True))


def _remaining_settings(settings: Settings) -> Iterator[Settings]:
    left: Settings | None = settings
    while left is not None:
        yield left
        left = after_first_phase(left)


def after_first_phase(settings: Settings) -> Settings | None:
    """Return the settings of the rest of a run after its first phase; None if there is none."""
    split = _changed_fields(settings)
    if split is None:
        return None
    module: Any = algorithms.find(settings.algorithm)
    fields = dataclasses.asdict(settings.config) | split.numbers
    kept = {name: each for name, each in settings.schedules.items() if name not in split.numbers}
    changed: dict[str, Any] = {
        "config": make_config(module, fields, settings.title),
        "schedules": kept | split.schedules,
    }
    if settings.updates and settings.steps:  # from offline to online
        return dataclasses.replace(settings, updates=0, online={}, **changed)
    phase, *rest = settings.phases
    elsewhere = bool(phase.environment or phase.env_options)
    options = {} if phase.environment else settings.env_options
    data = phase.data or (None if elsewhere and not phase.updates else settings.data)
    own = {
        "environment": phase.environment or settings.environment,
        "env_options": {**options, **phase.env_options},
        "spaces": None if phase.environment else settings.spaces,
        **{"steps": phase.steps, "updates": phase.updates, "data": data, "guide": None},
    }
    return dataclasses.replace(settings, **own, **changed, phases=tuple(rest))


def keeps_source(settings: Settings) -> bool:
    """Whether a run's second phase keeps the source of its first: both act, and the second names
    neither world nor log."""
    if settings.updates or not settings.phases:
        return False
    phase = settings.phases[0]
    return bool(phase.steps) and not (phase.environment or phase.env_options or phase.data)


def _changed_numbers(settings: Settings) -> dict[str, Any]:
    """Return the new values of fields that change at the second phase of a run; of a field with a
    schedule the first one."""
    split = _changed_fields(settings)
    return {} if split is None else split.numbers


def _changed_fields(settings: Settings) -> SplitFields | None:
    """Return the fields of the Config that change at the second phase of a run, and the schedules
    among them; None if it has one phase."""
    bridged = settings.updates and settings.steps
    if not bridged and not settings.phases:
        return None
    given: dict[str, Any] = settings.online if bridged else settings.phases[0].fields
    module: Any = algorithms.find(settings.algorithm)
    return split_with_anneal(module, settings.title, given, given)


def _source_steps(settings: Settings) -> int:
    """Return the steps per seed of a source that begins with the first phase."""
    following = after_first_phase(settings) if keeps_source(settings) else None
    return settings.steps + (0 if following is None else _source_steps(following))


def acts_in_world(settings: Settings) -> bool:
    """Whether agents act in an environment from the first iteration on."""
    return settings.speech is None and not settings.updates


def counts_updates(settings: Settings) -> bool:
    """Whether progress is counted in updates in at least one phase of a run."""
    return settings.speech is not None or any(
        each.data is not None and not reads_log_beside(each, learner_needs(each))
        for each in _remaining_settings(settings)
    )


def reads_log_beside(settings: Settings, needs: AnyNeeds) -> bool:
    """Whether the first phase reads its log only beside the batches of what agents experience."""
    return needs.beside_log and acts_in_world(settings)


def warmup_steps(settings: Settings) -> int:
    """Return the warm-up steps per seed before the first online iteration: a multiple of envs."""
    if not settings.steps:
        return 0
    return -(-learner_needs(settings).warmup // settings.envs) * settings.envs


def steps_per_iteration(settings: Settings) -> int:
    """Return the steps per seed of one online iteration."""
    return int(learner_needs(settings).collect * settings.envs)


def updates_per_iteration(settings: Settings, begin: int = 0) -> int | float:
    """Return the mean gradient updates of an iteration of the first phase, which begins at
    iteration ``begin``, for learners that sample batches."""
    needs, rounds = learner_needs(settings), phase_iterations(settings, begin)
    mean = (needs.updates_of(begin + rounds) - needs.updates_of(begin)) / rounds
    return int(mean) if mean.is_integer() else mean


def total_iterations(settings: Settings) -> int:
    """Return the iterations of all phases together; raise Mistake if a phase has none."""
    found = plan_phases(settings)
    return check_iteration_count(settings.title, found[-1].end)


def phase_iterations(settings: Settings, begin: int = 0, *, fresh: bool = True) -> int:
    """Return the iterations of the first phase, from its updates or its steps. ``begin``: its first
    iteration; ``fresh``: its source is a new one, which may need a warm-up."""
    name = settings.title
    if settings.updates:
        return _iterations_of_updates(settings, begin)
    if not settings.steps:
        wanted = "steps=N (--steps N)"
        if settings.data is not None:
            wanted = "updates=N, steps=N or both (--updates N, --steps N)"
        raise Mistake(f"{name} has no budget. Give {wanted}.")
    each, warmup = steps_per_iteration(settings), warmup_steps(settings) if fresh else 0
    rounds = (settings.steps - warmup) // each
    if rounds < 1:
        raise Mistake(
            f"steps={settings.steps} is below one iteration of {name}: "
            f"{warmup} warm-up steps and {each} to learn from. Use at least {warmup + each}."
        )
    return rounds


def _iterations_of_updates(settings: Settings, begin: int) -> int:
    """Return the iterations of a first phase that counts updates."""
    needs, name = learner_needs(settings), settings.title
    rounds: int = needs.iterations_of(settings.updates, begin)
    made = needs.updates_of(begin + rounds) - needs.updates_of(begin)
    if needs.ends is not None and made < settings.updates and begin + rounds >= needs.ends:
        raise Mistake(
            f"updates={settings.updates} is more than {name} makes: its feeds end after {made:,}. "
            f"Give updates={made} (--updates {made})."
        )
    if rounds < 1:
        least = f"Use at least {needs.updates}."
        raise Mistake(f"updates={settings.updates} is below one iteration of {name}. {least}")
    return rounds


def learner_needs(settings: Settings) -> Any:
    """Return the needs of the algorithm in the first phase: one of ``types.AnyNeeds``."""
    return algorithms.find(settings.algorithm).needs(settings.config)


def saved_phase(meta: dict[str, Any], settings: Settings) -> int:
    """Return the phase in which a checkpoint was written; older checkpoints hold ``online``
    instead."""
    return int(meta.get("phase", bool(meta.get("online")) and settings.updates > 0))
