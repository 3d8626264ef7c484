"""Agent programs as a world: each scene is one run of a program on one task.

The program is any that asks a model in OpenAI's form: what it sends are the messages that the seat
hears, and what the seat says is the answer that it gets. Nothing in it needs to know of Sterling::

    sterling train grpo --agent "python my_agent.py" --tasks tasks.jsonl

The reward, the first of these that there is: what the program sends to ``$STERLING_REWARD_URL``;
what the task's own verifier, or the user's judge, gives for the last line of its output; that line
itself, if it is a number or named ones.
"""

from __future__ import annotations

import collections
import dataclasses
import json
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from sterling.language import question_order
from sterling.language.agent_programs.program_command import filled_command
from sterling.language.agent_programs.program_session import Asked, Ended, Event, ProgramSession
from sterling.language.agent_programs.session_server import session_server
from sterling.language.endpoint.chat_answers import Completion
from sterling.language.endpoint.chat_requests import ChatRequest, read_message
from sterling.language.endpoint.message_history import MessageHistory
from sterling.language.engine.ask import Said
from sterling.language.named_rewards import read_rewards
from sterling.language.scene import BaseScene, Message
from sterling.language.task import PROGRAM_FAILED, Family, Task, Verdict
from sterling.language.tokenizer import Tokenizer
from sterling.language.worlds.single_question import question_messages
from sterling.system.http_server import HttpError
from sterling.system.mistake import Mistake
from sterling.system.shown_values import short_text, shown_value

UNLIMITED_TOKENS = 1 << 30
CALL = Verdict(0.0, "call")  # on every answer but the last one


class ProgramWorld:
    """Runs of the program ``command`` on the tasks of a family.

    Args:
        family: the tasks; they judge the last line of the program's output.
        command: the program's command line
            (:mod:`sterling.language.agent_programs.program_command`).
        seconds: how long the program may run, without the time in which it waits for the model.
        turns: most answers that it gets in a run.
        tokens: most tokens of all these answers, the last of which is cut; 0: any number.
        contexts: most conversations of a run that do not continue each other.
        top_logprobs: most likely tokens that it may ask for beside each token of an answer.
        at_once: most programs that run at a time.
        failed_reward: the reward of a program that failed before it gave one; None: the lowest of
            its group (:mod:`sterling.language.agent_programs.failed_runs`).
    """

    seats = 1

    def __init__(
        self,
        family: Family,
        command: str,
        *,
        seconds: float = 60.0,
        turns: int = 8,
        tokens: int = 0,
        contexts: int = 4,
        top_logprobs: int = 0,
        at_once: int = 16,
        failed_reward: float | None = None,
    ):
        self.family, self.levels, self.command = family, family.levels, command
        self.seconds, self.turns, self.contexts, self.at_once = seconds, turns, contexts, at_once
        self.tokens, self.top_logprobs = tokens or UNLIMITED_TOKENS, top_logprobs
        self.failed = PROGRAM_FAILED
        if failed_reward is not None:
            self.failed = dataclasses.replace(self.failed, reward=failed_reward, right=False)
        self.name = f"agent:{family.name}"

    def begin(self, seed: int, level: int) -> ProgramScene:
        """Return the scene of the task of this seed and level."""
        return ProgramScene(self, self.family.sample(seed, level))

    def count(self, level: int) -> int:
        """Return the number of tasks of the family; 0: unlimited."""
        return question_order.question_count(self.family, level)

    def close(self) -> None:
        """Release what the tasks hold."""
        getattr(self.family, "close", lambda: None)()


class ProgramScene(BaseScene):
    """A run of a program; its turns are the answers that the program gets."""

    def __init__(self, world: ProgramWorld, task: Task):
        super().__init__()
        self.world, self.task = world, task
        self.opening = question_messages(task)  # decides whether the question is held out
        self.turns = 0  # answers so far
        self.tokens = 0  # of these
        self.contexts = 0  # conversations that do not continue each other
        self.left: Ended | None = None  # what the program left, once it has ended
        self.trace: list[dict[str, Any]] = []  # requests and what was answered, for a judge
        record = task_record(world.family, task)
        words = filled_command(world.command, record)
        self._session = ProgramSession(words, record, world.seconds)
        self._history = MessageHistory()
        self._equal = collections.Counter[tuple[Message, ...]]()  # requests of equal messages
        self._last: set[int] = set()  # turns whose answers nothing follows
        self._requests: list[Asked] = []  # of each turn
        self._follows: int | None = None  # the one of these that the present request follows
        self._answered: list[
            tuple[Said, Sequence[int]]
        ] = []  # of the present request, with tokens read
        self._asked: Asked | None = None
        self._tokenizer: Tokenizer | None = None
        self.wait(lambda: session_server().start(self._session, world.at_once), self._go_on)

    def _go_on(self, event: Event) -> None:
        """React to what the program did."""
        if isinstance(event, Ended):
            self._judge(event)
            return
        self._asked, self._answered = event, []
        if self.turns + event.request.count > self.world.turns:
            self._refuse(f"a session may ask for {self.world.turns} answers", "session_ended")
            return
        if (count := event.request.likeliest) > (most := self.world.top_logprobs):
            said = f"at most {most} top_logprobs are given here; train with --agent-top-logprobs"
            self._reply(HttpError(400, f"{said} {count}", "top_logprobs"))
            return
        self._ask_seat(event.request)

    def _ask_seat(self, request: ChatRequest) -> None:
        after, messages = self._history.find(request.messages)
        self._follows = after if after in self._last else None
        if self.tokens >= (most := self.world.tokens):
            self._refuse(f"a session may have {most} tokens of answers", "session_ended")
            return
        left = request.count - len(self._answered)
        begun = left - (self._follows is not None)
        if self.contexts + begun > (most := self.world.contexts):
            said = f"a session may have {most} conversations that do not continue each other"
            self._refuse(said, "session_ended")
            return
        self.ask(0, *messages, fresh_context=after is None)
        assert self.turn is not None
        # A request's chance does not depend on which of those sent at the same time came first.
        nth = self._equal[request.messages]
        limit = min(request.limit or UNLIMITED_TOKENS, self.world.tokens - self.tokens)
        self.turn = dataclasses.replace(
            self.turn, after=after, limit=limit, stop=request.stop, nth=nth
        )

    def note_answer(self, said: Said, read: Sequence[int], tokenizer: Tokenizer) -> None:
        """Take an answer as tokens; it follows the tokens ``read``."""
        self._answered.append((said, read))
        self.tokens += len(said.ids)
        self._tokenizer = tokenizer

    def hear(self, seat: int, text: str) -> None:
        """Send an answer to the program, once all are there that it asked for."""
        asked = self._asked
        assert asked is not None
        assert self._tokenizer is not None
        request = asked.request
        self._equal[request.messages] += 1
        self.contexts += self._follows is None
        self._last = self._last - {self._follows} | {self.turns}
        self._requests.append(asked)
        self.turns += 1
        if len(self._answered) < request.count:
            self._ask_seat(request)
            return
        said, read = [each for each, _ in self._answered], self._answered[0][1]
        completion = Completion(request, said, self._tokenizer, "learner", 0, read)
        for number, choice in enumerate(completion.to_json()["choices"]):
            answer = read_message(choice["message"], "answer")
            turn = self.turns - request.count + number
            self._history.add(request.messages, answer, turn)
            asked_for = [dataclasses.asdict(each) for each in request.messages]
            self.trace.append({"messages": asked_for, "answer": choice["message"]})
        self._reply(completion)

    @property
    def undelivered(self) -> set[int]:
        """Return the turns whose answers never reached the program; one that it went on from did,
        whatever its connection said."""
        return {turn for turn in self._last if not self._requests[turn].delivered}

    def cannot_speak(self, why: str, code: str) -> None:
        """Tell the program why it gets no answer."""
        self.turn = None
        self._refuse(why, code)

    def _refuse(self, why: str, code: str) -> None:
        self._reply(HttpError(400, why, "messages", code or None))

    def _reply(self, found: Any) -> None:
        """Answer the request, and wait for what the program does next."""
        asked, self._asked = self._asked, None
        assert asked is not None

        def answer() -> Future[Event]:
            session_server().answer(asked.reply, found)
            return session_server().next_event(self._session)

        self.wait(answer, self._go_on)

    def _judge(self, left: Ended) -> None:
        """Give the verdict on the whole run."""
        self.left = left
        if left.fault:  # not the program's, nor the model's
            raise Mistake(left.fault)
        if not self.turns:
            raise Mistake(f"the program asked for no answer: {fault_text(left)}")
        if not (delivered := self.turns - len(self.undelivered)):
            raise Mistake(f"the program waited for none of its answers: {fault_text(left)}")
        self.verdicts[0] += [CALL] * (delivered - 1)
        if left.rewards is not None:
            self.take_verdict(0, Verdict.of_rewards(left.rewards))
        elif judges_responses(self.world.family, self.task):
            outcome = {
                "stdout": left.stdout,
                "folder": left.folder,
                "exit_code": left.exit_code,
                "trace": self.trace,
            }
            task = dataclasses.replace(self.task, outcome=outcome)
            self.verify(self.world.family, task, 0, left.last_line)
        else:
            self.take_verdict(0, _last_line_verdict(left, self.world.failed))

    def close(self) -> None:
        """End the session, if it still runs."""
        session_server().forget(self._session)


def task_record(family: Any, task: Task) -> dict[str, Any]:
    """Return what a program gets of a task: the record of its file, or its prompt and answer."""
    family = getattr(family, "family", family)  # the questions that a judge judges
    member = getattr(family, "members", {}).get(task.family, family)
    if hasattr(member, "record"):
        return dict(member.record(task))
    system = {"system": task.system} if task.system else {}
    return {"prompt": task.prompt, **system, "answer": task.answer}


def judges_responses(family: Any, task: Task) -> bool:
    """Whether a family can judge what a program said: not a file's task without an answer."""
    return getattr(family, "judges", lambda _: True)(task)


def _last_line_verdict(left: Ended, failed: Verdict) -> Verdict:
    """Return the verdict that a program's last line is. One that failed may have failed because of
    what the model said: it gets the verdict ``failed``, else a model would learn to make it
    fail."""
    try:
        return Verdict.of_rewards(read_rewards(json.loads(left.last_line)))
    except ValueError as error:
        if left.exit_code != 0:
            return failed
        raise Mistake(
            "the task has no answer and no judge, the program sent no reward, and its last line "
            f"is no number or named ones: {shown_value(left.last_line)} ({fault_text(left)})"
        ) from error


def fault_text(left: Ended) -> str:
    """Return in words how a program ended."""
    ended = "it ran out of time" if left.exit_code is None else f"exit code {left.exit_code}"
    last = [each for each in left.stderr.splitlines() if each.strip()]
    return ended + (f", {short_text(last[-1])}" if last else "")
