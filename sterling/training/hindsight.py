"""Whether and how a replay's goals are told anew, as a run's settings say it in a word.

future          by what an episode achieves later on, in 0.8 of what is drawn (hindsight.py)
final           by what it achieves at last, likewise
future:SHARE    in another share, from above 0 to 1; final:SHARE
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from sterling.experience.hindsight import FINAL, FUTURE, SHARE, Hindsight
from sterling.experience.relabelling import Relabel
from sterling.experience.storage import Ring
from sterling.needs import REPLAY
from sterling.types import AnyNeeds, Mistake, World


def check_hindsight(word: str, name: str, needs: AnyNeeds, *, logged: bool) -> None:
    """Raise Mistake where the word is not known or the learner ``name`` has no use for it;
    ``logged`` says that it learns from a log as well."""
    if not word:
        return
    kind_and_share(word)
    if not needs.of(REPLAY) or needs.of_logs_only:
        raise Mistake(f"{name} replays nothing, so no goals can be told anew; use dqn, sac or td3")
    if logged:
        raise Mistake("goals of a log are not told anew; leave out hindsight")
    if any(feed.length for feed in needs.feeds):
        raise Mistake(f"{name} replays stretches of rows and hindsight tells single rows anew; "
                      "leave out hindsight")  # fmt: skip


def kind_and_share(word: str) -> tuple[str, float]:
    """The two parts of the word; Mistake for any other."""
    kind, colon, rest = word.partition(":")
    if kind not in (FUTURE, FINAL):
        raise Mistake(
            f"hindsight={word!r} is not known; use future, final, or with the share of what is "
            "drawn future:0.8"
        )
    try:
        share = float(rest) if colon else SHARE
    except ValueError:
        share = 0.0
    if not 0.0 < share <= 1.0:
        raise Mistake(f"hindsight={word!r}: give a share above 0 and at most 1, as future:0.8")
    return kind, share


def maker(word: str, world: World, name: str) -> Callable[[Ring], Relabel] | None:
    """What makes the change of a replay's windows in the world called ``name``; None for none.
    Raises Mistake where the world does not say how its goals are judged."""
    if not word:
        return None
    judge: Any = world.spec.judge
    if judge is None:
        raise Mistake(
            f"{name} does not say how other goals would be judged, which hindsight needs; leave "
            "out hindsight, or see docs/goals.md"
        )
    kind, share = kind_and_share(word)
    return partial(Hindsight.create, kind=kind, share=share, judge=judge)
