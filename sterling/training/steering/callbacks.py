"""Callbacks: a user's functions that a run calls while it trains. See docs/steering.md.

A callback is any object with one or more of the methods of :class:`Callback`. It gets an
:class:`Event`, which tells where the run is, and through which it can log own numbers, evaluate the
current policies, act with them, and stop the run.
"""

from __future__ import annotations

import contextlib
import numbers
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from sterling.lookup.user_imports import describe_error
from sterling.system import pickling
from sterling.system.mistake import Mistake
from sterling.system.shown_values import shown_value
from sterling.training.policy_player import Player

METHODS = ("on_log", "on_evaluation", "on_checkpoint", "on_end")
STATE_METHODS = ("save_state", "restore_state")
CAN_LOG = ("on_evaluation", "on_log")
RESERVED_PREFIXES = ("time/", "data/", "evaluation/")

Scores = dict[str, list[float | None]]


class Callback:
    """The methods that a callback may have; all are optional, and it need not inherit from this.

    A callback whose behaviour depends on earlier events can also have ``save_state() -> dict`` (of
    JSON values) and ``restore_state(state)``. They are called when a checkpoint is written and when
    a run is resumed.
    """

    def on_log(self, event: Event) -> None:
        """Called for every row of metrics, before it is written."""

    def on_evaluation(self, event: Event) -> None:
        """Called after every periodic evaluation, before ``on_log`` of the same row."""

    def on_checkpoint(self, event: Event) -> None:
        """Called after a checkpoint has been written."""

    def on_end(self, event: Event) -> None:
        """Called once, after the final evaluation, when the result has been written."""


@runtime_checkable
class SteeredRun(Protocol):
    """What an event needs of the run that is trained."""

    path: Path | None

    @property
    def seeds(self) -> tuple[int, ...]:
        """Return the seeds that are trained in this process."""
        ...

    @property
    def step(self) -> int:
        """Return the environment steps per seed so far."""
        ...

    @property
    def update(self) -> int:
        """Return the gradient updates per seed so far."""
        ...

    @property
    def iteration(self) -> int:
        """Return the iterations so far."""
        ...

    @property
    def phase(self) -> int:
        """Return the number of the current phase, from 1 on."""
        ...

    def evaluate_returns(self, episodes: int | None) -> list[float | None]:
        """Return the returns per seed of the current policies."""
        ...

    def player(self, seed: int | None, explore: bool) -> Player:
        """Return a player with the current policy of a seed."""
        ...

    def policy(self, obs: Any, seed: int | None, explore: bool) -> Any:
        """Return the current policy's action for one observation, or the actions for several."""
        ...


class Event:
    """What happened in a run, as a callback sees it.

    Attributes:
        kind: the name of the method that is called.
        step, update, iteration: environment steps and gradient updates per seed, and iterations.
        phase: the number of the run's phase, from 1 on (docs/phases.md).
        seeds: the run's seeds; with ``strategy="processes"`` those of this process.
        row: the row of metrics, by column; a list has one number (or None) per seed. It is the last
            row in ``on_checkpoint`` and ``on_end``.
        scores: of an evaluation, "return", "length" and the world's channels, each a list with the
            mean of each seed (None: the seed has failed); None without an evaluation.
        path: the run's folder; None if nothing is written.
        stopped: why the run stopped early, as in result.json; None if it did not.
        result: the content of result.json, in ``on_end`` only.
    """

    def __init__(
        self,
        run: SteeredRun,
        kind: str,
        row: dict[str, Any],
        scores: Scores | None = None,
        *,
        stopped: dict[str, Any] | None = None,
        result: dict[str, Any] | None = None,
    ):
        self.kind, self.row, self.scores = kind, row, scores
        self.seeds, self.path, self.stopped, self.result = run.seeds, run.path, stopped, result
        self.step, self.update, self.iteration = run.step, run.update, run.iteration
        self.phase = run.phase
        self.stop_reason: str | None = None  # of the last call of ``stop``
        self._run = run

    def log(self, values: Mapping[str, Any]) -> None:
        """Add own numbers to the row of metrics: ``event.log({"my/number": 0.5})``.

        A value is one number, or a list with one number (or None) per seed; one number counts for
        every seed. Raise Mistake for other values, for names without a slash, for names of other
        columns, and outside ``on_log`` and ``on_evaluation``.
        """
        if self.kind not in CAN_LOG:
            raise Mistake(f"{self.kind} has no row to log to. Log in on_log or on_evaluation.")
        for name in values:
            if not isinstance(name, str) or "/" not in name.strip("/"):
                raise Mistake(f"a logged name needs a slash, as my/number; got {shown_value(name)}")
            if name in self.row or name.startswith(RESERVED_PREFIXES):
                raise Mistake(f"{name} is a column of the run. Log under another name.")
        self.row |= {name: _per_seed(name, x, len(self.seeds)) for name, x in values.items()}

    def evaluate(self, episodes: int | None = None) -> list[float | None]:
        """Evaluate the current policies now and return the mean return of each seed (None: it has
        failed). ``episodes``: per seed (None: as the run's ``evaluate_episodes``).

        The episodes are those of the periodic evaluations. The evaluation is not counted as one of
        these: ``on_evaluation``, ``stop_at``, ``patience`` and ``keep`` do not see it.
        """
        return self._run.evaluate_returns(episodes)

    def policy(self, obs: Any, seed: int | None = None, explore: bool = False) -> Any:
        """Return the current policy's action, as :meth:`sterling.TrainedRun.policy`."""
        return self._run.policy(obs, seed, explore)

    def player(self, seed: int | None = None, explore: bool = False) -> Player:
        """Return a player with the current policy, as :meth:`sterling.TrainedRun.player`."""
        return self._run.player(seed, explore)

    def stop(self, reason: str) -> None:
        """Ask the run to stop after this row. It is then evaluated and finished as at its end;
        result.json holds the reason. Raise Mistake in ``on_end``."""
        if self.kind == "on_end":
            raise Mistake("the run has ended, so on_end cannot stop it.")
        self.stop_reason = " ".join(str(reason).split()) or "no reason given"


def check_callbacks(callbacks: Any) -> None:
    """Raise Mistake unless ``callbacks`` is a list of objects with methods of :class:`Callback`."""
    wanted = f"objects with {', '.join(METHODS[:-1])} or {METHODS[-1]}"
    if not isinstance(callbacks, (list, tuple)):
        raise Mistake(f"callbacks must be a list of {wanted}; got {shown_value(callbacks)}")
    for each in callbacks:
        if isinstance(each, type):
            raise Mistake(f"callbacks must hold {wanted}, not a class. Write {each.__name__}().")
        known = [name for name in METHODS if callable(getattr(each, name, None))]
        if not known:
            raise Mistake(f"callbacks must hold {wanted}; got {shown_value(each)}")
        own = [name for name in dir(each) if name.startswith("on_") and name not in METHODS]
        if own:
            raise Mistake(f"{callback_name(each)}: {own[0]} is no event. Use {', '.join(METHODS)}.")
        if len([name for name in STATE_METHODS if hasattr(each, name)]) == 1:
            raise Mistake(f"{callback_name(each)} needs both {' and '.join(STATE_METHODS)}.")


def check_pickled(callbacks: Sequence[Any]) -> None:
    """Raise Mistake for callbacks that cannot be sent to other processes."""
    for callback in callbacks:
        try:
            pickling.dumps(callback)
        except Exception as error:
            raise Mistake(
                f"the callback {callback_name(callback)} cannot be sent to the processes of "
                f"strategy=processes ({describe_error(error)}). Open files and connections in its "
                "methods, or use strategy=map."
            ) from error


def callback_name(callback: Any) -> str:
    """Return the name by which messages and result.json call a callback."""
    return str(getattr(callback, "name", "") or type(callback).__name__)


def call_each(callbacks: Sequence[Any], event: Event) -> dict[str, str] | None:
    """Call the event's method of every callback that has it. Return the stop that the first of
    them asked for, "by" and "reason"; None if none did.

    Raise Mistake, which names callback, file and line, if a callback raises an exception.
    """
    asked = None
    for callback in callbacks:
        method = getattr(callback, event.kind, None)
        if method is None:
            continue
        event.stop_reason = None
        with named_errors(callback, event.kind):
            method(event)
        if event.stop_reason is not None and asked is None:
            asked = {"by": callback_name(callback), "reason": event.stop_reason}
    return asked


@contextlib.contextmanager
def named_errors(callback: Any, method: str) -> Iterator[None]:
    """Context manager that raises a callback's exception as a Mistake of one line."""
    try:
        yield
    except Exception as error:
        said = f"the callback {callback_name(callback)} failed in {method}: {describe_error(error)}"
        raise Mistake(f"{said}. Correct it and resume the run.") from error


def _per_seed(name: str, value: Any, seeds: int) -> list[float | None]:
    """Return a logged value as one number or None per seed."""
    many = isinstance(value, (list, tuple)) or (hasattr(value, "ndim") and value.ndim == 1)
    listed = list(value) if many else [value] * seeds
    if len(listed) != seeds:
        raise Mistake(
            f"{name} needs a number, or a list of {seeds} (one per seed); got {shown_value(value)}"
        )
    return [_as_number(name, each) for each in listed]


def _as_number(name: str, value: Any) -> float | None:
    if value is None:
        return None
    if hasattr(value, "item") and getattr(value, "size", 0) == 1:
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise Mistake(f"{name} must be a number; got {shown_value(value)}")
    return float(value) if np.isfinite(float(value)) else None
