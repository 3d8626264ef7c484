"""Questions whose answers a user's own function judges, instead of the world's verifier.

The function has one of two forms. The first takes one question and the model's answer; a further
argument is the column of that name in the file of questions. The second is TRL's::

    def score(question, answer, truth):  # truth: a column
        return float(answer.strip() == truth)

    def score(prompts, completions, **columns):
        return [float(text.strip() == truth) for text, truth in zip(completions, columns["truth"])]

TRL's form is recognised by its argument ``completions``. It is called with lists of one element. If
the file's prompt is a list of messages, so are its prompts and completions.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from sterling.language import question_order
from sterling.language.adapters.answer_worker import AWAY, Worker, WorkerFault
from sterling.language.adapters.jsonl_tasks import JsonlTasks
from sterling.language.adapters.user_tasks import UserTasks, awaited, verdict_seconds
from sterling.language.away_services import ask_until_answered
from sterling.language.jsonl_records import PromptMessages
from sterling.language.named_rewards import read_rewards
from sterling.language.scene import TextWorld
from sterling.language.task import Family, Task, Verdict
from sterling.language.time_limits import pause_time_limit
from sterling.language.worlds.single_question import SingleTurn
from sterling.language.worlds.tool_use import ToolUse
from sterling.lookup import user_imports
from sterling.system.away_errors import is_away
from sterling.system.shown_values import shown_value
from sterling.types import Mistake

Rewards = float | dict[str, float] | str  # of one answer; a text: the reason why there is none

PROBED = 4  # questions that are tried until one gets a verdict

FORMS = "write it as score(question, answer) or, as for TRL, score(prompts, completions, **columns)"


class InMemoryJudge(str):
    """The name of a judge that was defined in a script and cannot be imported again.

    It is a string, so that settings can hold it like any judge's name; ``function`` is the object
    itself, and is called in the learner's process. It cannot be sent to other processes, nor stored
    in a run folder.
    """

    function: Callable[..., Any]

    def __new__(cls, name: str, function: Callable[..., Any]) -> InMemoryJudge:
        """Create the string, and attach the object."""
        self = super().__new__(cls, name)
        self.function = function
        return self

    def __deepcopy__(self, memo: Any) -> InMemoryJudge:
        """Return itself: copies of settings hold the same function."""
        return self

    def __reduce__(self) -> NoReturn:
        """Raise :class:`Mistake`: it is pickled only to be sent to another process."""
        raise Mistake(
            f"Other processes cannot import the judge {self}. Put it into a file of its own, or "
            'run in this process (strategy="map").'
        )


def check_can_be_stored(judge: str) -> None:
    """Raise Mistake for a judge that a run folder cannot name."""
    if isinstance(judge, InMemoryJudge):
        raise Mistake(
            f"the run folder could not be opened again without the judge {judge}, which cannot be "
            "imported. Put it into a file and name that, as mine.py:score, or leave out `out`."
        )


def judge_reference(chosen: Any) -> str:
    """Return how settings hold a judge: "" for none, a reference to a function with an absolute
    path, or an :class:`InMemoryJudge`. Raises Mistake for anything else."""
    if chosen is None or chosen == "":
        return ""
    if callable(chosen):
        _check_form(chosen, user_imports.display_name(chosen))
        found = user_imports.reference_to(chosen)
        return found or InMemoryJudge(user_imports.display_name(chosen), chosen)
    if not isinstance(chosen, str) or not user_imports.is_reference(chosen):
        raise Mistake(
            f"judge must be a function, or the name of one as mine.py:score; got "
            f"{shown_value(chosen)}"
        )
    word = user_imports.absolute_reference(chosen)
    if not user_imports.split_reference(word)[1]:
        word = f"{word}:{_only_function(word)}"
    _check_form(user_imports.load(word), user_imports.short_name(word))
    return word


def _only_function(word: str) -> str:
    """Return the name of the only public function of a file or module; Mistake if it has none or
    several."""
    module = user_imports.load(word)
    names = [name for name in user_imports.public_names(module)
             if inspect.isfunction(getattr(module, name))]  # fmt: skip
    if len(names) != 1:
        place = Path(word).name
        has = f"several functions ({', '.join(names)})" if names else "no function"
        raise Mistake(f"{place} has {has}. Name the judge, as {place}:{(*names, 'score')[0]}.")
    return names[0]


def _check_form(function: Any, name: str) -> None:
    """Raise Mistake unless a judge has one of the two forms."""
    if not callable(function):
        raise Mistake(f"the judge {name} is a {type(function).__name__}, not a function; {FORMS}")
    if "completions" in inspect.signature(function).parameters:
        return
    try:
        inspect.signature(function).bind_partial("question", "answer")
    except TypeError as error:
        raise Mistake(f"the judge {name} takes no question and answer; {FORMS}") from error


def find_judged(judge: str, environment: str, find: Callable[[str], TextWorld]) -> TextWorld:
    """Return the world of a name (``find`` finds it), whose answers the judge judges.

    The questions of a ``FILE.jsonl`` need no answers then. Raises Mistake for worlds that judge
    their own scenes (games, worlds of several turns).
    """
    world = (
        SingleTurn(JsonlTasks(Path(environment), answered=False))
        if environment.endswith(".jsonl") and ":" not in environment and "+" not in environment
        else find(environment)
    )
    if not isinstance(world, SingleTurn | ToolUse):
        raise Mistake(
            f"{environment} judges its own scenes. A judge is for questions, such as FILE.jsonl; "
            "leave judge out."
        )
    world.family = JudgedQuestions(world.family, judge)
    return world


def probe_judge(world: TextWorld, level: int) -> Verdict | None:
    """Have a user's judge, or the ``verify`` of a user's file, judge the first question's own
    solution, or else the question as an answer. Return the verdict, None for other worlds; Mistake
    if there is no verdict, nor one on the next ``PROBED`` questions."""
    place: Any = world
    judged = getattr(getattr(place, "world", place), "family", None)
    if not isinstance(judged, JudgedQuestions | UserTasks):
        return None
    found = []
    for seed in range(min(PROBED, question_order.question_count(place, level) or PROBED)):
        task = place.begin(seed, level).task
        try:
            answer = judged.solve(task)
        except Mistake:  # not every question has a solution
            answer = task.prompt
        verdict = judged.verify(task, answer)
        if not verdict.verifier_failed:
            return verdict
        found.append(f"{shown_value(answer)} no reward ({verdict.reason.partition(': ')[2]})")
    raise Mistake(
        f"{judged.judge_text} gives the answer {found[0]}. It must return a number, or named ones, "
        "for every answer"
    )


class JudgedQuestions:
    """The tasks of a family, whose answers ``judge`` judges (:func:`judge_reference`).

    It runs in a process of its own, within its file's ``seconds`` (10) for each answer; a function
    that cannot be imported runs in this process. If it raises, hangs or returns anything but a
    finite number or named ones, the answer has no verdict, and the reason says why. A reward of at
    least 1 counts as right.
    """

    def __init__(self, family: Family, judge: str):
        self.family, self.judge = family, judge
        self.name, self.levels = family.name, family.levels
        self._worker: Worker | None = None
        if not isinstance(judge, InMemoryJudge):
            place, _ = user_imports.split_reference(judge)
            seconds = verdict_seconds(user_imports.load(place), Path(place).name)
            self._worker = Worker(f"{__name__}:make_answerer", judge, seconds)

    @property
    def judge_text(self) -> str:
        """Return who judges, for messages."""
        return f"the judge {user_imports.short_name(self.judge)}"

    def sample(self, seed: int, level: int) -> Task:
        """Return the family's task."""
        return self.family.sample(seed, level)

    def count(self, level: int) -> int:
        """Return the number of tasks of the family; 0: unlimited."""
        return question_order.question_count(self.family, level)

    def solve(self, task: Task) -> str:
        """Return the family's own solution."""
        return self.family.solve(task)

    def verify(self, task: Task, response: str) -> Verdict:
        """Return the judge's verdict, or that it gave none."""
        question = _question(self.family, task, response)
        try:
            reply = ask_until_answered(lambda: self._ask(question), self.judge_text)
        except WorkerFault as fault:
            return Verdict(0.0, f"verifier {fault.kind}: {fault.detail}")
        return Verdict(0.0, reply) if isinstance(reply, str) else Verdict.of_rewards(reply)

    def _ask(self, question: dict[str, Any]) -> Any:
        if self._worker is not None:
            return self._worker.ask(question)
        assert isinstance(self.judge, InMemoryJudge)  # all others have a worker
        try:
            with pause_time_limit():  # verdicts take no time of a scene
                return judge_answer(self.judge.function, question)
        except Exception as error:  # only of services that are away: see judge_answer
            raise WorkerFault(AWAY, user_imports.describe_error(error)) from error

    def close(self) -> None:
        """End the judge's process."""
        if self._worker is not None:
            self._worker.close()


def _question(family: Family, task: Task, response: str) -> dict[str, Any]:
    """Return what the judge is asked: prompt, completion, and the columns of the task."""
    member: Any = getattr(family, "members", {}).get(task.family, family)
    columns = member.columns(task) if hasattr(member, "columns") else {"answer": task.answer}
    if not isinstance(task.prompt, PromptMessages):
        return {"prompt": task.prompt, "completion": response, "columns": columns}
    said = [{"role": "assistant", "content": response}]
    return {"prompt": task.prompt.messages, "completion": said, "columns": columns}


def make_answerer(judge: str) -> Callable[[dict[str, Any]], Rewards]:
    """Return the function that judges answers; called in the worker's process."""
    return functools.partial(judge_answer, user_imports.load(judge))


def judge_answer(function: Callable[..., Any], question: dict[str, Any]) -> Rewards:
    """Return a judge's reward or named rewards for one answer, or the reason why there is none. An
    exception of a service that is away passes through."""
    prompt, completion, columns = question["prompt"], question["completion"], question["columns"]
    parameters = inspect.signature(function).parameters
    if missing := _missing_columns(function, columns):
        has = ", ".join(columns) or "none"
        return f"verifier raised: it takes {', '.join(missing)}; columns of the question: {has}"
    try:
        if "completions" not in parameters:
            return _read_reward(_result(function, [prompt, completion], columns))
        lists = {"prompts": [prompt], "completions": [completion]}
        lists |= {name: [value] for name, value in columns.items()}
        found = _result(function, [], lists)
    except (Exception, SystemExit) as error:  # the user's function may raise anything
        if is_away(error):
            raise
        return f"verifier raised: {user_imports.describe_error(error)}"
    if isinstance(found, str | dict) or not hasattr(found, "__len__") or len(found) != 1:
        return f"verifier nonsense: it returned {shown_value(found)} for a list of 1 completion"
    return _read_reward(found[0])


def _missing_columns(function: Callable[..., Any], columns: dict[str, Any]) -> list[str]:
    """Return the arguments that a judge cannot do without, and that no column is named like."""
    parameters = inspect.signature(function).parameters
    first = 0 if "completions" in parameters else 2  # a question and an answer come before
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    taken = [each for each in [*parameters.values()][first:] if each.kind not in several]
    known = {"prompts", "completions", *columns}
    return [each.name for each in taken if each.default is each.empty and each.name not in known]


def _result(function: Callable[..., Any], first: list[Any], named: dict[str, Any]) -> Any:
    """Call a function with its first arguments, and those by name that it takes; wait for it if it
    is asynchronous."""
    parameters = inspect.signature(function).parameters
    names = [*parameters][len(first) :]
    if any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        names += [name for name in named if name not in parameters]
    found = function(*first, **{name: named[name] for name in names if name in named})
    return awaited(found)


def _read_reward(value: Any) -> Rewards:
    """Return the reward, or named ones, that a judge returned, or the reason why it is none."""
    try:
        return read_rewards(value)
    except ValueError as error:
        return f"verifier nonsense: it returned {error}"
