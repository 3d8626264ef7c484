"""What keeps a run safe: from signals, from diverging seeds, from a second process.

with guard.Lock(folder), guard.Interrupt() as interrupt:
    while ...:
        run = ...
        if interrupt.requested:
            save; print how to resume; sys.exit(guard.EXIT_RESUMABLE)
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import sys
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool

from sterling import leaving
from sterling.disk import sweep, writing
from sterling.importing import explain
from sterling.notice import say, tell
from sterling.training.agent import Agent
from sterling.types import Mistake

EXIT_RESUMABLE = leaving.EXIT_RESUMABLE
NOTHING = "stopped; nothing is kept without a run folder (out=...)"
LIMIT = 1e12  # no float that gradients teach comes near it and is still useful
# in the names of what they do not: its size is that of the problem's numbers, or of their squares
MEASURED = ("optimiser", "normaliser", "statistics")
DEBOUNCE = 0.5  # seconds


def healthy(
    before: Agent, after: Agent, alive: Bool[np.ndarray, "seed"], limit: float = LIMIT
) -> tuple[Agent, Bool[np.ndarray, "seed"]]:
    """Stop the seeds that ``after`` shows to have diverged; the others pass bit for bit.

    A seed has diverged if an element of a float leaf of its state *changed since ``before``* and is
    now NaN, infinite, or at least ``limit`` in size; an optimiser's moments and a normaliser's
    statistics, which are as large as what they measure, may be of any size. What did not change
    is not judged: an infinite constant or a sentinel such as a best score of -inf is legitimate,
    wherever in the state it stands. (NaNs present from the start are found as soon as they reach
    anything that is learned, the optimiser's moments at the latest.)

    Returns the agent, in which diverged seeds and those already not ``alive`` have their state
    of ``before``, and the seeds still alive; where all are, it is ``after`` itself. Best given what
    is on the host: nothing has to be compiled, and whoever asks often fetches an agent only once.
    """
    alive = np.asarray(alive) & _sound(before.state, after.state, len(alive), limit)
    if alive.all():
        return after, alive
    old, new = jax.device_get((before.state, after.state))

    def choose(good: Any, made: Any) -> Any:
        if not isinstance(made, np.ndarray):
            return made
        return jnp.asarray(np.where(alive.reshape(-1, *(1,) * (made.ndim - 1)), made, good))

    state = jax.tree.map(choose, old, new)
    return eqx.tree_at(lambda agent: agent.state, after, state), alive


def _sound(old: Any, new: Any, seeds: int, limit: float) -> Bool[np.ndarray, "seed"]:
    """Which seeds' changed elements are all finite and, where they are learned, below ``limit``."""
    sound = np.ones(seeds, bool)
    for index, pair in enumerate(zip(jax.tree.leaves(old), jax.tree.leaves(new), strict=True)):
        kind = getattr(pair[1], "dtype", None)
        if kind is None or not jnp.issubdtype(kind, jnp.inexact):
            continue
        # half floats do not hold the limit
        was, now = (np.asarray(x, np.float32 if kind.itemsize < 4 else kind) for x in pair)
        good = (np.abs(now) < limit) | (now == was) | (np.isnan(now) & np.isnan(was))
        if not good.all():
            good |= _measured(new, index) & np.isfinite(now)
            sound &= good.reshape(seeds, -1).all(1)
    return sound


def _measured(state: Any, index: int) -> bool:
    """Whether a leaf is as large as what it measures, by its name."""
    path, _ = jax.tree_util.tree_leaves_with_path(state)[index]
    return any(word in jax.tree_util.keystr(path) for word in MEASURED)


def try_to(save: Callable[[], object]) -> None:
    """Save after an error, which stays the one that is raised: what goes wrong here is said."""
    try:
        save()
    except Exception as error:
        say(f"not saved either ({explain(error)}): the last checkpoint stands")


class Interrupt:
    """While entered, SIGTERM, SIGINT and SIGHUP set ``requested``; a second SIGTERM or SIGINT ends
    the process at once.

    Python runs signal handlers only between its own instructions, which a compiled program or a
    compilation can hold up for minutes. The second signal is therefore awaited by a thread, which
    ends the process (status 128 + signal) whatever the main thread is doing. Signals within half
    a second of the first count as the same request: ``timeout``, terminals and job schedulers
    often deliver one twice.

    SIGHUP says that the terminal has been closed. The kernel and the shell each send one, and
    nobody is left to lose patience, so a SIGHUP never counts as the second signal. Where SIGHUP is
    ignored, as ``nohup`` starts a process, it stays ignored.

    Handlers are put back on leaving, which after a signal waits until that half second is over.
    With ``leave``, for work that nothing of is saved, the first signal does not wait to be looked
    at: it prints the words that ``leave`` finds then, and raises SystemExit with code 75.
    One may be entered within another, which hears nothing meanwhile.

    Outside the main thread, where Python allows no handlers, it does nothing and ``requested``
    stays False.
    """

    signals = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

    def __init__(self, leave: Callable[[], str] | None = None) -> None:
        self.requested = False
        self._leave = leave
        self._first: float | None = None
        self._active = False

    def __enter__(self) -> Interrupt:
        if threading.current_thread() is not threading.main_thread():
            return self
        self._reader, self._writer = socket.socketpair()
        self._writer.setblocking(False)
        self._old_wakeup = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        self._old_hook, sys.unraisablehook = sys.unraisablehook, _unraisable(sys.unraisablehook)
        heard = [each for each in self.signals if each != signal.SIGHUP or not _hangup_ignored()]
        self._old = {each: signal.signal(each, self._request) for each in heard}
        self._thread = threading.Thread(target=self._watch, name="interrupt", daemon=True)
        self._thread.start()
        self._active = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._active:
            return
        self._active = False
        if self.requested:  # a double of the signal must not meet the old handlers
            first = self._first or time.monotonic()  # the thread may not have seen it yet
            time.sleep(max(0.0, first + DEBOUNCE - time.monotonic()))
        for each, handler in self._old.items():
            signal.signal(each, handler)
        sys.unraisablehook = self._old_hook
        signal.set_wakeup_fd(self._old_wakeup)
        self._writer.close()  # the thread reads the end of the stream and returns
        self._thread.join()
        self._reader.close()

    def _request(self, number: int, frame: FrameType | None) -> None:
        self.requested = True
        leave, self._leave = self._leave, None  # a double of the signal does not raise again
        if leave is not None:
            tell(leave())
            raise SystemExit(EXIT_RESUMABLE)

    def _watch(self) -> None:
        """Read the number of every signal as it arrives."""
        while numbers := self._reader.recv(1):
            if numbers[0] not in self.signals:
                continue
            self.requested = True
            if numbers[0] == signal.SIGHUP:
                continue  # never the second signal
            now = time.monotonic()
            if self._first is None:
                self._first = now
            elif now - self._first > DEBOUNCE:
                os._exit(128 + numbers[0])


def _unraisable(hook: Callable[[Any], object]) -> Callable[[Any], object]:
    """What is done with an exception that nobody can catch: ``hook``, unless it is the exit of
    ``Interrupt(leave)``. Raised in a callback, such as JAX's at each collection of garbage, that
    would be printed and forgotten; its words have been said."""

    def answer(lost: Any) -> None:
        if isinstance(lost.exc_value, SystemExit) and lost.exc_value.code == EXIT_RESUMABLE:
            os._exit(EXIT_RESUMABLE)
        hook(lost)

    return answer


def _hangup_ignored() -> bool:
    """Whether SIGHUP was ignored when this process started, or has been ignored since."""
    return signal.getsignal(signal.SIGHUP) == signal.SIG_IGN


class Lock:
    """One writer per run folder: taken on entering, released on leaving or by the kernel on death.

    The file ``lock`` stays behind; what counts is the kernel's lock on it (``flock``), so a
    killed run's is free, and the files that it had not finished are removed on entering. Raises
    :class:`Mistake` while another process, or another ``Lock`` of this one, holds it.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self._descriptor: int | None = None

    def __enter__(self) -> Lock:
        with writing(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.read(descriptor, 256).decode(errors="replace").strip() or "unknown"
            os.close(descriptor)
            raise Mistake(
                f"{self.folder} is in use by process {owner}; wait until it ends or stop it first"
            ) from None
        os.ftruncate(descriptor, 0)
        with contextlib.suppress(OSError):  # no room for the name; the lock itself takes none
            os.write(descriptor, f"{os.getpid()} on {socket.gethostname()}".encode())
        self._descriptor = descriptor
        _held.add(self)
        sweep(self.folder)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()

    def release(self) -> None:
        """Let others have the folder; may be called twice."""
        if self._descriptor is not None:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        self._close()

    def _close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor = None
        _held.discard(self)


_held: weakref.WeakSet[Lock] = weakref.WeakSet()


def _forget_locks() -> None:
    """In a forked child: a worker that outlives its parent must not keep the parent's lock."""
    for lock in list(_held):
        lock._close()  # only the child's copy: unlocking would unlock the parent


os.register_at_fork(after_in_child=_forget_locks)
