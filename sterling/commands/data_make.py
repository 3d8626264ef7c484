"""``sterling data make``: datasets by our own agents, or by scripts."""

from __future__ import annotations

import argparse
import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sterling.commands import readers

if TYPE_CHECKING:
    from sterling.report.metrics import Row, Sink
    from sterling.report.progress import Progress
    from sterling.training.settings import Settings

EXPLAINED = """\
qualities:
  random          uniformly random actions
  medium          a policy stopped a third of the way from random to the expert
  expert          the policy at the end of training
  medium-replay   what training lived through until the medium policy
  full-replay     what training lived through until its end
  medium-expert   half of each
  scripted        hand-written policies: OGBench's collections, BabyAI's bot, Meta-World's

Policies act with exploration, as they did while they learned. Trained agents are kept, and shared
by all qualities; equal words give equal bytes.

  sterling data make HalfCheetah-v5 --quality medium-replay --size 200_000 --out data/cheetah
  sterling data make cube-single-play-singletask-v0 --quality scripted --size 100_000 \\
      --out data/cube --workers 4
  sterling data make MetaWorld/Reach-v3 --quality scripted --size 5_000 --out data/reach"""


def options(one: argparse.ArgumentParser) -> None:
    """What can be asked for."""
    one.description, one.epilog = "make a dataset with our own agents, or by scripts", EXPLAINED
    one.formatter_class = argparse.RawDescriptionHelpFormatter
    add: Any = one.add_argument
    named = "see: sterling list environments; or OGBench's name of a dataset"
    add("environment", metavar="ENV", help=named)
    add("--quality", required=True, metavar="QUALITY", help="one of those below")
    add("--size", type=readers.integer, required=True, metavar="N", help="rows")
    add("--seed", type=readers.integer, default=0, metavar="N", help="of everything (0)")
    add("--out", type=Path, required=True, metavar="FOLDER", help="to write")
    add("--agent", default="ppo", metavar="ALGORITHM", help="that is trained (ppo)")
    budget = "of its training (1,000,000)"
    add("--steps", type=readers.integer, default=1_000_000, metavar="N", help=budget)
    kept = "where trained agents are kept (runs/factory)"
    add("--agents", type=Path, metavar="FOLDER", help=kept)
    example = "an option of the environment, as max_episode_steps=500; may be repeated"
    add("--env", type=readers.pair, action="append", default=[], metavar="KEY=VALUE", help=example)
    processes = "processes of scripted collections; they change no number (1)"
    add("--workers", type=readers.integer, default=1, metavar="N", help=processes)


def carry_out(chosen: argparse.Namespace) -> int:
    """Make it, and say what it is."""
    from sterling.factory.make import Order, make
    from sterling.references.bounds import return_bounds
    from sterling.statistics import estimate

    order = Order(
        chosen.environment,
        chosen.quality,
        chosen.size,
        chosen.seed,
        chosen.agent,
        chosen.steps,
        dict(chosen.env),
        chosen.workers,
    )
    with contextlib.closing(Shown()) as shown:
        made = make(order, chosen.out, chosen.agents, shown.say, shown.watch)
    known = estimate(made.returns, within=return_bounds(chosen.environment, dict(chosen.env)))
    print(f"{chosen.out}: {made.episodes} episodes, {made.rows} rows, return {known}")
    print(f"hash {made.hash[:12]}")
    for source in made.facts.sources:
        print(source.name, *source.notes, sep="; ")
    return 0


class Shown:
    """How it goes, on standard error: a training as every other is shown, and else one line that
    changes, where somebody looks on."""

    def __init__(self) -> None:
        self._shown = sys.stderr.isatty()
        self._training: Progress | None = None

    def say(self, words: str) -> None:
        """Replace what the line says."""
        if self._shown and self._training is None:
            self._put(words[:99])

    def watch(self, settings: Settings) -> Sink:
        """A sink for a training that begins."""
        from sterling.report.console import Output
        from sterling.report.progress import Progress
        from sterling.training.trained import bounds

        title = f"{settings.title.upper()} on {settings.name}, to make data with"
        console = Output(stderr=True)
        self._training = Progress(settings.steps, settings.seeds, title, console)
        self._training.return_within = bounds(settings)
        return self

    def write(self, row: Row) -> None:
        """Show how far a training is."""
        if self._training is not None:
            self._training.write(row)

    def close(self) -> None:
        """Leave nothing behind but a training's last line."""
        training, self._training = self._training, None
        if training is not None:
            training.close()
        elif self._shown:
            self._put("")

    def _put(self, words: str) -> None:
        """Replace the line on standard error; a terminal that is gone does not end the work."""
        try:
            print(f"\r\033[K{words}", end="", file=sys.stderr, flush=True)
        except OSError:
            self._shown = False
