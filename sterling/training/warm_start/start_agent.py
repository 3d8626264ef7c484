"""Let new agents start from an earlier run or a file of weights, and say what they take."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from sterling import envs
from sterling.problem.joined_path import map_named
from sterling.system.terminal_messages import print_progress
from sterling.training.agent import Agent, create_agent
from sterling.training.assembly.run_dataset import SpacesWorld, are_spaces_alike
from sterling.training.config.run_options import InitSettings
from sterling.training.config.settings import Settings
from sterling.training.config.stored_settings import read_settings
from sterling.training.phases.phase_sequence import total_iterations
from sterling.training.saving import run_folder
from sterling.training.saving.tensor_file import array_like
from sterling.training.warm_start.init_word import read_run_arrays
from sterling.training.warm_start.learned_parts import learned_parts
from sterling.training.warm_start.match_parts import Learned, Match, match_parts
from sterling.training.warm_start.policy_heads import convert_head, policy_head, squash_note
from sterling.training.warm_start.weight_files import learned_in_file
from sterling.types import Mistake, Spec

# fields of a Config that change the form of networks
FORM_FIELDS = ("width", "depth", "activation", "layer_norm", "dueling", "members", "layers")
WHOLE = ("obs_statistics", "reward_statistics", "optimiser")  # taken as a whole or not at all
SHOWN_SEEDS, SHOWN_NAMES = 8, 4  # in a line


def start_agent(settings: Settings, spec: Spec, agent: Agent, actions: Any = None) -> Agent:
    """Return the agents with all that they take from the settings' ``init``, and print it;
    ``actions``: the environment's own action space, if it is known."""
    match, line = plan_start(settings, spec, agent, actions)
    print_progress(line)

    def taken(path: str, leaf: Any) -> Any:
        array = match.arrays.get(path)
        return leaf if array is None else array_like(leaf, np.array(array, leaf.dtype))

    return dataclasses.replace(agent, state=map_named(taken, agent.state))


def plan_start(
    settings: Settings, spec: Spec, agent: Agent, actions: Any = None
) -> tuple[Match, str]:
    """Return what agents (or their shapes alone) take from the settings' ``init``, and a line that
    says it. Raise Mistake if it does not fit."""
    init = settings.init
    assert init is not None
    source = _read_source(Path(init.path), settings) if init.checkpoint else None
    if source is None:
        learned = learned_in_file(settings, agent, actions)
    else:
        learned = _learned_in_run(settings, source, spec, agent)
    try:
        match = match_parts(agent.state, learned)
    except Mistake as error:
        raise Mistake(f"init: {error}{_remedy(error, source, settings, learned, agent)}") from error
    return match, _describe(init, learned, match)


def _learned_in_run(settings: Settings, source: Settings, spec: Spec, agent: Agent) -> Learned:
    """Return what an earlier run's agents have learned; raise Mistake for other spaces."""
    init: Any = settings.init
    known: Any = {"envs": source.envs, "iterations": total_iterations(source), "log": None}
    its_world = spec if _has_same_world(source, settings) else _source_spec(source)
    its_spec = dataclasses.replace(its_world, **known)
    same = source.algorithm == settings.algorithm
    _check_spaces((source, its_spec), (settings, spec), same)
    template = jax.eval_shape(lambda: create_agent(source, its_spec))
    its_parts = learned_parts(template.state)
    if hasattr(template.algorithm, "memory") != hasattr(agent.algorithm, "memory"):
        raise Mistake(f"init: one of {source.title} and {settings.title} acts with a memory, the "
                      "other without. Use the same algorithm.")  # fmt: skip
    names = {path: name for part in its_parts for name, path in part.leaves.items()}
    places = [source.seeds.index(init.seeds[str(seed)]) for seed in settings.seeds]
    stored = read_run_arrays(init)
    arrays = {names[path]: array[places] for path, array in stored.items() if path in names}
    heads = policy_head(template.state), policy_head(agent.state)
    arrays = convert_head(arrays, *heads)
    label = f"{init.path} ({source.title} in {source.name or 'its dataset'})"
    forms = {part.name: part.form for part in its_parts}
    return Learned(label, arrays, forms, same, note=squash_note(*heads))


def _read_source(path: Path, settings: Settings) -> Settings:
    """Return the settings of an earlier run. Code that it could not store must be this run's."""
    plain = run_folder.read_config(path)
    environment = settings.environment if plain.get("custom_environment") else None
    own = getattr(settings.algorithm, "algorithm", None)
    return read_settings(path, environment, own if plain.get("custom_algorithm") else None)


def _has_same_world(source: Settings, settings: Settings) -> bool:
    here = (settings.environment, settings.env_options, settings.spaces)
    return (source.environment, source.env_options, source.spaces) == here


def _source_spec(source: Settings) -> Spec:
    """Return the problem that an earlier run's agents were made for."""
    if source.spaces:
        return SpacesWorld(source.spaces).spec
    world = envs.make(source.environment, source.seeds, 1, purpose="evaluate", **source.env_options)
    try:
        return world.spec
    finally:
        world.close()


def _check_spaces(source: tuple[Settings, Spec], own: tuple[Settings, Spec], same: bool) -> None:
    """Raise Mistake for other observations, and unless the algorithm is the ``same`` for other
    actions: then the first layers of the policy still see the same."""
    (there, its), (here, spec) = source, own
    for name, word in (("obs", "observations"), ("action", "actions")):
        one, other = getattr(its, name), getattr(spec, name)
        if not are_spaces_alike(one, other) and not (same and name == "action"):
            raise Mistake(f"init: {there.name} has {word} {one}, and {here.name} has {other}. "
                          "Start from a run in a world with the same spaces.")  # fmt: skip
    if its.unseen != spec.unseen:
        hidden = [", ".join(each.unseen) or "nothing" for each in (its, spec)]
        raise Mistake(f"init: {there.name} hides {hidden[0]} from policies, and {here.name} hides "
                      f"{hidden[1]}.")  # fmt: skip


def _remedy(
    error: Mistake, source: Settings | None, settings: Settings, learned: Learned, agent: Agent
) -> str:
    """Return what gives this run's networks the form of the earlier run's, or of a file the names
    that were looked for."""
    if source is None and not str(error).startswith("nothing of"):
        return ""
    if source is None:
        there = ", ".join(list(learned.arrays)[:SHOWN_NAMES])
        wanted = [name for part in learned_parts(agent.state) for name in part.leaves]
        return f" It has {there}, ...; this run has {', '.join(wanted[:SHOWN_NAMES])}, ..."
    theirs = dataclasses.asdict(source.config)
    own = dataclasses.asdict(settings.config)
    words = []
    for name in FORM_FIELDS:
        if name in own and name in theirs and own[name] != theirs[name]:
            words.append(f"{name}={theirs[name]}")
    return f" That run has {', '.join(words)}: set the same here." if words else ""


def _describe(init: InitSettings, learned: Learned, match: Match) -> str:
    """Return the line that says what is taken."""
    taken = []
    for name, (count, all_of_it) in match.taken.items():
        note = f", {learned.note}" if learned.note and name == "policy" else ""
        single = name in WHOLE or (count, all_of_it) == (1, 1)
        taken.append(name if single else f"{name} ({count} of {all_of_it} arrays{note})")
    if match.folded:
        taken.append("obs_statistics (folded into the first layers)")
    left = [f"{name} ({why})" for name, why in match.left.items()]
    words = f"init: from {learned.label} took {', '.join(taken)}"
    words += f"; not {', '.join(left)}" if left else ""
    return words + _describe_seeds(init.seeds)


def _describe_seeds(seeds: Mapping[str, int]) -> str:
    """Return from which seeds the seeds start."""
    if not seeds:
        return "; all seeds from the same"
    own, theirs = list(seeds), [str(seed) for seed in seeds.values()]
    if own == theirs:
        return "; each seed from the same seed"
    if len(set(theirs)) == 1:
        return f"; all seeds from its seed {theirs[0]}"
    more = ", ..." if len(own) > SHOWN_SEEDS else ""
    return (f"; seeds {', '.join(own[:SHOWN_SEEDS])}{more} from its seeds "
            f"{', '.join(theirs[:SHOWN_SEEDS])}{more}")  # fmt: skip
