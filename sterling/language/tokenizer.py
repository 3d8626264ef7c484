"""Text as tokens: the ``tokenizers`` library behind the few verbs that agents need.

A conversation is written down once. What a model said stays the tokens that were sampled; only what
is new is made into tokens, and it begins after a special token, where no token reaches across. So
the tokens are those of the whole text, and no text is made into tokens twice.
"""

from __future__ import annotations

import copy
import functools
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from sterling.language.chat import PLAIN, ROLES, SHORT, Template
from sterling.language.scene import Message
from sterling.types import Mistake

ALPHABET = "\n" + "".join(map(chr, range(32, 127)))  # a new line, and what ASCII prints
END, PAD, UNKNOWN = "<|end|>", "<|pad|>", "<|unknown|>"
PADS = ("<|pad|>", "<|finetune_right_pad_id|>", "<|fim_pad|>", "<pad>", "[PAD]", "<unk>")
NAMES = ("bos_token", "eos_token", "pad_token", "unk_token")
LONGEST = 1 << 30  # what Hugging Face is told of the longest text: there is none


class Tokenizer:
    """Tokens of text and of conversations.

    ``vocabulary``: one more than the largest token. ``end``: the token that closes what the
    assistant says. ``stops``: all tokens after which it is silent, ``end`` first. ``pad``: a token
    that is none of these, so that padding is never taken for an end (many folders name one token
    for both; then another special token pads, or the first that is no stop).

    Made by :meth:`characters`, :meth:`bytes` or :meth:`read`. ``settings`` is the content of
    tokenizer_config.json, ``stops`` are further tokens that end a turn, ``name`` is for errors.
    """

    def __init__(
        self,
        inner: tokenizers.Tokenizer,
        settings: dict[str, Any],
        template: str = "",
        stops: Iterable[int] = (),
        name: str = "the tokenizer",
    ):
        self._inner = inner
        self._settings = copy.deepcopy(settings)
        inner.no_padding()
        inner.no_truncation()
        self.vocabulary = max(inner.get_vocab().values(), default=-1) + 1
        tokens = {each: _content(settings.get(each)) for each in NAMES}
        close = self._number(tokens["eos_token"])
        if close is None:
            raise Mistake(f"{name} has no end token; name it eos_token in tokenizer_config.json")
        self._template = Template(template or PLAIN, tokens, f"{name}'s chat template")
        added = inner.get_added_tokens_decoder()
        self._special = frozenset(number for number, token in added.items() if token.special)
        closing = self.encode(self._template.after([]))
        self.end: int = next((each for each in closing if each in self._special), close)
        further = [each for each in stops if 0 <= each < self.vocabulary]
        self.stops: tuple[int, ...] = tuple(dict.fromkeys([self.end, close, *further]))
        self.pad = self._padding(tokens)

    @classmethod
    def characters(cls, alphabet: str = ALPHABET) -> Tokenizer:
        """Every character is a token, for models that learn from scratch.

        Characters that ``alphabet`` lacks become one token, <|unknown|>. Raises :class:`Mistake`
        for an alphabet without characters.
        """
        if not alphabet:
            raise Mistake("the alphabet has no characters; name those that texts are made of")
        return cls._own(dict.fromkeys(alphabet), [UNKNOWN], decoders.Fuse())

    @classmethod
    def bytes(cls) -> Tokenizer:
        """Every byte of UTF-8 is a token: nothing is unknown, in any language."""
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
        made = cls._own(dict.fromkeys(alphabet), [], decoders.ByteLevel())
        made._inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        return made

    @classmethod
    def _own(cls, alphabet: dict[str, None], more: list[str], decoder: Any) -> Tokenizer:
        special = [PAD, END, *more, *(f"<|{role}|>" for role in ROLES)]
        known = {token: number for number, token in enumerate([*special, *alphabet])}
        unknown = {"unk_token": more[0]} if more else {}
        inner = tokenizers.Tokenizer(models.BPE(known, [], fuse_unk=False, **unknown))
        inner.decoder = decoder
        inner.add_special_tokens(special)
        settings = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": END,
            "pad_token": PAD,
            **unknown,
            "model_max_length": LONGEST,
            "clean_up_tokenization_spaces": False,
        }
        return cls(inner, settings, SHORT)

    @classmethod
    def read(cls, folder: str | Path) -> Tokenizer:
        """The tokenizer of a Hugging Face folder: tokenizer.json, tokenizer_config.json, and
        chat_template.jinja where there is one.

        Where there is no template, conversations are written as :data:`chat.PLAIN` has it. Raises
        :class:`Mistake` for files that are missing or cannot be read.
        """
        folder = Path(folder)
        path = folder / "tokenizer.json"
        if not path.is_file():
            remedy = "open the folder with transformers' AutoTokenizer and save it once"
            raise Mistake(f"{folder} has no tokenizer.json; {remedy}")
        try:
            inner = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises nothing more special
            line = " ".join(str(error).split())
            raise Mistake(f"{path} is damaged ({line}); copy it again") from error
        settings = read_json(folder / "tokenizer_config.json")
        aside = read_json(folder / "special_tokens_map.json")
        settings = {**{name: aside[name] for name in NAMES if name in aside}, **settings}
        stops = [stop for file in ("generation_config.json", "config.json")
                 for stop in _numbers(read_json(folder / file).get("eos_token_id"))]  # fmt: skip
        return cls(inner, settings, _template(folder, settings), stops, str(folder))

    def write(self, folder: str | Path) -> None:
        """Write tokenizer.json, tokenizer_config.json and chat_template.jinja into a folder."""
        folder, source = Path(folder), self._template.source
        folder.mkdir(parents=True, exist_ok=True)
        self._inner.save(str(folder / "tokenizer.json"))
        settings = {**self._settings, "chat_template": source}
        text = json.dumps(settings, indent=2, ensure_ascii=False)
        (folder / "tokenizer_config.json").write_text(text + "\n", "utf-8")
        (folder / "chat_template.jinja").write_text(source, "utf-8")

    def encode(self, text: str) -> list[int]:
        """The text's tokens, and none that it does not have."""
        return list(self._inner.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of tokens; special ones, and numbers that are no token, have none."""
        return self._inner.decode([int(each) for each in ids], skip_special_tokens=True)

    def lost(self, text: str) -> str:
        """The characters of a text that there is no token for, in order: they become the unknown
        token or none at all, and what is decoded never holds them."""
        unknown = self._inner.model.unk_token if hasattr(self._inner.model, "unk_token") else None
        number = self._number(unknown)
        each = {character: self.encode(character) for character in dict.fromkeys(text)}
        return "".join(x for x, ids in each.items() if not ids or number in ids)

    @functools.cached_property
    def thinks(self) -> bool:
        """Whether the assistant's turns begin inside a thought: the chat template ends with a
        ``<think>`` (DeepSeek-R1's distilled models), and the model says where it ends."""
        _, begun, rest = self._template.opened().rpartition("<think>")
        readable = self.decode(self.encode("</think>")).strip() == "</think>"
        return bool(begun) and "</think>" not in rest and readable

    def opening(self, messages: Sequence[Message]) -> list[int]:
        """A conversation from its beginning to where the assistant speaks.

        Raises :class:`Mistake` for conversations that the chat template refuses.
        """
        return self.encode(self._template.render(messages, reply=True))

    def going_on(self, messages: Sequence[Message]) -> list[int]:
        """What stands between ``end``, the assistant's last token, and its next turn: the rest of
        the turn's close, the new messages, and the beginning of the turn.

        Raises :class:`Mistake` for conversations that the chat template refuses, and where there
        are no messages.
        """
        if not messages:
            raise Mistake("a conversation goes on with messages; there are none")
        close = self._inner.id_to_token(self.end) or ""
        after = self._template.after(messages)
        _, found, rest = after.partition(close)
        # Read from the end token on: some tokenizers treat the beginning of a text otherwise.
        return self.encode(close + (rest if found else after))[1:]

    def _number(self, token: str | None) -> int | None:
        return None if token is None else self._inner.token_to_id(token)

    def _padding(self, tokens: dict[str, str | None]) -> int:
        named = [self._number(token) for token in (tokens["pad_token"], *PADS)]
        spare = sorted(self._special - {self._number(tokens["bos_token"])})
        possible = [each for each in (*named, *spare, *range(self.vocabulary)) if each is not None]
        return next(each for each in possible if each not in self.stops)


def read_json(path: Path) -> dict[str, Any]:
    """The content of a JSON file; nothing where there is no file. Raises :class:`Mistake` for what
    is not one object of JSON."""
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text("utf-8"))
    except ValueError as error:  # JSON or UTF-8
        raise Mistake(f"{path} is not JSON ({error}); copy it again") from error
    if not isinstance(content, dict):
        raise Mistake(f"{path} holds {type(content).__name__}, not named values; copy it again")
    return content


def _template(folder: Path, settings: dict[str, Any]) -> str:
    """The chat template's source, wherever it is kept; of several the one called default."""
    aside = folder / "chat_template.jinja"
    if aside.is_file():
        try:
            return aside.read_text("utf-8")
        except UnicodeDecodeError as error:
            raise Mistake(f"{aside} is not UTF-8; copy it again") from error
    found = settings.get("chat_template") or ""
    if isinstance(found, list) and all(isinstance(each, dict) for each in found):
        named = {str(each.get("name")): each.get("template") for each in found}
        found = named.get("default") or ""
    if not isinstance(found, str):
        where = folder / "tokenizer_config.json"
        raise Mistake(f"{where}: chat_template is no text, nor several by name; copy it again")
    return found


def _content(token: Any) -> str | None:
    """A special token's text: settings have it bare or with properties. None: it names none."""
    found = token.get("content") if isinstance(token, dict) else token
    return found if isinstance(found, str) else None


def _numbers(value: Any) -> list[int]:
    """Tokens that a configuration names: none, one or several."""
    values = value if isinstance(value, list) else [value]
    return [each for each in values if isinstance(each, int) and not isinstance(each, bool)]
