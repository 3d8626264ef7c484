"""What a study was asked for, checked before anything is begun: settings, space, searcher."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from sterling.envs.registry import find
from sterling.naming import hint
from sterling.needs import SAID
from sterling.statistics.declared import counted_as
from sterling.training import logbook
from sterling.training.choices import Logbook, Speech
from sterling.training.fields import SEEDS, seeds_of, whole
from sterling.training.phases import acts, iterations, needs_of
from sterling.training.scored_by import declared
from sterling.training.settings import Settings, resolve
from sterling.tuning import members, objective, space
from sterling.tuning.lanes import iteration
from sterling.tuning.population import Population, ends
from sterling.tuning.search import Combine, Searcher, generator
from sterling.tuning.space import Fields, Space
from sterling.types import Mistake

SEARCHES = ("random", "asha", "halving", "pbt", "pb2", "optuna")
POPULATIONS = ("pbt", "pb2")
MOST_TRIALS = 1_000_000  # of a study
KEYS = 2**32  # Optuna's samplers take no larger one


def make_searcher(asked: dict[str, Any], wanted: Space) -> Searcher:
    """The searcher that a study asked for."""
    from sterling.tuning.halving import ASHA, Halving
    from sterling.tuning.optuna import Optuna
    from sterling.tuning.pb2 import Bandit
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


def settings_of(asked: dict[str, Any], environment: Any) -> Settings:
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
    if settings.speech is not None:
        from sterling.training import letters  # tokenizers take time to import

        settings = letters.spelled(settings)
    return logbook.settled(settings)


def lives(settings: Settings) -> bool:
    """Whether returns are logged while it is learned."""
    needs = needs_of(settings)
    spoken = settings.speech is not None and not settings.speech.replay
    return acts(settings) or (spoken and needs.of(SAID))


def space_of(algorithm: str, given: Mapping[str, Any] | None, fixed: Fields) -> Space:
    """What is to be searched: ``given``, or the algorithm's own without what is fixed."""
    wanted = space.read(algorithm, given)
    if given is None:  # what is fixed is not searched
        wanted = Space(tuple(each for each in wanted if each.name not in fixed))
    for each in wanted:
        if each.name in fixed:
            raise Mistake(f"{each.name} cannot be both fixed and searched; leave one out")
    if not len(wanted):
        names = ", ".join(space.default(algorithm))
        raise Mistake(
            f"nothing is left to search: {names} are held fixed; name another field's range "
            "(--space FIELD=RANGE)"
        )
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
    if overlap := sorted(set(asked["seeds"]) & set(asked["test_seeds"])):
        raise Mistake(
            f"seeds {', '.join(map(str, overlap))} are both tuned and tested on: scores on tuning "
            "seeds flatter; name other test seeds"
        )
    if asked["objective"] == "final" and settings.evaluate_episodes < 1:
        raise Mistake("the objective final plays episodes; ask for evaluate_episodes of 1 or more")
    within, better = declared(asked.get("metric", "return"), [settings])
    counted_as(settings.failed, within, better)  # raises where the worst is not known
    searcher = make_searcher(asked, wanted)  # raises where its options cannot be
    corners = [wanted.fields(np.full(len(wanted), share)) for share in (0.0, 0.5, 1.0)]
    tried = [members.configure(settings, corner) for corner in corners]
    if asked["objective"] != "final" and all(iterations(each) == 1 for each in tried):
        raise Mistake(
            f"{settings.budget:,} {settings.unit} are one iteration, which is played before "
            f"anything is learned, and {asked['objective']} is of its returns: all trials would "
            "tie; ask for more, or use the objective final"
        )
    programs = {members.program(each) for each in tried}
    if search in POPULATIONS and len(programs) > 1:
        other = [each.name for each in wanted if not _is_number(settings, each)]
        raise Mistake(
            f"{search} changes settings while agents learn, which only numbers that do not shape "
            f"the program allow; leave out {', '.join(other) or 'gamma with n_step > 1'}"
        )
    if stops := getattr(searcher, "stops", []):
        _check_stops(asked, stops, settings, wanted)


def _check_stops(
    asked: dict[str, Any], stops: list[int], settings: Settings, wanted: Space
) -> None:
    """Mistake where a trial would train nothing between two of ``stops``, the ends of generations
    or rungs: they are counted in steps or updates, and training goes by whole iterations."""
    drawn = (wanted.sample(generator(asked["key"], "trial", i)) for i in range(asked["trials"]))
    tried = [members.configure(settings, fields) for fields in drawn]
    kinds = {iterations(each): each for each in tried}

    def apart(chosen: list[int]) -> bool:
        return all(len({iteration(each, stop) for stop in chosen}) == len(chosen)
                   for each in kinds.values())  # fmt: skip

    if apart(stops):
        return
    few = f"into the {min(kinds)} iterations of {settings.budget} {settings.unit}"
    if asked["search"] in POPULATIONS:
        most = next(n for n in range(min(kinds), 0, -1) if apart(ends(stops[-1], n)))
        raise Mistake(f"{len(stops)} generations do not fit {few}; ask for generations={most}")
    fit = next(stops[i:] for i in range(len(stops)) if apart(stops[i:]))
    raise Mistake(
        f"{len(stops)} rungs ({', '.join(map(str, stops))}) do not fit {few}; at most {len(fit)} "
        f"do: ask for least={fit[0]}"
    )


def _is_number(settings: Settings, each: space.Dimension) -> bool:
    kinds = {field.name: str(field.type) for field in dataclasses.fields(settings.config)}
    return kinds[each.name] == "float"


def numbers(seeds: int | Sequence[int], first: int) -> tuple[int, ...]:
    """Seeds, from how many (from ``first`` on) or which."""
    if isinstance(seeds, Iterable) and not isinstance(seeds, str):
        return seeds_of(seeds)
    count = whole("seeds", seeds, 1)
    if first + count > SEEDS:
        raise Mistake(f"seeds must lie below 2^31; got {seeds}, from {first} on")
    return seeds_of(range(first, first + count))


def counted(asked: dict[str, Any]) -> dict[str, Any]:
    """What was asked for with its counts as whole numbers; Mistake where one cannot be."""
    least = {"steps": 0, "updates": 0, "trials": 1, "parallel": 1, "key": 0}
    made = {name: asked[name] if asked[name] is None else whole(name, asked[name], low)
            for name, low in least.items()}  # fmt: skip
    if made["key"] >= KEYS:
        raise Mistake(f"key must be a whole number below 2^32; got {made['key']}")
    for name in ("trials", "parallel"):
        if (made[name] or 0) > MOST_TRIALS:
            raise Mistake(f"{name} is at most {MOST_TRIALS:,}; got {made[name]:,}")
    kept = {name: value for name, value in asked["how"].items() if value is not None}
    how = {name: value if name == "quantile" else whole(name, value, 1)
           for name, value in kept.items()}  # fmt: skip
    return {**asked, **made, "how": how}


def check_workers(workers: int | None) -> None:
    """Mistake unless there is a process, or it is left open how many there are."""
    if workers is not None:
        whole("workers", workers, 1)


def is_compiled(environment: Any) -> bool:
    """Whether the worlds are programs, which are kept and begin anew exactly."""
    return find(environment)[0] in ("classic", "gymnax", "probe", "task")
