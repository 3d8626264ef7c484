"""``sterling data relabel``: labels for logged experience that lacks them."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sterling.commands import readers

if TYPE_CHECKING:
    from sterling.data import Dataset

EXPLAINED = """\
Rewards say how near an episode is to demonstrations, by optimal transport (OTR); actions are those
of a model of what happens between two observations (inverse dynamics). OUT's notes say from what.

  sterling data relabel data/play data/rewarded --rewards-from data/expert --best 1
  sterling data relabel data/videos data/acted --actions-from data/labelled --seed 1
  sterling data import data/acted data/labelled data/both"""
ONLY = {
    "--best": "rewards",
    "--with-actions": "rewards",
    "--beta": "rewards",
    "--seed": "actions",
    "--updates": "actions",
}


def options(one: argparse.ArgumentParser) -> None:
    """What can be asked for."""
    one.description = "rewards from demonstrations, or actions from a model of the world"
    one.epilog, one.formatter_class = EXPLAINED, argparse.RawDescriptionHelpFormatter
    one.add_argument("file", type=Path, metavar="FILE", help="a dataset in any format")
    one.add_argument("out", type=Path, metavar="OUT", help="folder to write")
    which: Any = one.add_mutually_exclusive_group(required=True)
    shown = "demonstrations, with FILE's spaces; their rewards matter for --best alone"
    which.add_argument("--rewards-from", type=Path, metavar="DEMOS", help=shown)
    acted = "a dataset with actions, whose space OUT's will have"
    which.add_argument("--actions-from", type=Path, metavar="LABELLED", help=acted)
    add: Any = one.add_argument_group("with --rewards-from").add_argument
    best = "of the demonstrations, those with the largest returns (all)"
    add("--best", type=readers.integer, metavar="N", help=best)
    add("--with-actions", action="store_true", default=None, help="compare actions as well")
    steep = "rewards are 5 exp(-X times the cost of a step) (5 / numbers compared; mazes: 1)"
    add("--beta", type=readers.number, metavar="X", help=steep)
    add = one.add_argument_group("with --actions-from").add_argument
    add("--seed", type=readers.integer, metavar="S", help="of the model (0)")
    add("--updates", type=readers.integer, metavar="N", help="of the model (10,000)")


def carry_out(chosen: argparse.Namespace) -> int:
    """Label it, write it, and say what was done."""
    from sterling.data import Dataset
    from sterling.data.formats import check_place
    from sterling.types import Mistake

    asked = "rewards" if chosen.rewards_from else "actions"
    for word, needed in ONLY.items():
        if needed != asked and getattr(chosen, word.lstrip("-").replace("-", "_")) is not None:
            raise Mistake(f"{word} goes with --{needed}-from; leave it out")
    check_place(chosen.out)
    file, other = Dataset(chosen.file), Dataset(chosen.rewards_from or chosen.actions_from)
    made = _rewarded(chosen, file, other) if asked == "rewards" else _acted(chosen, file, other)
    made.save(chosen.out)
    print(f"{chosen.out}: {made.episodes} episodes, {made.rows} rows, hash {made.hash[:12]}")
    print(f"note: {made.facts.sources[0].notes[-1]}")
    return 0


def _rewarded(chosen: argparse.Namespace, file: Dataset, shown: Dataset) -> Dataset:
    import numpy as np

    from sterling.data.relabel import otr
    from sterling.types import Mistake

    if chosen.best is not None:
        if not 0 < chosen.best <= len(shown):
            raise Mistake(f"--best lies between 1 and the {len(shown)} demonstrations")
        shown = shown[np.argsort(-shown.returns, kind="stable")[: chosen.best]]
    return otr(file, shown, actions=bool(chosen.with_actions), beta=chosen.beta)


def _acted(chosen: argparse.Namespace, file: Dataset, labelled: Dataset) -> Dataset:
    from sterling.data.relabel import inverse_actions

    given = {"seed": chosen.seed, "updates": chosen.updates}
    return inverse_actions(
        file, labelled, **{name: value for name, value in given.items() if value is not None}
    )
