"""Algorithms: one readable file each, grouped by the setting they learn in."""

from __future__ import annotations

import json
from importlib import import_module, resources
from types import ModuleType
from typing import TYPE_CHECKING, Any

from sterling import importing, plugins
from sterling.naming import hint

if TYPE_CHECKING:
    from sterling.types import Algorithm

# names of the policy gradient of text with certain switches, which named.json lists
NAMED = (
    *("cispo", "dapo", "dr-grpo", "expert-iteration", "grpo", "gspo", "lite-ppo", "reinforce"),
    *("reinforce++", "rloo", "token-ppo"),
)

# name -> the file; a new algorithm is added by listing it here
ALGORITHMS = {
    "awac": "sterling.algorithms.offline.awac",
    "bc": "sterling.algorithms.offline.bc",
    "cql": "sterling.algorithms.offline.cql",
    "dqn": "sterling.algorithms.online.dqn",
    "dt": "sterling.algorithms.offline.dt",
    "edac": "sterling.algorithms.offline.edac",
    "fdvl": "sterling.algorithms.offline.fdvl",
    "fql": "sterling.algorithms.offline.fql",
    "ippo": "sterling.algorithms.online.ippo",
    "iql": "sterling.algorithms.offline.iql",
    "mappo": "sterling.algorithms.online.mappo",
    "mbpo": "sterling.algorithms.online.mbpo",
    "openes": "sterling.algorithms.online.openes",
    "pebble": "sterling.algorithms.online.pebble",
    "ppo": "sterling.algorithms.online.ppo",
    "ppo-lagrangian": "sterling.algorithms.online.ppo_lagrangian",
    "r2d2": "sterling.algorithms.online.r2d2",
    "rebrac": "sterling.algorithms.offline.rebrac",
    "recurrent-ppo": "sterling.algorithms.online.recurrent_ppo",
    "sac": "sterling.algorithms.online.sac",
    "sac-lagrangian": "sterling.algorithms.online.sac_lagrangian",
    "td3": "sterling.algorithms.online.td3",
    "td3bc": "sterling.algorithms.offline.td3bc",
    "xql": "sterling.algorithms.offline.xql",
    "dpo": "sterling.algorithms.language.dpo",
    "reward": "sterling.algorithms.language.reward",
    "sft": "sterling.algorithms.language.sft",
    **dict.fromkeys(NAMED, "sterling.algorithms.language.gradient"),
}


def named(name: str) -> dict[str, Any]:
    """The fields that an algorithm's name stands for, where several share one file."""
    return dict(_named(name).get("fields", {}))


def about(name: str) -> str:
    """What a name stands for in a line, where several share one file; else nothing."""
    return str(_named(name).get("about", ""))


def _named(name: str) -> dict[str, Any]:
    if name not in NAMED:
        return {}
    text = resources.files("sterling.algorithms.language").joinpath("named.json").read_text()
    return dict(json.loads(text)[name])


def find(word: str) -> Algorithm | ModuleType:
    """Return the algorithm that ``word`` stands for, importing its file.

    ``word``: a listed name, a name that an installed package registers, ``path/to/file.py``,
    ``package.module``, either with ``:object`` behind it, or what :func:`word_of` returned for an
    object. Raises Mistake with the nearest right name if there is none, and for what is found but
    is no algorithm.
    """
    if word in ALGORITHMS:
        return import_module(ALGORITHMS[word])
    from sterling.algorithms import outside

    given = getattr(word, "algorithm", None)  # of outside.Given
    if given is not None:
        return given
    reference = reference_of(word)
    if reference is None:
        from sterling.types import Mistake

        known = (*ALGORITHMS, *plugins.registered(plugins.ALGORITHMS))
        near = hint(word, known, f"there are {', '.join(known)}; or give FILE.py or package.module")
        raise Mistake(f"algorithm {word!r} is not known{near}")
    return outside.checked(importing.load(reference), word)


def word_of(algorithm: Any) -> str:
    """Return the word for an algorithm given as a name, a reference, a module or an object: what
    :func:`find` takes. References have absolute paths; an object that cannot be imported again
    becomes an ``outside.Given``. Raises Mistake for what is no algorithm."""
    if isinstance(algorithm, str):
        return importing.absolute(algorithm) if reference_of(algorithm) else algorithm
    from sterling.algorithms import outside

    return outside.word_of(algorithm)


def reference_of(word: str) -> str | None:
    """Return what ``word`` is imported by; None where it is no name and no reference."""
    if word in ALGORITHMS:
        return ALGORITHMS[word]
    if importing.is_reference(word):
        return word
    plugin = plugins.registered(plugins.ALGORITHMS).get(word)
    return None if plugin is None else plugin.word
