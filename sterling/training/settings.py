"""What a run is asked to be, resolved and checked before anything is built."""

from __future__ import annotations

import dataclasses
from typing import Any

from sterling import algorithms, importing
from sterling.experience.dream import check_dreams
from sterling.needs import EPISODES, FRESH
from sterling.statistics.declared import Bounds
from sterling.statistics.scores import Failed
from sterling.training import outside
from sterling.training.checks import check_guide, check_replay, check_spoken
from sterling.training.choices import BUDGETS, Guidance, Logbook, Phase, Speech
from sterling.training.fields import counted, judged, make_config, seeds_of, whole
from sterling.training.hindsight import check_hindsight
from sterling.training.phases import after, goes_on, iterations, needs_of, own_iterations
from sterling.training.presets import presets
from sterling.training.sources import absolute, check_sources, files, keeps
from sterling.types import Mistake

LIMIT = 200_000  # steps after which an episode of an evaluation counts as it stands, as a rule
STRATEGIES = ("vmap", "map", "processes")


@dataclasses.dataclass(frozen=True)
class Settings:
    """Everything that identifies a run; written to ``config.json``."""

    algorithm: str  # what sterling.algorithms.find takes
    environment: Any  # a name, a reference, or a Task or factory that has none
    steps: int  # environment steps per seed
    seeds: tuple[int, ...]
    envs: int  # parallel environments per seed
    strategy: str  # how the seed axis is run: vmap, map or processes
    config: Any  # the algorithm's Config
    env_options: dict[str, Any] = dataclasses.field(default_factory=dict)
    evaluate_episodes: int = 20  # per seed, at the end
    evaluate_limit: int = LIMIT  # steps after which an episode of those counts as it stands
    # the next two count gradient updates while a run learns from a log alone, else steps
    evaluate_every: int = 0  # 0: with a log a tenth of the budget, without one only at the end
    log_every: int = 0  # between rows of metrics.jsonl; 0: a hundredth of the budget
    checkpoint_minutes: float = 5.0
    data: Logbook | None = None  # logged experience to learn from
    spaces: dict[str, Any] | None = None  # of its "obs" and "action", where no environment has them
    updates: int = 0  # gradient updates per seed from the log alone, before the first step
    online: dict[str, float] = dataclasses.field(default_factory=dict)  # fields from then on
    guide: Guidance | None = None
    augment: str = ""  # a change of every batch: see sterling.equations.augmentation.named
    sources: str = ""  # what stands around its rollouts: see sterling.training.sources
    hindsight: str = ""  # how a replay's goals are told anew: see sterling.training.hindsight
    speech: Speech | None = None  # where a language model is taught
    context: int = 0  # tokens that its world's scenes were found to need; 0: not looked at yet
    return_within: Bounds | None = None  # what returns cannot leave; None: the environment's rules
    failed: Failed = None  # what a failed seed counts as in the result; None: nothing is decided
    phases: tuple[Phase, ...] = ()  # what comes after that: see sterling.training.phases

    @property
    def name(self) -> str:
        """The environment's name, as it is shown."""
        return importing.title(self.environment)

    @property
    def title(self) -> str:
        """The algorithm's name, as it is shown."""
        return importing.short(self.algorithm)

    @property
    def inside(self) -> str:
        """How the seeds that share a program are run."""
        return "vmap" if self.strategy == "vmap" else "map"

    @property
    def unit(self) -> str:
        """What the first budget counts: updates from a log or of a language model, else steps."""
        return "updates" if self.updates else "steps"

    @property
    def budget(self) -> int:
        """The first budget, in its unit."""
        return self.updates or self.steps

    def to_json(self) -> dict[str, Any]:
        """Plain values; what cannot be imported again is written as its name."""
        plain = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        places = [each.environment for each in self.phases if isinstance(each.environment, str)]
        words = [*files(self.sources), *places]
        plain |= outside.to_json(self.algorithm, self.environment, words)
        plain["config"] = dataclasses.asdict(self.config)
        for name in ("data", "guide", "speech"):
            own = plain[name]
            plain[name] = None if own is None else dataclasses.asdict(own)
        plain["phases"] = [phase.to_json() for phase in self.phases]
        return plain

    def __reduce__(self) -> tuple[Any, ...]:
        """Other processes make the Config anew: its class may come from a file that they have to
        import first."""
        own = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return _remade, ({**own, "config": dataclasses.asdict(self.config)},)

    @classmethod
    def from_json(
        cls, plain: dict[str, Any], environment: Any = None, algorithm: Any = None
    ) -> Settings:
        """The inverse; what could not be stored must be given again."""
        known = {field.name for field in dataclasses.fields(cls)}
        kept = {name: value for name, value in plain.items() if name in known}
        kept |= outside.from_json(plain, environment, algorithm)
        word = kept["algorithm"]
        module = algorithms.find(word)
        if not isinstance(plain["config"], dict):
            raise Mistake(f"config must be an object of fields; got {plain['config']!r:.60}")
        kept["config"] = make_config(module, plain["config"], importing.short(word))
        kept["seeds"] = seeds_of(plain["seeds"])
        kept["strategy"] = _strategy(plain.get("strategy", "map"))
        kept |= {name: whole(name, plain[name]) for name in BUDGETS if name in plain}
        kept["envs"] = whole("envs", plain.get("envs", 1), 1)
        kept |= counted(kept)
        kept["data"] = Logbook(**plain["data"]) if plain.get("data") else None
        kept["guide"] = Guidance(**plain["guide"]) if plain.get("guide") else None
        kept["speech"] = Speech(**plain["speech"]) if plain.get("speech") else None
        kept["phases"] = tuple(Phase.from_json(each) for each in plain.get("phases", ()))
        return cls(**kept | judged(kept))


def _remade(own: dict[str, Any]) -> Settings:
    """Settings in another process."""
    module = algorithms.find(own["algorithm"])
    return Settings(**{**own, "config": module.Config(**own["config"])})


def resolve(
    algorithm: Any,
    environment: Any,
    *,
    steps: int | float = 0,
    updates: int | float = 0,
    data: Logbook | None = None,
    online: dict[str, float] | None = None,
    seeds: Any = 1,
    envs: int | float | None = None,
    strategy: str | None = None,
    preset: bool = True,
    env_options: dict[str, Any] | None = None,
    fields: dict[str, Any] | None = None,
    **rest: Any,
) -> Settings:
    """Defaults, then the tuned preset for this environment, then what the caller says.

    Whole numbers may be written as floats (1e6); ``seeds`` are how many or which. Raises Mistake
    for unknown names, fields and options of the wrong type, and settings that cannot be.
    """
    word, environment = algorithms.word_of(algorithm), outside.word_of_environment(environment)
    module, algorithm = algorithms.find(word), importing.short(word)
    tuned = presets(word, environment) if preset else {}
    default_envs = tuned.pop("envs", None) or _default_envs(module)
    options = {**tuned.pop("env_options", {}), **(env_options or {})}
    own = {**algorithms.named(word), **tuned, **(fields or {})}
    config = make_config(module, own, algorithm)
    strategy = _strategy(strategy or "map")
    if envs is not None and module.needs(config).speaks:
        raise Mistake(f"{algorithm} has no envs; its fields say how much is read at a time")
    envs = whole("envs", default_envs if envs is None else envs, 1)
    config = _fitted(module, config, envs, fields or {})
    steps, updates = whole("steps", steps), whole("updates", updates)
    later = _later(module, algorithm, config, online or {})
    if module.needs(config).speaks:
        rest["speech"] = rest.get("speech") or Speech()
    rest["sources"] = absolute(rest.get("sources") or "")
    settings = Settings(
        *(word, environment, steps, seeds_of(seeds), envs, strategy, config, options),
        **{"data": data, "updates": updates, "online": later, **counted(rest), **judged(rest)},
    )
    check_budget(settings)
    return settings


def _fitted(module: Any, config: Any, envs: int, given: dict[str, Any]) -> Any:
    """Return the config with a minibatch of at most a rollout's rows where nobody chose it: presets
    are tuned for more environments than a caller may ask for."""
    needs = module.needs(config)
    if not needs.of(FRESH) or "minibatch" in given or not hasattr(config, "minibatch"):
        return config
    rows = needs.collect * envs
    return dataclasses.replace(config, minibatch=rows) if config.minibatch > rows else config


def _strategy(word: Any) -> str:
    if word not in STRATEGIES:
        raise Mistake(f"strategy {word!r} is not known; choose one of {', '.join(STRATEGIES)}")
    return str(word)


def _later(module: Any, algorithm: str, config: Any, fields: dict[str, Any]) -> dict[str, float]:
    """Fields that change when a run goes online: numbers only, for the program stays the same."""
    checked = dataclasses.asdict(make_config(module, fields, algorithm))
    for name in fields:
        kinds = {field.name: field.type for field in dataclasses.fields(module.Config)}
        if kinds[name] not in (float, "float"):
            raise Mistake(f"{algorithm}'s field {name} shapes the program; it cannot change")
    later = {name: checked[name] for name in fields}
    module.needs(dataclasses.replace(config, **later))  # raises before the log is learned from
    return later


def check_budget(settings: Settings) -> None:
    """Raises Mistake where settings do not go together or leave nothing to do, in any phase."""
    _check_phase(settings)
    if settings.phases and settings.speech is not None:
        raise Mistake("a language model is taught in one phase; leave out then")
    before, number = settings, 2
    while before.phases or (before.updates and before.steps):
        try:
            left = after(before)
            assert left is not None
            _check_phase(left, fresh=not goes_on(before))
        except Mistake as error:
            raise Mistake(f"phase {number}: {error}") from error
        before, number = left, number + 1
    iterations(settings)  # raises where they are too many


def _check_phase(settings: Settings, *, fresh: bool = True) -> None:
    """The same of the first phase; ``fresh``: its source is another one than before."""
    name = settings.title
    needs = needs_of(settings)
    if needs.speaks:
        check_spoken(settings, needs)
    elif settings.speech is not None:
        raise Mistake(f"{name} teaches no language model; leave out model, levels and their like")
    elif settings.data is None:
        if settings.updates or settings.online:
            raise Mistake("updates (and online fields) come after a log: give data=FILE")
        if needs.of_logs_only:
            raise Mistake(f"{name} learns from logs only: give data=FILE and updates=N, not steps")
    elif needs.lives:
        raise Mistake(f"{name} learns only from what it lives through itself; use sac, iql or bc")
    elif needs.of_logs_only and settings.steps:
        raise Mistake(f"{name} learns from logs only; give updates=N and no steps")
    logged = settings.data is not None
    check_replay(name, needs, logged=logged, scored=bool(keeps(settings.sources)))
    check_dreams(name, needs)
    if settings.augment and needs.lives:
        raise Mistake(f"{name} learns from rollouts, whose batches cannot be changed; use sac")
    check_guide(settings.guide, needs, acts=settings.steps > 0)
    check_sources(
        settings.sources, name, needs, alone=settings.data is None and settings.guide is None
    )
    check_hindsight(settings.hindsight, name, needs, logged=logged)
    if settings.online and not (settings.steps and settings.updates):
        raise Mistake("online fields need both updates=N and steps=M")
    own_iterations(settings, fresh=fresh)  # raises where the budget is too small


def _default_envs(module: Any) -> int:
    """Eight for on-policy rollouts, 64 for whole episodes, one for replay."""
    needs = module.needs(module.Config())
    if needs.of(EPISODES):
        return 64
    return 1 if needs.replays else 8
