"""PEX (Zhang 2023, arXiv:2302.00935): the offline policy stays as it is, a new one grows beside it,
and a critic chooses between their proposals.

python examples/bridge/pex.py DATA UPDATES STEPS
"""

import sys
from pathlib import Path

import sterling
from sterling.training.config.run_options import Guidance


def train(data, updates, steps, guide=None, **options):
    """The learner's critics come from the log too, which stays half of each batch; a guide that is
    there is taken."""
    guide = guide or f"runs/pex-guide-{Path(data).stem}-{updates}"
    shared = {"seeds": options.pop("seeds", 1), "data": data}
    environment = options.pop("environment", None)
    if Path(guide, "config.json").exists():
        sterling.resume(guide)  # it is finished, or goes on
    else:
        sterling.train("iql", environment, updates=updates, out=guide, **shared)
    help_ = Guidance(guide, "expansion")
    budget = {"updates": updates, "steps": steps}
    return sterling.train("iql", environment, guide=help_, **budget, **shared, **options)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(f"usage: {__doc__.splitlines()[-1]}")
    print(train(sys.argv[1], *map(int, sys.argv[2:]), seeds=3).result["final"]["return"])
