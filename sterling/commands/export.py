"""``sterling export FOLDER WHERE``: a language model that a run taught, as others open it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from sterling.commands import readers


def options(parser: argparse.ArgumentParser) -> None:
    """What can be asked for."""
    add = parser.add_argument
    where = "the folder to write, as Hugging Face has them, in the type that the model came in"
    add("folder", metavar="FOLDER", type=Path, help="of the run")
    add("where", metavar="WHERE", type=Path, help=where)
    add("--seed", type=readers.integer, metavar="N", help="whose model (the run's first)")
    alone = "LoRA's matrices by themselves, as PEFT has them (added to the weights)"
    add("--adapters", action="store_true", help=alone)
    add("--overwrite", action="store_true", help="replace what is in WHERE")


def carry_out(chosen: argparse.Namespace) -> int:
    """Write the folder, and print where it is. Weights have the type of the folder that was taught,
    bfloat16 say; while they were taught they had float32."""
    import sterling
    from sterling import language
    from sterling.disk import try_place, writing
    from sterling.language import peft

    try_place(Path(chosen.where))
    run = sterling.load(chosen.folder)
    model, tokenizer = run.language_model(chosen.seed)
    _refuse_judge(chosen.folder, run.settings.algorithm)
    base = _base(run, model) if chosen.adapters else ""
    with writing(Path(chosen.where)):
        if chosen.adapters:
            made = peft.write(chosen.where, model, base, overwrite=chosen.overwrite)
        else:
            made = language.save(chosen.where, model, tokenizer, overwrite=chosen.overwrite)
    print(made)
    return 0


def _refuse_judge(folder: Path, algorithm: str) -> None:
    """Raise Mistake for a reward model: its score is no part of a model that speaks."""
    from sterling.types import Mistake

    if algorithm == "reward":
        remedy = f"use it as the judge of a world, scored:{folder}:WORLD"
        raise Mistake(f"{folder} is a reward model, whose scores no such folder holds; {remedy}")


def _base(run: Any, model: Any) -> str:
    """The Hugging Face folder that a run's adapters belong to; Mistake where it is none."""
    from sterling.language import lora
    from sterling.training.begun import start
    from sterling.types import Mistake

    name = run.settings.speech.model
    begun = start(name)
    if lora.adapted(model) and (begun.run or begun.size):
        what = "a run" if begun.run else "a size of new models"
        remedy = "leave out --adapters, or teach adapters to a folder that was exported"
        raise Mistake(f"the adapters belong to {name}, {what}, which PEFT cannot open; {remedy}")
    return str(name)
