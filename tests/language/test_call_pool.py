"""Calls beside the thread that plays scenes: at once, and each with its own time."""

import threading
import time

import pytest

from sterling.language.engine.call_pool import CallPool
from sterling.language.time_limits import TimeIsUp, pause_time_limit, remaining_time


def waited_for(pool, future, seconds=20.0):
    """The future's result, while late calls are looked for, as who plays scenes does."""
    end = time.monotonic() + seconds
    while not future.done() and time.monotonic() < end:
        pool.fail_late_calls()
        time.sleep(0.01)
    return future.result(0)


@pytest.fixture
def pool():
    made = CallPool(4)
    yield made
    made.close()


def test_calls_run_at_once_up_to_the_size_of_the_pool(pool):
    together, running = threading.Barrier(4), []

    def call():
        running.append(threading.get_ident())
        together.wait(20)  # none passes before all four run
        return len(running)

    assert [each.result(20) for each in [pool.run(call) for _ in range(4)]] == [4] * 4
    assert len(set(running)) == 4
    more = [pool.run(threading.get_ident) for _ in range(9)]
    assert {each.result(20) for each in more} <= set(running)


def test_error_of_a_call_is_its_own(pool):
    def fail():
        raise KeyError("mine")

    bad, good = pool.run(fail), pool.run(lambda: 3)
    assert good.result(20) == 3
    with pytest.raises(KeyError, match="mine"):
        bad.result(20)


def test_hung_calls_fail_alone_and_leave_room_for_others(pool):
    release = threading.Event()
    hung = [pool.run(lambda: release.wait(60), 0.05) for _ in range(4)]  # as many as fit
    late = pool.run(lambda: "served")
    for each in hung:
        with pytest.raises(TimeoutError, match=r"took longer than 0\.05 s"):
            waited_for(pool, each)
    assert waited_for(pool, late) == "served"
    release.set()


def test_python_code_that_never_ends_is_interrupted(pool):
    ended = threading.Event()

    def spin():
        try:
            while True:
                pass
        except TimeIsUp:
            ended.set()
            raise

    with pytest.raises(TimeoutError):
        waited_for(pool, pool.run(spin, 0.05))
    assert ended.wait(20)


def test_time_of_a_call_stands_still_while_it_is_paused(pool):
    found = []

    def call():
        with pause_time_limit():
            found.append(remaining_time()[0])
            time.sleep(0.3)
        found.append(remaining_time()[0])
        return "in time"

    assert waited_for(pool, pool.run(call, 0.2)) == "in time"
    assert found[0] == float("inf")
    assert 0.0 < found[1] <= 0.2


def test_calls_that_wait_for_a_thread_use_no_time():
    single = CallPool(1)
    first = single.run(lambda: time.sleep(0.3))
    second = single.run(lambda: "in time", 0.1)
    assert waited_for(single, second) == "in time"
    assert first.done()
    single.close()


def test_closed_pool_ends_its_threads(pool):
    before = threading.active_count()
    own = CallPool(3)
    assert [each.result(20) for each in [own.run(lambda: 1) for _ in range(3)]] == [1, 1, 1]
    own.close()
    end = time.monotonic() + 20
    while threading.active_count() > before and time.monotonic() < end:
        time.sleep(0.01)
    assert threading.active_count() <= before
