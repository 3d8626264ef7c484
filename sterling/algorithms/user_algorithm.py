"""User-supplied algorithms: check that an object is one, and name it for a run."""

from __future__ import annotations

from types import ModuleType
from typing import Any, NoReturn

from sterling.config_class import RULES_ATTRIBUTE
from sterling.lookup import user_imports
from sterling.lookup.name_suggestions import did_you_mean
from sterling.needs.feed import DREAM, EPISODES, FEED_KINDS, LABELS
from sterling.types import Mistake

REQUIRED_PARTS = {  # of an algorithm, with their signatures
    "Config": "class Config",
    "needs": "needs(config)",
    "init": "init(key, spec, config)",
    "act": "act(state, obs, key, explore)",
    "learn": "learn(state, batch, key)",
}
TASK_PARTS = ("sample", "verify")  # functions of a file of language tasks
PARTS_BY_FEED_KIND = {  # extra functions that some kinds of feeds need
    DREAM: ("imagine", "state, rows, valid, key"),
    EPISODES: ("member", "state, key, env"),
}
MEMORY_PARTS = ("memory", "recall")  # in place of ``act``


class InMemoryAlgorithm(str):
    """The name of an algorithm that was defined in a script and cannot be imported again.

    It is a string, so that it can be used like any algorithm's name; ``algorithm`` is the object
    itself. It cannot be sent to other processes.
    """

    algorithm: Any

    def __new__(cls, name: str, algorithm: Any) -> InMemoryAlgorithm:
        """Create the string, and attach the object."""
        self = super().__new__(cls, name)
        self.algorithm = algorithm
        return self

    def __reduce__(self) -> NoReturn:
        """Raise :class:`Mistake`: it is pickled only to be sent to another process."""
        raise Mistake(
            f"Other processes cannot import the algorithm {self}. Put it into a file of its own, "
            'or run in this process (strategy="map"; in a study workers=1).'
        )


def require_algorithm(algorithm: Any, word: str) -> Any:
    """Return ``found`` if it is an algorithm; otherwise raise Mistake with what is missing."""
    lacking = [part for part in REQUIRED_PARTS if not hasattr(algorithm, part)]
    if all(hasattr(algorithm, part) for part in MEMORY_PARTS):
        lacking = [part for part in lacking if part != "act"]
    if any(name.startswith("learn_") for name in dir(algorithm)):
        lacking = [part for part in lacking if part != "learn"]
    if lacking:
        raise Mistake(f"{word} is not an algorithm: it lacks {REQUIRED_PARTS[lacking[0]]}"
                      f"{_missing_part_hint(algorithm, word, lacking)}")  # fmt: skip
    config_class = algorithm.Config
    if not isinstance(config_class, type) or RULES_ATTRIBUTE not in vars(config_class):
        raise Mistake(
            f"{word}: Config must be decorated with sterling.types.config. Write @config above "
            "`class Config`."
        )
    try:
        config_class()
    except Exception as error:
        why = user_imports.describe_error(error)
        raise Mistake(f"{word}: Config() raises {why}. Give every field a default.") from error
    _check_learners(algorithm, word)
    if getattr(algorithm, "__hash__", None) is None:
        raise Mistake(f"{word} cannot be hashed, which compiled programs need. Give a module, a "
                      "class, or an object whose class does not define __eq__.")  # fmt: skip
    return algorithm


def _check_learners(algorithm: Any, word: str) -> None:
    """Raise Mistake if a feed that the algorithm asks for has no function that learns from it."""
    try:
        needs = algorithm.needs(algorithm.Config())
        feeds = needs.feeds
    except Exception:  # errors of needs itself are reported where it is used
        return
    _check_adaptation(algorithm, needs, word)
    _check_feed_kinds([feed.name for feed in feeds], [feed.of for feed in feeds])
    for feed in feeds:
        if not hasattr(algorithm, feed.learner):
            who = f"{word} asks for a feed named {feed.name!r}" if feed.name else word
            raise Mistake(f"{who} but lacks {feed.learner}(state, batch, key)")
        for kind, (name, call) in PARTS_BY_FEED_KIND.items():
            if feed.of == kind and not hasattr(algorithm, name):
                raise Mistake(f"{word} asks for a feed of {kind} but lacks {name}({call})")


def _check_adaptation(algorithm: Any, needs: Any, word: str) -> None:
    """Raise Mistake if an algorithm has ``adapt`` but asks for no steps to adapt to, or the
    reverse."""
    steps = getattr(needs, "adapt", 0)
    if steps and not hasattr(algorithm, "adapt"):
        raise Mistake(f"{word} asks for steps to adapt to but lacks adapt(state, batch, key)")
    if not hasattr(algorithm, "adapt"):
        return
    if steps < 1 or (needs.lives and steps >= needs.collect):
        raise Mistake(
            f"{word} has adapt(state, batch, key). Let needs return Rollouts(length, adapt=N), "
            "where N, the number of steps to adapt to, lies between 1 and length - 1; or, to learn "
            "from a replay or a log, Needs(adapt=N)."
        )
    if needs.lives and len(needs.feeds) > 1:
        raise Mistake(
            f"{word} adapts in the rollout that it learns from, which must be its only feed. "
            "Return Rollouts(length, adapt=N)."
        )
    if needs.has_feed(EPISODES) or needs.members:
        raise Mistake(f"{word} has members, which do not adapt. Leave out adapt, or members.")


def _check_feed_kinds(names: list[str], kinds: list[str]) -> None:
    """Raise Mistake for unknown kinds of feeds, equal names, and kinds that exclude each other."""
    if len(set(names)) < len(names):
        raise Mistake(f"Feeds need different names, but they are named {names}")
    wrong = [kind for kind in kinds if kind not in FEED_KINDS]
    if wrong:
        raise Mistake(f"Unknown kind of feed {wrong[0]!r}. Use one of {', '.join(FEED_KINDS)}.")
    if EPISODES in kinds and len(kinds) > 1:
        raise Mistake("A feed of whole episodes must be the only feed. Remove the others.")
    for kind in (DREAM, LABELS):
        if kinds.count(kind) > 1:
            raise Mistake(f"Only one feed may be of kind {kind}. Merge them into one.")


def user_reference(algorithm: Any) -> str:
    """Return how a user's algorithm is imported again; an ``InMemoryAlgorithm`` where it cannot
    be. Raises Mistake if it is not an algorithm."""
    word = user_imports.reference_to(algorithm) or InMemoryAlgorithm(
        short_name(algorithm), algorithm
    )
    require_algorithm(algorithm, user_imports.short_name(word))
    return word


def short_name(algorithm: Any) -> str:
    """Return an algorithm's short name: the last part of its module's name, or its class's name."""
    name = getattr(algorithm, "__name__", type(algorithm).__name__)
    return str(name).rpartition(".")[2]


def _missing_part_hint(found: Any, word: str, lacking: list[str]) -> str:
    """Return a hint for missing parts: a misspelt name, an algorithm inside, or the full list."""
    own = vars(found) if hasattr(found, "__dict__") else {}
    for name in user_imports.public_names(found) if isinstance(found, ModuleType) else ():
        if all(hasattr(own[name], part) for part in ("Config", "needs", "learn")):
            return f"; did you mean {word}:{name}?"
        if all(hasattr(own[name], part) for part in ("reset", "step")):
            return f". It holds an environment, {word}:{name}."
    near = did_you_mean(
        lacking[0], [name for name in own if name[0] != "_" and name not in REQUIRED_PARTS]
    )
    if near:
        return near
    has = _file_contents(found, word) if len(lacking) == len(REQUIRED_PARTS) else ""
    return f". It needs {', '.join(REQUIRED_PARTS)} (see docs/extending.md).{has}"


def _file_contents(found: Any, word: str) -> str:
    """Return what a file has that is no algorithm, and how to check that."""
    if not isinstance(found, ModuleType):
        return ""
    names = [name for name in user_imports.public_names(found) if callable(vars(found)[name])]
    if tasks := [name for name in TASK_PARTS if name in names]:
        (lacks,) = set(TASK_PARTS) - set(tasks)
        return f" It has {tasks[0]}, but tasks need {lacks} too (see docs/tools.md)."
    if not names:
        return " The file defines no class and no function."
    functions = [name for name in names if not isinstance(vars(found)[name], type)]
    way = f"; what a function makes is checked as {word}:{functions[0]}" if functions else ""
    return f" The file has {', '.join(names)}{way}."
