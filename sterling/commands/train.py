"""``sterling train ALGORITHM ENVIRONMENT --steps N``: several seeds in one program.

``sterling train ALGORITHM FILE --updates N`` learns from logged experience, and with ``--steps`` as
well goes on in the world.
"""

from __future__ import annotations

import argparse
import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sterling import importing, plugins
from sterling.algorithms import ALGORITHMS
from sterling.commands import fields, readers, show

OF_EXPERIENCE = (  # the options of a log and of a language model
    *("share", "top", "sampling", "unchecked", "augment"),
    *("model", "levels", "held_out", "curriculum", "texts", "examples", "context", "slots"),
    *("patience", "dump", "replay", "pool", "lora", "forget"),
)
FORWARDED = (
    *("steps", "updates", "seeds", "envs", "strategy", "preset", "evaluate_episodes"),
    *("evaluate_every", "evaluate_limit", "checkpoint_minutes", "log_every"),
    *("return_within", "failed", "sources", "hindsight"),
    *OF_EXPERIENCE,
)


def options_for(parser: Any, words: Sequence[str]) -> None:
    """What can be asked for, with the settings of the algorithm among ``words``."""
    options(parser)
    algorithm = fields.algorithm_among(parser, words)
    if algorithm is None:
        parser.lenient = True  # without the algorithm its settings cannot be told from mistakes
        names = ", ".join(ALGORITHMS)
        parser.description = (
            f"Algorithms: {names}. `sterling train ALGORITHM --help` lists its own settings too."
        )
        return
    parser.description, parser.about = fields.first_line(algorithm), algorithm
    parser.usage = parser.usage.replace("ALGORITHM", algorithm)
    about, own = fields.config(algorithm)
    group = parser.add_argument_group(f"settings of {importing.short(algorithm)}", about)
    for field in own:
        field.add_to(group)


def options(parser: argparse.ArgumentParser) -> None:
    """What can be asked of every algorithm."""
    parser.usage = "sterling train ALGORITHM ENVIRONMENT|FILE [--steps N] [--updates N] [options]"
    add = parser.add_argument
    which = "see: sterling list algorithms; or your own: FILE.py, package.module"
    add("algorithm", metavar="ALGORITHM", help=which)
    where = "see: sterling list environments; FILE.py:factory; or a dataset's file"
    add("world", metavar="ENVIRONMENT", help=where)
    add("--steps", type=readers.integer, metavar="N", help="environment steps per seed")
    which = "how many, or which: 3,7,8 (1)"
    add("--seeds", type=readers.seeds, default=1, metavar="N", help=which)
    add("--out", type=Path, metavar="FOLDER", help="of the run (runs/ALGORITHM-ENVIRONMENT-TIME)")
    add("--envs", type=readers.integer, metavar="N", help="parallel environments per seed")
    example = "an option of the environment, as max_episode_steps=500; may be repeated"
    add("--env", type=readers.pair, action="append", default=[], metavar="KEY=VALUE", help=example)
    add("--strategy", choices=("vmap", "map", "processes"), help="how the seeds are run")
    per_seed = "per seed, of the final policies (20)"
    add("--evaluate-episodes", type=readers.integer, default=20, metavar="N", help=per_seed)
    ends = "steps after which an episode of an evaluation counts as it stands (200_000)"
    add("--evaluate-limit", type=readers.integer, metavar="N", help=ends)
    between = "between evaluations (at the end; with a log a tenth of the budget)"
    add("--evaluate-every", type=readers.integer, metavar="N", help=between)
    rows = "between rows of the log (a hundredth of the budget)"
    add("--log-every", type=readers.integer, metavar="N", help=rows)
    saves = "between saves (5)"
    add("--checkpoint-minutes", type=readers.number, default=5.0, metavar="X", help=saves)
    tuned = "leave out the settings tuned for this environment"
    add("--no-preset", dest="preset", action="store_false", help=tuned)
    living_options(add)
    judging_options(add)
    log_options(parser)
    _bridge_options(parser)
    speech_options(parser)
    show.options(parser)


def living_options(add: Any) -> None:
    """How what is lived comes about, and how it is replayed."""
    around = "what stands around its rollouts: `sterling list sources`; several joined by +"
    add("--sources", metavar="WORD", help=around)
    anew = "replay what was achieved as what was wanted: future, final, future:0.8 (docs/goals.md)"
    add("--hindsight", metavar="WORD", help=anew)


def judging_options(add: Any) -> None:
    """How the returns of seeds are judged."""
    ends = (
        "what returns cannot leave, for an environment of your own: 0,500, or 0, for no upper end"
    )
    add("--return-within", type=readers.within, metavar="LOW,HIGH", help=ends)
    counts = "what a failed seed counts as: a number, worst or exclude (no single estimate then)"
    add("--failed", type=readers.failed, metavar="SCORE", help=counts)


def log_options(parser: argparse.ArgumentParser) -> None:
    """How logged experience is learned from."""
    add = parser.add_argument_group("learning from logged experience").add_argument
    add("--updates", type=readers.integer, metavar="N", help="from the log alone, before any step")
    judged = "to be judged (and with --steps to act) in; else the one that FILE names"
    add("--environment", metavar="ENV", help=judged)
    add("--data", type=Path, metavar="FILE", help="the log, where ENVIRONMENT is no file")
    of_batch = "of each batch that comes from the log once there are steps (0.5)"
    add("--share", type=readers.number, metavar="X", help=of_batch)
    best = "only so much of the episodes, those with the largest returns (1)"
    add("--top", type=readers.number, metavar="X", help=best)
    drawn = "how rows are drawn: uniform, episodes or return (uniform)"
    add("--sampling", metavar="WORD", help=drawn)
    changed = "change every batch, as gaussian:0.0003 or reflection:-+/-; see docs/relabel.md"
    add("--augment", metavar="CHANGE", help=changed)
    broken = "learn even from a file in which sterling data check finds errors"
    add("--unchecked", action="store_true", default=None, help=broken)


def _bridge_options(parser: argparse.ArgumentParser) -> None:
    """How a run goes on from a log, or from an earlier run, into the world."""
    add = parser.add_argument_group("going on in the world").add_argument
    guide = "run whose policies help to act (with --steps)"
    add("--guide", type=Path, metavar="FOLDER", help=guide)
    way = "jump-start: they begin every episode; expansion: a critic chooses (jump-start)"
    add("--guiding", metavar="WAY", help=way)
    late = "jump-start: the latest step of an episode at which the learner takes over"
    add("--guide-steps", type=readers.integer, metavar="N", help=late)
    later = "a setting that changes with the first step, as alpha=0.4; may be repeated"
    add("--online", type=readers.pair, action="append", default=[], metavar="KEY=X", help=later)
    add_then(add)


def add_then(add: Any) -> None:
    """What comes after a run's steps."""
    after = (
        "what comes after that, as 'steps=60_000 environment=Acrobot-v1 lr=1e-4'; may be repeated"
    )
    add("--then", action="append", default=[], metavar="WORDS", help=after)


def speech_options(parser: argparse.ArgumentParser) -> None:
    """How language models are asked."""
    add = parser.add_argument_group("teaching a language model").add_argument
    which = "nano, tiny, small (new ones), a Hugging Face folder, or a run that taught one (tiny)"
    add("--model", metavar="MODEL", help=which)
    add("--levels", metavar="L", help="difficulties that are asked: 2, 0-3 or 1,4 (the easiest)")
    kept = "share of all questions that is kept to judge by, and never learned from (0)"
    add("--held-out", type=readers.number, metavar="X", help=kept)
    what = "which of them is asked: uniform, advantage or learnable (uniform)"
    add("--curriculum", metavar="WORD", help=what)
    add("--texts", metavar="FILE", help="JSONL to imitate or compare (the world's own solutions)")
    add("--examples", type=readers.integer, metavar="N", help="of the world's solutions (4096)")
    longest = "tokens of a line at most (what the world's scenes need)"
    add("--context", type=readers.integer, metavar="N", help=longest)
    add("--slots", type=readers.integer, metavar="N", help="answers written at a time (64)")
    rank = "teach LoRA adapters of rank N alone (every weight)"
    add("--lora", type=readers.integer, metavar="N", help=rank)
    again = "compute layers again for the gradient: less memory, more work"
    add("--forget", action="store_true", default=None, help=again)
    add("--dump", metavar="FOLDER", help="write every batch of answers into it")
    add("--replay", metavar="FOLDER", help="learn from such batches in place of new answers")
    add("--pool", metavar="FOLDER", help="such batches, to remember right answers of (--again)")
    hangs = "seconds that a scene may take to react (10)"
    add("--patience", type=readers.number, metavar="X", help=hangs)


def carry_out(chosen: argparse.Namespace) -> int:
    """Train, and print what came out; 1 if every seed failed."""
    import sterling
    from sterling import algorithms
    from sterling.envs.registry import find

    algorithms.find(chosen.algorithm)  # a wrong name is told before anything is begun
    plugins.warn_of_clashes(plugins.ALGORITHMS, {chosen.algorithm} & set(ALGORITHMS))
    environment, data = sources(chosen)
    if environment and not fields.speaks(chosen.algorithm):
        find(environment)
    what = importing.short(environment or (data.stem if data else ""))
    out = chosen.out or Path("runs") / run_name(chosen.algorithm, what)
    given = {name: getattr(chosen, name) for name in FORWARDED}
    asked = {name: value for name, value in given.items() if value is not None} | own(chosen)
    if chosen.online:
        asked["online"] = dict(chosen.online)
    asked |= _guided(chosen) | {"then": chosen.then}
    with show.sinks(chosen, out, vars(chosen) | {"environment": what}) as sinks:
        run = sterling.train(
            chosen.algorithm,
            environment,
            data=data,
            out=out,
            sinks=sinks,
            env_options=dict(chosen.env),
            **asked,
        )
    return show.summary(run)


def run_name(algorithm: str, what: str) -> str:
    """Return a folder's name for a run or a study of an algorithm on ``what``."""
    words = f"{importing.short(algorithm)}-{importing.short(what)}"
    now = datetime.datetime.now()
    return f"{words.replace('/', '-').replace(':', '-')}-{now:%Y%m%d-%H%M%S}"


def _guided(chosen: argparse.Namespace) -> dict[str, Any]:
    """Who helps to act, if somebody does; Mistake for how, without who."""
    from sterling.training.choices import Guidance
    from sterling.types import Mistake

    how = {"how": chosen.guiding, "steps": chosen.guide_steps}
    how = {name: value for name, value in how.items() if value is not None}
    if chosen.guide:
        return {"guide": Guidance(str(chosen.guide.resolve()), **how)}
    if how:
        raise Mistake("guiding and guide-steps say how a guide helps; name it: --guide FOLDER")
    return {}


def sources(chosen: argparse.Namespace) -> tuple[str | None, Path | None]:
    """Environment and log: the one word that may be either is a file where there is one."""
    outside = chosen.world.endswith(importing.SUFFIX)  # no log, but a world whose name is missing
    no_log = outside or not Path(chosen.world).exists()
    if fields.speaks(chosen.algorithm) or (chosen.environment is None and no_log):
        return chosen.world, chosen.data
    if chosen.data is not None:
        from sterling.types import Mistake

        raise Mistake(f"two logs are named, {chosen.world} and {chosen.data}; name one")
    return chosen.environment, Path(chosen.world)


def own(chosen: argparse.Namespace) -> dict[str, Any]:
    """The algorithm's fields that were set."""
    names = [field.name for field in fields.config(chosen.algorithm)[1]]
    return {name: getattr(chosen, name) for name in names if hasattr(chosen, name)}
