"""``sterling export FOLDER WHERE``: write a control policy as a file, or a trained language model
as a Hugging Face folder."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from sterling.commands.options import option_values

POLICY_FILES = (".onnx", ".npz", ".safetensors", ".c")
POLICY_OPTIONS = ("sample", "steps", "tolerance")
LANGUAGE_OPTIONS = ("adapters",)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``sterling export``."""
    add = parser.add_argument
    known = ", ".join(POLICY_FILES)
    where = f"control policies: the file to write ({known}); language models: the folder to write"
    add("folder", metavar="FOLDER", type=Path, help="the run's folder")
    add("where", metavar="WHERE", type=Path, help=where)
    which = "the seed whose policy or model is written (the run's first)"
    add("--seed", type=option_values.integer, metavar="N", help=which)
    add("--overwrite", action="store_true", help="replace an existing WHERE")
    policies = parser.add_argument_group("control policies")
    noisy = "sample actions as in training; the random numbers are inputs of the file"
    policies.add_argument("--sample", action="store_true", help=noisy)
    steps = "steps of the run's environment in which the file's actions are compared (300)"
    policies.add_argument("--steps", type=option_values.integer, metavar="N", help=steps)
    most = "largest difference of an action that is allowed, relative above 1 (1e-4)"
    policies.add_argument("--tolerance", type=option_values.number, metavar="X", help=most)
    language = parser.add_argument_group("language models")
    alone = "write only the LoRA adapters, as a PEFT folder, instead of merging them"
    language.add_argument("--adapters", action="store_true", help=alone)


def carry_out(chosen: argparse.Namespace) -> int:
    """Write the policy or the model, and print what was written."""
    import sterling
    from sterling.system.atomic_files import check_writable
    from sterling.types import Mistake

    check_writable(Path(chosen.where))
    run = sterling.load(chosen.folder)
    if run.settings.speech is None:
        return _write_policy(chosen, run)
    _refuse(chosen, POLICY_OPTIONS, f"{chosen.folder} trained a language model")
    if chosen.where.suffix in POLICY_FILES:
        raise Mistake(
            f"{chosen.where}: a language model is written as a folder, for transformers and vLLM. "
            f"Name it {chosen.where.with_suffix('')}."
        )
    return _write_language_model(chosen, run)


def _write_policy(chosen: argparse.Namespace, run: Any) -> int:
    """Write a control policy's file, and print how its actions agree with the run's own."""
    from sterling.deploy.export_policy import export_policy
    from sterling.types import Mistake

    _refuse(chosen, LANGUAGE_OPTIONS, f"{chosen.folder} trained a control policy")
    if chosen.where.suffix in POLICY_FILES and chosen.where.exists() and not chosen.overwrite:
        raise Mistake(f"{chosen.where} exists. Add --overwrite, or choose another name.")
    given = {"steps": chosen.steps, "tolerance": chosen.tolerance}
    given = {name: value for name, value in given.items() if value is not None}
    made = export_policy(run, chosen.where, seed=chosen.seed, sample=chosen.sample, **given)
    print(made)
    return 0


def _refuse(chosen: argparse.Namespace, names: tuple[str, ...], fact: str) -> None:
    """Raise Mistake if an option was given that belongs to the other kind of run."""
    from sterling.types import Mistake

    for name in names:
        if getattr(chosen, name) not in (None, False):
            raise Mistake(f"{fact}, so --{name} has no meaning. Leave it out.")


def _write_language_model(chosen: argparse.Namespace, run: Any) -> int:
    """Write the folder, and print its path. Weights are converted from float32, used in training,
    to the dtype of the base model's folder, for instance bfloat16."""
    from sterling import language
    from sterling.language.models import peft_folder
    from sterling.system.atomic_files import explain_write_errors

    model, tokenizer = run.language_model(chosen.seed)
    _refuse_reward_model(chosen.folder, run.settings.algorithm)
    base = _base_folder(run, model) if chosen.adapters else ""
    with explain_write_errors(Path(chosen.where)):
        if chosen.adapters:
            made = peft_folder.write_adapters(chosen.where, model, base, overwrite=chosen.overwrite)
        else:
            made = language.save(chosen.where, model, tokenizer, overwrite=chosen.overwrite)
    print(made)
    return 0


def _refuse_reward_model(folder: Path, algorithm: str) -> None:
    """Raise Mistake for a reward model: a Hugging Face folder of a language model has no scores."""
    from sterling.types import Mistake

    if algorithm == "reward":
        raise Mistake(
            f"{folder} is a reward model, which cannot be exported as a language model. Use it as "
            f"the reward of an environment: scored:{folder}:WORLD"
        )


def _base_folder(run: Any, model: Any) -> str:
    """Return the Hugging Face folder that a run's adapters belong to; raise Mistake if it has no
    such folder."""
    from sterling.language.models import lora
    from sterling.training.language.base_model import starting_model
    from sterling.types import Mistake

    name = run.settings.speech.model
    base = starting_model(name)
    if lora.adapted_linears(model) and (base.run or base.size):
        what = "a run" if base.run else "a new model"
        raise Mistake(
            f"The adapters belong to {name}, {what}, which PEFT cannot open. Leave out --adapters, "
            "or train adapters of an exported folder."
        )
    return str(name)
