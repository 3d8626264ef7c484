"""Losses and gradients of TRL's own trainers on fixed tensors, written to results/trl.json.

    python -m benchmarks.parity.trl    # in the project's folder; a Python that has trl and torch

Every number comes out of TRL: its constructors build the trainers, its
``_generate_and_score_completions`` makes the advantages, its ``_compute_loss`` (or the trainer's
like) the loss, and autograd the gradient. What is put in their place is the language model's body,
by a table of logits (see ``parity_models.py``), and the sampling, by the table's answers.
``tests/equations/test_trl.py`` reads the file and holds Sterling's equations to it.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
import trl
from trl.experimental.cpo import CPOConfig, CPOTrainer
from trl.experimental.orpo import ORPOConfig, ORPOTrainer
from trl.rewards import get_soft_overlong_punishment

from benchmarks import evidence
from benchmarks.parity import parity_models as models

ROWS, TOKENS, GROUP = 6, 7, 3
LENGTHS = [7, 4, 7, 4, 4, 7]
REWARDS = [1.0, 0.0, 0.3, 0.0, 0.0, 1.0]
UNSCORED = [1.0, None, 0.3, 0.0, 0.0, 1.0]
OUT = Path(__file__).parent / "results" / "trl.json"

KL = {"beta": 0.1, "use_bias_correction_kl": False}
CORRECTED = {"beta": 0.1, "use_bias_correction_kl": True}  # TRL's default where beta > 0
PRESETS: dict[str, dict[str, Any]] = {
    "grpo": {"loss_type": "grpo"},
    "dr_grpo": {"loss_type": "dr_grpo", "scale_rewards": "none"},
    "dapo": {"loss_type": "dapo", "epsilon_high": 0.28},
    "cispo": {"loss_type": "cispo", "epsilon_high": 1.4},
    "gspo": {
        "loss_type": "grpo",
        "importance_sampling_level": "sequence",
        "epsilon": 0.03,
        "epsilon_high": 0.04,
    },
}
POLICY: dict[str, dict[str, Any]] = {
    **PRESETS,
    **{f"{name}, kl": {**options, **KL} for name, options in PRESETS.items()},
    **{f"{name}, kl corrected": {**options, **CORRECTED} for name, options in PRESETS.items()},
    "grpo, scaled by batch": {"loss_type": "grpo", "scale_rewards": "batch"},
    "grpo, not scaled": {"loss_type": "grpo", "scale_rewards": "none"},
    "grpo, one unscorable": {"loss_type": "grpo", "rewards": UNSCORED},
    "grpo, delta": {"loss_type": "grpo", "delta": 1.5},
    "bnpo": {"loss_type": "bnpo"},
    "dapo, tool tokens": {"loss_type": "dapo", "epsilon_high": 0.28, "tools": True},
    "rloo": {"beta": 0.0},
    "rloo, kl": {"beta": 0.05},
    "rloo, one unscorable": {"beta": 0.0, "rewards": UNSCORED},
    "rloo, whitened": {"beta": 0.0, "normalize_advantages": True},
}
PAIRS: dict[str, dict[str, Any]] = {
    "dpo": {"loss_type": ["sigmoid"]},
    "ipo": {"loss_type": ["ipo"]},
    "hinge": {"loss_type": ["hinge"], "beta": 0.3},
    "robust": {"loss_type": ["robust"], "label_smoothing": 0.1},
}
SMOOTH = {"cpo": ("sigmoid", 0.2), "cpo, ipo": ("ipo", 0.0), "simpo": ("simpo", 0.0)}


def tensors() -> dict[str, Any]:
    """The fixed inputs: tokens, mask, and logits of the new, the old and the reference policy."""
    rng = np.random.default_rng(0)
    shape = (ROWS, TOKENS, models.VOCABULARY)
    old = rng.normal(size=shape)
    new, reference = old + 0.5 * rng.normal(size=shape), old + 0.5 * rng.normal(size=shape)
    tokens = rng.integers(models.PROMPTS, models.VOCABULARY, (ROWS, TOKENS))
    tools = np.ones((ROWS, TOKENS), int)
    tools[0, 2:4], tools[3, 1], tools[5, 5:] = 0, 0, 0
    logits = {"new": new, "old": old, "reference": reference}
    return {
        "tokens": tokens.tolist(),
        "lengths": LENGTHS,
        "group": [row // GROUP for row in range(ROWS)],
        "rewards": REWARDS,
        "tools": tools.tolist(),
        **{name: np.round(each, 4).tolist() for name, each in logits.items()},
    }


def policy_case(folder: str, fixed: dict[str, Any], name: str, options: dict[str, Any]) -> Any:
    """A GRPO or RLOO trainer: it scores what the old policy sampled, then the new one is judged."""
    options = dict(options)
    rewards, tools = options.pop("rewards", REWARDS), options.pop("tools", False)
    is_rloo = name.startswith("rloo")
    trainer = policy_trainer(folder, is_rloo, rewards, options)
    table = models.Table(fixed["old"])
    models.speak_from(trainer.model, table)
    if trainer.beta != 0.0:
        models.speak_from(trainer.ref_model, models.Table(fixed["reference"]))
    answers = [fixed["tokens"][row][:length] for row, length in enumerate(LENGTHS)]
    own = [fixed["tools"][row][:length] for row, length in enumerate(LENGTHS)] if tools else None
    made, texts = ([[row] for row in range(ROWS)], answers), [""] * ROWS
    trainer._generate = lambda _: (
        (*made, texts) if is_rloo else (*made, own, texts, None, {}, None, [])
    )
    trainer.current_gradient_accumulation_steps = 1
    batch = trainer._generate_and_score_completions([{"prompt": "a"}] * ROWS)
    table.say(fixed["new"])
    loss = trainer._compute_loss(trainer.model, batch)
    found = {**finish(loss, table), "advantages": batch["advantages"].tolist()}
    return found | {"options": options, "rewards": rewards, "tools": tools}


def policy_trainer(
    folder: str, is_rloo: bool, rewards: list[float | None], options: dict[str, Any]
) -> Any:
    """A trainer whose reward function gives ``rewards``."""

    def judge(completions: list[Any], **_: Any) -> list[float | None]:
        return list(rewards)

    config = trl.RLOOConfig if is_rloo else trl.GRPOConfig
    args = config(
        **models.arguments(folder, ROWS),
        num_generations=GROUP,
        max_completion_length=2 * TOKENS,
        num_iterations=2,  # so that the old policy's log-probabilities are kept
        **options,
    )
    trainer_class = trl.RLOOTrainer if is_rloo else trl.GRPOTrainer
    return trainer_class(
        model=folder,
        reward_funcs=judge,
        args=args,
        train_dataset=models.prompts(ROWS),
        processing_class=models.tokenizer(),
    )


def paired(fixed: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Rows 0-2 are chosen, rows 3-5 rejected answers; each prompt is its row's number."""
    ids = torch.tensor([[row, *fixed["tokens"][row]] for row in range(ROWS)])
    there = torch.arange(TOKENS + 1)[None] <= torch.tensor(LENGTHS)[:, None]
    answer = there.clone()
    answer[:, 0] = False
    return {
        "input_ids": ids,
        "attention_mask": there.long(),
        "completion_mask": answer.long(),
    }


def dpo_case(folder: str, fixed: dict[str, Any], options: dict[str, Any]) -> Any:
    """DPO and its kin with a reference: loss and gradient on the fixed tensors."""
    trainer = trl.DPOTrainer(
        model=folder,
        args=trl.DPOConfig(**models.arguments(folder, GROUP), **options),
        train_dataset=models.preferences(),
        processing_class=models.tokenizer(),
    )
    table = models.Table(fixed["new"])
    models.speak_from(trainer.model, table)
    models.speak_from(trainer.ref_model, models.Table(fixed["reference"]))
    found = finish(trainer._compute_loss(trainer.model, paired(fixed), False), table)
    return found | {"options": options, "beta": trainer.beta}


def kto_case(folder: str, fixed: dict[str, Any], options: dict[str, Any]) -> Any:
    """Rows 0, 2 and 5 are desirable; the mismatched answers are those of the row before."""
    trainer = trl.KTOTrainer(
        model=folder,
        args=trl.KTOConfig(**models.arguments(folder, ROWS), **options),
        train_dataset=models.judged(),
        processing_class=models.tokenizer(),
    )
    table = models.Table(fixed["new"])
    models.speak_from(trainer.model, table)
    models.speak_from(trainer.ref_model, models.Table(fixed["reference"]))
    batch = paired(fixed)
    shifted = {f"KL_{name}": torch.roll(each, 1, 0) for name, each in batch.items()}
    shifted["KL_input_ids"][:, 0] = batch["input_ids"][:, 0]
    desirable = [True, False, True, False, False, True]
    batch |= shifted | {"label": torch.tensor(desirable)}
    found = finish(trainer._compute_loss(trainer.model, batch, False), table)
    kl = trainer._metrics["train"]["kl"][-1]
    return found | {"options": options, "desirable": desirable, "kl": kl}


def free_case(folder: str, fixed: dict[str, Any], trainer_class: Any, args: Any) -> Any:
    """ORPO and CPO: no reference."""
    trainer = trainer_class(
        model=transformers.AutoModelForCausalLM.from_pretrained(folder),
        args=args,
        train_dataset=models.preferences(),
        processing_class=models.tokenizer(),
    )
    table = models.Table(fixed["new"])
    models.speak_from(trainer.model, table)
    both, batch = paired(fixed), {}
    for name, rows in (("chosen", slice(0, 3)), ("rejected", slice(3, 6))):
        for part in ("input_ids", "attention_mask"):
            batch[f"{name}_{part}"] = both[part][rows]
        labels = both["input_ids"].masked_fill(both["completion_mask"] == 0, -100)
        batch[f"{name}_labels"] = labels[rows]
    return finish(trainer.get_batch_loss_metrics(trainer.model, batch)[0], table)


def reward_case(folder: str, fixed: dict[str, Any], options: dict[str, Any], margin: bool) -> Any:
    """Bradley-Terry on fixed scores."""
    trainer = trl.RewardTrainer(
        model=models.scorer(folder),
        args=trl.RewardConfig(**models.arguments(folder, GROUP), **options),
        train_dataset=models.preferences(),
        processing_class=models.tokenizer(),
    )
    scores = torch.tensor(fixed["scores"], requires_grad=True)
    trainer.model.forward = lambda **_: models.Scores(scores[:, None])
    batch = {"attention_mask": torch.ones(ROWS, 2)}
    batch |= {"margin": torch.tensor(fixed["margins"])} if margin else {}
    loss = trainer.compute_loss(trainer.model, batch)
    loss.backward()
    return {"loss": loss.item(), "gradient": scores.grad.tolist(), "options": options}


def finish(loss: torch.Tensor, table: models.Table) -> dict[str, Any]:
    """A loss and its gradient by the table's logits."""
    loss.backward()
    return {"loss": loss.item(), "gradient": table.gradient()}


def main() -> None:
    """Run every case, write what came out."""
    begun = evidence.begin()
    torch.manual_seed(0)
    fixed = tensors()
    fixed |= {"scores": [0.5, -1.0, 2.0, 0.1, 0.4, -0.7], "margins": [0.3, 0.0, 1.0]}
    cases: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        models.save(folder)
        base = models.arguments(folder, GROUP)
        for name, options in POLICY.items():
            cases[name] = policy_case(folder, fixed, name, options)
        for name, options in PAIRS.items():
            cases[name] = dpo_case(folder, fixed, options)
        weighted = {"desirable_weight": 1.5, "undesirable_weight": 0.5}
        cases["kto"] = kto_case(folder, fixed, {"loss_type": "kto", **weighted})
        cases["orpo"] = free_case(folder, fixed, ORPOTrainer, ORPOConfig(**base, beta=0.1))
        for name, (kind, smoothing) in SMOOTH.items():
            args = {"loss_type": kind, "label_smoothing": smoothing, "cpo_alpha": 0.0}
            args |= {"simpo_gamma": 0.5, "beta": 0.5}
            cases[name] = free_case(folder, fixed, CPOTrainer, CPOConfig(**base, **args))
            cases[name]["options"] = args
        cases["reward model"] = reward_case(folder, fixed, {}, False)
        centred = {"center_rewards_coefficient": 0.01}
        cases["reward model, margin"] = reward_case(folder, fixed, centred, True)
    overlong = get_soft_overlong_punishment(max_completion_len=20, soft_punish_cache=5)
    lengths = [1, 14, 15, 16, 18, 20, 21, 40]
    cases["overlong"] = {"lengths": lengths, "loss": overlong([[0] * each for each in lengths])}
    versions = {each.__name__: each.__version__ for each in (trl, torch, transformers)}
    found = {"versions": versions, "tensors": fixed, "cases": cases}
    evidence.write(OUT, found, begun, [0], models.compact)
    for name, case in cases.items():
        print(f"{name:24} {json.dumps(case['loss'])}")


if __name__ == "__main__":
    main()
