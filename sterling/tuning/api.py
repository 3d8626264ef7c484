"""What a user calls: tune and resume."""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sterling import algorithms
from sterling.envs.registry import find
from sterling.naming import hint
from sterling.training import folder
from sterling.training.programs import remember_programs
from sterling.training.settings import Settings, resolve
from sterling.tuning import members, objective, outcome, space
from sterling.tuning.crew import cores
from sterling.tuning.lanes import Plan
from sterling.tuning.search import Combine, Job, Searcher
from sterling.tuning.space import Fields, Space
from sterling.tuning.study import Line, Study, Watch, carry_on
from sterling.types import LANGUAGE, Mistake

SEARCHES = ("random", "asha", "halving", "pbt", "pb2", "optuna")
POPULATIONS = ("pbt", "pb2")
HOST_TOGETHER = 16  # trials at once where worlds, and so programs, are made anew for every piece
ASKED_TOGETHER = 8  # jobs of a wave, where later jobs depend on earlier ones
FIRST_TEST_SEED = 1_000
SEARCH_OPTIONS = ("eta", "least", "generations", "quantile")
STUDY_OPTIONS = ("envs", "strategy", "preset", "env_options", "evaluate_episodes", "log_every")


@dataclasses.dataclass(frozen=True)
class Tuned:
    """What a study came to; ``report`` as in report.json."""

    fields: Fields  # of the incumbent; those of its end, where they changed on the way
    report: dict[str, Any]
    path: Path | None


def tune(
    algorithm: str,
    environment: str | Callable[[], Any],
    *,
    steps: int,
    trials: int = 32,
    seeds: int | Sequence[int] = 5,
    test_seeds: int | Sequence[int] = 10,
    search: str = "random",
    space: Mapping[str, Any] | None = None,
    objective: str = "last",
    out: str | Path | None = None,
    key: int = 0,
    parallel: int | None = None,
    workers: int | None = None,
    watch: Watch | None = None,
    **options: Any,
) -> Tuned:
    """Find settings of ``algorithm`` for ``environment``, and test them on fresh seeds.

    Args:
        algorithm: a name from ``sterling list algorithms``.
        environment: a name, or a factory of Gymnasium environments.
        steps: environment steps per seed of a full training.
        trials: configurations begun (of pbt and pb2: the population).
        seeds: tuning seeds, how many or which; every configuration is trained on all of them.
        test_seeds: fresh seeds for the report, how many (from 1000 on) or which.
        search: random, asha, halving, pbt, pb2 or optuna.
        space: field -> range (see ``tuning/space.py``); None: the algorithm's own, spaces.json.
        objective: last, bound, area or final (see ``tuning/objective.py``).
        out: study folder to make; without one nothing is kept.
        key: all of the search's randomness.
        parallel: jobs asked for before any of them is told; part of the study's identity.
        workers: processes, one per core by default; 1 is this process. Changes no number.
        watch: is told of every wave and every job that came in.
        **options: ``eta`` (3), ``least`` (steps of the lowest rung, steps / eta^2) of asha and
            halving; ``generations`` (10), ``quantile`` (0.25) of pbt and pb2; ``envs``,
            ``strategy`` (map, vmap), ``preset``, ``env_options``, ``evaluate_episodes``,
            ``log_every`` as in ``sterling.train``; and fields of the Config to hold fixed.

    Raises:
        Mistake: wrong use, in one line; test seeds that are tuned on are one.
        SystemExit: code 75 after SIGTERM or Ctrl-C; :func:`resume` goes on.
    """
    how = {name: options.pop(name) for name in SEARCH_OPTIONS if name in options}
    known = {name: options.pop(name) for name in STUDY_OPTIONS if name in options}
    asked = {
        "algorithm": algorithm, "steps": steps, "trials": trials,
        "seeds": list(_numbers(seeds, 0)),
        "test_seeds": list(_numbers(test_seeds, FIRST_TEST_SEED)),
        "search": search, "objective": objective, "key": key, "parallel": parallel,
        "how": how, "known": known, "fixed": options,
    }  # fmt: skip
    return _begin(asked, environment, space, out, workers=workers, watch=watch)


def resume(
    path: str | Path,
    *,
    workers: int | None = None,
    watch: Watch | None = None,
    environment: Callable[[], Any] | None = None,
) -> Tuned:
    """Go on with a study; a finished one is returned as it is.

    It makes the decisions and the numbers it would have made without the interruption.
    ``environment`` is needed again where the study was made with the user's own factory.
    """
    path = Path(path)
    if not (path / "study.json").is_file():
        raise Mistake(f"{path} holds no study; start one with `sterling tune`")
    asked = folder.read_json(path / "study.json")
    if asked["custom_environment"] and environment is None:
        raise Mistake(
            f"this study used the environment factory {asked['environment']!r}, which is not "
            "stored; pass it again: sterling.tuning.resume(path, environment=factory)"
        )
    wanted = Space.from_json(asked["space"])
    if (path / "report.json").exists():
        made = folder.read_json(path / "report.json")
        return Tuned(made["incumbent"]["fields"], made, path)
    settings = _settings(asked, environment or asked["environment"])
    return _go(asked, settings, wanted, path, workers=workers, watch=watch)


def _begin(
    asked: dict[str, Any],
    environment: str | Callable[[], Any],
    given: Mapping[str, Any] | None,
    out: str | Path | None,
    *,
    workers: int | None,
    watch: Watch | None,
) -> Tuned:
    """A new study."""
    wanted = _space(asked["algorithm"], given, asked["fixed"])
    settings = _settings(asked, environment)
    _check(asked, settings, wanted)
    asked |= {"environment": settings.name, "space": wanted.to_json()}
    asked["custom_environment"] = not isinstance(environment, str)
    if out is None:
        with tempfile.TemporaryDirectory() as short_lived:
            made = _go(asked, settings, wanted, Path(short_lived), workers=workers, watch=watch)
        return dataclasses.replace(made, path=None)
    path = _create(Path(out))
    folder.write_json(path / "study.json", asked | folder.environment_facts())
    try:
        return _go(asked, settings, wanted, path, workers=workers, watch=watch)
    except Mistake:
        _tidy(path)
        raise


def _go(
    asked: dict[str, Any],
    settings: Settings,
    wanted: Space,
    path: Path,
    *,
    workers: int | None,
    watch: Watch | None,
) -> Tuned:
    remember_programs()
    lasting = isinstance(settings.environment, str) and _is_compiled(settings.environment)
    plan = Plan(settings, asked["objective"], path, 1 if lasting else HOST_TOGETHER)
    searcher = make_searcher(asked, wanted)
    waiting = asked["search"] in ("asha", "optuna")
    parallel = asked["parallel"] or (ASKED_TOGETHER if waiting else asked["trials"])
    if workers is None:
        workers = 1 if settings.inside == "vmap" else len(cores())
    study = Study(
        plan, searcher, tuple(asked["seeds"]), parallel=parallel,
        chained=asked["search"] not in POPULATIONS, watch=watch or _silent,
    )  # fmt: skip
    best, tested = carry_on(study, workers, tuple(asked["test_seeds"]))
    made = outcome.report(asked, study, wanted, best, tested)
    outcome.write(path, made)
    return Tuned(best.fields, made, path)


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
    parts = (wanted, asked["key"], asked["trials"], asked["steps"], combine)
    return makers[asked["search"]](*parts, **asked["how"])


def _settings(asked: dict[str, Any], environment: str | Callable[[], Any]) -> Settings:
    """The study's settings with the defaults' Config."""
    known = dict(asked["known"])
    if known.get("strategy") == "processes":
        raise Mistake("a study deals its trials out to processes by itself; leave strategy out")
    name = asked["algorithm"]
    if isinstance(algorithms.find(name).needs(algorithms.find(name).Config()), LANGUAGE):
        raise Mistake(f"{name} teaches a language model; tune takes learners that count steps")
    return resolve(
        asked["algorithm"], environment, steps=asked["steps"], seeds=asked["seeds"],
        fields=asked["fixed"], **known,
    )  # fmt: skip


def _space(algorithm: str, given: Mapping[str, Any] | None, fixed: Fields) -> Space:
    wanted = space.read(algorithm, given)
    if given is None:  # what is fixed is not searched
        wanted = Space(tuple(each for each in wanted if each.name not in fixed))
    for each in wanted:
        if each.name in fixed:
            raise Mistake(f"{each.name} cannot be both fixed and searched; leave one out")
    return wanted


def _check(asked: dict[str, Any], settings: Settings, wanted: Space) -> None:
    """Wrong use that can be seen before anything is begun."""
    search = asked["search"]
    if search not in SEARCHES:
        near = hint(search, SEARCHES, f"there are {', '.join(SEARCHES)}")
        raise Mistake(f"search {search!r} is not known{near}")
    objective.check(asked["objective"])
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


def _numbers(seeds: int | Sequence[int], first: int) -> tuple[int, ...]:
    """Seeds, from how many or which."""
    chosen = tuple(range(first, first + seeds)) if isinstance(seeds, int) else tuple(seeds)
    if not chosen or len(set(chosen)) != len(chosen):
        raise Mistake(f"seeds must be at least one, all different; got {seeds}")
    return chosen


def _is_compiled(environment: str) -> bool:
    """Whether the worlds are programs, which are kept and begin anew exactly."""
    return find(environment)[0] in ("classic", "gymnax", "probe")


def _create(path: Path) -> Path:
    if (path / "study.json").exists():
        raise Mistake(f"{path} already holds a study; go on with: sterling tune --resume {path}")
    return folder.create(path)


def _tidy(path: Path) -> None:
    """Leave no folder behind where nothing could begin."""
    history = path / "trials.jsonl"
    if history.exists() and history.stat().st_size:
        return
    for name in ("study.json", "trials.jsonl", "test.jsonl", "workers.log", "lock"):
        (path / name).unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        path.rmdir()


def _silent(stage: str, wave: Sequence[Job], line: Line | None) -> None:
    """Nobody looks."""
