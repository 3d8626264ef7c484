"""What a study was asked for, checked before anything is begun: settings, space, searcher."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from sterling import algorithms
from sterling.envs.registry import find
from sterling.naming import hint
from sterling.training import logbook
from sterling.training.choices import Logbook, Speech
from sterling.training.settings import Settings, resolve
from sterling.training.start import acts
from sterling.tuning import members, objective, space
from sterling.tuning.search import Combine, Searcher
from sterling.tuning.space import Fields, Space
from sterling.types import Generations, Mistake

SEARCHES = ("random", "asha", "halving", "pbt", "pb2", "optuna")
POPULATIONS = ("pbt", "pb2")


def make_searcher(asked: dict[str, Any], wanted: Space) -> Searcher:
    """The searcher that a study asked for."""
    from sterling.tuning.halving import ASHA, Halving
    from sterling.tuning.optuna import Optuna
    from sterling.tuning.pb2 import Bandit
    from sterling.tuning.population import Population
    from sterling.tuning.search import Random

    makers: dict[str, Callable[..., Searcher]] = {
        "random": Random, "asha": ASHA, "halving": Halving, "pbt": Population, "optuna": Optuna,
        "pb2": lambda *parts, **how: Population(*parts, **how, explore=Bandit()),
    }  # fmt: skip
    taken = {"asha": ("eta", "least"), "halving": ("eta", "least")}
    taken |= dict.fromkeys(POPULATIONS, ("generations", "quantile"))
    for name in asked["how"]:
        if name not in taken.get(asked["search"], ()):
            raise Mistake(f"the search {asked['search']} has no option {name}; leave it out")
    combine: Combine = objective.combine(asked["objective"])
    budget = asked.get("updates") or asked["steps"]
    parts = (wanted, asked["key"], asked["trials"], budget, combine)
    return makers[asked["search"]](*parts, **asked["how"])


def settings_of(asked: dict[str, Any], environment: str | Callable[[], Any] | None) -> Settings:
    """The study's settings with the defaults' Config."""
    known, updates = dict(asked["known"]), asked.get("updates", 0)
    if known.get("strategy") == "processes":
        raise Mistake("a study deals its trials out to processes by itself; leave strategy out")
    if asked["steps"] and updates:
        raise Mistake("a study tunes one phase: give steps or updates, not both")
    book = Logbook(**asked["data"]) if asked.get("data") else None
    if asked.get("speech"):
        known["speech"] = Speech(**asked["speech"])
        if known["speech"].dump:
            raise Mistake("the trials of a study would dump into one folder; leave dump out")
    place, known["env_options"] = logbook.place(book, environment, known.get("env_options"), 1)
    settings = resolve(
        asked["algorithm"], place, steps=asked["steps"], updates=updates, data=book,
        seeds=asked["seeds"], fields=asked["fixed"], **known,
    )  # fmt: skip
    return logbook.settled(settings)


def lives(settings: Settings) -> bool:
    """Whether returns are logged while it is learned."""
    needs = algorithms.find(settings.algorithm).needs(settings.config)
    spoken = settings.speech is not None and not settings.speech.replay
    return acts(settings) or (spoken and isinstance(needs, Generations))


def space_of(algorithm: str, given: Mapping[str, Any] | None, fixed: Fields) -> Space:
    """What is to be searched: ``given``, or the algorithm's own without what is fixed."""
    wanted = space.read(algorithm, given)
    if given is None:  # what is fixed is not searched
        wanted = Space(tuple(each for each in wanted if each.name not in fixed))
    for each in wanted:
        if each.name in fixed:
            raise Mistake(f"{each.name} cannot be both fixed and searched; leave one out")
    return wanted


def check(asked: dict[str, Any], settings: Settings, wanted: Space) -> None:
    """Wrong use that can be seen before anything is begun."""
    search = asked["search"]
    if search not in SEARCHES:
        near = hint(search, SEARCHES, f"there are {', '.join(SEARCHES)}")
        raise Mistake(f"search {search!r} is not known{near}")
    if objective.check(asked["objective"]) != "final" and not lives(settings):
        raise Mistake(
            f"{asked['objective']} is of returns that are logged, and {asked['algorithm']} logs "
            "none here; use the objective final"
        )
    parallel = asked["parallel"]
    if asked["trials"] < 1 or (parallel is not None and parallel < 1):
        raise Mistake(f"trials and parallel must be at least 1, not {asked['trials']}, {parallel}")
    if overlap := sorted(set(asked["seeds"]) & set(asked["test_seeds"])):
        raise Mistake(
            f"seeds {', '.join(map(str, overlap))} are both tuned and tested on: scores on tuning "
            "seeds flatter; name other test seeds"
        )
    make_searcher(asked, wanted)  # raises where its options cannot be
    corners = [wanted.fields(np.full(len(wanted), share)) for share in (0.0, 0.5, 1.0)]
    programs = {members.program(members.configure(settings, corner)) for corner in corners}
    if search in POPULATIONS and len(programs) > 1:
        other = [each.name for each in wanted if not _is_number(settings, each)]
        raise Mistake(
            f"{search} changes settings while agents learn, which only numbers that do not shape "
            f"the program allow; leave out {', '.join(other) or 'gamma with n_step > 1'}"
        )


def _is_number(settings: Settings, each: space.Dimension) -> bool:
    kinds = {field.name: str(field.type) for field in dataclasses.fields(settings.config)}
    return kinds[each.name] == "float"


def numbers(seeds: int | Sequence[int], first: int) -> tuple[int, ...]:
    """Seeds, from how many or which."""
    chosen = tuple(range(first, first + seeds)) if isinstance(seeds, int) else tuple(seeds)
    if not chosen or len(set(chosen)) != len(chosen):
        raise Mistake(f"seeds must be at least one, all different; got {seeds}")
    return chosen


def is_compiled(environment: str | Callable[[], Any]) -> bool:
    """Whether the worlds are programs, which are kept and begin anew exactly."""
    known = isinstance(environment, str) and find(environment)[0]
    return known in ("classic", "gymnax", "probe")
