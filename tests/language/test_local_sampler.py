"""A sampler's answers depend on what is asked alone; what it cannot answer, its asker is told."""

import functools
import random
import subprocess
import sys
import threading
from concurrent.futures import CancelledError, wait
from pathlib import Path

import jax
import numpy as np
import pytest

from sterling.language.engine import local_sampler, slots
from sterling.language.engine.ask import Ask, chance_of
from sterling.language.engine.local_sampler import LocalSampler, worker_slots
from sterling.language.engine.slots import SlotShapes
from sterling.language.models.causal_lm import tiny
from sterling.types import Mistake

SHAPES = SlotShapes(8, 160, 12, (0, 1, 2))  # the cache is read in two blocks
LONG = SlotShapes(8, 160, 100, ())


@functools.cache
def model():
    return slots.for_decoding(jax.tree.map(lambda x: x[None], tiny(12, "nano")), 0)


@functools.cache
def asks():
    """Groups of four answers to prompts of 3 to 140 tokens, with limits of their own."""
    draw = np.random.default_rng(0)
    prompts = [tuple(draw.integers(3, 12, size).tolist()) for size in (3, 140, 40, 90, 7, 130)]
    return [
        Ask(ids, chance_of((1, 2), (row, member), ids), 5 + (row + member) % 8)
        for row, ids in enumerate(prompts)
        for member in range(4)
    ]


def answered(order, **how):
    """Answers to all asks, put in this order in the given pieces, in the order of the asks."""
    sampler, found = LocalSampler(model(), SHAPES, **how), {}
    for piece in order:
        found |= dict(zip(piece, sampler.ask([asks()[n] for n in piece]), strict=True))
    said = [found[n].result() for n in range(len(asks()))]
    sampler.close()
    return said


@functools.cache
def usual():
    return answered([range(len(asks()))])


SHUFFLED = random.Random(0).sample(range(24), 24)


@pytest.mark.parametrize(
    ("order", "how"),
    [
        ([SHUFFLED], {}),
        ([[n] for n in SHUFFLED], {}),
        ([range(24)], {"workers": 1}),
        ([range(23, -1, -1)], {"workers": 3, "quantum": 1}),
        ([SHUFFLED[:3], SHUFFLED[3:]], {"quantum": 5}),
    ],
    ids=["order", "arrival", "one worker", "three workers", "quantum"],
)
def test_answers_are_bit_equal_whatever_the_schedule(order, how):
    assert answered(order, **how) == usual()


def test_workers_share_what_is_asked_evenly(monkeypatch):
    """Each begins with half of it, and reads its prompts at once."""
    begun, write = [], local_sampler._SlotWorker.write

    def noted(worker, fresh, *given):
        begun.append(len(fresh))
        return write(worker, fresh, *given)

    monkeypatch.setattr(local_sampler._SlotWorker, "write", noted)
    sampler = LocalSampler(model(), LONG, workers=2)
    for future in sampler.ask([Ask((3, n % 12), n, 100) for n in range(2 * LONG.slots)]):
        assert len(future.result().ids) == 100
    sampler.close()
    assert [count for count in begun if count] == [LONG.slots] * 2


def test_answers_are_bit_equal_for_several_client_threads():
    sampler, found = LocalSampler(model(), SHAPES), {}

    def client(first):
        for n in range(first, 24, 5):
            found[n] = sampler.ask([asks()[n]])[0].result()

    threads = [threading.Thread(target=client, args=(first,)) for first in range(5)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert [found[n] for n in range(24)] == usual()


def test_members_of_a_group_differ_by_their_chance_alone():
    sampler = LocalSampler(model(), LONG)
    group = [Ask((3, 4), chance, 100) for chance in (5, 1 << 40, 5 + (1 << 40), 5)]
    said = [each.result() for each in sampler.ask(group)]
    sampler.close()
    assert said[0] == said[3]
    assert len({each.ids for each in said}) == 3


def test_answers_end_at_stops_or_their_limits():
    for ask, said in zip(asks(), usual(), strict=True):
        assert said.stopped == (said.ids[-1] in SHAPES.stops)
        assert len(said.ids) <= ask.limit
        assert said.stopped or len(said.ids) == ask.limit
        assert not set(said.ids[:-1]) & set(SHAPES.stops)
    assert len({said.stopped for said in usual()}) == 2


def test_chance_is_a_function_of_key_place_prompt_and_repetition():
    one = chance_of((1, 2), (3, 0), (4, 5))
    others = [((1, 3), (3, 0), (4, 5)), ((1, 2), (3, 1), (4, 5)), ((1, 2), (3, 0), (4, 6))]
    assert one == chance_of(np.array([1, 2], np.uint32), (3, 0), [4, 5])
    found = {chance_of(*each) for each in others} | {chance_of((1, 2), (3, 0), (4, 5), 1)}
    assert len(found) == 4
    assert one not in found
    assert 0 <= min(found) <= max(found) < 1 << 64


def test_prompts_that_leave_no_room_are_refused():
    sampler = LocalSampler(model(), SHAPES)
    for ids, limit in (((), 3), ((4,) * 150, 11), ((4,), 13), ((4,), 0)):
        with pytest.raises(Mistake, match=f"a prompt of {len(ids)} tokens and an answer of up to"):
            sampler.ask([Ask(ids, 0, limit)])


@pytest.mark.parametrize(
    ("ask", "why"),
    [
        (Ask((3, 12), 0, 3), "0 to 11"),
        (Ask((-1,), 0, 3), "0 to 11"),
        (Ask((3,), 1 << 64, 3), "64 bits"),
        (Ask((3,), 0, 3, temperature=-1.0), "temperature >= 0"),
        (Ask((3,), 0, 3, top_p=0.0), "top_p <= 1"),
        (Ask((3,), 0, 3, top_k=2), "has_cuts"),
        (Ask((3,), 0, 3, top_p=0.9), "has_cuts"),
    ],
)
def test_asks_out_of_range_are_refused_and_others_are_answered(ask, why):
    sampler = LocalSampler(model(), SHAPES)
    (future,) = sampler.ask(asks()[:1])
    with pytest.raises(Mistake, match=why):
        sampler.ask([ask])
    assert future.result(60) == usual()[0]
    sampler.close()


@pytest.mark.parametrize("program", ["empty_slots", "read", "admit", "advance"])
def test_failure_of_a_program_reaches_all_who_asked(program, monkeypatch):
    def fail(*given):
        raise MemoryError("full")

    monkeypatch.setattr(slots, program, fail)
    sampler = LocalSampler(model(), SHAPES)
    futures = sampler.ask(asks())
    for future in futures:
        with pytest.raises(MemoryError, match="full"):
            future.result(60)
    monkeypatch.undo()
    assert sampler.ask(asks()[:1])[0].result(60) == usual()[0]  # it goes on
    sampler.close()


def test_closed_sampler_cancels_what_is_not_answered():
    sampler = LocalSampler(model(), LONG, quantum=1)
    futures = sampler.ask([Ask((3, 4), n, 100) for n in range(200)])
    sampler.close()
    assert not futures[-1].done() or futures[-1].cancelled()
    for future in futures:
        if not future.cancelled():
            assert len(future.result(0).ids) == 100
    with pytest.raises(CancelledError):
        futures[-1].result(0)


def test_cancelling_one_ask_leaves_the_others_their_answers():
    sampler = LocalSampler(model(), SHAPES)
    futures = sampler.ask(asks())
    cancelled = {n for n in (3, 9, 20) if futures[n].cancel()}
    assert cancelled
    for n in set(range(24)) - cancelled:
        assert futures[n].result(60) == usual()[n]
    sampler.close()


def test_cancelled_asks_wake_those_who_wait_for_any():
    sampler = LocalSampler(model(), LONG, quantum=1)
    futures = sampler.ask([Ask((3, 4), n, 100) for n in range(60)])
    sampler.close()
    assert not wait(futures, 60).not_done


def test_a_closed_sampler_cancels_what_it_is_asked():
    sampler = LocalSampler(model(), SHAPES)
    sampler.close()
    assert all(future.cancelled() for future in sampler.ask(asks()))


def test_closing_while_others_ask_leaves_nobody_waiting():
    for _ in range(20):
        sampler, found = LocalSampler(model(), SHAPES), []
        client = threading.Thread(
            target=lambda found=found, sampler=sampler: found.extend(sampler.ask(asks()[:2]))
        )
        client.start()
        sampler.close()
        client.join()
        assert not wait(found, 60).not_done


def test_who_is_told_of_a_cancelled_ask_may_ask_again():
    sampler, again = LocalSampler(model(), LONG, quantum=1), []
    for future in sampler.ask([Ask((3, 4), n, 100) for n in range(30)]):
        future.add_done_callback(lambda _: again.extend(sampler.ask([Ask((3, 4), 0, 1)])))
    closer = threading.Thread(target=sampler.close, daemon=True)
    closer.start()
    closer.join(60)
    assert not closer.is_alive()
    assert not wait(again, 60).not_done


@pytest.mark.slow
def test_the_process_may_end_while_answers_are_written():
    code = f"""if True:
        import sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        import test_local_sampler as this
        sampler = this.LocalSampler(this.model(), this.LONG)
        futures = sampler.ask([this.Ask((3, 4), n, 100) for n in range(2000)])
        futures[0].result()
    """
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)


def test_slots_of_a_worker_depend_on_the_number_of_answers_alone():
    """On a CPU, where two workers share the slots."""
    assert [worker_slots(count) for count in (1, 8, 15, 16, 24, 64)] == [1, 8, 15, 8, 12, 32]
