"""Language models as agents: models, tokens, tasks and worlds of text.

>>> from sterling import language
>>> model, tokenizer = language.load("Qwen2.5-0.5B-Instruct")  # a folder from Hugging Face
>>> logits = model(ids)  # (batch, time) -> (batch, time, vocabulary)
>>> language.save("trained", model, tokenizer)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sterling.language.folder import load, save
    from sterling.language.model import LanguageModel, tiny
    from sterling.language.tokenizer import Tokenizer

__all__ = ["LanguageModel", "Tokenizer", "load", "save", "tiny"]

_HOME = {"load": "folder", "save": "folder", "LanguageModel": "model", "tiny": "model"}
_HOME |= {"Tokenizer": "tokenizer"}


def __getattr__(name: str) -> Any:  # JAX and tokenizers are imported once something needs them
    if name in _HOME:
        return getattr(import_module(f"sterling.language.{_HOME[name]}"), name)
    raise AttributeError(f"module 'sterling.language' has no attribute {name!r}")
