"""Scenes that ask a seat which their world does not have."""

import pytest

from sterling.experience.language.conversation_host import ConversationHost
from sterling.language.engine.ask import Said
from sterling.language.engine.transcript import Transcript
from sterling.language.scene import BaseScene, Message
from sterling.language.scene_dialogue import ChatSettings, SceneBatch
from sterling.language.tokenizer import Tokenizer
from sterling.language.worlds.world_solutions import demonstrate
from sterling.training.language.context_length import world_context_length
from sterling.types import Generations, Mistake

TOKENIZER = Tokenizer.characters("abcdefghijklmnopqrstuvwxyz ")
VOICE = ChatSettings(TOKENIZER, limit=4, context=200)
REFUSAL = r"a scene of duet asks seat 1, and the world has 1 seat, .* Set its `seats`"


class Duet(BaseScene):
    """Seats speak in turn, ``first`` first; verdicts are kept on ``judged`` of them."""

    def __init__(self, first, judged):
        super().__init__(judged)
        self.ask(first, Message("user", "begin"))

    def hear(self, seat, text):
        if seat < len(self.verdicts):
            self.judge(seat, 0.0, "heard")
        self.ask(1 - seat, Message("user", "go on"))


class DuetWorld:
    name, levels = "duet", range(1)

    def __init__(self, seats=1, turns=2, first=0):
        self.seats, self.turns, self.first = seats, turns, first

    def begin(self, seed, level):
        return Duet(self.first, 2)

    def solve(self, scene):
        return "a"


@pytest.mark.parametrize(("turns", "first"), [(3, 0), (1, 1)], ids=["later", "first"])
def test_context_length_refuses_a_seat_that_the_world_lacks(turns, first):
    with pytest.raises(Mistake, match=REFUSAL):
        world_context_length(DuetWorld(1, turns, first), (0,), TOKENIZER, 4, 10.0)


def test_context_length_takes_every_seat_that_the_world_has():
    assert world_context_length(DuetWorld(seats=2), (0,), TOKENIZER, 4, 10.0) > 0


def test_training_and_demonstrations_refuse_a_seat_that_the_world_lacks():
    host = ConversationHost(DuetWorld(), VOICE, Generations(1, 1), (0,))
    with pytest.raises(Mistake, match=REFUSAL):
        host.note([Transcript(0, 0, turns=1), Transcript(0, 1, turns=1)])
    with pytest.raises(Mistake, match=REFUSAL):
        demonstrate(DuetWorld(), [DuetWorld().begin(0, 0)], VOICE)


def test_scene_without_verdicts_on_the_asked_seat_fails_with_the_reason():
    batch = SceneBatch([Duet(0, 1)], VOICE)
    (line,) = batch.waiting()
    batch.add_answer(line, Said([*TOKENIZER.encode("a"), TOKENIZER.end], [0.0, 0.0], True))
    assert batch.waiting() == []
    assert {each.failed for each in batch.finish()} == {"there are no verdicts on seat 1"}
