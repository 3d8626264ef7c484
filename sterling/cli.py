"""The command line: ``sterling train | resume | evaluate | play | list``.

Everything heavy is imported by the command that needs it.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sterling.algorithms import ALGORITHMS
from sterling.options import WRONG_USE, first_line, parse

if TYPE_CHECKING:
    from sterling.report.metrics import Sink

INTERRUPTED = 130  # exit code, as shells have it
FORWARDED = (
    *("steps", "seeds", "envs", "strategy", "preset", "evaluate_episodes"),
    *("checkpoint_minutes", "log_every"),
)


def main(words: Sequence[str] | None = None) -> int:
    """Do what the command line says and return its exit code.

    0: done; 1: every seed failed; 2: wrong use, said in one line. SystemExit 75 passes through:
    the run was stopped, is saved and can be resumed.
    """
    chosen = parse(sys.argv[1:] if words is None else words)
    if not sys.warnoptions:
        warnings.simplefilter("ignore")  # other packages' warnings; `python -W` brings them back
    try:
        return _carry_out(chosen)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader, `head` say, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _carry_out(chosen: argparse.Namespace) -> int:
    if chosen.command == "list" and chosen.kind == "algorithms":
        return _list_algorithms()
    from sterling.envs.workers import WorldFailed
    from sterling.types import Mistake

    commands = {"train": _train, "resume": _resume, "evaluate": _evaluate, "play": _play}
    try:
        return commands.get(chosen.command, _list_environments)(chosen)
    except Mistake as mistake:
        print(f"sterling: {mistake}", file=sys.stderr)
        return WRONG_USE
    except WorldFailed as failure:
        print(f"sterling: {failure}", file=sys.stderr)
        return 1


def _train(chosen: argparse.Namespace) -> int:
    import sterling
    from sterling import algorithms
    from sterling.envs.registry import find

    algorithms.find(chosen.algorithm)  # a wrong name is told before anything is begun
    find(chosen.environment)
    now = datetime.datetime.now()
    name = f"{chosen.algorithm}-{chosen.environment.replace('/', '-')}-{now:%Y%m%d-%H%M%S}"
    out = chosen.out or Path("runs") / name
    given = {name: getattr(chosen, name) for name in FORWARDED}
    options = {name: value for name, value in given.items() if value is not None} | chosen.own
    with _sinks(chosen, out, vars(chosen)) as sinks:
        run = sterling.train(
            chosen.algorithm,
            chosen.environment,
            out=out,
            sinks=sinks,
            env_options=dict(chosen.env),
            **options,
        )
    return _summary(run)


def _resume(chosen: argparse.Namespace) -> int:
    import sterling

    config = chosen.folder / "config.json"
    if not config.exists() or (chosen.folder / "result.json").exists():
        return _summary(sterling.resume(chosen.folder))  # which says what is wrong, or the result
    with _sinks(chosen, chosen.folder, json.loads(config.read_text())) as sinks:
        run = sterling.resume(chosen.folder, sinks=sinks)
    return _summary(run)


def _evaluate(chosen: argparse.Namespace) -> int:
    import sterling
    from sterling.report.progress import written
    from sterling.statistics import Estimate

    run = sterling.load(chosen.folder)
    scores = run.evaluate(chosen.episodes)["return"]
    for seed, score in zip(run.settings.seeds, scores["per_seed"], strict=True):
        print(f"seed {seed:<5} {'failed' if score is None else f'{score:.6g}'}")
    made = written(Estimate.from_json(scores), explain=True)
    print(f"return     {made}, {chosen.episodes} episodes each")
    return 0


def _play(chosen: argparse.Namespace) -> int:
    import jax

    import sterling
    from sterling.report.video import record
    from sterling.types import Mistake

    run = sterling.load(chosen.folder)
    settings = run.settings
    seed = settings.seeds[0] if chosen.seed is None else chosen.seed
    if seed not in settings.seeds:
        raise Mistake(f"the run has no seed {seed}; it has {', '.join(map(str, settings.seeds))}")

    def act(obs: Any) -> Any:
        action = run.policy(jax.tree.map(lambda x: x[0], obs), seed)
        return jax.tree.map(lambda x: x[None], action)

    path = chosen.video or chosen.folder / "play.mp4"
    record(settings.environment, settings.env_options, act, path, steps=chosen.steps, seed=seed)
    print(path)
    return 0


def _list_algorithms() -> int:
    for name in ALGORITHMS:
        print(f"{name:<8}{first_line(name)}")
    return 0


def _list_environments(chosen: argparse.Namespace) -> int:
    from sterling import envs
    from sterling.types import Mistake

    found = {backend: names for backend, names in envs.names(chosen.pattern).items() if names}
    if not found:
        raise Mistake(f"no environment's name holds {chosen.pattern!r}")
    for backend, names in found.items():
        for name in names:
            print(f"{backend:<11}{name}")
    return 0


@contextlib.contextmanager
def _sinks(chosen: argparse.Namespace, out: Path, run: dict[str, Any]) -> Iterator[list[Sink]]:
    """What the options ask for; ``run`` has algorithm, environment, steps and seeds."""
    from sterling.report.metrics import TensorBoard, WeightsAndBiases
    from sterling.report.progress import Progress

    sinks: list[Sink] = []
    if chosen.tensorboard:
        sinks.append(TensorBoard(out / "tensorboard"))
    if chosen.wandb:
        sinks.append(WeightsAndBiases(chosen.wandb, name=out.name))
    if chosen.quiet:
        yield sinks
        return
    seeds = run["seeds"]
    count = seeds if isinstance(seeds, int) else len(seeds)
    title = f"{run['algorithm'].upper()} on {run['environment']}, {count} seed{'s'[: count > 1]}"
    with contextlib.closing(Progress(run["steps"], seeds, title)) as progress:
        yield [*sinks, progress]


def _summary(run: Any) -> int:
    """Print what came out; 1 if no seed did."""
    from sterling.report.progress import summary

    summary(run.result, run.path)
    return int(len(run.result.get("failed_seeds", [])) == len(run.result["seeds"]))
