"""A feed: one kind of batch that an algorithm learns from, and when it is due."""

from __future__ import annotations

import dataclasses
from typing import Any

from sterling.needs.beside_laws import LOG, Beside, Later, SameTask, check_beside
from sterling.system.mistake import Mistake

FRESH, REPLAY = "fresh", "replay"  # kinds of feeds: this iteration's rollout, the replay buffer
EPISODES = "episodes"  # one whole episode of every env, each played by its own ``member``
DREAM = "dream"  # rollouts of a learned model, from rows of the replay or the log
LABELS = "labels"  # pairs of segments of the replay, and which of them is preferred
TEACHER_ACTION = "teacher_action"  # extra of rows: what the run's teacher would have done
GENERATED, TEXTS, PAIRS = "said", "texts", "pairs"  # for language models: own answers, texts, pairs
ONE_STEP = ("reward_now", "discount_now")  # extras that "one_step" adds
ADDED = {  # extras that a feed may ask for, from a replay as from a log
    "next_action": "the action of the next row; 0 at an episode's end",
    "one_step": "reward_now and discount_now, of the row's own step beside its n-step return",
    "place": "the drawn row's index in the replay or the log; a sequence's first, or padded last",
}
MEMORY = "memory"  # named in ``Needs.keep``: batches get ``start``, the past before their first row
PLACE = "place"  # of new rows: their index in the replay, -1 of those that cannot be drawn
STEPS = "steps"  # extra of a feed of episodes: their rows, in ``batch.beside``
CROSS, MASK, PAD = "cross", "mask", "pad"
EDGES = {
    CROSS: "sequences begin in the drawn row, and may cross episodes",
    MASK: "they begin there; after the episode's last row, rows are masked",
    PAD: "they end in the drawn row; before the episode's first row, it is repeated and masked",
}
ADDED_TO_WHOLE = {FRESH: (PLACE,), EPISODES: (STEPS,)}  # what feeds of all new rows may ask for
FEED_KINDS = (FRESH, REPLAY, EPISODES, DREAM, LABELS, GENERATED, TEXTS, PAIRS)


@dataclasses.dataclass(frozen=True)
class Dreams:
    """Model rollouts in every iteration, which begin at rows of the replay or the log."""

    branches: int  # model rollouts begun in an iteration
    steps: int  # of each rollout
    size: int  # newest imagined rows to keep; at least those of one iteration
    real: float  # share of a batch's rows that come from the replay or the log


@dataclasses.dataclass(frozen=True)
class Labels:
    """Which pairs of segments are compared, how often, and by which labeller."""

    segment: int  # rows of a segment, which lies in one episode
    queries: int  # pairs compared at a time
    every: int  # iterations between comparisons; the first comes before the first iteration
    most: int  # pairs in all
    labeller: str  # a name of experience/preferences/preference_labellers.py
    mistakes: float  # share of answers that are flipped


OF_BATCHES = ("batch", "length", "priority", "add", "dreams", "labels")


@dataclasses.dataclass(frozen=True)
class Feed:
    """One kind of batch: ``updates`` of them in every ``every``-th iteration, the first after
    ``after`` iterations without, and none from iteration ``until`` on.

    A batch of the kind "fresh" is the iteration's whole rollout, ``(time, env, ...)``, with
    ``add=("place",)`` with its rows' places in the replay, of which ``samples["td_error"]`` then
    sets the priorities. A batch of
    "episodes" has one row per episode, ``(env, ...)`` (experience/rollouts/population_episodes.py),
    and with ``add=("steps",)`` their steps as a Record ``(env, time, ...)`` in
    ``batch.beside["steps"]``, masked after an episode's end.
    A batch of a replay or a log has ``batch`` rows ``(batch, ...)``; with ``length`` it has
    ``batch`` sequences of rows ``(batch, time, ...)``. With ``name`` the algorithm's
    ``learn_NAME`` learns from it, otherwise its ``learn``. Sequences of model rollouts lie in one
    rollout. Model rollouts are drawn uniformly, and have no ``place``.
    """

    of: str = REPLAY  # one of FEED_KINDS
    name: str = ""  # ``learn_NAME`` learns from it; without one ``learn``
    batch: int = 0  # rows, or sequences, of a batch
    updates: int = 1  # batches in an iteration in which it is due
    every: int = 1  # iterations from one in which it is due to the next
    after: int = 0  # iterations before the first that gets batches
    until: int | None = None  # iterations of the run after which it gives none; None: all its life
    length: int = 0  # rows of a sequence; 0: single rows
    n_step: int = 1  # steps of n-step returns
    gamma: float = 1.0  # discount inside an n-step sum
    priority: float = 0.0  # exponent of prioritised replay; 0 draws uniformly
    correction: float = 1.0  # exponent of its importance weights
    monte_carlo: float | None = None  # discount of extras["monte_carlo"], the return to go, to the
    # episode's end; after a truncation a lower bound: the lowest reward of the log, or of the run
    # so far, forever (but 0 for padded sequences); -inf: the episode has not ended
    add: tuple[str, ...] = ()  # extras of each row, of ADDED
    dreams: Dreams | None = None  # for a feed of model rollouts
    labels: Labels | None = None  # for a feed of labels
    n_step_now: Any = None  # (n, gamma), n <= n_step: set by the algorithm's ``n_step_now``
    edge: str = CROSS  # what sequences do at the edge of an episode: one of EDGES
    beside: tuple[Beside, ...] = ()  # further rows, in ``batch.beside``

    def __post_init__(self) -> None:
        known = ADDED_TO_WHOLE.get(self.of, tuple(ADDED))
        unknown = [name for name in self.add if name not in known]
        if unknown:
            raise Mistake(f"a feed of {self.of!r} adds {', '.join(known)}, not {unknown[0]!r}")
        asked = [
            x
            for x in OF_BATCHES
            if getattr(self, x) and not (x == "add" and self.of in ADDED_TO_WHOLE)
        ]
        if self.whole and asked:
            raise Mistake(
                f"a feed of {self.of!r} is everything collected, as it is. Leave out "
                f"{', '.join(asked)}."
            )
        if self.until is not None and self.until <= self.after:
            raise Mistake(
                f"a feed with after={self.after} and until={self.until} gives no batch. Give a "
                "larger until, or leave out the feed."
            )
        if self.monte_carlo is not None and self.of != REPLAY:
            raise Mistake(
                f"returns to go are known of rows of a replay or a log, not of {self.of!r}. Leave "
                "out monte_carlo."
            )
        self._check_edge()
        self._check_beside()

    def _check_edge(self) -> None:
        """Raise Mistake for an edge that sequences do not have, or that has no sequences."""
        if self.edge not in EDGES:
            raise Mistake(f"the edge of sequences is {', '.join(EDGES)}, not {self.edge!r}")
        if self.edge != CROSS and (not self.length or self.of not in (REPLAY, DREAM)):
            raise Mistake(f"edge={self.edge!r} is for sequences: give a length, or leave it out")
        if self.edge == PAD and (self.n_step > 1 or self.of == DREAM):
            raise Mistake(
                f"edge={PAD!r} takes rows as they were stored. Leave out n_step and dreams."
            )

    def _check_beside(self) -> None:
        """Raise Mistake for rows beside the batch that this feed cannot have."""
        check_beside(self.beside)
        if STEPS in self.add and any(each.name == STEPS for each in self.beside):
            raise Mistake(
                f"{STEPS!r} are the episodes' own. Give the rows beside them another name."
            )
        kinds = (FRESH, EPISODES, REPLAY, DREAM)
        if self.beside and self.of not in kinds:
            raise Mistake(f"a feed of {self.of!r} has no rows beside it. Leave out beside.")
        if self.own_beside and self.of != REPLAY:
            raise Mistake(
                f"a feed of {self.of!r} is not drawn from a store, so what stands beside it must "
                f"be rows of the dataset: give of={LOG!r}"
            )
        if self.length and any(isinstance(each.law, Later) for each in self.beside):
            raise Mistake("Later stands beside single rows. Leave out length.")
        if self.priority and self.tasks:
            raise Mistake("SameTask stands beside rows drawn uniformly. Leave out priority.")

    @property
    def own_beside(self) -> tuple[Beside, ...]:
        """Return what stands beside the batch from the store that it is drawn from."""
        return tuple(each for each in self.beside if not each.of)

    @property
    def tasks(self) -> tuple[str, ...]:
        """Return the names of the numbers that tell tasks apart, for rows of the same task."""
        laws = [each.law for each in self.beside if isinstance(each.law, SameTask)]
        return tuple(dict.fromkeys(law.task for law in laws))

    @property
    def log_beside(self) -> tuple[Beside, ...]:
        """Return what stands beside the batch from the run's dataset."""
        return tuple(each for each in self.beside if each.of)

    @property
    def always(self) -> bool:
        """Whether it is due in every iteration."""
        return self.every == 1 and not self.after and self.until is None

    def is_due(self, iteration: Any) -> Any:
        """Whether it gives batches in this iteration, a number or an array."""
        waited = iteration - self.after
        due = (waited >= 0) & (waited % self.every == 0)
        return due if self.until is None else due & (iteration < self.until)

    def times_due(self, iterations: int) -> int:
        """Return in how many of a run's first ``iterations`` it gives batches."""
        last = iterations if self.until is None else min(iterations, self.until)
        return max(-(-(last - self.after) // self.every), 0)

    @property
    def whole(self) -> bool:
        """Whether its one batch is everything collected in the iteration."""
        return self.of in (FRESH, EPISODES, GENERATED)

    @property
    def window(self) -> int:
        """Return the number of rows that a draw reads, beginning with the drawn row."""
        further = 0 if self.edge == PAD else max(self.length, 1) - 1
        return further + self.n_step + ("next_action" in self.add)

    def divided(self, share: float) -> tuple[Feed, Feed]:
        """Return this feed with ``share`` of its rows, rounded to whole rows, and with the others;
        of rows beside the whole batch each gets at least one."""
        rows = round(share * self.batch)
        pairs = [each.divided(share) for each in self.beside]
        return (
            dataclasses.replace(self, batch=rows, beside=tuple(one for one, _ in pairs)),
            dataclasses.replace(
                self, batch=self.batch - rows, beside=tuple(other for _, other in pairs)
            ),
        )

    @property
    def learner(self) -> str:
        """Return the name of the algorithm's function that learns from it."""
        return f"learn_{self.name}" if self.name else "learn"
