"""One combinator, two worlds: `Mix` feeds a control agent and a language agent.

    python examples/language/one_combinator.py

Old experience beside new is RLPD where the rows are transitions (Ball 2023) and RLEP where they are
answers (arXiv:2507.07451). In both runs below the source is the same class,
`sterling.experience.offline.mixed_sources.Mix`; the learners do not know of it.
"""

import tempfile
from pathlib import Path

import sterling
from sterling.data_generation.dataset_order import DatasetOrder
from sterling.data_generation.make_dataset import make_dataset


def control(folder: Path) -> None:
    """SAC on Pendulum: half of every batch from a log, half lived through."""
    make_dataset(DatasetOrder("Pendulum-v1", "random", 5_000), folder / "log")
    run = sterling.train(
        "sac", "Pendulum-v1", data=folder / "log", steps=5_000, share=0.5, evaluate_episodes=10
    )
    print("control: ", run.result["final"]["return"])


def language(folder: Path) -> None:
    """GRPO on copying: 12 questions of each batch are asked, 4 come from a pool of answers some of
    which were right."""
    learned = {"model": str(folder / "sft"), "limit": 8, "lr": 2e-4}
    sterling.train("sft", "copy-text", updates=60, out=folder / "sft", limit=8)
    sterling.train("grpo", "copy-text", updates=10, dump=str(folder / "pool"), **learned)
    run = sterling.train(
        "grpo", "copy-text", updates=20, again=4, pool=str(folder / "pool"), **learned
    )
    print("language:", run.result["final"]["return"])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        control(Path(name))
        language(Path(name))
