"""Encode texts and conversations as tokens, by the ``tokenizers`` library.

A conversation is encoded piece by piece. The model's answers stay the tokens that were sampled;
only new messages are encoded, and these begin after a special token, which no other token spans. So
the tokens are those of the whole text, and no text is encoded twice.
"""

from __future__ import annotations

import copy
import functools
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from sterling.language.chat_template import PLAIN_TEMPLATE, ROLES, SHORT_TEMPLATE, ChatTemplate
from sterling.language.scene import Message
from sterling.system.mistake import Mistake

ALPHABET = "\n" + "".join(map(chr, range(32, 127)))  # newline, and printable ASCII
END, PAD, UNKNOWN = "<|end|>", "<|pad|>", "<|unknown|>"
PAD_NAMES = ("<|pad|>", "<|finetune_right_pad_id|>", "<|fim_pad|>", "<pad>", "[PAD]", "<unk>")
SPECIAL_NAMES = ("bos_token", "eos_token", "pad_token", "unk_token")
EMPTY_THOUGHT = "\n</think>\n\n"  # the rest of a thought that the template began and nobody filled
NO_LENGTH_LIMIT = 1 << 30  # model_max_length for Hugging Face: no limit


class Tokenizer:
    """Encodes texts and conversations as token ids.

    ``vocabulary``: one more than the largest token id. ``end``: the token that closes the
    assistant's turn. ``stops``: all tokens that end its turn, ``end`` first. ``pad``: a token that
    is none of these, so that padding is never taken for an end (many folders name one token for
    both; then another special token pads, or the first that is no stop).

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
        tokens = {each: _token_text(settings.get(each)) for each in SPECIAL_NAMES}
        close = self._number(tokens["eos_token"])
        if close is None:
            raise Mistake(
                f"{name} has no end token; give one as eos_token in tokenizer_config.json, or as "
                "eos_token_id in generation_config.json"
            )
        self._template = ChatTemplate(template or PLAIN_TEMPLATE, tokens, f"{name}'s chat template")
        added = inner.get_added_tokens_decoder()
        self._special = frozenset(number for number, token in added.items() if token.special)
        closing = self.encode(self._template.text_after_reply([]))
        self._begin, self._close = tokens["bos_token"], close
        self.end: int = next((each for each in closing if each in self._special), close)
        further = [each for each in stops if 0 <= each < self.vocabulary]
        self.stops: tuple[int, ...] = tuple(dict.fromkeys([self.end, close, *further]))
        self.pad = self._padding(tokens)

    @classmethod
    def characters(cls, alphabet: str = ALPHABET) -> Tokenizer:
        """Return a tokenizer with one token for each character, for models trained from scratch.

        Characters outside of ``alphabet`` become one token, <|unknown|>. Raises :class:`Mistake`
        for an empty alphabet.
        """
        if not alphabet:
            raise Mistake("the alphabet is empty; give the characters that texts are made of")
        return cls._own(dict.fromkeys(alphabet), [UNKNOWN], decoders.Fuse())

    @classmethod
    def bytes(cls) -> Tokenizer:
        """Return a tokenizer with one token for each byte of UTF-8, so that no language has unknown
        characters."""
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
            "model_max_length": NO_LENGTH_LIMIT,
            "clean_up_tokenization_spaces": False,
        }
        return cls(inner, settings, SHORT_TEMPLATE)

    @classmethod
    def read(cls, folder: str | Path) -> Tokenizer:
        """Read the tokenizer of a Hugging Face folder: tokenizer.json, tokenizer_config.json, and
        chat_template.jinja if there is one. The end token may also be the first ``eos_token_id`` of
        generation_config.json or config.json.

        Without a template, conversations are written as in :data:`chat_template.PLAIN_TEMPLATE`.
        Raises :class:`Mistake` for files that are missing or cannot be read.
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
        settings = {**{name: aside[name] for name in SPECIAL_NAMES if name in aside}, **settings}
        configs = [read_json(folder / file) for file in ("generation_config.json", "config.json")]
        stops = [stop for each in configs for stop in _token_numbers(each.get("eos_token_id"))]
        if not _token_text(settings.get("eos_token")):
            settings["eos_token"] = next((inner.id_to_token(x) for x in stops if x >= 0), None)
        return cls(inner, settings, _read_template(folder, settings), stops, str(folder))

    def write(self, folder: str | Path) -> None:
        """Write tokenizer.json, tokenizer_config.json and chat_template.jinja into a folder."""
        folder, source = Path(folder), self._template.source
        folder.mkdir(parents=True, exist_ok=True)
        self._inner.save(str(folder / "tokenizer.json"))
        settings = {**self._settings, "chat_template": source}
        text = json.dumps(settings, indent=2, ensure_ascii=False)
        (folder / "tokenizer_config.json").write_text(text + "\n", "utf-8")
        (folder / "chat_template.jinja").write_text(source, "utf-8")

    def has_tokens_of(self, other: Tokenizer) -> bool:
        """Whether every token of ``other`` has the same number here."""
        own = self._inner.get_vocab()
        return all(own.get(token) == at for token, at in other._inner.get_vocab().items())

    def encode(self, text: str) -> list[int]:
        """Return the text's tokens, without added special tokens. Half a character (a lone
        surrogate) is read as "?"."""
        text = text.encode("utf-8", "replace").decode()
        return list(self._inner.encode(text, add_special_tokens=False).ids)

    def encode_plain(self, text: str) -> list[int]:
        """Return the tokens of a text without roles, as in pretraining: with the token that begins
        a text if the tokenizer's own file adds it, and with the end token (``eos_token``) last.
        Neither is added to a text that has it already."""
        text = text.encode("utf-8", "replace").decode()
        begun = bool(self._begin) and text.startswith(str(self._begin))
        ids = list(self._inner.encode(text, add_special_tokens=not begun).ids)
        return ids if ids[1:] and ids[-1] == self._close else [*ids, self._close]

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of tokens; special tokens, and ids that are not tokens, have no text."""
        return self._inner.decode([int(each) for each in ids], skip_special_tokens=True)

    def without_special_tokens(self, text: str) -> str:
        """Return the text without what would be read as a special token."""
        named = filter(None, map(self._inner.id_to_token, self._special))
        longest_first = map(re.escape, sorted(named, key=len, reverse=True))
        special = re.compile("|".join(longest_first) or r"\Z.")
        while (rest := special.sub("", text)) != text:  # what is left may spell another one
            text = rest
        return text

    def unknown_characters(self, text: str) -> str:
        """Return the characters of a text that have no token, in order: they are encoded as the
        unknown token or not at all, so a decoded text never holds them."""
        unknown = self._inner.model.unk_token if hasattr(self._inner.model, "unk_token") else None
        number = self._number(unknown)
        each = {character: self.encode(character) for character in dict.fromkeys(text)}
        return "".join(x for x, ids in each.items() if not ids or number in ids)

    @functools.cached_property
    def starts_in_thought(self) -> bool:
        """Whether the assistant's turns begin inside a thought: the chat template ends with
        ``<think>`` (as of DeepSeek-R1's distilled models), and the model itself ends the
        thought."""
        _, begun, rest = self._template.reply_prefix().rpartition("<think>")
        readable = self.decode(self.encode("</think>")).strip() == "</think>"
        return bool(begun) and "</think>" not in rest and readable

    @property
    def template_words(self) -> str:
        """Return in words which chat template writes conversations."""
        own = {
            SHORT_TEMPLATE: "Sterling's own, with one token for each role",
            PLAIN_TEMPLATE: "none in the folder, so messages are written as plain lines: a role "
            "with a colon, and the text below it",
        }
        return own.get(self._template.source, "the model's own")

    def encode_opening(self, messages: Sequence[Message]) -> list[int]:
        """Encode a conversation from its beginning to where the assistant's turn begins.

        Raises :class:`Mistake` for conversations that the chat template refuses.
        """
        return self.encode(self._template.render(messages, reply=True))

    def encode_answer(self, text: str) -> list[int]:
        """Encode what the assistant says in its turn, and the token that ends it. Where the chat
        template begins a thought, a text without a thought follows an empty one."""
        if self.starts_in_thought:
            thinks = text.startswith("<think>") or "</think>" in text
            text = text.removeprefix("<think>") if thinks else EMPTY_THOUGHT + text
        return [*self.encode(text), self.end]

    def encode_continuation(self, messages: Sequence[Message]) -> list[int]:
        """Encode what stands between ``end``, the assistant's last token, and its next turn: the
        rest of the turn's close, the new messages, and the beginning of the turn.

        Raises :class:`Mistake` for conversations that the chat template refuses, and if there are
        no messages.
        """
        if not messages:
            raise Mistake("a conversation cannot continue without new messages; there are none")
        close = self._inner.id_to_token(self.end) or ""
        after = self._template.text_after_reply(messages)
        _, found, rest = after.partition(close)
        # Encode from the end token on: some tokenizers treat the beginning of a text differently.
        return self.encode(close + (rest if found else after))[1:]

    def _number(self, token: str | None) -> int | None:
        return None if token is None else self._inner.token_to_id(token)

    def _padding(self, tokens: dict[str, str | None]) -> int:
        named = [self._number(token) for token in (tokens["pad_token"], *PAD_NAMES)]
        spare = sorted(self._special - {self._number(tokens["bos_token"])})
        possible = [each for each in (*named, *spare, *range(self.vocabulary)) if each is not None]
        return next(each for each in possible if each not in self.stops)


def read_json(path: Path) -> dict[str, Any]:
    """Return the content of a JSON file, or nothing if there is no file. Raises :class:`Mistake` if
    the content is not a JSON object."""
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text("utf-8"))
    except ValueError as error:  # JSON or UTF-8
        raise Mistake(f"{path} is not JSON ({error}); copy it again") from error
    if not isinstance(content, dict):
        raise Mistake(f"{path} holds {type(content).__name__}, not a JSON object; copy it again")
    return content


def _read_template(folder: Path, settings: dict[str, Any]) -> str:
    """Return the chat template's source, wherever the folder keeps it; of several, the one named
    default."""
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
        raise Mistake(
            f"{where}: chat_template is neither a text nor a list of named texts; copy it again"
        )
    return found


def _token_text(token: Any) -> str | None:
    """Return a special token's text, which settings give alone or with properties; None if they
    give none."""
    found = token.get("content") if isinstance(token, dict) else token
    return found if isinstance(found, str) else None


def _token_numbers(value: Any) -> list[int]:
    """Return the token ids that a configuration names: none, one or several."""
    values = value if isinstance(value, list) else [value]
    return [each for each in values if isinstance(each, int) and not isinstance(each, bool)]
