"""``sterling data make``: make datasets with trained agents or scripts."""

from __future__ import annotations

import argparse
import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sterling.commands.options import option_values

if TYPE_CHECKING:
    from sterling.report.live.live_progress import Progress
    from sterling.report.live.metric_sinks import Row, Sink
    from sterling.training.config.settings import Settings

EXPLAINED = """\
qualities:
  random          uniformly random actions
  medium          a policy a third of the way from random to the expert's return
  expert          the policy at the end of training
  medium-replay   all transitions that training collected until it reached the medium policy
  full-replay     all transitions that training collected until its end
  medium-expert   half medium, half expert
  scripted        hand-written policies: OGBench's collections, BabyAI's bot, Meta-World's

Policies act with exploration, as they did during training. Trained agents are stored and reused
for all qualities. The same command gives the same bytes.

  sterling data make HalfCheetah-v5 --quality medium-replay --size 200_000 --out data/cheetah
  sterling data make cube-single-play-singletask-v0 --quality scripted --size 100_000 \\
      --out data/cube --workers 4
  sterling data make MetaWorld/Reach-v3 --quality scripted --size 5_000 --out data/reach"""


def add_options(one: argparse.ArgumentParser) -> None:
    """Add the options of ``sterling data make``."""
    one.description, one.epilog = "make a dataset with trained agents or scripts", EXPLAINED
    one.formatter_class = argparse.RawDescriptionHelpFormatter
    add: Any = one.add_argument
    named = "see: sterling list environments; or OGBench's name of a dataset"
    add("environment", metavar="ENV", help=named)
    add("--quality", required=True, metavar="QUALITY", help="one of those listed below")
    add(
        "--size",
        type=option_values.integer,
        required=True,
        metavar="N",
        help="number of rows to make",
    )
    add(
        "--seed",
        type=option_values.integer,
        default=0,
        metavar="N",
        help="seed of all randomness (0)",
    )
    add("--out", type=Path, required=True, metavar="FOLDER", help="folder to write")
    add("--agent", default="ppo", metavar="ALGORITHM", help="algorithm to train (ppo)")
    budget = "training steps of the agent (1,000,000)"
    add("--steps", type=option_values.integer, default=1_000_000, metavar="N", help=budget)
    kept = "folder that trained agents are stored in (runs/factory)"
    add("--agents", type=Path, metavar="FOLDER", help=kept)
    example = "an option of the environment, such as max_episode_steps=500; may be repeated"
    add(
        "--env",
        type=option_values.key_value,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help=example,
    )
    processes = "processes for scripted collections; they do not change the data (1)"
    add("--workers", type=option_values.integer, default=1, metavar="N", help=processes)


def carry_out(chosen: argparse.Namespace) -> int:
    """Make the dataset, and print its size, returns, hash and provenance."""
    from sterling.data_generation.dataset_order import DatasetOrder
    from sterling.data_generation.make_dataset import make_dataset
    from sterling.references.return_bounds import return_bounds
    from sterling.statistics import estimate

    order = DatasetOrder(
        chosen.environment,
        chosen.quality,
        chosen.size,
        chosen.seed,
        chosen.agent,
        chosen.steps,
        dict(chosen.env),
        chosen.workers,
    )
    with contextlib.closing(ProgressLine()) as shown:
        made = make_dataset(order, chosen.out, chosen.agents, shown.say, shown.watch)
    known = estimate(made.returns, within=return_bounds(chosen.environment, dict(chosen.env)))
    print(f"{chosen.out}: {made.episodes} episodes, {made.rows} rows, return {known}")
    print(f"hash {made.hash[:12]}")
    for source in made.facts.sources:
        print(source.name, *source.notes, sep="; ")
    return 0


class ProgressLine:
    """Show progress on standard error: a training run as ``sterling train`` shows it, everything
    else as one line that is overwritten, if standard error is a terminal."""

    def __init__(self) -> None:
        self._shown = sys.stderr.isatty()
        self._training: Progress | None = None

    def say(self, words: str) -> None:
        """Replace the text of the line."""
        if self._shown and self._training is None:
            self._put(words[:99])

    def watch(self, settings: Settings) -> Sink:
        """Return a sink that shows the metrics of a new training run."""
        from sterling.report.live.console import PlainConsole
        from sterling.report.live.live_progress import Progress
        from sterling.training.trained_run import run_return_bounds

        title = f"{settings.title.upper()} on {settings.name}, to generate data"
        console = PlainConsole(stderr=True)
        self._training = Progress(settings.steps, settings.seeds, title, console)
        self._training.return_within = run_return_bounds(settings)
        return self

    def write(self, row: Row) -> None:
        """Show the progress of the training run."""
        if self._training is not None:
            self._training.write(row)

    def close(self) -> None:
        """Clear the line; keep the last line of a training run."""
        training, self._training = self._training, None
        if training is not None:
            training.close()
        elif self._shown:
            self._put("")

    def _put(self, words: str) -> None:
        """Replace the line on standard error; ignore a terminal that was closed."""
        try:
            print(f"\r\033[K{words}", end="", file=sys.stderr, flush=True)
        except OSError:
            self._shown = False
