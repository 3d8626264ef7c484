"""``sterling data record``: record a trained run's policies, or what a human plays in a window."""

from __future__ import annotations

import argparse
import contextlib
from pathlib import Path
from typing import Any

from sterling.commands.data_make import ProgressLine
from sterling.commands.options import option_values

EXPLAINED = """\
A run's policies act greedily (or with --noise, or exploring as in training) in the run's
environment. With --by, a window opens and you play: a Gymnasium environment, or a
factory in FILE.py:make that renders pictures. Episodes are written as they end; an
existing recording is appended to. Escape ends, Backspace discards the episode.

  sterling data record runs/cheetah --episodes 100 --noise 0.1 --out data/cheetah
  sterling data record CartPole-v1 --by keyboard --keys left=0,right=1 --out data/demo
  sterling data record LunarLander-v3 --by gamepad --env continuous=True --axes=0,-1 --out data/demo

Actions of several components are written with colons: --keys "w=0:1,s=0:-1". To record
any loop of your own, wrap its environment in sterling.data.Recorder (docs/record.md)."""
OF_RUNS, BY_HAND = ("noise", "explore", "key"), ("keys", "axes", "idle", "wait", "fps")


def add_options(one: argparse.ArgumentParser) -> None:
    """Add the options of ``sterling data record``."""
    one.description, one.epilog = "record a run's policies, or what you play", EXPLAINED
    one.formatter_class = argparse.RawDescriptionHelpFormatter
    add: Any = one.add_argument
    add("what", metavar="RUN|ENV", help="the folder of a run; or, with --by, an environment")
    add("--out", type=Path, required=True, metavar="FOLDER", help="folder to write")
    count = "episodes to record, of a run: of every seed (20; with --by until the window closes)"
    add("--episodes", type=option_values.integer, metavar="N", help=count)
    which = "of a run: the seed whose policy acts (all); with --by: the seed of the first reset"
    add("--seed", type=option_values.integer, metavar="N", help=which)
    example = "an option of the environment, such as max_episode_steps=500; may be repeated"
    add("--env", type=option_values.key_value, action="append", default=[], metavar="KEY=VALUE",
        help=example)  # fmt: skip
    add = one.add_argument_group("a run's policies").add_argument
    added = "standard deviation added to actions in [-1, 1]; for choices the probability of a "
    added += "random one (0)"
    add("--noise", type=option_values.number, metavar="X", help=added)
    as_then = "act as in training, and store log_prob where the policy has one"
    add("--explore", action="store_true", default=None, help=as_then)
    add("--key", type=option_values.integer, metavar="N", help="random seed of the recording (0)")
    add = one.add_argument_group("playing yourself").add_argument
    add("--by", metavar="DEVICE", help="keyboard or gamepad")
    bound = "keys and their actions, as left=0,right=1 (those that the environment declares)"
    add("--keys", metavar="KEY=ACTION,...", help=bound)
    axes = "the gamepad's axis for each component; - inverts: --axes=0,-1 (component i: axis i)"
    add("--axes", metavar="N,...", help=axes)
    add("--idle", metavar="ACTION", help="the action while nothing is pressed (0)")
    once = "the environment waits for a key: one step for each press"
    add("--wait", action="store_true", default=None, help=once)
    pace = "steps per second (the environment's render_fps, or 30)"
    add("--fps", type=option_values.number, metavar="N", help=pace)


def carry_out(chosen: argparse.Namespace) -> int:
    """Record, and print what was recorded."""
    from sterling.data import Dataset
    from sterling.types import Mistake

    wrong = OF_RUNS if chosen.by else BY_HAND
    given = ["--" + name for name in wrong if getattr(chosen, name) is not None]
    if given:
        other = "is for a run's policies" if chosen.by else "needs --by keyboard or --by gamepad"
        raise Mistake(f"{', '.join(given)} {other}. Leave it out.")
    recorded = _record_by_hand(chosen) if chosen.by else _record_run(chosen)
    if not recorded:
        print("no episode was recorded")
        return 0
    data = Dataset(chosen.out)
    new = f", {recorded} of them new" if recorded < data.episodes else ""
    mean = f"mean return {data.returns.mean():g}"
    print(f"{chosen.out}: {data.episodes} episodes{new}, {data.rows} rows, {mean}")
    for source in data.facts.sources:
        print(source.name)
    return 0


def _record_run(chosen: argparse.Namespace) -> int:
    from sterling.data_generation.run_recording import RunRecording, record_run
    from sterling.types import Mistake

    folder = Path(chosen.what).expanduser()
    if not (folder / "config.json").is_file():
        raise Mistake(
            f"{chosen.what} is no folder of a run. Name one; or, to play an environment yourself, "
            "add --by keyboard"
        )
    asked = RunRecording(
        folder,
        20 if chosen.episodes is None else chosen.episodes,
        chosen.seed,
        chosen.noise or 0.0,
        bool(chosen.explore),
        chosen.key or 0,
        dict(chosen.env),
    )
    with contextlib.closing(ProgressLine()) as shown:
        return record_run(asked, chosen.out, shown.say).episodes


def _record_by_hand(chosen: argparse.Namespace) -> int:
    from sterling.data_generation.demonstrations.play_and_record import (
        DemonstrationOrder,
        record_demonstrations,
    )

    given = {name: getattr(chosen, name) for name in (*BY_HAND, "episodes", "seed")}
    asked = {name: value for name, value in given.items() if value is not None}
    order = DemonstrationOrder(chosen.what, chosen.by, env_options=dict(chosen.env), **asked)
    return record_demonstrations(order, chosen.out)
