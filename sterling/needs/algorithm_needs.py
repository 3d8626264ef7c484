"""An algorithm's needs: which batches it learns from, how many, and how experience is collected.

In an iteration every env takes ``collect`` steps, then each of the ``feeds`` that is due gives its
batches. :class:`Needs` is the general form; :class:`Rollouts`, :class:`Transitions` and
:class:`Sequences` are short forms. The needs of language-model learners have further numbers.
"""

from __future__ import annotations

import bisect
import dataclasses
from typing import Any

from sterling.needs.feed import (
    DREAM,
    EPISODES,
    FRESH,
    GENERATED,
    LABELS,
    PAD,
    PAIRS,
    REPLAY,
    TEXTS,
    Feed,
)


class NeedsBase:
    """Attributes and methods that all needs share."""

    feeds: Any  # kinds of batches
    collect: Any = 0  # steps of every env per iteration
    capacity: Any = 0  # rows of the replay buffer, over all envs of one seed
    warmup: Any = 0  # steps with random actions before the first update
    # names of extras that the replay keeps: the actor's, the world's channels, their totals over
    # the episode up to a row, "episode/NAME" (also of "return" and "length"), and "memory" for the
    # past before each row, which batches have as ``start``; of a log, its columns "extra/NAME" and
    # their totals
    keep: Any = ()
    # steps of every env that it adapts to: before each episode of an evaluation, and if it learns
    # from rollouts the first of an iteration
    adapt: Any = 0
    members: Any = 0  # envs, in each of which an iteration begins an episode; 0: episodes go on

    @property
    def updates(self) -> int:
        """Return the updates of an iteration in which every feed is due; 0 for feeds that take
        everything collected as one batch."""
        return sum(feed.updates for feed in self.feeds if not feed.whole)

    def updates_of(self, iterations: int) -> int:
        """Return the gradient updates in a run's first ``iterations``, counting feeds when due."""
        own = (feed for feed in self.feeds if not feed.whole)
        idle = sum((iterations - feed.times_due(iterations)) * feed.updates for feed in own)
        return iterations * self.updates - idle

    @property
    def ends(self) -> int | None:
        """Return the iteration from which on there are no batches; None: never."""
        ends = [feed.until for feed in self.feeds]
        known = [end for end in ends if end is not None]
        return max(known) if known and len(known) == len(ends) else None

    def iterations_of(self, updates: int, begin: int = 0) -> int:
        """Return the fewest iterations, from iteration ``begin`` on, that make as many updates as
        fit into ``updates``."""
        own = [feed for feed in self.feeds if not feed.whole]
        # by then more than ``updates`` are made, or every feed has ended
        waits = [feed.after + feed.every * (updates + 1) for feed in own]
        late = begin + max(waits, default=updates + 1)
        made, first = self.updates_of, self.updates_of(begin)
        beyond = bisect.bisect_right(range(begin, late + 1), first + updates, key=made) + begin
        return bisect.bisect_left(range(begin, beyond), made(beyond - 1), key=made)

    def has_feed(self, kind: str) -> bool:
        """Whether some feed is of this kind: ``fresh``, ``replay``, ``said`` ..."""
        return any(feed.of == kind for feed in self.feeds)

    @property
    def replays(self) -> bool:
        """Whether a replay buffer is needed: for batches, model rollouts or comparisons."""
        return any(feed.of in (REPLAY, DREAM, LABELS) for feed in self.feeds)

    @property
    def lives(self) -> bool:
        """Whether it learns from experience that it has just collected itself (on-policy)."""
        return self.has_feed(FRESH) or self.has_feed(EPISODES)

    @property
    def speaks(self) -> bool:
        """Whether it trains a language model."""
        return any(feed.of in (GENERATED, TEXTS, PAIRS) for feed in self.feeds)

    @property
    def adapts_rollouts(self) -> bool:
        """Whether the later steps of an iteration are acted by states adapted to the first."""
        return bool(self.adapt) and self.lives

    @property
    def beside_log(self) -> bool:
        """Whether rows of the run's dataset stand beside some batches; then none of the batches'
        own rows come from it."""
        return any(feed.log_beside for feed in self.feeds)

    @property
    def only_from_logs(self) -> bool:
        """Whether it collects nothing itself."""
        return not (self.collect or self.speaks)

    def feed(self, name: str) -> Feed:
        """Return the feed of this name."""
        return next(feed for feed in self.feeds if feed.name == name)

    def divided(self, share: float) -> tuple[Needs, Needs]:
        """Split these needs in two: one with ``share`` of every batch's rows, rounded to whole
        rows, and one with the remaining rows (see ``Feed.divided``)."""
        first, second = zip(*(feed.divided(share) for feed in self.feeds), strict=True)
        rest = (self.capacity, self.warmup, self.keep)
        return Needs(self.collect, first, *rest), Needs(self.collect, second, *rest)


@dataclasses.dataclass(frozen=True)
class Needs(NeedsBase):
    """The general form: ``collect`` steps of every env per iteration, and several feeds."""

    collect: int = 0
    feeds: tuple[Feed, ...] = ()
    capacity: int = 1_000_000
    warmup: int = 0
    keep: tuple[str, ...] = ()
    members: int = 0
    adapt: int = 0


@dataclasses.dataclass(frozen=True)
class Rollouts(NeedsBase):
    """On-policy rollouts: ``length`` steps of every env per iteration.

    With ``adapt`` the first ``adapt`` of them are acted by the state that all envs share, the
    others by the state that the algorithm's ``adapt`` returns for each env
    (experience/rollouts/adaptation_rollout.py).
    """

    length: int
    adapt: int = 0

    collect = property(lambda self: self.length, doc="Steps of every env per iteration.")
    feeds = (Feed(FRESH),)


@dataclasses.dataclass(frozen=True)
class Transitions(NeedsBase):
    """Samples of a replay buffer: each iteration takes ``collect`` steps in every env, then learns
    from ``updates`` batches of ``batch`` transitions."""

    batch: int
    collect: int = 1
    updates: int = 1
    capacity: int = 1_000_000
    warmup: int = 0
    n_step: int = 1  # this and the following as in Feed
    gamma: float = 1.0
    priority: float = 0.0
    correction: float = 1.0
    keep: tuple[str, ...] = ()
    add: tuple[str, ...] = ()
    monte_carlo: float | None = None

    @property
    def feeds(self) -> tuple[Feed, ...]:
        """Return the only feed."""
        names = {field.name for field in dataclasses.fields(Feed)} & set(vars(self))
        return (Feed(**{name: getattr(self, name) for name in names}),)

    @classmethod
    def of_config(cls, config: Any) -> Transitions:
        """Return the needs of an off-policy algorithm, from field names that all of them share."""
        return cls(
            config.batch,
            config.collect,
            config.learn,
            config.capacity,
            config.warmup,
            config.n_step,
            float(config.gamma) if config.n_step > 1 else 1.0,
            config.priority or 0.0,
            float(config.correction) if config.priority else 1.0,
        )


@dataclasses.dataclass(frozen=True)
class Sequences(NeedsBase):
    """Sequences of a log: ``batch`` sequences of ``length`` steps, each of one episode,
    ``(batch, time, ...)``.

    ``extras["time"]`` counts steps since the episode's beginning; ``extras["monte_carlo"]`` holds
    returns to its end with discount ``gamma``. Rows before the episode's beginning are padding,
    and have ``mask`` False.
    """

    batch: int
    length: int
    updates: int = 1
    gamma: float = 1.0

    @property
    def feeds(self) -> tuple[Feed, ...]:
        """Return the only feed."""
        gamma = float(self.gamma)
        rows: Any = {"batch": self.batch, "updates": self.updates, "length": self.length}
        return (Feed(**rows, monte_carlo=gamma, edge=PAD),)


@dataclasses.dataclass(frozen=True)
class Generations(NeedsBase):
    """A language model's own answers: ``group`` scenes for each of ``prompts`` questions.

    A batch has prompts x group rows of tokens ``(row, token)``, or more if scenes have several
    seats; ``learn`` makes ``updates`` updates with it.
    """

    prompts: int
    group: int
    updates: int = 1
    limit: int = 32  # tokens of one answer
    temperature: float = 1.0
    top_k: int = 0  # 0: all tokens
    top_p: float = 1.0
    rounds: int = 1  # above 1, groups with all answers right or all wrong are replaced by others
    lag: int = 0  # iterations between collecting experience and learning from it
    again: int = 0  # groups of each batch that are replayed solved ones (RLEP)
    ahead: int = 0  # as lag, but the newest answers are sampled while the learner learns
    teacher: bool = False  # whether a frozen language model stands beside each batch (``beside``)

    feeds = (Feed(GENERATED),)


@dataclasses.dataclass(frozen=True)
class Texts(NeedsBase):
    """Texts to imitate: ``updates`` batches of ``batch`` texts ``(update, row, token)``."""

    batch: int
    updates: int = 1

    @property
    def feeds(self) -> tuple[Feed, ...]:
        """Return the only feed."""
        return (Feed(TEXTS, batch=self.batch, updates=self.updates),)


@dataclasses.dataclass(frozen=True)
class Comparisons(NeedsBase):
    """Preference pairs: ``updates`` batches of ``batch`` pairs ``(update, row, token)``; the first
    ``batch`` rows are the chosen texts, the others the rejected ones, in the same order."""

    batch: int
    updates: int = 1

    @property
    def feeds(self) -> tuple[Feed, ...]:
        """Return the only feed."""
        return (Feed(PAIRS, batch=self.batch, updates=self.updates),)


AnyNeeds = Needs | Rollouts | Transitions | Sequences | Generations | Texts | Comparisons
