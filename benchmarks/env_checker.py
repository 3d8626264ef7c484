"""Stable-Baselines3's and Gymnasium's environment checkers on every native world.

    .venv-bench/bin/python benchmarks/env_checker.py      (made by `make bench`)

Apart from the tests because Stable-Baselines3 needs PyTorch. Prints one line per world; exit code 1
if a checker objects to any.
"""

from __future__ import annotations

import sys
import warnings

import gymnasium.utils.env_checker
import stable_baselines3.common.env_checker

from sterling.envs.gymnasium_export import as_gymnasium
from sterling.envs.native import classic_control
from sterling.envs.probes import probe_worlds


def main() -> int:
    """Print every world's objections; 1 if there are any."""
    tasks = {name: classic_control.make(name)[0] for name in sorted(classic_control.TASKS)}
    tasks |= {f"probe:{name}": probe_worlds.make_probe(name) for name in probe_worlds.NAMES}
    bad = 0
    for name, task in tasks.items():
        said = objections(task)
        bad += bool(said)
        print(f"{name:<34}{'; '.join(said) or 'ok'}")
    return int(bad > 0)


def objections(task: object) -> list[str]:
    """What either checker complains of; their advice (warnings) is only about taste."""
    said = []
    for check in (
        stable_baselines3.common.env_checker.check_env,
        gymnasium.utils.env_checker.check_env,
    ):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                check(as_gymnasium(task))
        except Exception as error:
            said.append(f"{check.__module__.split('.')[0]}: {error}")
    return said


if __name__ == "__main__":
    sys.exit(main())
