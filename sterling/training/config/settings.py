"""The settings of a run: the dataclass that identifies it, as written to config.json."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from sterling import algorithms, schedule_words
from sterling.envs.env_options import with_final
from sterling.lookup import user_imports
from sterling.statistics.scores.score_bounds import Bounds
from sterling.statistics.scores.score_table import FailedRule
from sterling.system.mistake import Mistake
from sterling.system.shown_values import shown_value
from sterling.training.assembly.build_sources import layer_files
from sterling.training.config import user_code_words
from sterling.training.config.run_options import (
    BUDGETS,
    Guidance,
    InitSettings,
    LanguageSettings,
    LogSettings,
    Phase,
)
from sterling.training.config.stop_options import parse_keep, parse_stop_options
from sterling.training.fields.config_fields import (
    check_counts,
    check_scoring,
    make_config,
    seed_numbers,
    whole_number,
)
from sterling.training.fields.schedule_fields import split_fields

EVALUATION_LIMIT = 200_000  # default number of steps after which an evaluation episode is cut
STRATEGIES = ("vmap", "map", "processes")


@dataclasses.dataclass(frozen=True)
class Settings:
    """All settings of a run; written to ``config.json``."""

    algorithm: str  # a name or reference for sterling.algorithms.find
    environment: Any  # a name, a reference, or a Task or factory that has no reference
    steps: int  # environment steps per seed
    seeds: tuple[int, ...]
    envs: int  # parallel environments per seed
    strategy: str  # how the seed axis is run: vmap, map or processes
    config: Any  # the algorithm's Config
    env_options: dict[str, Any] = dataclasses.field(default_factory=dict)
    evaluate_episodes: int = 20  # per seed, at the end
    evaluate_limit: int = EVALUATION_LIMIT  # steps after which an evaluation episode is cut
    # the next two count gradient updates while a run learns from a log alone, otherwise steps
    evaluate_every: int = 0  # 0: with a log a tenth of the budget, without one only at the end
    log_every: int = 0  # between rows of metrics.jsonl; 0: a hundredth of the budget
    checkpoint_minutes: float = 5.0
    data: LogSettings | None = None  # the dataset to learn from
    # the dataset's "obs" and "action", and time "limit" if known; None if there is an environment
    spaces: dict[str, Any] | None = None
    updates: int = 0  # gradient updates per seed from the log alone, before the first step
    online: dict[str, Any] = dataclasses.field(default_factory=dict)  # new fields once online
    guide: Guidance | None = None
    augment: str = ""  # a data augmentation: see sterling.equations.augmentation_words
    sources: str = ""  # layers around its rollouts: see sterling.training.assembly.build_sources
    plasticity: str = ""  # see sterling.training.plasticity.plasticity_words
    hindsight: str = (
        ""  # how the replay's goals are relabelled: see sterling.training.config.hindsight_option
    )
    critic_obs: str = ""  # entries of the observation, joined by commas, that only critics get
    obs: str = ""  # the only entries that policies get; critics get all
    encoder: str = ""  # of observations: see sterling.nets.encoding.encoder_choice
    speech: LanguageSettings | None = None  # settings of a language model's training
    context: int = 0  # context length in tokens that its world's scenes need; 0: not measured yet
    return_within: Bounds | None = None  # bounds of returns; None: those of the environment
    failed: FailedRule = None  # what a failed seed counts as in the result; None: not declared
    init: InitSettings | None = None  # what the agents start from; None: random weights
    schedules: dict[str, Any] = dataclasses.field(default_factory=dict)  # of fields of the Config
    phases: tuple[Phase, ...] = ()  # further phases: see sterling.training.phases.phase_sequence
    stop_at: float | None = None  # stop when an evaluation's mean over seeds reaches this return
    patience: int = 0  # stop after this many evaluations without improvement; 0: never
    time_budget: float = 0.0  # stop after this many minutes of work; 0: never
    continued_from: int = -1  # the iteration at which it stopped early, if it was then continued
    keep: str = ""  # "best": also keep the policy of each seed's best evaluation

    @property
    def name(self) -> str:
        """Return the environment's display name."""
        return user_imports.display_name(self.environment)

    @property
    def file_name(self) -> str:
        """Return the name of the file that the run learns from, without its ending; empty if it
        learns from none."""
        texts = "" if self.speech is None else self.speech.texts
        return Path(texts if self.data is None else self.data.path).stem

    @property
    def holds_out_texts(self) -> bool:
        """Whether a run on texts alone keeps rows of its file back, and measures its loss on them
        at the times of evaluations."""
        alone = self.speech is not None and bool(self.speech.texts) and not self.environment
        return alone and self.speech is not None and self.speech.held_out > 0

    @property
    def title(self) -> str:
        """Return the algorithm's display name."""
        return user_imports.short_name(self.algorithm)

    @property
    def program_strategy(self) -> str:
        """Return the strategy for the seeds within one program: vmap or map."""
        return "vmap" if self.strategy == "vmap" else "map"

    @property
    def unit(self) -> str:
        """Return the unit of the first budget: "updates" (offline, language) or "steps"."""
        return "updates" if self.updates else "steps"

    @property
    def budget(self) -> int:
        """Return the first budget, in its unit."""
        return self.updates or self.steps

    def to_json(self) -> dict[str, Any]:
        """Return plain values; objects that cannot be imported are written as their names."""
        plain = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        places = [each.environment for each in self.phases if isinstance(each.environment, str)]
        functions = [each.reference for each in self.schedules.values()
                     if isinstance(each, schedule_words.FileFunction)]  # fmt: skip
        models = () if self.speech is None else (self.speech.judge, self.speech.teacher)
        words = [*layer_files(self.sources), *places, *functions, self.encoder, *models]
        plain |= user_code_words.to_json(self.algorithm, self.environment, words)
        plain["config"] = dataclasses.asdict(self.config)
        known = {name: schedule_words.describe(each) for name, each in self.schedules.items()}
        plain["schedules"] = known
        for name in ("data", "guide", "init", "speech"):
            own = plain[name]
            plain[name] = None if own is None else dataclasses.asdict(own)
        plain["phases"] = [phase.to_json() for phase in self.phases]
        return plain

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the Config as plain values: another process may have to import its class from a
        file first."""
        own = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return _unpickle_settings, ({**own, "config": dataclasses.asdict(self.config)},)

    @classmethod
    def from_json(
        cls, plain: dict[str, Any], environment: Any = None, algorithm: Any = None
    ) -> Settings:
        """Read what ``to_json`` wrote; objects that were not stored must be given again."""
        known = {field.name for field in dataclasses.fields(cls)}
        kept = {name: value for name, value in plain.items() if name in known}
        kept |= user_code_words.from_json(plain, environment, algorithm)
        word = kept["algorithm"]
        module = algorithms.find(word)
        if not isinstance(plain["config"], dict):
            raise Mistake(f"config must be an object of fields; got {shown_value(plain['config'])}")
        kept["config"] = make_config(module, plain["config"], user_imports.short_name(word))
        stored = plain.get("schedules", {})
        functions = {name: schedule_words.from_stored(each) for name, each in stored.items()}
        title, before = user_imports.short_name(word), kept["config"]
        make_config(module, {name: getattr(before, name, 0.0) for name in functions}, title)
        kept["schedules"] = split_fields(module, title, functions).schedules
        kept["env_options"] = with_final(plain["environment"], plain.get("env_options", {}), False)
        kept["seeds"] = seed_numbers(plain["seeds"])
        kept["strategy"] = check_strategy(plain.get("strategy", "map"))
        kept |= {name: whole_number(name, plain[name]) for name in BUDGETS if name in plain}
        kept["envs"] = whole_number("envs", plain.get("envs", 1), 1)
        kept |= check_counts(kept) | parse_stop_options(kept)
        kept["keep"] = parse_keep(plain.get("keep"))
        kept["data"] = LogSettings(**plain["data"]) if plain.get("data") else None
        kept["guide"] = Guidance(**plain["guide"]) if plain.get("guide") else None
        kept["init"] = InitSettings(**plain["init"]) if plain.get("init") else None
        kept["speech"] = (
            LanguageSettings.from_json(plain["speech"]) if plain.get("speech") else None
        )
        kept["phases"] = tuple(Phase.from_json(each) for each in plain.get("phases", ()))
        return cls(**kept | check_scoring(kept))


def _unpickle_settings(own: dict[str, Any]) -> Settings:
    """Return unpickled settings, with the Config created from its algorithm."""
    module = algorithms.find(own["algorithm"])
    return Settings(**{**own, "config": module.Config(**own["config"])})


def check_strategy(word: Any) -> str:
    """Return the strategy; raise Mistake for an unknown one."""
    if word not in STRATEGIES:
        raise Mistake(f"Unknown strategy {word!r}. Use {', '.join(STRATEGIES)}.")
    return str(word)
