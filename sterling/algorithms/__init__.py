"""Algorithms, one readable file each: online, offline, of language models and more."""

from __future__ import annotations

import json
from importlib import import_module, resources
from types import ModuleType
from typing import TYPE_CHECKING, Any

from sterling.lookup import entry_points, user_imports
from sterling.lookup.name_suggestions import did_you_mean
from sterling.lookup.peer_names import class_name, peer_algorithm, unknown_algorithm

if TYPE_CHECKING:
    from sterling.types import Algorithm

# names for language/policy_gradient.py with preset fields, which language/named.json lists
GRADIENT_PRESETS = (
    *("cispo", "dapo", "dr-grpo", "expert-iteration", "grpo", "gspo", "lite-ppo", "reinforce"),
    *("reinforce++", "rloo", "token-ppo"),
)

# name -> module; list a new algorithm here
ALGORITHMS = {
    "a2c": "sterling.algorithms.on_policy.a2c",
    "awac": "sterling.algorithms.offline.awac",
    "bbf": "sterling.algorithms.q_learning.bbf",
    "bc": "sterling.algorithms.offline.bc",
    "bro": "sterling.algorithms.continuous.bro",
    "c51": "sterling.algorithms.q_learning.c51",
    "cem-rl": "sterling.algorithms.evolution.cem_rl",
    "cma-es": "sterling.algorithms.evolution.cma_es",
    "cql": "sterling.algorithms.offline.cql",
    "crl": "sterling.algorithms.goals.crl",
    "crossq": "sterling.algorithms.continuous.crossq",
    "curl": "sterling.algorithms.pictures.curl",
    "d4pg": "sterling.algorithms.continuous.d4pg",
    "ddpg": "sterling.algorithms.continuous.ddpg",
    "distill": "sterling.algorithms.imitation.distill",
    "dqn": "sterling.algorithms.online.dqn",
    "drq-v2": "sterling.algorithms.pictures.drq_v2",
    "droq": "sterling.algorithms.continuous.droq",
    "dt": "sterling.algorithms.offline.dt",
    "edac": "sterling.algorithms.offline.edac",
    "fast-td3": "sterling.algorithms.continuous.fast_td3",
    "fdvl": "sterling.algorithms.offline.fdvl",
    "fql": "sterling.algorithms.offline.fql",
    "gcbc": "sterling.algorithms.goals.gcbc",
    "gciql": "sterling.algorithms.goals.gciql",
    "gcivl": "sterling.algorithms.goals.gcivl",
    "hiql": "sterling.algorithms.goals.hiql",
    "ippo": "sterling.algorithms.multi_agent.ippo",
    "iql": "sterling.algorithms.offline.iql",
    "iqn": "sterling.algorithms.q_learning.iqn",
    "maml": "sterling.algorithms.meta.maml",
    "mappo": "sterling.algorithms.multi_agent.mappo",
    "mbpo": "sterling.algorithms.model_based.mbpo",
    "mex": "sterling.algorithms.continuous.mex",
    "mpo": "sterling.algorithms.continuous.mpo",
    "munchausen-dqn": "sterling.algorithms.q_learning.munchausen_dqn",
    "openes": "sterling.algorithms.evolution.openes",
    "pebble": "sterling.algorithms.learned_rewards.pebble",
    "ppg": "sterling.algorithms.on_policy.ppg",
    "ppo": "sterling.algorithms.online.ppo",
    "ppo-lagrangian": "sterling.algorithms.safe.ppo_lagrangian",
    "pqn": "sterling.algorithms.q_learning.pqn",
    "qr-dqn": "sterling.algorithms.q_learning.qr_dqn",
    "qrl": "sterling.algorithms.goals.qrl",
    "r2d2": "sterling.algorithms.online.r2d2",
    "rainbow": "sterling.algorithms.q_learning.rainbow",
    "rebrac": "sterling.algorithms.offline.rebrac",
    "recurrent-ppo": "sterling.algorithms.online.recurrent_ppo",
    "redq": "sterling.algorithms.continuous.redq",
    "sac": "sterling.algorithms.online.sac",
    "sac-lagrangian": "sterling.algorithms.safe.sac_lagrangian",
    "simba": "sterling.algorithms.continuous.simba",
    "simba-v2": "sterling.algorithms.continuous.simba_v2",
    "spr": "sterling.algorithms.q_learning.spr",
    "stream-ac": "sterling.algorithms.streaming.stream_ac",
    "stream-q": "sterling.algorithms.streaming.stream_q",
    "stream-sarsa": "sterling.algorithms.streaming.stream_sarsa",
    "td3": "sterling.algorithms.online.td3",
    "td3bc": "sterling.algorithms.offline.td3bc",
    "td7": "sterling.algorithms.continuous.td7",
    "tqc": "sterling.algorithms.continuous.tqc",
    "trpo": "sterling.algorithms.on_policy.trpo",
    "v-mpo": "sterling.algorithms.on_policy.v_mpo",
    "xql": "sterling.algorithms.offline.xql",
    "dpo": "sterling.algorithms.language.dpo",
    "gkd": "sterling.algorithms.language.gkd",
    "reward": "sterling.algorithms.language.reward_model",
    "sft": "sterling.algorithms.language.sft",
    **dict.fromkeys(GRADIENT_PRESETS, "sterling.algorithms.language.policy_gradient"),
}


# room of an algorithm's file -> what the algorithms in it have in common, in the order of a list
GROUPS = {
    "online": "the usual ones",
    "on_policy": "on-policy, from fresh rollouts",
    "q_learning": "Q-learning, for discrete actions",
    "continuous": "continuous actions, from a replay buffer",
    "pictures": "continuous actions, from pictures",
    "model_based": "with a learned model of the environment",
    "evolution": "evolution of a population",
    "streaming": "streaming, without batches or a replay buffer",
    "safe": "with a limit on costs",
    "goals": "towards goals",
    "meta": "adaptation to new tasks",
    "learned_rewards": "rewards learned from preferences",
    "multi_agent": "several agents",
    "offline": "offline, from a dataset",
    "imitation": "imitation of other policies",
    "language": "language models",
}


def group_of(name: str) -> str:
    """Return the label of the group that a listed algorithm belongs to."""
    return GROUPS[ALGORITHMS[name].split(".")[2]]


def preset_fields(name: str) -> dict[str, Any]:
    """Return the Config fields that a name presets, if several algorithms share one file."""
    return dict(_read_preset(name).get("fields", {}))


def preset_summary(name: str) -> str:
    """Return a one-line description of a preset; "" for algorithms with their own file."""
    return str(_read_preset(name).get("about", ""))


def _read_preset(name: str) -> dict[str, Any]:
    if name not in GRADIENT_PRESETS:
        return {}
    text = resources.files("sterling.algorithms.language").joinpath("named.json").read_text()
    return dict(json.loads(text)[name])


def find(word: str) -> Algorithm | ModuleType:
    """Import and return the algorithm that ``word`` names.

    ``word``: a listed name, a name that an installed package registers, ``path/to/file.py``,
    ``package.module``, the latter two optionally followed by ``:object``, or what
    :func:`reference_to` returned for an object. Raises Mistake, with the nearest known name, if
    there is none, and if what is found is not an algorithm.
    """
    if word in ALGORITHMS:
        return import_module(ALGORITHMS[word])
    from sterling.algorithms import user_algorithm

    given = getattr(word, "algorithm", None)  # of user_algorithm.InMemoryAlgorithm
    if given is not None:
        return given
    reference = import_path(word)
    if reference is None:
        from sterling.types import Mistake

        known = (*ALGORITHMS, *entry_points.find_plugins(entry_points.ALGORITHMS))
        cased = [f": it is called {name} here" for name in known if name == word.lower()]
        near = (
            next(iter(cased), "")
            or unknown_algorithm(word)
            or did_you_mean(
                word, known, f"use one of {', '.join(known)}, or FILE.py, or package.module"
            )
        )
        raise Mistake(f"Unknown algorithm {word!r}{near}")
    return user_algorithm.require_algorithm(user_imports.load(reference), word)


def train_call(word: str) -> str:
    """Return the call of ``sterling.train`` for an algorithm by its class's name, here or in
    another library: ``PPO``, ``DiscreteCQLConfig``, ``GRPOTrainer``; "" if there is none."""
    row = peer_algorithm(word)
    named = [name for name in ALGORITHMS if class_name(name) == class_name(word)]
    if row is not None and row["here"] and (not named or row["word"].lower() == word.lower()):
        named, fields = [row["here"]], row["fields"]
    else:
        fields = {}
    if not named:
        return ""
    given = [f"{name}={value!r}" for name, value in fields.items()]
    label = group_of(named[0])
    if label == GROUPS["language"]:
        given = ["TASK", "model=FOLDER", "updates=500", *given]
    elif label == GROUPS["offline"]:
        given = ["data=FILE", "updates=100_000", *given]
    else:
        given = ["ENVIRONMENT", "steps=100_000", *given]
    return f'sterling.train("{named[0]}", {", ".join(given)})'


def reference_to(algorithm: Any) -> str:
    """Return the word by which :func:`find` finds an algorithm, which is given as a name, a
    reference, a module or an object. Paths become absolute; an object that cannot be imported
    becomes an ``InMemoryAlgorithm``. Raises Mistake if it is not an algorithm."""
    if isinstance(algorithm, str):
        return user_imports.absolute_reference(algorithm) if import_path(algorithm) else algorithm
    name = getattr(algorithm, "__name__", "")
    listed = [
        each for each, at in ALGORITHMS.items() if at == name and each not in GRADIENT_PRESETS
    ]
    if listed and find(listed[0]) is algorithm:
        return listed[0]
    from sterling.algorithms import user_algorithm

    return user_algorithm.user_reference(algorithm)


def import_path(word: str) -> str | None:
    """Return the module or file that ``word`` names; None if it names nothing."""
    if word in ALGORITHMS:
        return ALGORITHMS[word]
    if user_imports.is_reference(word):
        return word
    plugin = entry_points.find_plugins(entry_points.ALGORITHMS).get(word)
    return None if plugin is None else plugin.word
