"""A language model as a judge: it is asked about every answer in words, and its answer is read.

The model is frozen: it belongs to the world, not to the learner's state. It answers through the
sampler of the learner's own answers (engine/local_sampler.py), always with the likeliest token, so
that a verdict depends on the question and the answer alone. Its score is the number that it writes,
not an average over the probabilities of all numbers: it is what can be read in its answer, it
follows the thoughts that a judge may write first, and answers that the judge finds equally good
are equal, where tiny differences would become advantages once a group's rewards are normalised.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from statistics import fmean
from typing import Any

from sterling.language.batch_verdicts import DueVerdict, judge_together
from sterling.language.engine.ask import Ask, Said
from sterling.language.engine.call_pool import CALLS_AT_ONCE
from sterling.language.engine.local_sampler import LocalSampler, worker_slots
from sterling.language.engine.slots import SlotShapes
from sterling.language.models.causal_lm import LanguageModel
from sterling.language.models.length_rounding import round_up_length
from sterling.language.scene import Message
from sterling.language.task import (
    Family,
    Task,
    Verdict,
    batch_judge,
    judges_elsewhere,
    without_thoughts,
)
from sterling.language.tokenizer import Tokenizer
from sterling.language.worlds.judge_rubric import RESPONSE, Rubric
from sterling.language.worlds.judged_questions import JudgedQuestions, judge_question
from sterling.types import Mistake

REWARD = "judge"  # the name of its reward
LEAST_CONTEXT = 256  # tokens: few shapes are compiled, and short prompts share one


class GenerativeJudge:
    """A language model that judges answers with a rubric.

    ``model``: as :func:`slots.for_decoding` lays it out. ``limit``: most tokens of its answer.
    ``longest``: most tokens that it can read and write together (None: any number). ``slots``:
    answers that it writes at a time.
    """

    def __init__(
        self,
        name: str,
        model: LanguageModel,
        tokenizer: Tokenizer,
        rubric: Rubric,
        *,
        limit: int,
        longest: int | None = None,
        slots: int = 64,
    ):
        self.name, self.model, self.tokenizer, self.rubric = name, model, tokenizer, rubric
        self.limit, self.longest, self.slots = limit, longest, slots
        self._samplers: dict[int, LocalSampler] = {}

    def judge_questions(self, family: Family) -> ModelJudgedQuestions:
        """Return a family's tasks, whose answers this model judges."""
        return ModelJudgedQuestions(family, self)

    def scores(self, questions: Sequence[Mapping[str, Any]]) -> list[float | str]:
        """Return the score, 0 to 1, of each answer, or the reason why it has none. A question holds
        the fields of the rubric; equal ones are asked once."""
        prompts = [_value_or_reason(self._prompt, each) for each in questions]
        asked = self._ask({each for each in prompts if not isinstance(each, str)})
        found = {ids: _value_or_reason(self._score, future) for ids, future in asked.items()}
        return [each if isinstance(each, str) else found[each] for each in prompts]

    def shares_of_wins(
        self, questions: Sequence[Mapping[str, Any]], groups: Sequence[Hashable]
    ) -> list[float | str]:
        """Return the share, 0 to 1, of comparisons that each answer wins against the others of its
        group, each in both orders, or the reason why it has none. A comparison that the judge does
        not decide readably is left out; an answer alone has 0.5."""
        places = range(len(questions))
        pairs = [(i, k) for i in places for k in places if i != k and groups[i] == groups[k]]
        asked = [
            {**questions[i], "first": questions[i][RESPONSE], "second": questions[k][RESPONSE]}
            for i, k in pairs
        ]
        wins: list[list[float]] = [[] for _ in places]
        reasons: dict[int, str] = {}
        for (i, k), found in zip(pairs, self.scores(asked), strict=True):
            if isinstance(found, str):
                reasons = {i: found, k: found} | reasons
            else:
                wins[i].append(found)
                wins[k].append(1.0 - found)
        return [fmean(own) if own else reasons.get(n, 0.5) for n, own in enumerate(wins)]

    def _prompt(self, fields: Mapping[str, Any]) -> tuple[int, ...]:
        """Return the tokens of what the judge is asked. Special tokens that a question or an answer
        spells are left out: they would end the judge's turn, or begin one of its own."""
        plain = {
            name: self.tokenizer.without_special_tokens(each) if isinstance(each, str) else each
            for name, each in fields.items()
        }
        try:
            ids = self.tokenizer.encode_opening([Message("user", self.rubric.fill(plain))])
        except Mistake as error:  # of the chat template
            raise ValueError(str(error)) from error
        if self.longest is not None and len(ids) + self.limit > self.longest:
            raise ValueError(
                f"the judge's prompt has {len(ids):,} tokens and its answer up to {self.limit:,}, "
                f"and the model has room for {self.longest:,}"
            )
        return tuple(ids)

    def _ask(self, prompts: set[tuple[int, ...]]) -> dict[tuple[int, ...], Future[Said]]:
        """Ask each prompt in slots whose shape follows from its length alone: rounding depends on
        the shape."""
        found: dict[tuple[int, ...], Future[Said]] = {}
        for context in {self._context(ids) for ids in prompts}:
            own = sorted(ids for ids in prompts if self._context(ids) == context)
            if context not in self._samplers:
                slots = worker_slots(self.slots)
                shapes = SlotShapes(slots, context, self.limit, self.tokenizer.stops)
                self._samplers[context] = LocalSampler(self.model, shapes)
            asks = [Ask(ids, 0, self.limit, temperature=0.0) for ids in own]
            found |= zip(own, self._samplers[context].ask(asks), strict=True)
        return found

    def _context(self, ids: tuple[int, ...]) -> int:
        return max(LEAST_CONTEXT, round_up_length(len(ids) + self.limit))

    def _score(self, future: Future[Said]) -> float:
        said, tokenizer = future.result(), self.tokenizer
        if not said.stopped:
            raise ValueError(f"the judge's answer does not end within {self.limit:,} tokens")
        text = "<think>" * tokenizer.starts_in_thought + tokenizer.decode(said.ids[:-1])
        return self.rubric.read_score(text)


class ModelJudgedQuestions(JudgedQuestions):
    """The tasks of a family, whose answers a language model judges: a reward named "judge", beside
    those of the family's own verifier, whose number is named "right" if it has no names.

    A file's question without an answer has the judge's alone. An answer on which the judge says
    nothing that can be read has no verdict, and the reason says why.
    """

    duty = (
        "It must answer with a verdict that can be read: name another model, or change the rubric"
    )

    def __init__(self, family: Family, judge: GenerativeJudge):
        self.family, self.model_judge = family, judge
        self.name, self.levels = family.name, family.levels
        self._worker, self._takes_lists = None, True

    @property
    def judge_text(self) -> str:
        """Return who judges, for messages."""
        return f"the judge {self.model_judge.name}"

    def verify_batch(self, tasks: Sequence[Task], responses: Sequence[str]) -> list[Verdict]:
        """Return the verdicts of verifier and judge; never raises, whatever the responses are."""
        own = self._verified(tasks, responses)
        asked = [n for n in range(len(tasks)) if n not in own or not own[n].verifier_failed]
        fields = [self._fields(tasks[n], responses[n]) for n in asked]
        judge = self.model_judge
        if judge.rubric.compares:
            groups = [(tasks[n].family, tasks[n].seed, tasks[n].level) for n in asked]
            found = judge.shares_of_wins(fields, groups)
        else:
            found = judge.scores(fields)
        scores = dict(zip(asked, found, strict=True))
        return [
            _with_score(own.get(n), scores[n]) if n in scores else own[n] for n in range(len(tasks))
        ]

    def close(self) -> None:
        """Release what the family holds; the model may judge elsewhere, too."""
        getattr(self.family, "close", lambda: None)()

    def _fields(self, task: Task, response: str) -> dict[str, Any]:
        columns = judge_question(self.family, task, response)["columns"]
        spoken = without_thoughts(response).strip()
        return {**columns, "prompt": str(task.prompt), RESPONSE: spoken}

    def _verified(self, tasks: Sequence[Task], responses: Sequence[str]) -> dict[int, Verdict]:
        """Return the verdicts of the family's own verifier, by their numbers, on the answers to
        tasks that it can judge."""
        judged = [n for n, task in enumerate(tasks) if _has_answer(self.family, task)]
        due = {
            n: DueVerdict(judge, tasks[n], responses[n], 0)
            for n in judged
            if (judge := batch_judge(self.family, tasks[n])) is not None
        }
        found, alone = judge_together(due), [n for n in judged if n not in due]
        with ThreadPoolExecutor(CALLS_AT_ONCE) as pool:
            elsewhere = {
                n: pool.submit(self.family.verify, tasks[n], responses[n])
                for n in alone
                if judges_elsewhere(self.family, tasks[n])
            }
            here = [n for n in alone if n not in elsewhere]
            found |= {n: self.family.verify(tasks[n], responses[n]) for n in here}
            return found | {n: future.result() for n, future in elsewhere.items()}


def _has_answer(family: Any, task: Task) -> bool:
    """Whether a family's verifier can judge answers to a task: not a file's without an answer."""
    member = getattr(family, "members", {}).get(task.family, family)
    return bool(getattr(member, "judges", lambda _: True)(task))


def _with_score(own: Verdict | None, score: float | str) -> Verdict:
    """Return a verdict with the judge's reward, or that the judge gave none."""
    if isinstance(score, str):
        return Verdict(0.0, f"verifier nonsense: {score}")
    if own is None:
        return Verdict.of_rewards({REWARD: score})
    rewards = {**(own.rewards or {"right": own.reward}), REWARD: score}
    return Verdict(math.fsum(rewards.values()), own.reason, rewards=rewards, right=own.right)


def _value_or_reason(function: Callable[[Any], Any], given: Any) -> Any:
    """Return a function's value, or the text of its ValueError."""
    try:
        return function(given)
    except ValueError as error:
        return str(error)
