"""Questions whose answers a user's own function judges, instead of the world's verifier.

The function has one of two forms. The first takes one question and the model's answer; a further
argument is the column of that name in the file of questions. The second is TRL's::

    def score(question, answer, truth):  # truth: a column
        return float(answer.strip() == truth)

    def score(prompts, completions, **columns):
        return [float(text.strip() == truth) for text, truth in zip(completions, columns["truth"])]

TRL's form is recognised by its argument ``completions``. It gets all answers of a batch, with all
answers to a question side by side, and so can compare them; where a verdict is due at once, it gets
lists of one element. If the file's prompt is a list of messages, so are its prompts and
completions.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from sterling.language import question_order
from sterling.language.adapters.answer_worker import AWAY, Worker, WorkerFault
from sterling.language.adapters.jsonl_tasks import JsonlTasks
from sterling.language.adapters.user_tasks import UserTasks, make_worker
from sterling.language.batch_verdicts import Asked, ask_for_verdicts
from sterling.language.jsonl_records import PromptMessages
from sterling.language.scene import TextWorld
from sterling.language.task import BatchJudge, Family, Task, Verdict
from sterling.language.time_limits import pause_time_limit
from sterling.language.worlds import judge_calls
from sterling.language.worlds.judge_calls import Rewards, judge_answers, takes_lists
from sterling.language.worlds.single_question import SingleTurn
from sterling.language.worlds.tool_use import ToolUse
from sterling.lookup import user_imports
from sterling.system.mistake import Mistake
from sterling.system.shown_values import shown_value

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
    path, an :class:`InMemoryJudge`, or the absolute path of a folder, which holds a language model.
    Raises Mistake for anything else."""
    if chosen is None or chosen == "":
        return ""
    if isinstance(chosen, str | os.PathLike) and _is_folder(chosen):
        return os.path.abspath(chosen)
    if callable(chosen):
        _check_form(chosen, user_imports.display_name(chosen))
        found = user_imports.reference_to(chosen)
        return found or InMemoryJudge(user_imports.display_name(chosen), chosen)
    if not isinstance(chosen, str) or not user_imports.is_reference(chosen):
        raise Mistake(
            "judge must be a function, the name of one as mine.py:score, or the folder of a "
            f"language model; got {shown_value(chosen)}"
        )
    word = user_imports.absolute_reference(chosen)
    if not user_imports.split_reference(word)[1]:
        word = f"{word}:{_only_function(word)}"
    _check_form(user_imports.load(word), user_imports.short_name(word))
    return word


def _is_folder(chosen: str | os.PathLike[str]) -> bool:
    """Whether a judge is a folder; a package that can be imported may have the name of one."""
    model = os.path.isfile(os.path.join(chosen, "config.json"))
    return model or (os.path.isdir(chosen) and not user_imports.is_reference(str(chosen)))


def is_model(judge: str) -> bool:
    """Whether settings' judge is a language model: an absolute path, and no reference."""
    own = isinstance(judge, InMemoryJudge) or user_imports.is_reference(judge)
    return os.path.isabs(judge) and not own


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
    if takes_lists(function):
        return
    try:
        inspect.signature(function).bind_partial("question", "answer")
    except TypeError as error:
        raise Mistake(f"the judge {name} takes no question and answer; {FORMS}") from error


def find_judged(
    judge: str | Callable[[Family], JudgedQuestions],
    environment: str,
    find: Callable[[str], TextWorld],
    fields: tuple[str, ...] = ("prompt",),
) -> TextWorld:
    """Return the world of a name (``find`` finds it), whose answers the judge judges: a function
    of a user by its reference, or what turns a family into judged questions.

    The questions of a ``FILE.jsonl`` need ``fields`` alone then. Raises Mistake for worlds that
    judge their own scenes (games, worlds of several turns).
    """
    own = is_plain_file(environment)
    world = SingleTurn(JsonlTasks(Path(environment), fields=fields)) if own else find(environment)
    if not isinstance(world, SingleTurn | ToolUse):
        raise Mistake(
            f"{environment} judges its own scenes. A judge is for questions, such as FILE.jsonl; "
            "leave judge out."
        )
    family = world.family
    world.family = JudgedQuestions(family, judge) if isinstance(judge, str) else judge(family)
    return world


def is_plain_file(environment: str) -> bool:
    """Whether a world's name is that of one file of questions, without further words."""
    return environment.endswith(".jsonl") and ":" not in environment and "+" not in environment


def probe_judge(world: TextWorld, level: int) -> Verdict | None:
    """Have a user's judge, or the ``verify`` of a user's file, judge the first question's own
    solution, or else the question as an answer; one that takes lists also the same twice. Return
    the verdict, None for other worlds; Mistake if there is no verdict, nor one on the next
    ``PROBED`` questions."""
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
        if judged.batch_judge(task) and not verdict.verifier_failed:
            verdict, _ = judged.verify_batch([task] * 2, [answer] * 2)
        if not verdict.verifier_failed:
            return verdict
        found.append(f"{shown_value(answer)} no reward ({verdict.reason.partition(': ')[2]})")
    duty = getattr(judged, "duty", "It must return a number, or named ones, for every answer")
    raise Mistake(f"{judged.judge_text} gives the answer {found[0]}. {duty}")


class JudgedQuestions:
    """The tasks of a family, whose answers ``judge`` judges (:func:`judge_reference`).

    It runs in processes of its own, within its file's ``seconds`` (10) for each answer that it gets
    at once; a function that cannot be imported runs in this process. If it raises, hangs or returns
    anything but a finite number or named ones, the answer has no verdict, and the reason says why.
    A reward of at least 1 counts as right.
    """

    def __init__(self, family: Family, judge: str):
        self.family, self.judge = family, judge
        self.name, self.levels = family.name, family.levels
        self._worker: Worker | None = None
        if isinstance(judge, InMemoryJudge):
            self._takes_lists = takes_lists(judge.function)
        else:
            self._takes_lists = takes_lists(user_imports.load(judge))
            place, _ = user_imports.split_reference(judge)
            target, file = f"{judge_calls.__name__}:make_answerer", Path(place).name
            self._worker = make_worker(target, judge, user_imports.load(place), file)

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
        return self.verify_batch([task], [response])[0]

    def verify_batch(self, tasks: Sequence[Task], responses: Sequence[str]) -> list[Verdict]:
        """Return the judge's verdicts, all of one call if it takes lists."""
        asked = [*zip(tasks, responses, strict=True)]
        return ask_for_verdicts(self._ask, asked, self.judge_text)

    def batch_judge(self, task: Task) -> BatchJudge | None:
        """Return itself if the judge takes lists."""
        return self if self._takes_lists else None

    def judges_elsewhere(self, task: Task) -> bool:
        """Whether the judge has a process of its own; one of a script runs in this one."""
        return self._worker is not None

    def _ask(self, asked: Asked) -> list[Verdict]:
        questions = [judge_question(self.family, *each) for each in asked]
        if self._worker is not None:
            reply = self._worker.ask(questions, self._worker.limit * len(questions))
        else:
            reply = self._ask_here(questions)
        if isinstance(reply, str):
            raise WorkerFault("raised", reply)
        return [Verdict(0.0, each) if isinstance(each, str) else Verdict.of_rewards(each)
                for each in reply]  # fmt: skip

    def _ask_here(self, questions: list[dict[str, Any]]) -> list[Rewards] | str:
        assert isinstance(self.judge, InMemoryJudge)  # all others have a worker
        try:
            with pause_time_limit():  # verdicts take no time of a scene
                return judge_answers(self.judge.function, questions)
        except Exception as error:  # only of services that are away: see judge_answers
            raise WorkerFault(AWAY, user_imports.describe_error(error)) from error

    def close(self) -> None:
        """End the judge's process."""
        if self._worker is not None:
            self._worker.close()


def judge_question(family: Family, task: Task, response: str) -> dict[str, Any]:
    """Return what a judge is asked: prompt, completion, and the columns of the task."""
    member: Any = getattr(family, "members", {}).get(task.family, family)
    columns = member.columns(task) if hasattr(member, "columns") else {"answer": task.answer}
    columns = {**columns, **task.outcome}
    if not isinstance(task.prompt, PromptMessages):
        return {"prompt": task.prompt, "completion": response, "columns": columns}
    said = [{"role": "assistant", "content": response}]
    return {"prompt": task.prompt.messages, "completion": said, "columns": columns}
