"""Play one run of an agent program before a run of training compiles anything.

The program gets the task's own answer, or words of its prompt, for an answer. So what is wrong with
the program, its requests or its reward shows at once, and the texts that it sends are known.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time

import numpy as np

from sterling.language.agent_programs.program_world import ProgramWorld, fault_text
from sterling.language.engine.ask import Said
from sterling.language.scene import Message
from sterling.language.scene_dialogue import UNLIMITED_CONTEXT, ChatSettings, SceneBatch
from sterling.language.task import PROGRAM_FAILED, Verdict
from sterling.language.tokenizer import Tokenizer
from sterling.system.mistake import Mistake

WORDS = 4  # of a prompt that serve as an answer to a task without one


@dataclasses.dataclass(frozen=True)
class ProgramProbe:
    """What a program asked, and what its run was worth."""

    openings: tuple[tuple[Message, ...], ...]  # messages that begin a conversation
    replies: tuple[tuple[Message, ...], ...]  # messages that follow an answer
    answer: str  # that it got
    verdict: Verdict
    seconds: float

    @property
    def texts(self) -> list[str]:
        """Return the texts of all messages, and the answer."""
        every = (each for messages in (*self.openings, *self.replies) for each in messages)
        return [text for each in every for text in (each.content, *each.tools)] + [self.answer]

    @property
    def line(self) -> str:
        """Return in a line what happened."""
        calls, own = len(self.openings) + len(self.replies), len(self.openings)
        return (
            f"the agent program was run on one task, with {self.answer!r} for every answer: "
            f"{calls} call{'s' * (calls > 1)} in {own} conversation{'s' * (own > 1)}, reward "
            f"{self.verdict.reward:g} ({self.verdict.reason}), {self.seconds:.1f} s"
        )


def probe_program(world: ProgramWorld) -> ProgramProbe:
    """Return what the world's program does on its first task. Raises Mistake if it asks nothing, or
    its run gets no verdict."""
    scene, begun = world.begin(0, world.levels[0]), time.monotonic()
    answer = " ".join(scene.task.prompt.split()[:WORDS])
    with contextlib.suppress(Mistake):
        answer = world.family.solve(scene.task)
    tokenizer = Tokenizer.bytes()
    ids = tokenizer.encode_answer(answer)
    limits = ChatSettings(tokenizer, limit=len(ids), context=UNLIMITED_CONTEXT)
    batch = SceneBatch([scene], limits)
    openings: list[tuple[Message, ...]] = []
    replies: list[tuple[Message, ...]] = []
    try:
        while waiting := batch.waiting():
            turn = scene.turn
            assert turn is not None
            (openings if turn.fresh_context else replies).append(turn.messages)
            batch.add_answer(waiting[0], _certain(ids))
        (line,) = batch.finish()
    finally:
        batch.close()
    if line.failed:
        raise Mistake(f"the agent program: {line.failed.removeprefix('Mistake: ')}")
    if line.verdicts[-1].reason == PROGRAM_FAILED.reason and scene.left is not None:
        raise Mistake(f"the agent program fails before it gives a reward: {fault_text(scene.left)}")
    took = time.monotonic() - begun
    return ProgramProbe(tuple(openings), tuple(replies), answer, line.verdicts[-1], took)


def _certain(ids: list[int]) -> Said:
    """Return these tokens as an answer in which no other ones were possible."""
    sure = np.array(ids, np.int32)[:, None], np.zeros((len(ids), 1), np.float32)
    return Said(ids, [0.0] * len(ids), True, likeliest=sure)
