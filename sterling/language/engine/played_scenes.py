"""Play scenes with a model: its answers and the scenes' calls are waited for at the same time.

Scenes themselves run one after another in the thread that plays them, as soon as what they wait for
is there. So a scene that waits keeps no other one waiting, and what a scene becomes does not depend
on the others.
"""

from __future__ import annotations

import contextlib
import dataclasses
import queue
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Key, UInt32

from sterling.language.engine.agent_samplers import TextAgent, seed_samplers
from sterling.language.engine.ask import Ask, Sampler, chance_of
from sterling.language.engine.call_pool import CallPool
from sterling.language.engine.transcript import Transcript
from sterling.language.scene import DueCall, Scene
from sterling.language.scene_dialogue import ChatSettings, SceneBatch


def play_scenes(
    agent: TextAgent,
    scenes: Sequence[Sequence[Scene | str]],
    settings: ChatSettings,
    keys: Key[Array, "seed"],
    *,
    explore: bool = True,
) -> list[list[Transcript]]:
    """Play the scenes of every seed to their ends, and return their transcripts.

    Without ``explore`` the model always says the likeliest token.
    """
    shapes = settings.slot_shapes(max(map(len, scenes)))
    data = np.asarray(jax.random.key_data(keys))
    done: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
    pool = CallPool()
    with contextlib.ExitStack() as stack:
        stack.callback(pool.close)
        samplers = seed_samplers(agent, shapes)
        for sampler in samplers:
            stack.callback(sampler.close)
        seeds = [
            _PlayedSeed(SceneBatch(own, settings), sampler, key, explore, pool, done)
            for own, sampler, key in zip(scenes, samplers, data, strict=True)
        ]
        for each in seeds:
            stack.callback(each.batch.close)
            each.go_on()
        while any(each.batch.waited_for for each in seeds):
            _take_what_is_done(done, pool)
            for each in seeds:
                each.go_on()
    return [each.batch.finish() for each in seeds]


def _take_what_is_done(done: queue.SimpleQueue[Callable[[], None]], pool: CallPool) -> None:
    """Wait until something is done, and pass on all that is."""
    with contextlib.suppress(queue.Empty):
        done.get(timeout=pool.fail_late_calls())()
        while True:
            done.get_nowait()()


@dataclasses.dataclass
class _PlayedSeed:
    """The scenes of one seed, and whom they wait for."""

    batch: SceneBatch
    sampler: Sampler
    key: UInt32[np.ndarray, "2"]  # data of a random key
    explore: bool
    pool: CallPool
    done: queue.SimpleQueue[Callable[[], None]]

    def go_on(self) -> None:
        """Ask for all answers and make all calls that scenes wait for now."""
        speaking, calls = self.batch.advance()
        futures = self.sampler.ask([self._ask(each) for each in speaking]) if speaking else []
        for transcript, future in zip(speaking, futures, strict=True):
            self._when_done(future, partial(self._add_answer, transcript))
        for number, call in calls:
            seconds = self.batch.settings.patience if call.limited else None
            outcome = call.function() if call.waits else self.pool.run(call.function, seconds)
            self._when_done(outcome, partial(self._take_result, number, call))

    def _when_done(self, future: Future[Any], then: Callable[[Future[Any]], None]) -> None:
        future.add_done_callback(lambda each: self.done.put(partial(then, each)))

    def _add_answer(self, transcript: Transcript, future: Future[Any]) -> None:
        self.batch.add_answer(transcript, future.result())

    def _take_result(self, number: int, call: DueCall, outcome: Future[Any]) -> None:
        self.batch.take_result(number, call, outcome.result)

    def _ask(self, transcript: Transcript) -> Ask:
        """Return what is asked of the model when a seat is to speak."""
        ids, place = tuple(transcript.context), (transcript.scene, transcript.seat)
        settings = self.batch.settings
        warmth = settings.temperature if self.explore else 0.0
        chance = chance_of(self.key, place, ids, self.batch.answer_number(transcript))
        limit = self.batch.answer_limit(transcript)
        return Ask(ids, chance, limit, warmth, settings.top_k, settings.top_p)
