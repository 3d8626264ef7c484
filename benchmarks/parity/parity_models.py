"""What the trainers are built from: a tiny real model whose body is a table of logits."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen2ForSequenceClassification,
)
from transformers.modeling_outputs import BaseModelOutputWithPast

VOCABULARY, PROMPTS = 11, 6  # tokens 0 to 5 are prompts (one token, the row), 6 to 10 answers


class Table(torch.nn.Module):
    """A language model's body: its hidden states are the logits stored for the row whose number
    the prompt is. The state before token t of the answer is that of position t."""

    def __init__(self, logits: list[Any]):
        super().__init__()
        self.logits = torch.nn.Parameter(torch.tensor(logits, dtype=torch.float32))
        self.embed_tokens = torch.nn.Embedding(1, 1)  # transformers looks for one; not used

    def forward(self, input_ids: torch.Tensor, **_: Any) -> BaseModelOutputWithPast:
        rows = self.logits[input_ids[:, 0]]
        spare = rows.new_zeros(rows.shape[0], 1, rows.shape[2])  # after the last token
        states = torch.cat([rows, spare], 1)[:, : input_ids.shape[1]]
        return BaseModelOutputWithPast(last_hidden_state=states)

    def say(self, logits: list[Any]) -> None:
        """As after an update: other logits in the same parameter."""
        self.logits.data = torch.tensor(logits, dtype=torch.float32)

    def gradient(self) -> list[Any]:
        return self.logits.grad.tolist()


@dataclasses.dataclass
class Scores:
    """What a model for sequence classification returns."""

    logits: torch.Tensor


def config() -> Qwen2Config:
    """The smallest Qwen2 that the trainers accept."""
    return Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=VOCABULARY + 1,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        tie_word_embeddings=False,
        eos_token_id=VOCABULARY - 1,
        pad_token_id=VOCABULARY - 2,
    )


def save(folder: str) -> None:
    """A tiny random model and its tokenizer, from which trainers load."""
    Qwen2ForCausalLM(config()).save_pretrained(folder)
    tokenizer().save_pretrained(folder)


def scorer(folder: str) -> Qwen2ForSequenceClassification:
    """A reward model of random weights."""
    settings = config()
    settings.num_labels = 1
    settings._name_or_path = folder
    return Qwen2ForSequenceClassification(settings)


def speak_from(model: Qwen2ForCausalLM, table: Table) -> None:
    """Put the table in the place of the body, and the identity in that of the last layer."""
    model.model = table
    model.lm_head = torch.nn.Linear(VOCABULARY, VOCABULARY, bias=False)
    model.lm_head.weight.data = torch.eye(VOCABULARY)
    model.train()


def tokenizer() -> PreTrainedTokenizerFast:
    """A word for every token."""
    words = {letter: number for number, letter in enumerate("abcdefghijk")}
    made = Tokenizer(models.WordLevel(words, unk_token="a"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=made, eos_token="k", pad_token="j", bos_token="a", unk_token="a"
    )


def arguments(folder: str, rows: int) -> dict[str, Any]:
    """What every trainer's config is given."""
    return {
        "output_dir": folder,
        "per_device_train_batch_size": rows,
        "report_to": "none",
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "disable_tqdm": True,
    }


def prompts(rows: int) -> Dataset:
    """As many rows of one prompt."""
    return Dataset.from_dict({"prompt": ["a"] * rows})


def preferences() -> Dataset:
    """Data that constructors want to see; the losses are computed on the fixed tensors."""
    return Dataset.from_dict(
        {"prompt": ["a ", "b ", "c "], "chosen": ["g h"] * 3, "rejected": ["h i"] * 3}
    )


def judged() -> Dataset:
    """Answers with a thumb up or down, as KTO's constructor wants to see them."""
    return Dataset.from_dict(
        {
            "prompt": ["a ", "b ", "c ", "d "],
            "completion": ["g h", "h g", "i h", "g i"],
            "label": [True, False, True, False],
        }
    )


def compact(value: Any, indent: str = "") -> str:
    """JSON with a list of numbers to a line, numbers to seven places."""
    if isinstance(value, dict):
        parts = [
            f"{json.dumps(name)}: {compact(each, indent + ' ')}" for name, each in value.items()
        ]
        return enclosed("{}", parts, indent)
    if isinstance(value, list) and any(isinstance(each, list) for each in value):
        return enclosed("[]", [compact(each, indent + " ") for each in value], indent)
    if isinstance(value, list):
        return "[" + ", ".join(compact(each) for each in value) + "]"
    return json.dumps(round(value, 7) if isinstance(value, float) else value)


def enclosed(ends: str, parts: list[str], indent: str) -> str:
    """Parts between brackets, a line each."""
    if not parts:
        return ends
    between = f",\n{indent} "
    return f"{ends[0]}\n{indent} {between.join(parts)}\n{indent}{ends[1]}"
