"""``sterling data relabel``: add rewards or actions to a dataset that lacks them."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sterling.commands.options import option_values

if TYPE_CHECKING:
    from sterling.data import Dataset

EXPLAINED = """\
Rewards measure the similarity of an episode to demonstrations, by optimal transport (OTR). Actions
are predicted from two successive observations, by an inverse dynamics model. OUT's notes record
what the labels were made from.

  sterling data relabel data/play data/rewarded --rewards-from data/expert --best 1
  sterling data relabel data/videos data/acted --actions-from data/labelled --seed 1
  sterling data import data/acted data/labelled data/both"""
OPTION_KINDS = {
    "--best": "rewards",
    "--with-actions": "rewards",
    "--beta": "rewards",
    "--seed": "actions",
    "--updates": "actions",
}


def add_options(one: argparse.ArgumentParser) -> None:
    """Add the options of ``sterling data relabel``."""
    one.description = "add rewards from demonstrations, or actions from an inverse dynamics model"
    one.epilog, one.formatter_class = EXPLAINED, argparse.RawDescriptionHelpFormatter
    one.add_argument("file", type=Path, metavar="FILE", help="a dataset in any format")
    one.add_argument("out", type=Path, metavar="OUT", help="folder to write")
    which: Any = one.add_mutually_exclusive_group(required=True)
    shown = "dataset of demonstrations, with FILE's spaces; only --best uses their rewards"
    which.add_argument("--rewards-from", type=Path, metavar="DEMOS", help=shown)
    acted = "dataset with actions to learn from; OUT gets its action space"
    which.add_argument("--actions-from", type=Path, metavar="LABELLED", help=acted)
    add: Any = one.add_argument_group("with --rewards-from").add_argument
    best = "use only the N demonstrations with the largest returns (all)"
    add("--best", type=option_values.integer, metavar="N", help=best)
    compared = "compare observations and actions, not only observations"
    add("--with-actions", action="store_true", default=None, help=compared)
    steep = "rewards are 5 exp(-X * cost of a step) (5 / components compared; use 1 in mazes)"
    add("--beta", type=option_values.number, metavar="X", help=steep)
    add = one.add_argument_group("with --actions-from").add_argument
    add("--seed", type=option_values.integer, metavar="S", help="random seed of the model (0)")
    updates = "training updates of the model (10,000)"
    add("--updates", type=option_values.integer, metavar="N", help=updates)


def carry_out(chosen: argparse.Namespace) -> int:
    """Label the dataset, write it, and print its size and the note on its labels."""
    from sterling.data import Dataset
    from sterling.data.formats import check_destination
    from sterling.types import Mistake

    asked = "rewards" if chosen.rewards_from else "actions"
    for word, needed in OPTION_KINDS.items():
        if needed != asked and getattr(chosen, word.lstrip("-").replace("-", "_")) is not None:
            raise Mistake(f"{word} has an effect only with --{needed}-from. Leave it out.")
    check_destination(chosen.out)
    file, other = Dataset(chosen.file), Dataset(chosen.rewards_from or chosen.actions_from)
    made = (
        _label_rewards(chosen, file, other)
        if asked == "rewards"
        else _label_actions(chosen, file, other)
    )
    made.save(chosen.out)
    print(f"{chosen.out}: {made.episodes} episodes, {made.rows} rows, hash {made.hash[:12]}")
    print(f"note: {made.facts.sources[0].notes[-1]}")
    return 0


def _label_rewards(chosen: argparse.Namespace, file: Dataset, shown: Dataset) -> Dataset:
    import numpy as np

    from sterling.data.relabel import otr
    from sterling.types import Mistake

    if chosen.best is not None:
        if not 0 < chosen.best <= len(shown):
            raise Mistake(
                f"--best must lie between 1 and {len(shown)}, the number of demonstrations; got "
                f"{chosen.best}."
            )
        shown = shown[np.argsort(-shown.returns, kind="stable")[: chosen.best]]
    return otr(file, shown, actions=bool(chosen.with_actions), beta=chosen.beta)


def _label_actions(chosen: argparse.Namespace, file: Dataset, labelled: Dataset) -> Dataset:
    from sterling.data.relabel import inverse_actions

    given = {"seed": chosen.seed, "updates": chosen.updates}
    return inverse_actions(
        file, labelled, **{name: value for name, value in given.items() if value is not None}
    )
