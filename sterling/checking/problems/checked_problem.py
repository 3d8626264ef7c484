"""Where an algorithm is checked beside the probes: in a world, on a log, or both."""

from __future__ import annotations

import dataclasses
import inspect
from pathlib import Path
from typing import Any

from sterling.lookup import user_imports
from sterling.needs.feed import FRESH
from sterling.training.api import settings_from_arguments
from sterling.training.config.run_arguments import train_arguments
from sterling.training.config.settings import Settings
from sterling.training.phases.phase_sequence import (
    learner_needs,
    steps_per_iteration,
    warmup_steps,
)
from sterling.types import Mistake

DECLARED = "checked_in"  # an algorithm's dict of arguments of train, with which it is checked
RANDOM_LOG = "random"  # the word for a log that the check makes by random actions
PLACE = ("environment", "env_options", "data")
PLANNED = 40_000  # steps or updates of the run that is begun, for schedules
SHORT_RUN_ITERATIONS = 12  # iterations of runs that are only compared
MOST_WAIT = 2_000  # iterations that such a run waits for a feed that begins later
ENVS = 8


@dataclasses.dataclass(frozen=True)
class Problem:
    """An algorithm with settings, and the world, the log, or both that it is checked on."""

    algorithm: Any  # the word that names it, or the object
    fields: dict[str, Any]  # of its Config
    options: dict[str, Any]  # further arguments of ``train``: environment, data...
    label: str  # what its findings are called, such as "discrete actions"
    beside_log: bool = False  # whether the log's rows only stand beside those of the world

    @property
    def budget(self) -> str:
        """The name of the run's budget: of updates from a log, else of steps."""
        logged = self.options.get("data") is not None and not self.beside_log
        return "updates" if logged else "steps"

    def arguments(self, budget: int, **more: Any) -> dict[str, Any]:
        """Return the arguments of ``train`` for a run without evaluations."""
        usual = {"evaluate_episodes": 0, "preset": False, "algorithm": self.algorithm}
        return {**usual, **self.options, **self.fields, self.budget: budget, **more}

    def settings(self) -> Settings:
        """Return the settings of a run of ``PLANNED`` steps or updates."""
        return settings_from_arguments(train_arguments(None, self.arguments(PLANNED)))

    def objects(self) -> dict[str, Any]:
        """Return the algorithm and environment that no word names: they are given to ``resume``."""
        given = {"algorithm": self.algorithm, "environment": self.options.get("environment")}
        return {k: v for k, v in given.items() if v is not None and not isinstance(v, str)}

    def short_run(self) -> int:
        """Return the budget of a run of a few iterations, after those that some feed waits for."""
        wait = max(feed.after for feed in learner_needs(self.settings()).feeds)
        return self._budget_of(SHORT_RUN_ITERATIONS + (wait if wait <= MOST_WAIT else 0))

    def first_updates(self) -> int:
        """Return the budget of a run of one iteration, the first with updates."""
        return self._budget_of(1)

    def _budget_of(self, iterations: int) -> int:
        """Return the steps of a warm-up and ``iterations``, or the updates of ``iterations``."""
        settings = self.settings()
        if self.budget == "updates":
            return int(learner_needs(settings).updates_of(iterations))
        return warmup_steps(settings) + iterations * steps_per_iteration(settings)

    def late_feed(self) -> str:
        """Return words about a feed that begins too late for a short run, and the setting to make
        smaller; "" if there is none."""
        settings = self.settings()
        late = max(learner_needs(settings).feeds, key=lambda feed: feed.after)
        if late.after <= MOST_WAIT:
            return ""
        named = [name for name, value in vars(settings.config).items() if value == late.after]
        smaller = f'{DECLARED} = {{"{named[0]}": 20}} in its file' if named else "a smaller after"
        waits = f"which waits for {late.after:,} iterations"
        return f", but without {late.learner}, {waits}: give {smaller}"


def declared_problem(algorithm: Any, given: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of ``train`` for checking: those ``given``, and below them those that
    the algorithm declares as ``checked_in``, whose world and log a world or log that is given
    replaces. Files are looked for beside the algorithm's own, too."""
    declared = getattr(algorithm, DECLARED, {})
    if not isinstance(declared, dict):
        raise Mistake(
            f"{DECLARED} is a dict of arguments of sterling.train, such as "
            f'{{"environment": "CartPole-v1"}}; got {type(declared).__name__}.'
        )
    given = {name: value for name, value in given.items() if value is not None}
    elsewhere = names_place(given)
    beside = _own_folder(algorithm)
    found = {
        name: _file_beside(beside, value)
        for name, value in declared.items()
        if not (elsewhere and name in PLACE)
    }
    found |= given
    if "env_options" in found and not names_place(found):
        raise Mistake(
            "options of an environment are given, but no environment. Name it: sterling check "
            "ALGORITHM ENVIRONMENT --env KEY=VALUE."
        )
    return found


def declared_settings(
    algorithm: Any, fields: dict[str, Any], given: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the fields of the Config to check with, those given and below them those that the
    algorithm declares, and the other arguments of :func:`declared_problem`."""
    found = declared_problem(algorithm, given)
    names = [field.name for field in dataclasses.fields(algorithm.Config)]
    own = {name: found.pop(name) for name in names if name in found}
    return own | fields, found


def names_place(options: dict[str, Any]) -> bool:
    """Whether the arguments of ``train`` name a world, or a log that is not of a world's random
    actions."""
    return "environment" in options or not asks_random_log({"data": RANDOM_LOG, **options})


def asks_random_log(options: dict[str, Any]) -> bool:
    """Whether the arguments of ``train`` ask for a log of random actions."""
    return str(options.get("data")) == RANDOM_LOG


def _own_folder(algorithm: Any) -> Path | None:
    try:
        return Path(inspect.getfile(algorithm)).parent
    except (TypeError, OSError):  # an object, or a class of an interactive session
        return None


def _file_beside(folder: Path | None, value: Any) -> Any:
    """Return a relative name of a file (FILE.py:factory, too) as an absolute one, if there is such
    a file in ``folder``."""
    if folder is None or not isinstance(value, str):
        return value
    file, colon, name = value.partition(":")
    return f"{folder / file}{colon}{name}" if file and (folder / file).is_file() else value


def problem_label(options: dict[str, Any]) -> str:
    """Return how findings name a problem that was given: "in WORLD", "on LOG"."""
    world, data = options.get("environment"), options.get("data")
    words = [] if world is None else [f"in {world_name(world)}"]
    if data is not None:
        words.append(f"on {Path(getattr(data, 'path', None) or str(data)).name}")
    return " ".join(words)


def world_name(world: Any) -> str:
    """Return the short name of an environment, also of an object or a function."""
    named = world if isinstance(world, str) else getattr(world, "__name__", type(world).__name__)
    return user_imports.short_name(named)


def small_number_of_envs(needs: Any) -> int:
    """Return the number of envs to check an algorithm with: one for a single stream, a population's
    members, else a few."""
    if needs.members:
        return int(needs.members)
    return 1 if needs.has_feed(FRESH) and needs.collect == 1 and not needs.replays else ENVS
