"""JSRL (Uchendu 2023, arXiv:2204.02372): an offline policy begins every episode, for a shorter and
shorter while.

python examples/bridge/jsrl.py DATA UPDATES STEPS
"""

import sys

import sterling
from sterling.training.choices import Guidance


def train(data, updates, steps, guide="runs/guide", latest=100, **options):
    """First the guide, then a learner that has never seen the log."""
    shared = {"seeds": options.pop("seeds", 1)}
    environment = options.pop("environment", None)
    sterling.train("iql", environment, data=data, updates=updates, out=guide, **shared)
    world = environment or sterling.Dataset(data).facts.environment
    help_ = Guidance(guide, "jump-start", steps=latest)
    return sterling.train("sac", world, steps=steps, guide=help_, **shared, **options)


if __name__ == "__main__":
    print(train(sys.argv[1], *map(int, sys.argv[2:]), seeds=3).result["final"]["return"])
