"""RLPD (Ball 2023, arXiv:2302.02948): learn online, half of every batch from the log.

python examples/bridge/rlpd.py DATA STEPS
"""

import sys

import sterling


def train(data, steps, **options):
    """Many critics with layer normalisation, targets of two of them, several updates a step."""
    design = {"members": 10, "subset": 2, "diversity": None, "layer_norm": True, "learn": 4}
    return sterling.train("edac", data=data, steps=steps, share=0.5, **(design | options))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(f"usage: {__doc__.splitlines()[-1]}")
    print(train(sys.argv[1], int(sys.argv[2]), seeds=3).result["final"]["return"])
