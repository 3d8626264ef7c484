"""Rows beside the rows of a batch: further rows of the same store, or of the run's dataset, which a
law chooses (``Feed.beside``)."""

from __future__ import annotations

import dataclasses

from sterling.system.mistake import Mistake

LOG = "log"  # the run's dataset, as a store


@dataclasses.dataclass(frozen=True)
class Anywhere:
    """``rows`` rows from anywhere in the store, for the whole batch: ``(rows, ...)``."""

    rows: int  # for the whole batch

    def __post_init__(self) -> None:
        """Raise Mistake unless it is a number of rows."""
        if self.rows < 1:
            raise Mistake(f"Anywhere needs a number of rows above 0; got {self.rows}")


@dataclasses.dataclass(frozen=True)
class Later:
    """One row for each row of the batch, ``(batch, ...)``: so many ``steps`` later in its episode.

    With ``steps`` 0 the number is drawn: with the first ``share`` it is 0; with the second it is
    1 or more, uniformly up to the episode's final observation or, with a ``discount`` below 1,
    with probability proportional to discount^steps; with the third the row is any of the store.
    No row lies beyond the final observation, nor later than the one beside of the name
    ``not_after``. ``extras["steps"]`` says how many steps later it is; -1: any row.

    A final observation is a row with ``mask`` False, and so is a row of the store that is none. In
    a replay an unfinished episode ends, so far, with its newest row; of an episode whose beginning
    was overwritten only the row itself is known.
    """

    steps: int = 0  # rows later in the episode; 0: drawn
    share: tuple[float, float, float] = (0.0, 1.0, 0.0)  # the row itself, a later one, any row
    discount: float = 1.0  # below 1: later rows in proportion to discount^steps
    not_after: str = ""  # other rows beside the batch, by name: these lie no later

    def __post_init__(self) -> None:
        """Raise Mistake unless the numbers are shares, steps and a discount."""
        if self.steps < 0 or not 0.0 < self.discount <= 1.0:
            raise Mistake(
                "Later needs steps of at least 0 and a discount above 0 and at most 1; got "
                f"steps={self.steps}, discount={self.discount:g}"
            )
        if len(self.share) != 3 or min(self.share) < 0.0 or abs(sum(self.share) - 1.0) > 1e-6:
            raise Mistake(
                "Later needs three shares, of the row itself, of later ones and of any, whose sum "
                f"is 1; got {self.share}"
            )
        if self.steps and (self.share != (0.0, 1.0, 0.0) or self.discount != 1.0):
            raise Mistake("Later with steps draws no number of them. Leave out share and discount.")


@dataclasses.dataclass(frozen=True)
class SameTask:
    """``rows`` rows of the same task for each row of the batch, ``(batch, rows, ...)``, drawn
    uniformly with replacement; the row itself may be among them. The newest rows of a replay, at
    most one in 256, may not be: its index is sorted now and then.

    ``task`` names what tells tasks apart, one number a row, equal in all rows of a task: a channel
    of the world or another recorded extra, which a replay then keeps, or a log's column
    ``extra/NAME``. Beside a masked row all rows are masked.
    """

    rows: int  # for each row of the batch
    task: str = "task"  # the channel, extra or column that tells tasks apart

    def __post_init__(self) -> None:
        """Raise Mistake unless it is a number of rows of named tasks."""
        if self.rows < 1 or not self.task:
            raise Mistake(
                "SameTask needs a number of rows above 0, and the name of a number that tells "
                f"tasks apart; got rows={self.rows}, task={self.task!r}"
            )


@dataclasses.dataclass(frozen=True)
class Beside:
    """Rows in ``batch.beside[name]``, a Record of single rows with one-step rewards; those of the
    batch's own store have what ``Needs.keep`` names."""

    name: str  # in ``batch.beside``
    law: Anywhere | Later | SameTask  # which rows
    of: str = ""  # "": the feed's own store, a replay or the log it draws from; LOG: the dataset

    def __post_init__(self) -> None:
        """Raise Mistake for another store, and for laws that it does not have."""
        if self.of not in ("", LOG):
            raise Mistake(
                f"rows stand beside a batch from its own store or {LOG!r}, not {self.of!r}"
            )
        if self.of and not isinstance(self.law, Anywhere):
            law = type(self.law).__name__
            raise Mistake(f"{law} is a law of the batch's own store. Leave out of.")

    def divided(self, share: float) -> tuple[Beside, Beside]:
        """Return this with ``share`` of the rows beside a whole batch, and with the others; each
        has at least one."""
        if not isinstance(self.law, Anywhere):
            return self, self
        total = self.law.rows
        if total < 2:
            raise Mistake(f"{self.name!r}: a batch from two stores needs 2 rows beside it; got 1")
        rows = min(max(round(share * total), 1), total - 1)
        first, second = Anywhere(rows), Anywhere(total - rows)
        return dataclasses.replace(self, law=first), dataclasses.replace(self, law=second)


def check_beside(beside: tuple[Beside, ...]) -> None:
    """Raise Mistake if two have one name, or if one is to be not after another that is not before
    it and drawn later in the episode."""
    known: dict[str, Beside] = {}
    for each in beside:
        if not each.name or each.name in known:
            raise Mistake(f"rows beside a batch need names of their own; got {each.name!r}")
        cap = each.law.not_after if isinstance(each.law, Later) else ""
        if cap and (cap not in known or not isinstance(known[cap].law, Later)):
            raise Mistake(
                f"{each.name!r} is not_after {cap!r}, which must stand before it and be Later too"
            )
        known[each.name] = each
