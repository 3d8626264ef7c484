"""``sterling export FOLDER WHERE``: a language model that a run taught, as others open it."""

from __future__ import annotations

import argparse
from pathlib import Path

from sterling.commands import readers


def options(parser: argparse.ArgumentParser) -> None:
    """What can be asked for."""
    add = parser.add_argument
    add("folder", metavar="FOLDER", type=Path, help="of the run")
    add("where", metavar="WHERE", type=Path, help="the folder to write: as Hugging Face has them")
    add("--seed", type=readers.integer, metavar="N", help="whose model (the run's first)")
    alone = "LoRA's matrices by themselves, as PEFT has them (added to the weights)"
    add("--adapters", action="store_true", help=alone)
    add("--overwrite", action="store_true", help="replace what is in WHERE")


def carry_out(chosen: argparse.Namespace) -> int:
    """Write the folder, and print where it is."""
    import sterling
    from sterling import language
    from sterling.language import peft

    run = sterling.load(chosen.folder)
    model, tokenizer = run.language_model(chosen.seed)
    if chosen.adapters:
        assert run.settings.speech is not None  # language_model has refused other runs
        base = run.settings.speech.model
        made = peft.write(chosen.where, model, base, overwrite=chosen.overwrite)
    else:
        made = language.save(chosen.where, model, tokenizer, overwrite=chosen.overwrite)
    print(made)
    return 0
