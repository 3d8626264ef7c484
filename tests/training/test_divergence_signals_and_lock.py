"""Guards: signals, diverging seeds, a second process."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sterling.algorithms.online import ppo
from sterling.training.agent import Agent
from sterling.training.runtime import divergence, folder_lock, signals
from sterling.types import Mistake

ALGORITHM: Any = ppo  # any will do: healthy never calls it
SEEDS = 3


def agent(**changes: Any) -> Agent:
    """Three seeds of a state with every kind of leaf."""
    state: dict[str, Any] = {
        "weights": jnp.arange(SEEDS * 6, dtype=jnp.float32).reshape(SEEDS, 2, 3),
        "half": jnp.ones((SEEDS, 2), jnp.float16),
        "brain": jnp.ones((SEEDS, 2), jnp.bfloat16),
        "count": jnp.zeros(SEEDS, jnp.int32),
        "going": jnp.zeros(SEEDS, bool),
        "config": {"target_kl": jnp.full(SEEDS, jnp.inf)},
        "activation": jax.nn.relu,
    }
    return Agent(state | changes, ALGORITHM, None, "vmap")


def learned(**changes: Any) -> Agent:
    """An update after which every leaf is another."""
    old = agent().state
    moved = {
        "weights": old["weights"] * 1.01,
        "half": old["half"] * jnp.float16(60_000),
        "brain": -old["brain"],
        "count": old["count"] + 1,
        "going": ~old["going"],
    }
    return agent(**(moved | changes))


def rows(tree: Agent, seed: int) -> list[bytes]:
    """One seed's bits."""
    leaves = jax.tree.leaves(eqx.filter(tree.state, eqx.is_array))
    return [np.asarray(leaf)[seed].tobytes() for leaf in leaves]


def assert_seeds_from(result: Agent, sources: list[Agent]) -> None:
    for seed, source in enumerate(sources):
        assert rows(result, seed) == rows(source, seed)


ALL = np.ones(SEEDS, bool)


def test_divergence_check_passes_finite_seeds_bit_for_bit() -> None:
    before, after = agent(), learned()
    result, alive = divergence.stop_diverged_seeds(before, after, ALL)
    assert alive.tolist() == [True] * SEEDS
    assert_seeds_from(result, [after] * SEEDS)
    assert result.state["activation"] is jax.nn.relu


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e12, -3e30])
def test_one_non_finite_weight_stops_only_its_seed(bad: float) -> None:
    before = agent()
    after = learned(weights=learned().state["weights"].at[1, 0, 2].set(bad))
    result, alive = divergence.stop_diverged_seeds(before, after, ALL)
    assert alive.tolist() == [True, False, True]
    assert_seeds_from(result, [after, before, after])


@pytest.mark.parametrize("name", ["actor_optimiser", "normaliser", "obs_statistics"])
def test_divergence_check_allows_large_finite_optimiser_moments(
    name: str,
) -> None:
    """Variances and second moments are squares: of observations and gradients of 1e7, 1e14."""
    before = agent(**{name: {"nu": jnp.ones((SEEDS, 2))}})
    nu = jnp.full((SEEDS, 2), 1e14)
    assert divergence.stop_diverged_seeds(before, learned(**{name: {"nu": nu}}), ALL)[1].all()
    for bad in (jnp.inf, jnp.nan):
        after = learned(**{name: {"nu": nu.at[1, 0].set(bad)}})
        assert divergence.stop_diverged_seeds(before, after, ALL)[1].tolist() == [True, False, True]


@pytest.mark.parametrize("leaf", ["half", "brain"])
def test_divergence_check_covers_half_precision_weights(leaf: str) -> None:
    after = learned()
    after = learned(**{leaf: after.state[leaf].at[2, 0].set(jnp.inf)})
    assert divergence.stop_diverged_seeds(agent(), after, ALL)[1].tolist() == [True, True, False]


def test_divergence_check_allows_config_constants_that_were_infinite() -> None:
    assert divergence.stop_diverged_seeds(agent(), learned(), ALL)[
        1
    ].all()  # config.target_kl = inf throughout
    finite = {"target_kl": jnp.ones(SEEDS)}
    assert not divergence.stop_diverged_seeds(agent(config=finite), learned(), ALL)[1].any()


def test_diverged_seeds_keep_their_last_finite_state() -> None:
    before, after = agent(), learned()
    result, alive = divergence.stop_diverged_seeds(before, after, np.asarray([True, True, False]))
    assert alive.tolist() == [True, True, False]
    assert_seeds_from(result, [after, after, before])


def python(script: str, *arguments: str) -> subprocess.Popen[str]:
    repository = str(Path(signals.__file__).parents[3])
    environment = {**os.environ, "PYTHONPATH": repository, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-W", "ignore", "-c", script, *arguments]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True)


LOOP = """
import sys, time
from sterling.training.runtime.signals import EXIT_RESUMABLE, Interrupt
with Interrupt() as interrupt:
    print("go", flush=True)
    while not interrupt.requested:
        time.sleep(0.01)
    print("saved", flush=True)
    sys.exit(EXIT_RESUMABLE)
"""

TWICE = """
import sys, time, types
from sterling.training.runtime import signals
waits = lambda seconds: print("waits", seconds, flush=True)
signals.time = types.SimpleNamespace(monotonic=lambda: 7.0, sleep=waits)  # it stands still
with signals.Interrupt() as interrupt:
    print("go", flush=True)
    while not interrupt.requested:
        time.sleep(0.01)
    print("left", flush=True)
    sys.stdin.read()  # until both have been sent
sys.exit(signals.EXIT_RESUMABLE)
"""

DEAF = """
import threading, time
import jax, numpy as np
from sterling.training.runtime import signals
signals.DEBOUNCE_SECONDS = 0.0  # the next one is the second, however soon it comes

def listen(interrupt):
    while not interrupt.requested:
        time.sleep(0.01)
    print("heard", flush=True)

def begin():
    print("go", flush=True)
    return np.float32(1.0)

@jax.jit
def deaf():  # hours in which Python runs no handler
    begun = jax.experimental.io_callback(begin, jax.ShapeDtypeStruct((), np.float32))
    return jax.lax.while_loop(lambda x: x >= 0, lambda x: x * 0.5 + 1, begun)

with signals.Interrupt() as interrupt:
    threading.Thread(target=listen, args=[interrupt], daemon=True).start()
    deaf().item()
"""


@contextlib.contextmanager
def ready(process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    """A process that has said go; it is gone afterwards."""
    assert process.stdout is not None
    with process:
        try:
            assert process.stdout.readline() == "go\n"
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)]
)
def test_sigint_and_sigterm_end_the_loop_with_code_75(number: signal.Signals) -> None:
    with ready(python(LOOP)) as process:
        process.send_signal(number)
        assert process.communicate(timeout=120)[0] == "saved\n"
        assert process.returncode == signals.EXIT_RESUMABLE == 75


LOST = """
import gc, os, signal
from sterling.training.runtime import signals

sent = []

def collected(phase, info):  # Python prints and forgets what is raised here
    if phase == "stop" and not sent:  # a second one, half a second later, would mean something else
        sent.append(True)
        os.kill(os.getpid(), signal.SIGTERM)

print("go", flush=True)
with signals.Interrupt(leave=lambda: "gone"):
    gc.callbacks.append(collected)
    gc.collect()
    gc.callbacks.clear()
print("went on", flush=True)
"""


def test_signal_during_a_callback_is_handled() -> None:
    with ready(python(LOST)) as process:
        # communicate() would miss a line that came with the first and waits in the stream's buffer
        assert process.stdout is not None
        assert process.stdout.read() == "gone\n"
        assert process.wait(timeout=120) == 75


@pytest.mark.parametrize("when", ["at once", "after the loop"])
def test_signal_repeated_within_the_debounce_is_one_request(when: str) -> None:
    with ready(python(TWICE)) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.send_signal(signal.SIGTERM)
        if when == "at once":
            process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == "left\n"
        if when == "after the loop":
            process.send_signal(signal.SIGTERM)
        process.stdin.close()
        assert process.stdout.read() == f"waits {signals.DEBOUNCE_SECONDS}\n"
        assert process.wait(timeout=120) == 75


def test_second_sigint_ends_a_busy_process_at_once() -> None:
    with ready(python(DEAF)) as process:
        assert process.stdout is not None
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "heard\n"
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=120) == 128 + signal.SIGINT


def test_signal_handlers_are_restored_after_training() -> None:
    before = [signal.getsignal(each) for each in signals.Interrupt.signals]
    for _ in range(2):
        with signals.Interrupt() as interrupt:
            assert not interrupt.requested
            os.kill(os.getpid(), signal.SIGTERM)
            assert interrupt.requested
    assert [signal.getsignal(each) for each in signals.Interrupt.signals] == before
    assert signal.set_wakeup_fd(-1) == -1
    assert "interrupt" not in [thread.name for thread in threading.enumerate()]


def test_signal_interrupt_does_nothing_outside_the_main_thread() -> None:
    seen = []

    def work() -> None:
        with signals.Interrupt() as interrupt:
            seen.append(interrupt.requested)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [False]


HOLD = """
import os, sys
from sterling.training.runtime.folder_lock import FolderLock
with FolderLock(sys.argv[1]):
    worker = len(sys.argv) > 2 and os.fork() == 0  # a worker outlives its parent
    if worker or len(sys.argv) == 2:  # a worker says "go" itself: it has let the lock go by then
        print("go", flush=True)
    sys.stdin.read()  # until the test ends
    if worker:
        os._exit(0)
"""


def test_folder_lock_excludes_a_second_process(tmp_path: Path) -> None:
    with ready(python(HOLD, str(tmp_path))) as process:
        with pytest.raises(Mistake) as caught, folder_lock.FolderLock(tmp_path):
            pass
        assert f"{tmp_path} is in use by process {process.pid} on" in str(caught.value)
        assert "\n" not in str(caught.value)
    with folder_lock.FolderLock(tmp_path):  # the kernel has released it
        pass


def test_folder_lock_is_free_when_only_a_forked_worker_is_left(tmp_path: Path) -> None:
    with ready(python(HOLD, str(tmp_path), "fork")) as process:
        process.kill()
        process.wait()
        with folder_lock.FolderLock(tmp_path):
            assert (tmp_path / "lock").read_text().startswith(f"{os.getpid()} on ")


def test_folder_lock_excludes_within_one_process_and_is_released(tmp_path: Path) -> None:
    lock = folder_lock.FolderLock(tmp_path / "new")
    with lock:
        with pytest.raises(Mistake, match="is in use"), folder_lock.FolderLock(tmp_path / "new"):
            pass
        lock.release()
        with folder_lock.FolderLock(tmp_path / "new"):
            pass
    with lock:
        pass
    with folder_lock.FolderLock(tmp_path / "of" / "a" / "run"):  # with its parents
        assert (tmp_path / "of" / "a" / "run" / "lock").exists()
