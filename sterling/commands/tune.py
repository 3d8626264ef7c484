"""``sterling tune ALGORITHM ENVIRONMENT|FILE``: settings that are better on seeds not tuned on."""

from __future__ import annotations

import argparse
import contextlib
from pathlib import Path
from typing import Any

from sterling import importing
from sterling.commands import fields, readers, train

EXAMPLES = """\
examples:
  sterling tune ppo LunarLander-v3 --trials 64 --steps 200_000 --seeds 5 --out runs/lander-study
  sterling tune ppo CartPole-v1 --steps 50_000 --search asha --space lr=1e-5..1e-2:log \\
      --space epochs=2..20 --space activation=tanh|relu
  sterling tune iql data/cheetah --updates 10_000 --trials 16 --seeds 3
  sterling tune grpo reverse-text --model runs/sft --updates 30 --space lr=1e-5..1e-3:log
  sterling tune --resume runs/lander-study

searches:
  random    every trial is trained in full
  halving   the best third of a rung goes on to three times the steps
  asha      the same without waiting for a whole rung
  pbt, pb2  a population whose settings change while it learns (float fields only)
  optuna    Optuna's sampler (pip install "sterling-rl[tune]")"""
FORWARDED = (
    *("trials", "seeds", "test_seeds", "search", "objective", "key", "parallel", "workers"),
    *("eta", "least", "generations", "quantile", "envs", "strategy", "evaluate_episodes"),
    *("return_within", "failed", "metric", "sources", "hindsight"),
    *("log_every", "preset", "updates"),
    *train.OF_EXPERIENCE,
)


def options(parser: argparse.ArgumentParser) -> None:
    """What can be asked for."""
    given = "ENVIRONMENT --steps N | FILE --updates N"
    parser.usage = f"sterling tune ALGORITHM {given} [options] | --resume FOLDER"
    parser.description = "search settings over several seeds; test the best on fresh ones"
    parser.epilog, parser.formatter_class = EXAMPLES, argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add("algorithm", nargs="?", metavar="ALGORITHM", help="see: sterling list algorithms")
    where = "see: sterling list environments; or a dataset's file"
    add("world", nargs="?", metavar="ENVIRONMENT", help=where)
    add("--resume", type=Path, metavar="FOLDER", help="go on with a study that was stopped")
    add(
        "--steps",
        type=readers.integer,
        metavar="N",
        help="environment steps per seed of a full training",
    )
    add(
        "--trials",
        type=readers.integer,
        metavar="N",
        help="configurations; pbt: the population (32)",
    )
    add(
        "--seeds",
        type=readers.seeds,
        metavar="N",
        help="tuning seeds, how many or which: 3,7,8 (5)",
    )
    fresh = "fresh seeds for the report, how many (from 1000 on) or which (10)"
    add("--test-seeds", type=readers.seeds, metavar="N", help=fresh)
    add("--out", type=Path, metavar="FOLDER", help="of the study (runs/tune-ALGORITHM-...-TIME)")
    _search_options(parser)
    _run_options(parser)
    train.living_options(parser.add_argument)
    train.judging_options(parser.add_argument)
    train.log_options(parser)
    train.speech_options(parser)


def _search_options(parser: argparse.ArgumentParser) -> None:
    """How configurations are chosen, and what is searched."""
    add = parser.add_argument
    searches = ("random", "asha", "halving", "pbt", "pb2", "optuna")
    add("--search", choices=searches, help="how configurations are chosen (random)")
    ranges = "LOW..HIGH[:log|:1-log] or A|B|C; may be repeated; `default` adds the algorithm's own"
    add("--space", action="append", metavar="FIELD=RANGE", help=ranges)
    fixed = "a field of the Config to hold fixed; may be repeated"
    add("--set", type=readers.pair, action="append", default=[], metavar="FIELD=VALUE", help=fixed)
    goals = "last (tenth of the returns), bound (mean less its error), area, final (last; final "
    goals += "where nothing is lived)"
    add("--objective", choices=("last", "bound", "area", "final"), help=goals)
    what = "what of an episode is scored: return, or a channel that the world reports (return)"
    add("--metric", metavar="NAME", help=what)
    add("--key", type=readers.integer, metavar="N", help="all of the search's randomness (0)")
    add("--workers", type=readers.integer, metavar="N", help="processes (one per core)")
    add("--parallel", type=readers.integer, metavar="N", help="jobs decided on together")
    add("--eta", type=readers.integer, metavar="N", help="asha, halving: one in N goes on (3)")
    least = "asha, halving: steps of the lowest rung (steps / eta^2)"
    add("--least", type=readers.integer, metavar="N", help=least)
    add(
        "--generations",
        type=readers.integer,
        metavar="N",
        help="pbt, pb2: changes of settings (10)",
    )
    add("--quantile", type=float, metavar="X", help="pbt, pb2: share that copies (0.25)")


def _run_options(parser: argparse.ArgumentParser) -> None:
    """How each is trained."""
    add = parser.add_argument
    add("--envs", type=readers.integer, metavar="N", help="parallel environments per seed")
    example = "an option of the environment, as max_episode_steps=500; may be repeated"
    add("--env", type=readers.pair, action="append", default=[], metavar="KEY=VALUE", help=example)
    add("--strategy", choices=("vmap", "map"), help="how members share a program (map)")
    add("--evaluate-episodes", type=readers.integer, metavar="N", help="per seed, for `final` (20)")
    add(
        "--log-every",
        type=readers.integer,
        metavar="N",
        help="steps between rows (a hundredth of all)",
    )
    tuned = "begin from the algorithm's defaults, not from settings tuned for this environment"
    add("--no-preset", dest="preset", action="store_false", default=None, help=tuned)
    add("--quiet", action="store_true", help="no progress, only the summary")


def carry_out(chosen: argparse.Namespace) -> int:
    """Tune or go on tuning, and print what came out."""
    from sterling.tuning import resume
    from sterling.tuning.show import summary
    from sterling.types import Mistake

    if chosen.resume is not None:
        if beside := _beside_resume(chosen):
            raise Mistake(f"--resume takes the study's own settings; leave out {', '.join(beside)}")
        watch = None if chosen.quiet else _watch(chosen.resume)
        with contextlib.closing(watch) if watch else contextlib.nullcontext():
            tuned = resume(chosen.resume, workers=chosen.workers, watch=watch)
    else:
        tuned = _begin(chosen)
    summary(tuned.report, tuned.path)
    return 0


def _beside_resume(chosen: argparse.Namespace) -> list[str]:
    """What was given although the study knows it; how it is carried out may be said anew."""
    parser = argparse.ArgumentParser(add_help=False)
    options(parser)
    known = [each for each in parser._actions if each.dest not in ("resume", "workers", "quiet")]
    given = [each for each in known if getattr(chosen, each.dest) != each.default]
    return [(each.option_strings or [str(each.metavar)])[0] for each in given]


def _begin(chosen: argparse.Namespace) -> Any:
    from sterling import algorithms
    from sterling.envs.registry import find
    from sterling.tuning import objective, tune
    from sterling.tuning.show import Progress
    from sterling.types import Mistake

    if chosen.algorithm is None or chosen.world is None or not (chosen.steps or chosen.updates):
        wanted = "ALGORITHM, ENVIRONMENT (or a dataset's FILE) and --steps (or --updates)"
        raise Mistake(f"tune needs {wanted}, or --resume FOLDER")
    algorithms.find(chosen.algorithm)  # a wrong name is told before anything is begun
    environment, data = train.sources(chosen)
    if environment and not fields.speaks(chosen.algorithm):
        find(environment)
    what = environment or (data.stem if data else "")
    name = f"tune-{train.run_name(chosen.algorithm, what)}"
    given = {name: getattr(chosen, name) for name in FORWARDED}
    asked = {name: value for name, value in given.items() if value is not None}
    asked |= {name.replace("-", "_"): value for name, value in chosen.set}
    words = f"{importing.short(chosen.algorithm)} on {importing.short(what)}"
    title = f"tuning {words}, {asked.get('search', 'random')}"
    combine = objective.combine(asked.get("objective", "last"))
    watch = None if chosen.quiet else Progress(title, asked.get("trials", 32), combine)
    with contextlib.closing(watch) if watch else contextlib.nullcontext():
        return tune(
            chosen.algorithm,
            environment,
            steps=chosen.steps or 0,
            data=data,
            out=chosen.out or Path("runs") / name,
            space=_space(chosen),
            env_options=dict(chosen.env),
            watch=watch,
            **asked,
        )


def _watch(path: Path) -> Any:
    """Progress for a study that exists."""
    from sterling.tuning import objective, stored
    from sterling.tuning.show import Progress

    file = path / "study.json"
    if not file.is_file() or (path / "report.json").exists():
        return None  # resume says what is wrong, or has nothing to do
    asked = stored.read_asked(path)
    words = f"{importing.short(asked['algorithm'])} on {importing.short(asked['environment'])}"
    title = f"tuning {words}, {asked['search']}, resumed"
    return Progress(title, asked["trials"], objective.combine(asked["objective"]))


def _space(chosen: argparse.Namespace) -> dict[str, Any] | None:
    """What is to be searched; None: the algorithm's own space."""
    from sterling.tuning import space

    if chosen.space is None:
        return None
    found: dict[str, Any] = {}
    if "default" in chosen.space:
        found = dict(space.default(chosen.algorithm))
    return found | space.pairs([text for text in chosen.space if text != "default"])
