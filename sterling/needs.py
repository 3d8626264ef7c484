"""What a learner asks to be fed: which batches, how many of them, and how they are lived.

Every need answers alike: ``collect`` steps are taken in every env in an iteration, then each of
its ``feeds`` that is due gives its batches. :class:`Needs` says all of it; :class:`Rollouts`,
:class:`Transitions` and :class:`Sequences` are its short forms, and those of learners that speak
have numbers of their own beside it.
"""

from __future__ import annotations

import dataclasses
from typing import Any

FRESH, REPLAY = "fresh", "replay"  # what a feed may be of: what was just lived, or any time before
EPISODES = "episodes"  # or one whole episode of every env, each by its own ``member``
DREAM = "dream"  # what the learner imagines from there on
LABELS = "labels"  # pairs of stretches of the replay, and which of them someone prefers
SAID, TEXTS, PAIRS = "said", "texts", "pairs"  # of learners that speak
KINDS = (FRESH, REPLAY, EPISODES, DREAM, LABELS, SAID, TEXTS, PAIRS)


@dataclasses.dataclass(frozen=True)
class Dreams:
    """What a learner imagines in every iteration, from states of the replay on."""

    branches: int  # begun in an iteration
    horizon: int  # steps of each
    kept: int  # imagined rows, the newest; at least those of one iteration
    real: float  # share of a batch's rows that the replay gives


@dataclasses.dataclass(frozen=True)
class Labels:
    """Which pairs of stretches a learner has compared, and by whom."""

    segment: int  # rows of a stretch, of one episode
    queries: int  # pairs asked about at a time
    every: int  # iterations from one time to the next; the first is before the first iteration
    most: int  # pairs in all
    labeller: str  # a word of experience/labellers.py
    mistakes: float  # share of answers that are turned round


@dataclasses.dataclass(frozen=True)
class Feed:
    """One kind of batch: ``updates`` of them in every ``every``-th iteration.

    A batch ``of`` what is fresh is all that was lived in the iteration, ``(time, env, ...)``; one
    of episodes has a row for each that was played (``experience/population.py``), ``(env, ...)``.
    Those of a replay or a log are ``batch`` rows ``(batch, ...)``, or with ``length`` so many
    stretches of rows ``(batch, time, ...)``; with ``name`` the algorithm's ``learn_NAME`` learns
    from them, otherwise its ``learn``. Stretches of a replay may cross episodes; those of dreams
    lie in one branch. Dreams are drawn uniformly, and have no ``place``.
    """

    of: str = REPLAY  # one of KINDS
    name: str = ""
    batch: int = 0
    updates: int = 1
    every: int = 1
    length: int = 0  # rows of a stretch; 0: single rows
    n_step: int = 1  # returns summed over so many steps
    gamma: float = 1.0  # discount inside an n-step sum
    priority: float = 0.0  # exponent of prioritised replay; 0 draws uniformly
    correction: float = 1.0  # exponent of its importance weights
    next_action: bool = False  # extras["next_action"]: what was done next; at an episode's end 0
    monte_carlo: float | None = None  # discount of extras["monte_carlo"], the return to the end as
    # it was lived, beyond a cut the least that can follow (data/returns.worst); -inf: not known yet
    place: bool = False  # extras["place"]: the number of the drawn row's place in the replay
    dreams: Dreams | None = None  # of a feed of dreams
    labels: Labels | None = None  # of a feed of labels
    horizon: Any = None  # (n, gamma) of the sums as they are now, n <= n_step: given with each draw
    # where the algorithm has a function ``horizon``, and not to be asked for
    padded: bool = False  # stretches end in the row that was drawn, and lie in one episode

    @property
    def whole(self) -> bool:
        """Whether its one batch is all that was lived."""
        return self.of in (FRESH, EPISODES, SAID)

    @property
    def window(self) -> int:
        """Rows, from the drawn one on, that must be known."""
        return max(self.length, 1) - 1 + self.n_step + self.next_action

    @property
    def learner(self) -> str:
        """The name of the function that learns from it."""
        return f"learn_{self.name}" if self.name else "learn"


class Fed:
    """What every need answers beside its own numbers."""

    feeds: Any  # its kinds of batches
    collect: Any = 0  # steps of every env per iteration
    capacity: Any = 0  # rows that a replay keeps, over all envs of one seed
    warmup: Any = 0  # steps taken with random actions before the first update
    keep: Any = ()  # what is kept of a row's extras: the actor's, and channels of the world

    @property
    def updates(self) -> int:
        """Gradient updates in an iteration in which every feed is due; 0 where all that was lived
        is learned from at once."""
        return sum(feed.updates for feed in self.feeds if not feed.whole)

    def updates_of(self, iterations: int) -> int:
        """Gradient updates in a run's first ``iterations``, every feed's when it is due."""
        idle = sum(
            (iterations - -(-iterations // feed.every)) * feed.updates
            for feed in self.feeds
            if not feed.whole
        )
        return iterations * self.updates - idle

    def of(self, kind: str) -> bool:
        """Whether some batches are of this kind: ``fresh``, ``replay``, ``said`` ..."""
        return any(feed.of == kind for feed in self.feeds)

    @property
    def replays(self) -> bool:
        """Whether what was lived is kept: for batches of it, to dream from it, or to compare it."""
        return any(feed.of in (REPLAY, DREAM, LABELS) for feed in self.feeds)

    @property
    def lives(self) -> bool:
        """Whether only what the learner itself has just lived can be learned from."""
        return self.of(FRESH) or self.of(EPISODES)

    @property
    def speaks(self) -> bool:
        """Whether a language model is taught."""
        return any(feed.of in (SAID, TEXTS, PAIRS) for feed in self.feeds)

    @property
    def of_logs_only(self) -> bool:
        """Whether some batches are stretches that only a log gives."""
        return any(feed.padded for feed in self.feeds)

    def feed(self, name: str) -> Feed:
        """The feed of this name."""
        return next(feed for feed in self.feeds if feed.name == name)

    def divided(self, share: float) -> tuple[Needs, Needs]:
        """Two needs that together are this one: of every batch ``share`` of the rows, rounded to
        whole ones, and the others."""
        rows = [round(share * feed.batch) for feed in self.feeds]
        own = [
            dataclasses.replace(feed, batch=each)
            for feed, each in zip(self.feeds, rows, strict=True)
        ]
        rest = [
            dataclasses.replace(feed, batch=feed.batch - each)
            for feed, each in zip(self.feeds, rows, strict=True)
        ]
        plain = (self.capacity, self.warmup, self.keep)
        return Needs(self.collect, tuple(own), *plain), Needs(self.collect, tuple(rest), *plain)


@dataclasses.dataclass(frozen=True)
class Needs(Fed):
    """NEEDS: ``collect`` steps of every env per iteration, and batches of several kinds."""

    collect: int = 0
    feeds: tuple[Feed, ...] = ()
    capacity: int = 1_000_000
    warmup: int = 0
    keep: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Rollouts(Fed):
    """NEEDS: fresh on-policy trajectories, ``length`` steps of every env per iteration."""

    length: int

    collect = property(lambda self: self.length, doc="Steps of every env per iteration.")
    feeds = (Feed(FRESH),)


@dataclasses.dataclass(frozen=True)
class Transitions(Fed):
    """NEEDS: samples of past experience. Each iteration takes ``collect`` steps in every env,
    then learns from ``updates`` batches of ``batch`` transitions drawn from a replay buffer."""

    batch: int
    collect: int = 1
    updates: int = 1
    capacity: int = 1_000_000
    warmup: int = 0
    n_step: int = 1  # and what follows as in Feed
    gamma: float = 1.0
    priority: float = 0.0
    correction: float = 1.0
    keep: tuple[str, ...] = ()
    next_action: bool = False
    monte_carlo: float | None = None

    @property
    def feeds(self) -> tuple[Feed, ...]:
        """The one kind of batch."""
        names = {field.name for field in dataclasses.fields(Feed)} & set(vars(self))
        return (Feed(**{name: getattr(self, name) for name in names}),)

    @classmethod
    def of_config(cls, config: Any) -> Transitions:
        """What a replaying algorithm's Config asks for, by the fields all of them name alike."""
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
class Sequences(Fed):
    """NEEDS: ``batch`` stretches of ``length`` steps of one episode each, ``(batch, time, ...)``,
    of a log.

    ``extras["time"]`` counts steps from the episode's beginning, ``extras["monte_carlo"]`` holds
    returns to its end with discount ``gamma``. A stretch that begins before its episode does is
    padded there: such rows have ``mask`` False.
    """

    batch: int
    length: int
    updates: int = 1
    gamma: float = 1.0

    @property
    def feeds(self) -> tuple[Feed, ...]:
        """The one kind of batch."""
        gamma = float(self.gamma)
        return (
            Feed(
                batch=self.batch,
                updates=self.updates,
                length=self.length,
                monte_carlo=gamma,
                padded=True,
            ),
        )


@dataclasses.dataclass(frozen=True)
class Generations(Fed):
    """NEEDS: what a language model itself says, ``group`` scenes of each of ``prompts`` questions.

    One batch holds prompts x group rows of tokens ``(row, token)``, or more where scenes have
    several seats; ``learn`` makes ``updates`` updates of it.
    """

    prompts: int
    group: int
    updates: int = 1
    limit: int = 32  # tokens of one answer
    temperature: float = 1.0
    top_k: int = 0  # 0: all tokens
    top_p: float = 1.0
    rounds: int = 1  # of asking; above 1, groups that are all right or all wrong are asked anew
    lag: int = 0  # iterations that experience waits before it is learned from
    again: int = 0  # groups of each batch that are remembered ones, once solved (RLEP)

    feeds = (Feed(SAID),)


@dataclasses.dataclass(frozen=True)
class Texts(Fed):
    """NEEDS: ``updates`` batches of ``batch`` texts ``(update, row, token)`` to imitate."""

    batch: int
    updates: int = 1

    @property
    def feeds(self) -> tuple[Feed, ...]:
        """The one kind of batch."""
        return (Feed(TEXTS, batch=self.batch, updates=self.updates),)


@dataclasses.dataclass(frozen=True)
class Comparisons(Fed):
    """NEEDS: ``updates`` batches of ``batch`` pairs of texts, ``(update, row, token)``: the first
    ``batch`` rows are the better ones, the others what they were preferred to."""

    batch: int
    updates: int = 1

    @property
    def feeds(self) -> tuple[Feed, ...]:
        """The one kind of batch."""
        return (Feed(PAIRS, batch=self.batch, updates=self.updates),)


AnyNeeds = Needs | Rollouts | Transitions | Sequences | Generations | Texts | Comparisons
