"""Who decides where episodes begin, as a run's settings say it in a word.

plr                           prioritised level replay (experience/level_replay.py)
plr:TEMPERATURE,STALENESS     with these numbers in place of 0.1 and 0.1
go-explore                    where an archive says (experience/go_explore.py)
"""

from __future__ import annotations

import dataclasses
from typing import Any

from jaxtyping import Array, Key

from sterling.experience.go_explore import GoExplore
from sterling.experience.level_replay import LevelReplay
from sterling.experience.level_rollout import LEVEL, LevelRollout
from sterling.types import AnyNeeds, Mistake

PLR, GO_EXPLORE = "plr", "go-explore"
USUAL = (0.1, 0.1)  # of the paper, for Procgen (section 4)


def check_starts(word: str, name: str, needs: AnyNeeds, *, alone: bool) -> None:
    """Raise Mistake where the word is not known or nobody can keep to it: ``alone`` says that the
    learner ``name`` lives by itself, without a log or a guide."""
    if not word:
        return
    if word != GO_EXPLORE:
        numbers(word)
    if needs.speaks:
        raise Mistake(f"{name} lives no episodes; leave out starts")
    if not alone:
        raise Mistake("starts cannot be chosen beside a log or a guide; leave out one of them")


def numbers(word: str) -> tuple[float, float]:
    """The two numbers of level replay; Mistake for any other word."""
    kind, colon, rest = word.partition(":")
    if kind != PLR:
        raise Mistake(
            f"starts={word!r} is not known; use plr, plr:0.1,0.3 with its temperature and share of "
            "staleness, or go-explore"
        )
    try:
        beta, rho = (float(each) for each in rest.split(",")) if colon else USUAL
    except ValueError:
        beta, rho = 0.0, 0.0
    if not (0.0 < beta < float("inf") and 0.0 <= rho <= 1.0):
        raise Mistake(
            f"starts={word!r}: give a temperature above 0 and a share of staleness from 0 to 1, as "
            "plr:0.1,0.3"
        )
    return beta, rho


def told(word: str, lived: Any, keys: Key[Array, "seed"]) -> Any:
    """What lives, with episodes that begin as they are told."""
    if word == GO_EXPLORE:
        return GoExplore.create(lived)
    return LevelRollout.create(lived, keys) if word else lived


def kept(word: str, needs: Any) -> Any:
    """The needs of a replay that keeps what is asked about its rows."""
    return dataclasses.replace(needs, keep=(*needs.keep, LEVEL)) if scores(word) else needs


def heard(word: str, source: Any) -> Any:
    """The source, with whoever decides by what is learned around it."""
    return LevelReplay.create(source, *numbers(word)) if scores(word) else source


def scores(word: str) -> bool:
    """Whether levels are scored by what is learned in them."""
    return word not in ("", GO_EXPLORE)
