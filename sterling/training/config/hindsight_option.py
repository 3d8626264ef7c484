"""The setting ``hindsight``: whether and how goals in the replay buffer are relabelled.

future          with a goal achieved later in the episode, for 0.8 of the draws
final           with the goal achieved at the episode's end, likewise
episode         with a goal achieved anywhere in the episode, also before
random          with a goal achieved by any row of the replay
future:SHARE    for another share of the draws, above 0 and at most 1; also final:SHARE, ...
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from sterling.experience.replay.hindsight_replay import KINDS, SHARE, Hindsight
from sterling.experience.replay.ring_buffer import Ring
from sterling.experience.replay.window_relabelling import Relabeller
from sterling.needs.feed import DREAM, REPLAY
from sterling.needs.goal_rows import draws_goals
from sterling.types import AnyNeeds, Mistake, World


def check_hindsight(word: str, name: str, needs: AnyNeeds, *, logged: bool) -> None:
    """Raise Mistake if the word is unknown, or if the learner ``name`` cannot use hindsight;
    ``logged``: it also learns from a log."""
    if not word:
        return
    parse_hindsight(word)
    if draws_goals(needs):
        raise Mistake(f"{name} draws its goals itself. Leave out hindsight.")
    if needs.has_feed(DREAM):
        raise Mistake(f"hindsight does not change the goals of model rollouts, from which {name} "
                      "learns. Leave out hindsight.")  # fmt: skip
    if not needs.has_feed(REPLAY) or needs.only_from_logs:
        raise Mistake(f"hindsight needs a replay buffer, and {name} has none. Use dqn, sac or td3.")
    if logged:
        raise Mistake("hindsight does not relabel goals of a dataset. Leave out hindsight.")
    if any(feed.own_beside for feed in needs.feeds):
        raise Mistake(f"hindsight gives rows other goals, but those that {name} reads beside them "
                      "keep theirs. Leave out hindsight.")  # fmt: skip
    if any(feed.monte_carlo is not None for feed in needs.feeds):
        raise Mistake(f"hindsight changes what single steps pay, and {name} learns from returns to "
                      "the episode's end. Leave out hindsight.")  # fmt: skip
    if any(feed.length for feed in needs.feeds):
        raise Mistake(f"hindsight relabels single rows, and {name} learns from sequences. "
                      "Leave out hindsight.")  # fmt: skip


def parse_hindsight(word: str) -> tuple[str, float]:
    """Return kind and share of the setting; raise Mistake for other words."""
    kind, colon, rest = word.partition(":")
    if kind not in KINDS:
        raise Mistake(
            f"Unknown hindsight={word!r}. Use future, final, episode or random, or future:0.8 to "
            "set the share of draws."
        )
    try:
        share = float(rest) if colon else SHARE
    except ValueError:
        share = 0.0
    if not 0.0 < share <= 1.0:
        raise Mistake(f"hindsight={word!r}: the share must be above 0 and at most 1, as future:0.8")
    return kind, share


def relabel_factory(word: str, world: World, name: str) -> Callable[[Ring], Relabeller] | None:
    """Return a function that creates the relabelling for a replay in the world ``name``; None
    without hindsight. Raise Mistake if the world has no ``judge`` of goals."""
    if not word:
        return None
    judge: Any = world.spec.judge
    if judge is None:
        raise Mistake(
            f"hindsight needs a function that judges goals, and {name} has none. Leave out "
            "hindsight, or see docs/goals.md."
        )
    kind, share = parse_hindsight(word)
    return partial(Hindsight.create, kind=kind, share=share, judge=judge)
