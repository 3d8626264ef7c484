"""Ask processes questions, so that a judge that hangs or dies can be replaced.

Verifiers that Sterling did not write may raise, loop forever, use up memory or print. They run in
processes of their own (:mod:`~sterling.system.processes.answer_process`), which are asked over
sockets in JSON lines. Python's own time limits use signals, which only work in a main thread; this
one works in any thread. It is not a sandbox: the code is the user's or a package's, not a model's.
"""

from __future__ import annotations

import os
import threading
import time
from typing import Any

from sterling.language.adapters.answer_channel import (
    AWAY,
    AnswerChannel,
    AnswerServer,
    WorkerFault,
)
from sterling.language.time_limits import pause_time_limit

PATIENCE_SECONDS = 0.005  # that a question waits for a busy process before another one begins

__all__ = ["AWAY", "Worker", "WorkerFault"]


class Worker:
    """Answers questions in processes of its own, each within a time limit.

    ``target`` is "module:function"; ``function(setup)`` runs once and returns the function that
    answers questions. Questions, answers and ``setup`` are plain JSON. ``limit``: seconds that an
    answer may take, whatever :func:`~sterling.language.time_limits.time_limit` is around it; a wait
    for a process that is free does not count. ``memory``: bytes that each process may use (None: no
    limit).

    Safe to share between threads, whose questions are answered at the same time, by at most
    ``processes`` processes (None: one for each core). They are forked, when they are needed, from
    one that has run ``function(setup)``; if that left threads running, or the system lets it fork
    none, one process answers all. A process that hung or died, or whose answer was not read (an
    interrupt), ends with everything it started, and the others go on. Hashes and random numbers
    begin alike each time, so the order of a set of texts is always the same.
    """

    def __init__(
        self,
        target: str,
        setup: Any,
        limit: float,
        memory: int | None = None,
        processes: int | None = None,
    ):
        self.limit = limit
        self._first: dict[str, Any] = {
            "target": target,
            "setup": setup,
            "memory": memory,
            "processes": processes or _cores(),
        }
        self._changed = threading.Condition()  # holds what follows
        self._server: AnswerServer | None = None
        self._channels: list[AnswerChannel] = []
        self._most: int = self._first["processes"]  # channels

    def ask(self, question: Any, limit: float | None = None) -> Any:
        """Return the answer; raises :class:`WorkerFault` if there is none within ``limit``
        seconds."""
        seconds = self.limit if limit is None else limit
        taken: list[AnswerChannel] = []
        was_read = False
        with pause_time_limit():
            try:
                self._take_begun(taken)
                answer = taken[0].ask(question, seconds)
                was_read = True
            except WorkerFault as fault:
                was_read = fault.kind in ("raised", AWAY)
                raise
            finally:
                self._give_back(taken, was_read)
        return answer

    def close(self) -> None:
        """End the processes and everything they started; another question begins new ones."""
        with self._changed:
            channels, self._channels = self._channels, []
            for channel in channels:
                channel.end()
                if not channel.busy:  # else the thread that waits for the answer closes it
                    channel.close()
            self._end_server()
            self._changed.notify_all()

    def _take_begun(self, taken: list[AnswerChannel]) -> None:
        """Append a channel to ``taken`` that is this thread's until it is given back, and whose
        process has begun. If no more can begin, wait for those there are."""
        self._take(taken)
        while not taken[0].has_begun():
            self._give_back(taken, was_read=False)
            taken.clear()
            with self._changed:
                self._limit_processes()
            self._take(taken)

    def _limit_processes(self) -> None:
        """Have no more processes than there are; if there are none, one that forks none."""
        if self._channels:
            self._most = len(self._channels)
        elif self._server is not None and self._server.forks and self._server.is_alive():
            self._end_server()
            self._first["processes"] = 1
        else:
            raise WorkerFault("died", "its process ended")

    def _take(self, taken: list[AnswerChannel]) -> None:
        """Append a free channel, or a new one if none gets free soon and there may be more.

        ``taken`` is written before anything else changes, so an interrupt loses no channel.
        """
        end = time.monotonic() + PATIENCE_SECONDS
        with self._changed:
            while True:
                free = next((each for each in self._channels if not each.busy), None)
                if free is not None:
                    taken.append(free)
                    free.busy = True
                    return
                full = len(self._channels) >= self._most
                left = end - time.monotonic() if self._channels else 0.0
                if not full and left <= 0.0:
                    taken.append(self._new_channel())
                    self._channels.append(taken[0])
                    return
                self._changed.wait(None if full else left)

    def _give_back(self, taken: list[AnswerChannel], was_read: bool) -> None:
        """Let others use a channel; end it if it may still send an answer."""
        with self._changed:
            for channel in taken:
                if was_read and channel in self._channels:
                    channel.busy = False
                    continue
                if channel in self._channels:
                    self._channels.remove(channel)
                    channel.end()
                channel.close()
            self._changed.notify()  # also without a channel: who was to take it may have given up

    def _new_channel(self) -> AnswerChannel:
        for _ in range(2):  # the server may have died
            if self._server is None:
                self._most = self._first["processes"]
                self._server = AnswerServer(self._first)
                self._most = self._most if self._server.forks else 1
            channel = self._server.open_channel()
            if channel is not None:
                return channel
            self._end_server()
        raise WorkerFault("died", "its process had ended")

    def _end_server(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.end()


def _cores() -> int:
    """Return the number of processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
