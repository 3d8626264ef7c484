"""Check the arguments of train, resume and load, and options that the algorithm must support."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, runtime_checkable

from sterling import algorithms
from sterling.data import Dataset
from sterling.envs.traced_world import Task
from sterling.language.named_rewards import RewardRule, RightRule
from sterling.lookup.name_suggestions import did_you_mean
from sterling.needs.feed import DREAM, GENERATED, LABELS, MEMORY, PLACE, TEACHER_ACTION
from sterling.report.live.metric_sinks import Sink
from sterling.system.atomic_files import check_writable
from sterling.system.shown_values import shown_value
from sterling.training.config.run_options import Guidance, LanguageSettings, LogSettings
from sterling.training.fields.config_fields import whole_number
from sterling.types import Mistake


@runtime_checkable
class HasConfig(Protocol):
    """An object with a Config, which may be an algorithm."""

    Config: Any


GUIDANCE_KINDS = ("jump-start", "expansion", "teacher")
A_PATH = ((str, os.PathLike), "a path")
ARGUMENT_KINDS: dict[str, tuple[Any, str]] = {  # arguments that from Python may have a wrong type
    "algorithm": ((str, ModuleType, HasConfig), "a name, as 'ppo', a file or an algorithm"),
    "environment": (
        (str, Callable, Task),
        "a name, or a function that builds a gymnasium.Env, a Task or a World, or a Task",
    ),
    "path": A_PATH,
    "out": A_PATH,
    "data": ((str, os.PathLike, Dataset), "a path, or a Dataset"),
    "env_options": (Mapping, "a dict, as {'max_episode_steps': 500}"),
    "online": (Mapping, "a dict, as {'alpha': 0.4}"),
    "preset": (bool, "True or False"),
    "unchecked": (bool, "True or False"),
    "tensorboard": (bool, "True or False"),
    "quiet": (bool, "True or False"),
    "wandb": (str, "the name of a project"),
    "guide": (Guidance, "a run's folder, or a Guidance, as Guidance('runs/earlier', steps=200)"),
    "init": ((str, os.PathLike), "a path, as 'runs/earlier' or 'runs/earlier:seed=3'"),
    "augment": (str, "text, as 'gaussian:0.0003'"),
    "sources": (str, "text, as 'plr' or 'pool:4,10000'"),
    "plasticity": (str, "text, as 'reset:200_000'"),
    "hindsight": (str, "text, as 'future'"),
    "critic_obs": (str, "text, as 'state'"),
    "obs": (str, "text, as 'position,goal'"),
    "sampling": (str, "text, as 'episodes'"),
}


def check_argument_types(**given: Any) -> None:
    """Raise Mistake for arguments of a wrong type. None counts as not given, except for the
    arguments that are required."""
    for name, value in given.items():
        if name not in ARGUMENT_KINDS or (value is None and name not in ("algorithm", "path")):
            continue
        kinds, wanted = ARGUMENT_KINDS[name]
        if not isinstance(value, kinds):
            remedy = ": write `lambda: ...` around it" if hasattr(value, "action_space") else ""
            raise Mistake(f"{name} must be {wanted}; got {shown_value(value)}{remedy}")


def check_critic_obs(settings: Any) -> None:
    """Raise Mistake if the critic cannot get the entries that ``critic_obs`` or ``obs`` hides from
    the policy. (Which entries exist is known once the environment is built.)"""
    if not (settings.critic_obs or settings.obs):
        return
    algorithm: Any = algorithms.find(settings.algorithm)
    taught = settings.guide is not None and settings.guide.how == "teacher"
    sighted = any(hasattr(algorithm, name) for name in ("can_use_unseen", "uses_unseen"))
    if not (sighted or taught):
        option = "critic_obs" if settings.critic_obs else "obs"
        raise Mistake(
            f"{option}: {settings.title} cannot learn with entries that its policy does not get. "
            "Use ppo, sac, td3, mappo or distill."
        )


def check_load_arguments(path: Any, environment: Any, algorithm: Any) -> None:
    """Raise Mistake for wrong types of the arguments of ``load`` and ``resume``."""
    check_argument_types(path=path, environment=environment)
    if algorithm is not None:
        check_argument_types(algorithm=algorithm)


def check_sinks(sinks: Any) -> None:
    """Raise Mistake unless ``sinks`` is a list of sinks."""
    if isinstance(sinks, (list, tuple)):
        wrong = [each for each in sinks if not isinstance(each, Sink)]
        if not wrong:
            return
        sinks = wrong[0]
    raise Mistake(
        f"sinks must be a list of objects with write(row) and close(); got {shown_value(sinks)}"
    )


def check_language_run(settings: Any, needs: Any) -> None:
    """Raise Mistake if the settings of a language run contradict each other."""
    name = settings.title
    said = [each for each in ("steps", "data") if getattr(settings, each)]
    if said or not settings.updates:
        remedy = f"Leave out {', '.join(said)}." if said else "Give updates=N."
        raise Mistake(f"{name} trains a language model, which is counted in updates. {remedy}")
    if settings.env_options:
        raise Mistake(
            f"text environments have no options. Leave out {', '.join(settings.env_options)}."
        )
    speech = settings.speech or LanguageSettings()
    check_language_settings(name, speech, needs)
    _check_rewards_each(name, speech, settings.config)
    if not settings.environment:
        _check_texts_alone(name, speech)
    if settings.strategy == "processes" and (speech.dump or speech.replay):
        raise Mistake("dump and replay do not support strategy=processes. Leave out strategy.")


def _check_rewards_each(name: str, speech: LanguageSettings, config: Any) -> None:
    """Raise Mistake for terms of a reward that the learner does not compare in groups."""
    if not speech.rewards_each:
        return
    if (scale := getattr(config, "scale", "none")) in ("none", "tokens"):
        said = f"{name} has scale={scale}, which normalises no answer's reward"
        raise Mistake(f"{said}. Set scale=group, or leave out rewards_each.")
    wrong = {
        "baseline=critic": config.baseline == "critic",
        f"turns={config.turns}": config.turns > 0,
        "kl_in=reward": config.kl != "none" and config.kl_in == "reward",
    }
    if found := ", ".join(words for words, is_wrong in wrong.items() if is_wrong):
        said = "rewards_each compares whole answers with their group"
        raise Mistake(f"{said}, and does not support {found}. Leave out one of them.")


def _check_texts_alone(name: str, speech: LanguageSettings) -> None:
    """Raise Mistake for settings of an environment's questions in a run that has none."""
    usual = LanguageSettings()
    asked = (
        *("levels", "agent", "judge", "rubric", "judge_limit", "rewards", "rewards_each"),
        *("right_if", "examples", "scene_seconds"),
    )
    said = [each for each in asked if getattr(speech, each) != getattr(usual, each)]
    if said:
        raise Mistake(
            f"{', '.join(said)}: {name} has no environment that asks questions. Name one, or leave "
            f"out {', '.join(said)}."
        )


def check_language_settings(name: str, speech: LanguageSettings, needs: Any) -> None:
    """Raise Mistake for language settings that are invalid or that the learner would ignore."""
    whole_number("slots", speech.slots, 1)
    whole_number("examples", speech.examples, 1)
    whole_number("context", speech.context)
    whole_number("lora", speech.lora)
    if not 0 <= speech.held_out < 1:
        raise Mistake(f"held_out must be at least 0 and below 1; got {speech.held_out}")
    RewardRule(speech.rewards, each=speech.rewards_each)
    RightRule(speech.right_if)
    if speech.right_if and speech.replay:
        raise Mistake("replay has the right answers of the run that wrote it. Leave out right_if.")
    for option in ("judge_limit", "agent_turns", "agent_contexts", "agents_at_once"):
        whole_number(option, getattr(speech, option), 1)
    for option in ("agent_tokens", "agent_top_logprobs"):
        whole_number(option, getattr(speech, option))
    if not speech.agent_seconds > 0:
        raise Mistake(f"agent_seconds must be above 0; got {speech.agent_seconds}")
    _check_failed_reward(speech)
    if not speech.scene_seconds > 0:
        raise Mistake(f"scene_seconds must be above 0; got {speech.scene_seconds}")
    speaks = needs.has_feed(GENERATED)
    unread = (
        ("texts", "examples")
        if speaks
        else ("rewards_each", "curriculum", "dump", "replay", "pool")
    )
    said = [each for each in unread if getattr(speech, each) != getattr(LanguageSettings(), each)]
    if said:
        what = "its own answers" if speaks else "texts"
        raise Mistake(f"{name} learns from {what}. Leave out {', '.join(said)}.")
    beside = [each for each in ("dump", "pool", "curriculum")
              if getattr(speech, each) != getattr(LanguageSettings(), each)]  # fmt: skip
    if speech.replay and beside:
        named = ", ".join(beside)
        raise Mistake(f"replay learns only from the batches in its folder. Leave out {named}.")
    if speaks and speech.pool and not needs.again and not speech.replay:
        raise Mistake("pool needs the number of replayed prompts in each batch: give again=N.")


def _check_failed_reward(speech: LanguageSettings) -> None:
    """Raise Mistake unless the reward of failed programs is a number, and can be one's reward."""
    if (reward := speech.failed_reward) is None:
        return
    if isinstance(reward, bool) or not isinstance(reward, int | float) or not math.isfinite(reward):
        raise Mistake(f"failed_reward must be a finite number; got {shown_value(reward)}")
    if not speech.agent:
        raise Mistake("failed_reward is for agent programs. Name one with agent, or leave it out.")
    if speech.rewards_each:
        said = "rewards_each normalises named rewards, and failed_reward has no name"
        raise Mistake(f"{said}. Leave out one of them.")


def check_dump_folder(speech: LanguageSettings | None) -> None:
    """Raise Mistake if the folder for a new run's batches already holds batches, which are
    numbered from 0, or cannot be written to."""
    if speech and speech.dump and any(Path(speech.dump).glob("*.safetensors")):
        raise Mistake(f"dump={speech.dump} holds batches of another run. Give an empty folder.")
    if speech and speech.dump:
        check_writable(Path(speech.dump))


def check_log_and_replay(name: str, needs: Any, *, logged: bool, acts: bool, scored: bool) -> None:
    """Raise Mistake if the learner needs of a log what no log holds, or places of new rows without
    a replay, or comparisons together with a log, or these or model rollouts with scored levels
    (``scored``: a source scores the rows) or with both a log and steps (``acts``)."""
    if logged and MEMORY in needs.keep:
        raise Mistake(
            f"{name} needs the memory that it had before each step, which no dataset holds. Leave "
            "out data."
        )
    if len({feed.monte_carlo for feed in needs.feeds} - {None}) > 1:
        raise Mistake(f"{name} needs returns with several discounts; a store of rows gives one.")
    if not needs.replays and any(PLACE in feed.add for feed in needs.feeds):
        raise Mistake(f"{name}: new rows have no place without a replay. Leave out add.")
    dreams, compared = needs.has_feed(DREAM), needs.has_feed(LABELS)
    if (compared and logged) or ((dreams or compared) and scored):
        raise Mistake(f"{name} needs a replay of its own experience. Leave out data and plr.")
    if dreams and logged and acts:
        raise Mistake(
            f"{name} rolls its model out from one store of rows, a log or a replay. Leave out "
            "data, or steps."
        )


def check_beside_log(name: str, needs: Any, log: LogSettings | None) -> None:
    """Raise Mistake if the learner reads rows of a log beside its batches, and there is no log, or
    one with a share of the batches themselves."""
    if not needs.beside_log:
        return
    if log is None:
        raise Mistake(f"{name} reads rows of a dataset beside its batches: give data=FILE.")
    if log.share != LogSettings.share:
        raise Mistake(
            f"{name} reads rows of its dataset beside its batches, which have none of them. Leave "
            "out share."
        )


def teacher_guidance(teacher: Any, guide: Any) -> Any:
    """Return the guide for ``teacher``, the folder of a run; raise Mistake for another type, and if
    there is a guide too."""
    if teacher is None:
        return guide
    if not isinstance(teacher, (str, os.PathLike)):
        raise Mistake(f"teacher must be the folder of a run; got {shown_value(teacher)}")
    if guide is not None:
        raise Mistake("A run has a teacher or a guide, not both. Leave out one of them.")
    return Guidance(str(Path(teacher).expanduser().resolve()), how="teacher")


def check_guide(guide: Guidance | None, needs: Any, *, acts: bool) -> None:
    """Raise Mistake if the guide's settings are invalid, or the run cannot use a guide; ``acts``:
    the run has steps."""
    taught = TEACHER_ACTION in needs.keep
    if taught and (guide is None or guide.how != "teacher"):
        raise Mistake("distill imitates a trained run: add --teacher RUN (in Python teacher=RUN).")
    if guide is None:
        return
    if guide.how == "teacher" and not taught:
        raise Mistake("A teacher is for distill. Another algorithm may have a guide: --guide RUN.")
    if guide.how not in GUIDANCE_KINDS:
        near = did_you_mean(guide.how, GUIDANCE_KINDS, f"there are {', '.join(GUIDANCE_KINDS)}")
        raise Mistake(f"Unknown kind of guide {guide.how!r}{near}")
    if not needs.replays or not acts or needs.members:
        raise Mistake(
            "guide needs an off-policy algorithm with a replay buffer, such as sac, and steps=N."
        )
    if guide.how == "jump-start" and guide.steps < 1:
        raise Mistake(
            "jump-start needs the latest step at which the learner takes over: give --guide-steps "
            "N (in Python Guidance(..., steps=N))."
        )
