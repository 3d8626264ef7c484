"""Language models as agents: tasks, scenes, dialogue, tokens. Models and tools have rooms.

>>> from sterling import language
>>> model, tokenizer = language.load("Qwen2.5-0.5B-Instruct")  # a folder from Hugging Face
>>> logits = model(ids)  # (batch, time) -> (batch, time, vocabulary)
>>> language.save("trained", model, tokenizer)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sterling.language.models.causal_lm import LanguageModel, tiny
    from sterling.language.models.model_folder import load, save
    from sterling.language.tokenizer import Tokenizer

__all__ = ["LanguageModel", "Tokenizer", "load", "save", "tiny"]

_HOME = {"load": "models.model_folder", "save": "models.model_folder"}
_HOME |= {"LanguageModel": "models.causal_lm", "tiny": "models.causal_lm"}
_HOME |= {"Tokenizer": "tokenizer"}


def __getattr__(name: str) -> Any:  # imports JAX and tokenizers only when something needs them
    if name in _HOME:
        return getattr(import_module(f"sterling.language.{_HOME[name]}"), name)
    raise AttributeError(f"module 'sterling.language' has no attribute {name!r}")
