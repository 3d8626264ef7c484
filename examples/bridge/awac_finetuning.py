"""AWAC (Nair 2020, arXiv:2006.09359): the same learner on the log, then in the world.

python examples/bridge/awac_finetuning.py DATA UPDATES STEPS
"""

import sys

import sterling


def train(data, updates, steps, **options):
    """No line changes at the switch: half of each batch still comes from the log."""
    return sterling.train("awac", data=data, updates=updates, steps=steps, share=0.5, **options)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(f"usage: {__doc__.splitlines()[-1]}")
    print(train(sys.argv[1], *map(int, sys.argv[2:]), seeds=3).result["switch"])
