"""Replay across experiments (Tirumala 2023, arXiv:2311.15951): what an earlier experiment lived
through is half of every batch of the next one.

sterling data make Hopper-v5 --quality medium-replay --size 400_000 --out data/before
python examples/bridge/cross_experiment.py data/before STEPS
"""

import sys

import sterling


def train(before, steps, **options):
    """The next experiment may have another algorithm, network or seed."""
    return sterling.train("sac", data=before, steps=steps, share=0.5, **options)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(f"usage: {__doc__.splitlines()[-1]}")
    print(train(sys.argv[1], int(sys.argv[2]), seeds=3).result["final"]["return"])
