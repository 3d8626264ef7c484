"""The peers' side of the speed benchmark: transformers and TRL, under a Python that has them."""

from __future__ import annotations

import statistics
import tempfile
import time
from typing import Any

import torch
import transformers
from speed_serve import Case, serve
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
UPDATES = 5  # of one measurement of TRL; the first two are warm-up
SETTINGS: dict[str, Any] = {  # GRPO's equation plainly, and nothing beside it
    **{"lr_scheduler_type": "constant", "beta": 0.0, "loss_type": "grpo", "temperature": 1.0},
    **{"bf16": False, "gradient_checkpointing": False, "use_cpu": DEVICE == "cpu"},
    **{"save_strategy": "no", "logging_strategy": "no", "report_to": [], "disable_tqdm": True},
    "max_steps": UPDATES,
}


def sampling(folder: str, *, rows: int, room: int, new: int, threads: int) -> Case:
    """``generate`` with its cache, sampling exactly ``new`` tokens."""
    torch.set_num_threads(threads)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype="auto").eval().to(DEVICE)
    ids = torch.randint(3, model.config.vocab_size, (rows, room), device=DEVICE)
    how = {
        "attention_mask": torch.ones_like(ids),
        "do_sample": True,
        "temperature": 1.0,
        "top_k": 0,
        "top_p": 1.0,
        "use_cache": True,
        "min_new_tokens": new,
        "max_new_tokens": new,
        "pad_token_id": 0,
    }

    def once() -> dict[str, Any]:
        torch.set_num_threads(threads)
        with torch.inference_mode():
            found = model.generate(ids, **how)
        if DEVICE == "cuda":
            torch.cuda.synchronize()
        assert found.shape == (rows, room + new)
        return {"tokens": rows * new}

    return once


def grpo(
    folder: str,
    *,
    questions: list[str],
    prompts: int,
    group: int,
    limit: int,
    lr: float,
    threads: int,
) -> Case:
    """Iterations of GRPOTrainer with a Python function as the reward."""
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    settings = GRPOConfig(
        output_dir=tempfile.mkdtemp(prefix="trl-"),
        per_device_train_batch_size=prompts * group,
        num_generations=group,
        max_completion_length=limit,
        learning_rate=lr,
        **SETTINGS,
    )
    rows = [{"prompt": [{"role": "user", "content": question}]} for question in questions]
    clock = _Clock()
    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32),
        reward_funcs=_reward,
        args=settings,
        train_dataset=Dataset.from_list(rows),
        processing_class=AutoTokenizer.from_pretrained(folder),
        callbacks=[clock],
    )

    def once() -> dict[str, Any]:
        torch.set_num_threads(threads)
        clock.times.clear()
        trainer.train()
        laps = [b - a for a, b in zip(clock.times[1:], clock.times[2:], strict=False)]
        said = trainer.state.log_history[-1]["completions/mean_length"]
        return {"seconds": statistics.median(laps), "mean": float(said)}

    return once


def _reward(completions: list[Any], prompts: list[Any], **_: Any) -> list[float]:
    """1 for the text reversed, as Sterling's verifier has it."""
    asked = [prompt[-1]["content"].removeprefix("reverse ") for prompt in prompts]
    said = [completion[0]["content"] for completion in completions]
    return [float(text == wanted[::-1]) for text, wanted in zip(said, asked, strict=True)]


class _Clock(TrainerCallback):
    """Notes when updates end."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.times.append(time.perf_counter())


def _versions() -> dict[str, str]:
    from importlib.metadata import version

    return {name: version(name) for name in ("torch", "transformers", "trl")}


if __name__ == "__main__":
    transformers.logging.set_verbosity_error()
    serve({"sampling": sampling, "grpo": grpo}, _versions())
