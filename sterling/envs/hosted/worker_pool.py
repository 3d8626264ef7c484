"""Processes that step environments for the trainer, and what happens when they fail.

Each worker is a new Python process, never a fork (JAX has threads), so a script needs no
``__main__`` guard, and a crash in C++ ends one process. Every wait has a deadline. Ending a worker
ends what its environments have started, and no worker outlives the trainer.
"""

from __future__ import annotations

import dataclasses
import os
import time
import weakref
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import numpy as np

from sterling.envs.hosted.shared_memory import (
    BUILD,
    RESET,
    STEP,
    ContractViolation,
    EnvDescription,
    NotGymnasiumEnv,
    ReportOptions,
    SharedArrays,
    make_shared_arrays,
)
from sterling.envs.hosted.worker_env import HostedEnv, HostedEnvs, describe_error, inspect_factory
from sterling.envs.hosted.worker_loop import receive_message
from sterling.envs.hosted.worker_process import START_SECONDS, WorkerProcess, stop_workers
from sterling.system import atomic_files, pickling
from sterling.system.windows_limits import refuse_on_windows
from sterling.types import Mistake


class WorldFailed(RuntimeError):
    """An environment failed too often: one line that names it, the reason, and what to do."""


class NotGymnasiumMistake(Mistake):
    """A factory returned something that is not a Gymnasium environment."""


@dataclasses.dataclass(frozen=True)
class Fault:
    """A failure: the environments whose episodes are lost, those that caused it, and the reason."""

    lost: tuple[int, ...]
    blamed: tuple[int, ...]
    reason: str


@runtime_checkable
class EnvRunner(Protocol):
    """Carries out the orders in the shared arrays."""

    description: EnvDescription
    shared: SharedArrays

    def run(self) -> list[Fault]:
        """Carry out all orders; return the failures."""
        ...

    def close(self) -> None:
        """Close every environment and end every process."""
        ...


class InlineRunner:
    """Steps environments in the trainer's own process: cheapest, but a hang or a crash in C++ ends
    the trainer, too."""

    def __init__(
        self, factory: Callable[[], Any], name: str, envs: int, report: ReportOptions = ((), ())
    ):
        try:
            self.description = inspect_factory(factory, *report)
        except NotGymnasiumEnv as error:
            raise NotGymnasiumMistake(f"Environment {name}: {error}.") from error
        except ContractViolation as error:
            raise Mistake(f"Environment {name}: {error}.") from error
        except Exception as error:
            raise WorldFailed(_build_failure(name, describe_error(error))) from error
        self.shared = make_shared_arrays(self.description, envs, 1)
        hosted = [HostedEnv(factory, self.description, self.shared, index) for index in range(envs)]
        self._hosted = HostedEnvs(hosted, self.shared, 0)

    def run(self) -> list[Fault]:
        """Carry out all orders; return the failures."""
        failures = self._hosted.carry_out_orders().items()
        return [Fault((index,), (index,), reason) for index, reason in failures]

    def close(self) -> None:
        """Close every environment."""
        self._hosted.close()


class ProcessRunner:
    """``count`` worker processes, each stepping its share of ``envs`` environments in turn.

    ``timeout`` is in seconds and bounds one reset or step of one environment; a hang is noticed
    after one to two timeouts. A worker that died or hung is restarted by the next round of orders,
    all of which must then be BUILD.
    """

    def __init__(
        self,
        factory: Callable[[], Any],
        name: str,
        envs: int,
        count: int,
        *,
        timeout: float,
        report: ReportOptions = ((), ()),
    ):
        refuse_on_windows("Worker processes", "Use workers=0.")
        self._name, self._timeout = name, timeout
        self._factory, self._memory = _pickle_factory(factory, name), atomic_files.anonymous_file()
        self._shares = [share.tolist() for share in np.array_split(np.arange(envs), count)]
        self._processes: list[WorkerProcess] = []
        # also called at exit; it must not refer to `self`, but may refer to the list
        self._stop = weakref.finalize(
            self, stop_workers, self._processes, self._memory, os.getpid()
        )
        try:
            for _ in self._shares:
                self._processes.append(WorkerProcess(self._memory))
            self.description = self._inspect_environment(report)
            self.shared = make_shared_arrays(self.description, envs, count, self._memory)
            for worker in range(count):
                self._assign_rows(worker)
        except BaseException:
            self._stop()
            raise

    def run(self) -> list[Fault]:
        """Carry out all orders, waiting at most the timeout for each."""
        if not self._stop.alive:
            raise Mistake(f"The world {self._name} is closed. Make a new one.")
        faults, waiting = [], []
        try:
            for worker, share in enumerate(self._shares):
                orders = self.shared["order"][share]
                interrupted = not self._processes[worker].running
                if interrupted and np.isin(orders, (STEP, RESET)).any():
                    faults.append(Fault(tuple(share), (), "its process was interrupted"))
                elif orders.any():
                    waiting.append((worker, int(self.shared["ticks"][worker])))
                    self._send_orders(worker)
            start = time.monotonic()
            for worker, ticks in waiting:
                faults += self._wait_for_answer(worker, ticks, start)
        except BaseException:  # late answers must not be read as those of the next orders
            for worker, _ in waiting:
                self._kill_worker(worker)
            raise
        return faults

    def close(self) -> None:
        """Close every environment and end every process."""
        self._stop()

    def _inspect_environment(self, report: ReportOptions) -> EnvDescription:
        """Return the environment's description, found by the first worker."""
        first = self._processes[0]
        try:
            first.send(self._factory)
            first.send(("inspect", *report))
            status, answer = receive_message(
                first.line, time.monotonic() + START_SECONDS + self._timeout
            )
        except TimeoutError:
            status, answer = "failed", f"no answer within {START_SECONDS + self._timeout:g} s"
        except (EOFError, OSError):
            status, answer = "failed", first.describe_exit()
        if status in ("mistake", "not gymnasium"):
            mistake = NotGymnasiumMistake if status == "not gymnasium" else Mistake
            raise mistake(f"Environment {self._name}: {answer}.")
        if status == "failed":
            raise WorldFailed(_build_failure(self._name, answer))
        return EnvDescription(*answer)

    def _assign_rows(self, worker: int) -> None:
        """Tell a process which rows of the shared arrays are its own."""
        process, envs = self._processes[worker], len(self.shared["order"])
        if not process.has_factory:
            process.send(self._factory)
        share = self._shares[worker]
        process.send((tuple(self.description), envs, len(self._shares), worker, share))

    def _send_orders(self, worker: int) -> None:
        """Tell a worker to carry out its orders; start it anew if it has ended."""
        if not self._processes[worker].running:
            self._processes[worker] = WorkerProcess(self._memory)
            self._assign_rows(worker)
        self._processes[worker].send("go")

    def _wait_for_answer(self, worker: int, ticks: int, start: float) -> list[Fault]:
        """Wait for one worker's answer; ``ticks`` is its count of orders at ``start``."""
        shared, share = self.shared, self._shares[worker]
        limit = self._timeout + START_SECONDS * bool((shared["order"][share] == BUILD).any())
        deadline = start + limit
        while True:
            try:
                answer = receive_message(self._processes[worker].line, deadline)
                break
            except TimeoutError:
                if shared["ticks"][worker] == ticks:
                    return [self._end_failed_worker(worker, f"no answer within {limit:g} s")]
                ticks, deadline = int(shared["ticks"][worker]), time.monotonic() + limit
            except (EOFError, OSError):
                return [self._end_failed_worker(worker, self._processes[worker].describe_exit())]
        if isinstance(answer, tuple):
            raise WorldFailed(_build_failure(self._name, answer[1]))
        return [Fault((index,), (index,), reason) for index, reason in answer.items()]

    def _end_failed_worker(self, worker: int, reason: str) -> Fault:
        """End a worker and return the failure: all its episodes are lost."""
        share, current = tuple(self._shares[worker]), int(self.shared["current"][worker])
        self._kill_worker(worker)
        return Fault(share, (current,) if current >= 0 else share, reason)

    def _kill_worker(self, worker: int) -> None:
        self._processes[worker].kill()
        self.shared["current"][worker] = -1


def make_runner(
    factory: Callable[[], Any],
    name: str,
    envs: int,
    count: int,
    *,
    timeout: float,
    report: ReportOptions,
) -> EnvRunner:
    """Make what steps ``envs`` environments: ``count`` processes, or for 0 this process."""
    if not count:
        return InlineRunner(factory, name, envs, report)
    return ProcessRunner(factory, name, envs, count, timeout=timeout, report=report)


def _pickle_factory(factory: Callable[[], Any], name: str) -> bytes:
    try:
        return pickling.dumps(factory)
    except Exception as error:
        why = f"the factory cannot be pickled for a worker ({describe_error(error)})"
        remedy = "Build everything inside the factory, or use workers=0."
        raise Mistake(f"Environment {name}: {why}. {remedy}") from error


def _build_failure(name: str, why: str) -> str:
    return f"Environment {name} cannot be built, reset and stepped once: {why}. Try it by hand."
