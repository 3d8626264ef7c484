"""What comes after a run's first phase, in a user's words.

    steps=60_000 environment=Acrobot-v1 lr=1e-4       steps in another world, with another step size
    steps=60_000                                      more of the same world
    updates=5000 data=log.hdf5                        from a log alone

``env.NAME=VALUE`` is an option of the environment; ``share``, ``top``, ``sampling`` and
``unchecked`` say how a log is used; any other word is a field of the algorithm's Config.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sterling.naming import literal
from sterling.training import logbook, outside
from sterling.training.choices import BUDGETS, Phase
from sterling.training.fields import whole
from sterling.types import Mistake

OPTION = "env."  # before the name of an environment's option
OF_LOGS = ("share", "top", "sampling", "unchecked")
FORM = "steps=N environment=NAME FIELD=VALUE"


def phases(asked: Any) -> tuple[Phase, ...]:
    """The phases that are asked for: one text, one mapping, or several. Raises Mistake for what is
    neither, and for words that are not of the form KEY=VALUE."""
    one = isinstance(asked, (str, Mapping))
    if not one and not isinstance(asked, Iterable):
        raise Mistake(f"then must be text, as {FORM!r}, a dict, or several; got {asked!r:.60}")
    return tuple(_phase(each) for each in ([asked] if one else asked))


def _phase(asked: Any) -> Phase:
    if isinstance(asked, str):
        asked = dict(map(_pair, asked.split()))
    if not isinstance(asked, Mapping):
        raise Mistake(f"then must be text, as {FORM!r}, or a dict; got {asked!r:.60}")
    words = dict(asked)
    options = dict(words.pop("env_options", {}))
    options |= {name.removeprefix(OPTION): words.pop(name)
                for name in list(words) if name.startswith(OPTION)}  # fmt: skip
    place = words.pop("environment", "")
    how = {name: words.pop(name) for name in OF_LOGS if name in words}
    budgets = {name: whole(name, words.pop(name, 0)) for name in BUDGETS}
    return Phase(
        **budgets,
        environment=outside.word_of_environment(place) if place else "",
        env_options=options,
        data=logbook.begun(words.pop("data", None), **how),
        fields=words,
    )


def _pair(word: str) -> tuple[str, Any]:
    key, equals, value = word.partition("=")
    if not key or not equals:
        raise Mistake(f"{word!r} in then is not of the form KEY=VALUE; write {FORM!r}")
    plain = key in ("environment", "data")
    return key, value if plain else literal(value)
