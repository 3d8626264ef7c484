"""JSRL (Uchendu 2023, arXiv:2204.02372): an offline policy begins every episode, for a shorter and
shorter while.

python examples/bridge/jsrl.py DATA UPDATES STEPS
"""

import sys
from pathlib import Path

import sterling
from sterling.training.config.run_options import Guidance


def train(data, updates, steps, guide=None, latest=100, **options):
    """First the guide, unless it is there, then a learner that has never seen the log."""
    guide = guide or f"runs/jsrl-guide-{Path(data).stem}-{updates}"
    shared = {"seeds": options.pop("seeds", 1)}
    environment = options.pop("environment", None)
    if Path(guide, "config.json").exists():
        sterling.resume(guide)  # it is finished, or goes on
    else:
        sterling.train("iql", environment, data=data, updates=updates, out=guide, **shared)
    world = environment or sterling.Dataset(data).facts.environment
    help_ = Guidance(guide, "jump-start", steps=latest)
    return sterling.train("sac", world, steps=steps, guide=help_, **shared, **options)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(f"usage: {__doc__.splitlines()[-1]}")
    print(train(sys.argv[1], *map(int, sys.argv[2:]), seeds=3).result["final"]["return"])
