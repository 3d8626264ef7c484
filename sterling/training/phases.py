"""The phases of a run, one after another, and how long each is: iterations, steps and updates.

What is left of a run after its first phase is a run too (:func:`after`), so a phase is described by
Settings like any run, and what is said here of settings holds for the first phase in them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from sterling import algorithms, importing
from sterling.training.fields import countable, make_config
from sterling.types import Mistake

if TYPE_CHECKING:
    from sterling.training.settings import Settings


@dataclasses.dataclass(frozen=True)
class Part:
    """One phase of a run, and where it lies there."""

    settings: Settings  # what is left of the run when it begins
    begin: int = 0  # its first iteration
    fields: dict[str, Any] = dataclasses.field(default_factory=dict)  # that change as it begins
    source: int = 0  # how many sources of steps were begun before its own
    keeps: bool = False  # it goes on in the source of the phase before
    room: int = 0  # steps per seed that its source lives, in all phases that share it

    @property
    def acts(self) -> bool:
        """Whether agents act in a world of steps."""
        return acts(self.settings)

    @property
    def end(self) -> int:
        """The iteration at which it is over."""
        return self.begin + own_iterations(self.settings, fresh=not self.keeps)

    @property
    def budget(self) -> int:
        """Steps, or updates of a log or a language model, that were asked for."""
        return self.settings.budget

    @property
    def warmup(self) -> int:
        """Steps per seed before its first iteration."""
        return warmup_steps(self.settings) if self.acts and not self.keeps else 0

    def steps(self, iteration: int) -> int:
        """Steps per seed that it has taken when the run is at ``iteration``."""
        if not self.acts or iteration < self.begin:
            return 0
        return self.warmup + self._rounds(iteration) * iteration_steps(self.settings)

    def updates(self, iteration: int) -> int:
        """Updates per seed that it has made by then, where the learner samples."""
        needs, done = needs_of(self.settings), self.begin + self._rounds(iteration)
        return int(needs.updates_of(done) - needs.updates_of(self.begin))

    def _rounds(self, iteration: int) -> int:
        return min(max(iteration, self.begin), self.end) - self.begin


def parts(settings: Settings) -> list[Part]:
    """The run's phases. Raises Mistake where a budget is too small for one iteration."""
    found = [Part(settings, room=_room(settings))]
    while (left := after(found[-1].settings)) is not None:
        before = found[-1]
        kept = goes_on(before.settings)
        how: dict[str, Any] = {
            "fields": _changed(before.settings),
            "source": before.source + int(before.acts and not kept),
            "keeps": kept,
            "room": before.room if kept else _room(left),
        }
        found.append(Part(left, before.end, **how))
    return found


def last(settings: Settings) -> Settings:
    """What its agents are left in: the last phase; the whole, where no phases are asked for."""
    return list(_left(settings))[-1] if settings.phases else settings


def world_names(settings: Settings) -> list[str]:
    """The name of each phase's world; others of the same name are told apart by their options, or
    numbered."""
    known: list[tuple[Any, dict[str, Any], str]] = []
    names = []
    for each in _left(settings):
        found = [name for *place, name in known if place == [each.environment, each.env_options]]
        if not found:
            said = ", ".join(f"{key}={value}" for key, value in each.env_options.items())
            number = 1 + sum(importing.title(other) == each.name for other, *_ in known)
            taken = [name for *_, name in known]
            words = [each.name, *([f"{each.name} ({said})"] if said else [])]
            found = [x for x in (*words, f"{each.name} ({number})") if x not in taken]
            known.append((each.environment, each.env_options, found[0]))
        names.append(found[0])
    return names


def worlds(settings: Settings) -> dict[str, Settings]:
    """The worlds of its phases by these names, with the settings of a phase there."""
    return dict(zip(world_names(settings), _left(settings), strict=True))


def _left(settings: Settings) -> Iterator[Settings]:
    left: Settings | None = settings
    while left is not None:
        yield left
        left = after(left)


def after(settings: Settings) -> Settings | None:
    """What is left of a run after its first phase; None where it has no other."""
    if settings.updates and settings.steps:  # from the log to the world
        config = dataclasses.replace(settings.config, **settings.online)
        return dataclasses.replace(settings, updates=0, online={}, config=config)
    if not settings.phases:
        return None
    phase, *rest = settings.phases
    elsewhere = bool(phase.environment or phase.env_options)
    options = {} if phase.environment else settings.env_options
    data = phase.data or (None if elsewhere and not phase.updates else settings.data)
    module: Any = algorithms.find(settings.algorithm)
    fields = dataclasses.asdict(settings.config) | phase.fields
    own = {
        "environment": phase.environment or settings.environment,
        "env_options": {**options, **phase.env_options},
        "config": make_config(module, fields, settings.title),
        **{"steps": phase.steps, "updates": phase.updates, "data": data, "guide": None},
    }
    return dataclasses.replace(settings, **own, phases=tuple(rest))


def goes_on(settings: Settings) -> bool:
    """Whether a run's second phase goes on in the source of its first: both act, and no world or
    log is named for it."""
    if settings.updates or not settings.phases:
        return False
    phase = settings.phases[0]
    return bool(phase.steps) and not (phase.environment or phase.env_options or phase.data)


def _changed(settings: Settings) -> dict[str, Any]:
    """The fields of the Config that are named for the second phase of such a run."""
    bridged = settings.updates and settings.steps
    return settings.online if bridged else settings.phases[0].fields


def _room(settings: Settings) -> int:
    """Steps per seed that a source which begins with the first phase will live."""
    following = after(settings) if goes_on(settings) else None
    return settings.steps + (0 if following is None else _room(following))


def acts(settings: Settings) -> bool:
    """Whether agents act in a world of steps from the first iteration on."""
    return settings.speech is None and not settings.updates


def counts_updates(settings: Settings) -> bool:
    """Whether a run's progress is counted in updates, at least in one of its phases."""
    return settings.speech is not None or any(each.data is not None for each in _left(settings))


def warmup_steps(settings: Settings) -> int:
    """Steps per seed taken before the first online iteration: whole steps of every env."""
    if not settings.steps:
        return 0
    return -(-needs_of(settings).warmup // settings.envs) * settings.envs


def iteration_steps(settings: Settings) -> int:
    """Steps per seed in one online collect-and-learn round."""
    return int(needs_of(settings).collect * settings.envs)


def iteration_updates(settings: Settings) -> int:
    """Gradient updates in one round of a learner that samples."""
    return int(needs_of(settings).updates)


def iterations(settings: Settings) -> int:
    """Rounds that fit into the budgets of all phases. Raises Mistake where one has none."""
    found = parts(settings)
    return countable(settings.title, found[-1].end)


def own_iterations(settings: Settings, *, fresh: bool = True) -> int:
    """Rounds of the first phase: of updates from a log or of a language model, else of steps.
    ``fresh``: its source is another one, which may have to be warmed up."""
    name = settings.title
    if settings.updates:
        rounds = settings.updates // iteration_updates(settings)
        if rounds < 1:
            least = f"ask for at least {iteration_updates(settings)}"
            raise Mistake(f"updates={settings.updates} are below one iteration of {name}; {least}")
        return rounds
    if not settings.steps:
        wanted = "steps=N" if settings.data is None else "updates=N, steps=N or both"
        raise Mistake(f"{name} was given no budget; ask for {wanted}")
    each, warmup = iteration_steps(settings), warmup_steps(settings) if fresh else 0
    rounds = (settings.steps - warmup) // each
    if rounds < 1:
        raise Mistake(
            f"steps={settings.steps} is below one iteration of {name}: "
            f"{warmup} warm-up steps and {each} to learn from; ask for at least {warmup + each}"
        )
    return rounds


def needs_of(settings: Settings) -> Any:
    """What its learner asks to be fed in the first phase: one of ``types.AnyNeeds``."""
    return algorithms.find(settings.algorithm).needs(settings.config)
