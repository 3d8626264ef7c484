"""Play scenes with a model: encode messages, sample answers, and pass them to the scene.

Every seat of a scene has one *transcript* of tokens (engine/transcript.py). The tokens that the
model sampled are kept as they were sampled, with their log-probabilities; what was said to it is
encoded between them. No text is encoded twice.

A scene that raises, hangs or answers nonsense loses its own transcripts alone: these are failed.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from sterling.language.batch_verdicts import judge_together
from sterling.language.engine.ask import Said
from sterling.language.engine.local_sampler import worker_slots
from sterling.language.engine.slots import SlotShapes
from sterling.language.engine.stop_texts import ended_answer
from sterling.language.engine.transcript import Transcript
from sterling.language.models.length_rounding import round_up_length
from sterling.language.named_rewards import RewardRule, RightRule
from sterling.language.scene import (
    DueCall,
    Message,
    Scene,
    check_verdicts,
    error_line,
)
from sterling.language.task import Verdict
from sterling.language.time_limits import time_limit
from sterling.language.tokenizer import Tokenizer
from sterling.language.tools.thread_bound_calls import WrongThread
from sterling.system.mistake import Mistake

OPENING_TOO_LONG = "its opening is longer than the context"
TOO_LONG = "context_length_exceeded"
UNLIMITED_CONTEXT = 1 << 30  # a context that no transcript fills


@dataclasses.dataclass(frozen=True)
class ChatSettings:
    """How a model generates its answers in scenes."""

    tokenizer: Tokenizer
    limit: int  # most tokens of one answer
    context: int  # most tokens of one transcript; a scene that needs more is cut
    contexts: int = UNLIMITED_CONTEXT  # most contexts of a seat in a scene
    slots: int = 64  # answers written at a time
    likeliest: int = 0  # tokens whose log-probabilities are kept beside those of each drawn one
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    patience: float = 10.0  # seconds for a scene's reaction, besides its verifiers' limits
    rule: RewardRule = dataclasses.field(default_factory=RewardRule)  # combines named rewards
    right_if: RightRule = dataclasses.field(default_factory=RightRule)  # which answers are right

    def slot_shapes(self, answers: int) -> SlotShapes:
        """Return the shapes in which so many answers are written. They depend on settings and that
        number alone, never on what happens to be asked at a time."""
        cuts, stops = self.top_k > 0 or self.top_p < 1.0, tuple(self.tokenizer.stops)
        count = worker_slots(min(self.slots, round_up_length(answers)))
        return SlotShapes(count, self.context, self.limit, stops, cuts, self.likeliest)


class SceneBatch:
    """The scenes of one seed and their transcripts, played at the same time."""

    def __init__(self, scenes: Sequence[Scene | str], settings: ChatSettings):
        self.settings = settings
        self.scenes = list(scenes)  # a text instead of a scene: why it could not begin
        self.transcripts: dict[tuple[int, int], Transcript] = {}
        own = ((n, getattr(scene, "close", None)) for n, scene in enumerate(self.scenes))
        self._closes = {n: close for n, close in own if close is not None}  # of scenes still open
        self.waited_for: set[int] = set()  # scenes that wait for an answer or a call
        self._ready = set(range(len(self.scenes)))  # scenes that have gone on since `advance`
        for number, scene in enumerate(self.scenes):
            if isinstance(scene, str):
                self.transcripts[number, 0] = Transcript(number, 0, failed=scene)
            elif hasattr(scene, "in_batch"):
                scene.in_batch = True

    def waiting(self) -> list[Transcript]:
        """Return the transcripts whose seat is to speak, after making the calls that scenes wait
        for, one after another."""
        found, calls = self.advance()
        while calls:
            for number, call in calls:
                self.take_result(number, call, call.result)
            more, calls = self.advance()
            found += more
        return found

    def advance(self) -> tuple[list[Transcript], list[tuple[int, DueCall]]]:
        """Return the transcripts whose seat is to speak, after appending what was said to it, and
        the calls that scenes wait for: of the scenes that have gone on since the last time. If all
        have waited, those that wait for verdicts of a batch get them, and may go on."""
        speaking: list[Transcript] = []
        calls: list[tuple[int, DueCall]] = []
        while True:
            while self._ready:  # a scene may go on at once, when its seat cannot speak
                ready, self._ready = sorted(self._ready), set()
                for number in ready:
                    self._go_on(number, speaking, calls)
            self.waited_for |= {each.scene for each in speaking} | {number for number, _ in calls}
            if self.waited_for or not self._give_verdicts():
                return speaking, calls

    def _go_on(
        self, number: int, speaking: list[Transcript], calls: list[tuple[int, DueCall]]
    ) -> None:
        """Add what a scene waits for now."""
        scene: Any = self.scenes[number]
        call = getattr(scene, "due_call", None)
        if call is not None and not self._given_up(number):
            scene.due_call = None
            calls.append((number, call))
        elif (transcript := self._speaking(number)) is not None:
            speaking.append(transcript)

    def _give_verdicts(self) -> bool:
        """Give the scenes the verdicts that they wait for; return whether any did."""
        waiting = {n: getattr(scene, "due_verdict", None) for n, scene in enumerate(self.scenes)}
        due = {n: one for n, one in waiting.items() if one is not None and not self._given_up(n)}
        try:
            verdicts = judge_together(due)
        except Exception as error:  # of somebody's own judge
            verdicts = {}
            for number in due:
                self._give_up(number, error_line(error))
        for number, verdict in verdicts.items():
            scene: Any = self.scenes[number]
            self._react(number, partial(scene.give_verdict, verdict))
        return bool(due)

    def _speaking(self, number: int) -> Transcript | None:
        """Return the transcript whose seat is to speak, after appending what was said to it; None
        if the scene is over, or waits for its verdict."""
        scene = self.scenes[number]
        if isinstance(scene, str) or scene.turn is None or self._given_up(number):
            return None
        place = (number, scene.turn.seat)
        transcript = self.transcripts.setdefault(place, Transcript(*place))
        if scene.turn.seat not in range(len(scene.verdicts)):
            self._give_up(number, f"there are no verdicts on seat {scene.turn.seat!r}")
            return None
        opens = not transcript.turns or getattr(scene.turn, "fresh_context", False)
        before = [] if opens else transcript.until(_option(scene.turn, "after"))
        try:
            tokens = self._tokens(before, scene.turn.messages)
        except Mistake as error:  # of the chat template
            if self._tell(number, str(error), ""):
                return None
            raise
        read, room = len(before) + len(tokens), self.settings.context
        if read + (limit := self.answer_limit(transcript)) > room:
            transcript.cut = True
            why = f"{read} tokens, and an answer of up to {limit}, do not fit a context of {room}"
            if not self._tell(number, why, TOO_LONG):
                transcript.full = True
                transcript.failed = "" if transcript.turns else OPENING_TOO_LONG
            return None
        if not opens:
            transcript.follow(_option(scene.turn, "after"))
        elif transcript.turns:
            transcript.begin_context()
        if len(transcript.starts) > self.settings.contexts:
            self._give_up(number, "it began more contexts than its world has")
            return None
        transcript.hear(tokens)
        return transcript

    def answer_limit(self, transcript: Transcript) -> int:
        """Return the most tokens of the answer that a transcript's seat is about to give."""
        scene: Any = self.scenes[transcript.scene]
        return min(self.settings.limit, _option(scene.turn, "limit") or self.settings.limit)

    def answer_number(self, transcript: Transcript) -> int:
        """Return what tells the answer that a seat is about to give from its others."""
        scene: Any = self.scenes[transcript.scene]
        own = _option(scene.turn, "nth")
        return transcript.turns if own is None else int(own)

    def _tell(self, number: int, why: str, code: str) -> bool:
        """Tell a scene why its seat cannot speak; return False if it has no ``cannot_speak``."""
        scene: Any = self.scenes[number]
        if not hasattr(scene, "cannot_speak"):
            return False
        self._react(number, partial(scene.cannot_speak, why, code))
        return True

    def add_answer(self, transcript: Transcript, said: Said) -> None:
        """Append an answer to the transcript, and pass it to the scene."""
        scene: Any = self.scenes[transcript.scene]
        tokenizer, read = self.settings.tokenizer, transcript.context
        said, text, ended = ended_answer(said, tokenizer, _option(scene.turn, "stop") or ())
        transcript.say(said.ids, said.log_prob, said.version)
        transcript.cut |= not ended
        # A thought that the template began stays a thought if the answer is cut before its end.
        text = "<think>" * tokenizer.starts_in_thought + text
        if (noted := getattr(scene, "note_answer", None)) is not None:
            noted(said, read, tokenizer)
        self._react(transcript.scene, partial(scene.say, text))

    def take_result(self, number: int, call: DueCall, result: Callable[[], Any]) -> None:
        """Pass what a call of a scene returned to the scene; ``result`` returns it, or raises what
        the call raised."""

        def react() -> None:
            try:
                found = result()
            except WrongThread:
                found = call.function()
            call.then(found)

        self._react(number, react)

    def _react(self, number: int, react: Callable[[], None]) -> None:
        """Have a scene react to an answer, a verdict or a call, and check its verdicts."""
        scene: Any = self.scenes[number]
        self.waited_for.discard(number)
        self._ready.add(number)
        try:
            with time_limit(self.settings.patience):
                react()
                self._check(number, scene.verdicts)
            verdicts = itertools.chain(*scene.verdicts)
            faults = [each for each in verdicts if getattr(each, "verifier_failed", False)]
            if faults:
                self._give_up(number, faults[0].reason)
        except Exception as error:
            self._give_up(number, error_line(error))

    def finish(self) -> list[Transcript]:
        """Return all transcripts with their verdicts. Raises Mistake if the rule of rewards, or of
        right answers, names none of theirs."""
        for (number, seat), transcript in self.transcripts.items():
            scene, transcript.right_if = self.scenes[number], self.settings.right_if
            if not isinstance(scene, str) and not transcript.failed:
                transcript.verdicts = tuple(map(self._combined, scene.verdicts[seat]))
                transcript.full = scene.turn is not None
                transcript.cut |= transcript.full
                transcript.leave_out(getattr(scene, "undelivered", ()))
        lines = [self.transcripts[place] for place in sorted(self.transcripts)]
        if judged := [line for line in lines if line.verdicts]:
            names = {name for line in judged for name in line.rewards}
            self.settings.rule.check_names(names)
            self.settings.right_if.check_names(names)
            self.settings.rule.report_missing(names)
        return lines

    def close(self) -> None:
        """Release what scenes hold (their own ``close``)."""
        while self._closes:
            self._closes.popitem()[1]()

    def _combined(self, verdict: Verdict) -> Verdict:
        """Return a verdict whose named rewards are combined as the rule says."""
        if not getattr(verdict, "rewards", None):
            return verdict
        return dataclasses.replace(verdict, reward=self.settings.rule(verdict.rewards))

    def _check(self, number: int, verdicts: Any) -> None:
        """Raise ValueError for invalid verdicts, and if a seat has more verdicts than turns."""
        check_verdicts(verdicts)
        for transcript in self._of_scene(number):
            seat = transcript.seat
            if seat >= len(verdicts):
                raise ValueError(f"there are no verdicts on seat {seat}")
            if len(verdicts[seat]) > transcript.turns:
                found = f"{len(verdicts[seat])} verdicts on seat {seat}"
                raise ValueError(f"{found}, which had {transcript.turns} turns")

    def _tokens(self, before: Sequence[int], messages: Sequence[Message]) -> list[int]:
        """Return the tokens of messages that follow ``before``, or open a context."""
        tokenizer = self.settings.tokenizer
        if not before:
            return tokenizer.encode_opening(messages)
        close = [] if before[-1] in tokenizer.stops else [tokenizer.end]
        return close + tokenizer.encode_continuation(messages)

    def _of_scene(self, number: int) -> list[Transcript]:
        return [each for (scene, _), each in self.transcripts.items() if scene == number]

    def _given_up(self, number: int) -> bool:
        return any(each.failed or each.full for each in self._of_scene(number))

    def _give_up(self, number: int, why: str) -> None:
        for transcript in self._of_scene(number) or [Transcript(number, 0)]:
            transcript.failed = why
            self.transcripts[number, transcript.seat] = transcript
        self._closes.pop(number, lambda: None)()  # nothing shall wait for its end


def _option(turn: Any, name: str) -> Any:
    """Return an optional field of a turn, which a user's own class of turns may lack."""
    return getattr(turn, name, None)
