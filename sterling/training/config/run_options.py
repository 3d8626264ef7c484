"""Settings of a run's optional parts: its dataset, further phases, a guide, a language model."""

from __future__ import annotations

import dataclasses
from typing import Any

from sterling.envs.env_options import with_final
from sterling.lookup.factory_names import factory_name
from sterling.types import Mistake

BUDGETS = ("steps", "updates")  # environment steps, gradient updates


@dataclasses.dataclass(frozen=True)
class LogSettings:
    """Which dataset a run learns from, and how it is sampled."""

    path: str
    hash: str  # of its content; a run can only be resumed with the same content
    share: float = 0.5  # share of each batch that comes from the dataset in the online phase
    top: float = 1.0  # share of the episodes that is used: those with the largest returns
    sampling: str = (
        "uniform"  # how rows are drawn: see sterling.data.episode_returns.episode_probabilities
    )
    unchecked: bool = False  # learn from it even if `sterling data check` finds errors


@dataclasses.dataclass(frozen=True)
class Phase:
    """A further phase of a run with the same agents: steps in a world, or updates from a log.

    If it names neither world nor log, it continues with the source of the previous phase,
    including the replay buffer. A world or log that it names is opened anew.
    """

    steps: int = 0  # environment steps per seed
    updates: int = 0  # gradient updates per seed from the log alone, before the steps
    environment: Any = ""  # "": as in the previous phase
    env_options: dict[str, Any] = dataclasses.field(default_factory=dict)
    data: LogSettings | None = None  # None: as in the previous phase, if the world is the same too
    fields: dict[str, Any] = dataclasses.field(default_factory=dict)  # new values of Config fields

    def to_json(self) -> dict[str, Any]:
        """Return plain values; an environment that cannot be imported is written as its name."""
        own = self.environment
        where = own if isinstance(own, str) else {"not stored": factory_name(own)}
        return {
            **dataclasses.asdict(dataclasses.replace(self, environment="")),
            "environment": where,
        }

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> Phase:
        """Read what ``to_json`` wrote; raise Mistake if the environment was not stored."""
        if isinstance(plain.get("environment"), dict):
            name = plain["environment"].get("not stored")
            raise Mistake(
                f"a later phase of this run used the environment {name!r}, which is not stored. "
                "Put it into a file and name that, as my_world.py:make (docs/extending.md)."
            )
        options = with_final(plain.get("environment"), plain.get("env_options", {}), False)
        data = LogSettings(**plain["data"]) if plain.get("data") else None
        return cls(**plain | {"data": data, "env_options": options})


@dataclasses.dataclass(frozen=True)
class Guidance:
    """A guide: an earlier run whose policies help to act.

    See ``experience/rollouts/guided_rollout.py``.
    """

    path: str  # folder of the run; its agents guide seed by seed, in turn if a seed is missing
    how: str = "jump-start"  # or "expansion", or "teacher" (of distill)
    steps: int = 0  # jump-start: the latest step of an episode at which the learner takes over
    temperature: float = 1.0 / 3.0  # expansion: of the choice between the two, in units of value


@dataclasses.dataclass(frozen=True)
class InitSettings:
    """What a run starts from: the last checkpoint of an earlier run, or a file of weights.

    See ``training/warm_start/``.
    """

    path: str  # the run's folder, or the file
    hash: str  # of the checkpoint or the file
    checkpoint: str = ""  # name of the run's checkpoint
    seeds: dict[str, int] = dataclasses.field(
        default_factory=dict
    )  # for each seed the run's seed that it starts from; empty: a file, for all seeds
    statistics: str = ""  # a file that VecNormalize of Stable-Baselines3 saved beside the model
    statistics_hash: str = ""


@dataclasses.dataclass(frozen=True)
class LanguageSettings:
    """Which language model is trained, on which questions, and how."""

    model: str = "tiny"  # a size of new models, a Hugging Face folder, or the folder of a run
    levels: str = ""  # difficulties: "2", "0-3", "1,4"; "": the easiest
    held_out: float = 0.0  # share of the questions held out for evaluation
    agent: str = ""  # the command of a program that answers them: see language/agent_programs
    agent_seconds: float = 60.0  # that a program may run, without waiting for the model
    agent_turns: int = 8  # most answers that it gets
    agent_tokens: int = 0  # most tokens of these; 0: any number
    agent_contexts: int = 4  # most of its conversations that do not continue each other
    agent_top_logprobs: int = 0  # most tokens whose log-probabilities it may ask for, at each place
    agents_at_once: int = 16  # most programs that run at a time
    failed_reward: float | None = None  # of one that fails before it gives one; None: the lowest
    judge: str = ""  # a function that judges answers, or the folder of a language model that does:
    # see language/worlds/judged_questions.py and generative_judge.py
    rubric: str = ""  # what that model is asked: see language/worlds/judge_rubric.py
    judge_limit: int = 256  # most tokens of its answer
    teacher: str = ""  # the folder of the language model that gkd imitates, or of a run
    rewards: str = ""  # how named rewards are combined: see language/named_rewards.py; "": added
    rewards_each: bool = False  # normalise the terms of ``rewards`` one by one (GDPO)
    right_if: str = ""  # which answers are right, as format>=0.5; "": see language/task.py
    curriculum: str = "uniform"  # how levels are chosen: see experience/language/task_curriculum.py
    texts: str = ""  # a JSONL file to imitate; "": the world's own solutions
    examples: int = 4096  # number of the world's solutions
    dump: str = ""  # a folder into which every batch is written
    replay: str = ""  # a folder written by dump, to learn from in place of conversations
    pool: str = ""  # a folder written by dump, whose right answers are replayed: see ``again``
    context: int = 0  # maximum tokens of a text; 0: what the world's scenes need
    slots: int = 64  # answers that are generated at a time
    lora: int = 0  # rank of LoRA adapters, and only they are trained; 0: train all weights
    forget: bool = False  # recompute layers for the gradient: less memory, more work
    scene_seconds: float = 10.0  # a scene may take to react, without verifiers' own limits

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> LanguageSettings:
        """Read the fields of a stored run, which may be an older one."""
        return cls(**with_current_names(plain))


def with_current_names(plain: dict[str, Any]) -> dict[str, Any]:
    """Return stored fields of LanguageSettings with the names of today: ``scene_seconds`` was
    called ``patience``."""
    names = {"patience": "scene_seconds"}
    return {names.get(name, name): value for name, value in plain.items()}
