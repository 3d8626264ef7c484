"""Parse ``then``, the phases that a user asks for after a run's first phase.

    steps=60_000 environment=Acrobot-v1 lr=1e-4       another environment and learning rate
    steps=60_000                                      more steps in the same environment
    updates=5000 data=log.hdf5                        updates from a dataset alone

``env.NAME=VALUE`` is an option of the environment; ``share``, ``top``, ``sampling`` and
``unchecked`` say how a dataset is used; any other name is a field of the algorithm's Config.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sterling.envs.env_options import with_final
from sterling.envs.summaries import absolute_options
from sterling.lookup.name_suggestions import parse_literal
from sterling.schedule_words import storable_values
from sterling.system.shown_values import shown_value
from sterling.training.assembly import run_dataset
from sterling.training.config import user_code_words
from sterling.training.config.run_options import BUDGETS, Phase
from sterling.training.fields.config_fields import whole_number
from sterling.types import Mistake

OPTION_PREFIX = "env."  # prefix of an environment option's name
LOG_FIELDS = ("share", "top", "sampling", "unchecked")
EXAMPLE = "steps=N environment=NAME FIELD=VALUE"


def parse_phases(then: Any) -> tuple[Phase, ...]:
    """Return the phases of one text, one mapping, or several of them. Raise Mistake for other
    types, and for words that are not of the form KEY=VALUE."""
    one = isinstance(then, (str, Mapping))
    if not one and not isinstance(then, Iterable):
        raise Mistake(
            f"then must be text, as {EXAMPLE!r}, a dict, or several; got {shown_value(then)}"
        )
    return tuple(_parse_phase(each) for each in ([then] if one else then))


def _parse_phase(value: Any) -> Phase:
    if isinstance(value, str):
        value = dict(map(_parse_pair, value.split()))
    if not isinstance(value, Mapping):
        raise Mistake(f"then must be text, as {EXAMPLE!r}, or a dict; got {shown_value(value)}")
    entries = dict(value)
    options = dict(entries.pop("env_options", {}))
    options |= {name.removeprefix(OPTION_PREFIX): entries.pop(name)
                for name in list(entries) if name.startswith(OPTION_PREFIX)}  # fmt: skip
    environment = entries.pop("environment", "")
    log_fields = {name: entries.pop(name) for name in LOG_FIELDS if name in entries}
    budgets = {name: whole_number(name, entries.pop(name, 0)) for name in BUDGETS}
    return Phase(
        **budgets,
        environment=user_code_words.environment_reference(environment) if environment else "",
        env_options=with_final(environment, absolute_options(options), True),
        data=run_dataset.make_log_settings(entries.pop("data", None), **log_fields),
        fields=storable_values(entries),
    )


def _parse_pair(word: str) -> tuple[str, Any]:
    key, equals, value = word.partition("=")
    if not key or not equals:
        raise Mistake(f"then: {word!r} is not of the form KEY=VALUE. Write {EXAMPLE!r}.")
    plain = key in ("environment", "data")
    return key, value if plain else parse_literal(value)
