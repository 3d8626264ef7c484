"""Algorithms from outside: whether an object is one, and the word that a run knows it by."""

from __future__ import annotations

from types import ModuleType
from typing import Any, NoReturn

from sterling import importing
from sterling.config_class import CONFIG
from sterling.naming import hint
from sterling.needs import DREAM, EPISODES, KINDS, LABELS
from sterling.types import Mistake

PARTS = {  # of an algorithm, as they are called
    "Config": "class Config",
    "needs": "needs(config)",
    "init": "init(key, spec, config)",
    "act": "act(state, obs, key, explore)",
    "learn": "learn(state, batch, key)",
}
ALSO = {  # what some kinds of batches ask for beside a learner
    DREAM: ("imagine", "state, obs, valid, key"),
    EPISODES: ("member", "state, key, env"),
}
REMEMBERS = ("memory", "recall")  # in place of ``act``


class Given(str):
    """The name of an algorithm that was made in a script and cannot be imported again.

    A string, so that whatever speaks of a run's algorithm by its name does; ``algorithm`` is the
    object itself. It cannot be handed to other processes.
    """

    algorithm: Any

    def __new__(cls, name: str, algorithm: Any) -> Given:
        """The name, and the object."""
        made = super().__new__(cls, name)
        made.algorithm = algorithm
        return made

    def __reduce__(self) -> NoReturn:
        """Raises :class:`Mistake`: who pickles it wants to send it to another process."""
        raise Mistake(
            f"the algorithm {self} cannot be imported by other processes: put it into a file of "
            'its own, or run in this one (strategy="map"; of a study workers=1)'
        )


def checked(found: Any, word: str) -> Any:
    """Return ``found`` if it is an algorithm; else raise Mistake, which says what is missing."""
    lacking = [part for part in PARTS if not hasattr(found, part)]
    if all(hasattr(found, part) for part in REMEMBERS):
        lacking = [part for part in lacking if part != "act"]
    if any(name.startswith("learn_") for name in dir(found)):
        lacking = [part for part in lacking if part != "learn"]
    if lacking:
        raise Mistake(f"{word} is no algorithm: it lacks {PARTS[lacking[0]]}"
                      f"{_remedy(found, word, lacking)}")  # fmt: skip
    made = found.Config
    if not isinstance(made, type) or CONFIG not in vars(made):
        raise Mistake(
            f"{word}: Config must be made by sterling.types.config: write @config above the line "
            "`class Config`"
        )
    try:
        made()
    except Exception as error:
        why = importing.explain(error)
        raise Mistake(f"{word}: Config() raises {why}; give every field a default") from error
    _check_learners(found, word)
    if getattr(found, "__hash__", None) is None:
        raise Mistake(f"{word} cannot be hashed, which compiled programs ask of it; give a module, "
                      "a class, or an object whose class defines no __eq__")  # fmt: skip
    return found


def _check_learners(found: Any, word: str) -> None:
    """Raise Mistake where nothing learns from a batch that is asked for."""
    try:
        feeds = found.needs(found.Config()).feeds
    except Exception:  # what needs itself does wrong is said where it is used
        return
    _check_kinds([feed.name for feed in feeds], [feed.of for feed in feeds])
    for feed in feeds:
        if not hasattr(found, feed.learner):
            said = f"{word} asks for batches named {feed.name!r}" if feed.name else word
            raise Mistake(f"{said} and lacks {feed.learner}(state, batch, key)")
        for kind, (name, call) in ALSO.items():
            if feed.of == kind and not hasattr(found, name):
                raise Mistake(f"{word} asks for a feed of {kind} and lacks {name}({call})")


def _check_kinds(names: list[str], kinds: list[str]) -> None:
    """Raise Mistake for kinds of batches that are none, or cannot be told apart or go together."""
    if len(set(names)) < len(names):
        raise Mistake(f"feeds need names of their own to be told apart; they have {names}")
    wrong = [kind for kind in kinds if kind not in KINDS]
    if wrong:
        raise Mistake(f"a feed is of one of {', '.join(KINDS)}, not {wrong[0]!r}")
    if EPISODES in kinds and len(kinds) > 1:
        raise Mistake("whole episodes are fed alone; another feed beside them has no source")
    for kind in (DREAM, LABELS):
        if kinds.count(kind) > 1:
            raise Mistake(f"one feed may be of {kind}; make one of those that there are")


def word_of(algorithm: Any) -> str:
    """Return the word by which ``sterling.algorithms.find`` finds this very object again."""
    from sterling.algorithms import ALGORITHMS, NAMED, find

    name = getattr(algorithm, "__name__", "")
    listed = [each for each, at in ALGORITHMS.items() if at == name and each not in NAMED]
    if listed and find(listed[0]) is algorithm:
        return listed[0]
    word = importing.word_of(algorithm) or Given(name_of(algorithm), algorithm)
    checked(algorithm, importing.short(word))
    return word


def name_of(algorithm: Any) -> str:
    """Return what an algorithm is called: the last part of its module's, or its class's name."""
    name = getattr(algorithm, "__name__", type(algorithm).__name__)
    return str(name).rpartition(".")[2]


def _remedy(found: Any, word: str, lacking: list[str]) -> str:
    """What to do about missing parts: a name that was misspelt, or an algorithm inside."""
    own = vars(found) if hasattr(found, "__dict__") else {}
    for name in importing.public(found) if isinstance(found, ModuleType) else ():
        if all(hasattr(own[name], part) for part in ("Config", "needs", "learn")):
            return f"; did you mean {word}:{name}?"
    near = hint(lacking[0], [name for name in own if name[0] != "_" and name not in PARTS])
    return near or f"; it must have {', '.join(PARTS)} (see docs/extending.md)"
