"""How long lines become: what the scenes of a world take, and texts that are imitated."""

from __future__ import annotations

import dataclasses
import functools
import re
import time
from collections.abc import Callable, Sequence
from typing import Any

from sterling.experience.comparisons import Pair
from sterling.experience.comparisons import of_file as pairs_of_file
from sterling.experience.texts import HELD_OUT, of_file
from sterling.experience.texts import of_world as solved
from sterling.importing import explain
from sterling.language.patience import patience
from sterling.language.scene import Message, Scene
from sterling.language.talk import BOUNDLESS, Line, Voice, opened
from sterling.language.tokenizer import Tokenizer
from sterling.language.worlds.apart import held_out
from sterling.notice import say
from sterling.training.choices import Speech
from sterling.types import Mistake

PROBED = 32  # scenes of each level that are looked at, and of one that are played
WORDS = 4  # of its opening that a played scene is answered with
TRIED = 3  # scenes of a level of which one has to begin
BUSY = ("python",)  # tools whose answers hang on how busy the machine is: they are not run


def check_levels(place: Any, which: tuple[int, ...], seconds: float) -> None:
    """Raise Mistake where no scene of a level begins: a run of it would consist of failures."""
    for level in which:
        last = time.monotonic() + 2.0 * seconds  # one that hangs is not waited for each time
        for seed in range(TRIED):
            fault = _fault(place, seed, level, seconds)
            if fault is None:
                break
            if seed + 1 == TRIED or time.monotonic() > last:
                _refuse(place, level, fault)


def _fault(place: Any, seed: int, level: int, seconds: float) -> Exception | None:
    """What keeps a scene from beginning."""
    try:
        with patience(seconds):
            place.begin(seed, level)
    except Exception as error:  # a user's world may raise anything
        return error
    return None


def _refuse(place: Any, level: int, fault: Exception) -> None:
    if isinstance(fault, Mistake):
        raise fault
    said = f"{type(fault).__name__}: {' '.join(str(fault).split())[:200]}"
    raise Mistake(f"{place.name} begins no scene of level {level} ({said}); mend it") from fault


@functools.lru_cache(maxsize=8)
def of_world(
    place: Any, which: tuple[int, ...], tokenizer: Tokenizer, limit: int, seconds: float
) -> int:
    """Tokens that lines of the world take: the longest opening of some, and every turn.

    What is said between turns is found by playing scenes with poor answers; it counts as twice an
    answer at least.
    """
    openings, replies = set(), set()
    for level in which:
        for seed in range(PROBED):
            scene = opened(place, seed, level, seconds)
            if not isinstance(scene, str) and scene.turn is not None:
                openings.add(scene.turn.messages)
    if place.turns > 1:
        inner = getattr(place, "world", place)  # a judge would be asked, and says nothing
        heard = _overheard(inner, max(which), tokenizer, limit, seconds)
        openings |= heard.openings
        replies = heard.replies
    longest = max((len(tokenizer.opening(each)) for each in openings), default=0)
    # One more: an answer that was cut is closed before the reply.
    between = max((1 + len(tokenizer.going_on(each)) for each in replies), default=0)
    between = max(between, 2 * limit)
    return rounded(longest + place.turns * limit + (place.turns - 1) * between)


def rounded(tokens: int) -> int:
    """A context for so many tokens; a run has one, so no shapes have to be shared."""
    return -(-tokens // 8) * 8


@dataclasses.dataclass
class _Heard:
    """What was said to seats: before they first spoke, and after that; why ``solve`` failed."""

    openings: set[tuple[Message, ...]] = dataclasses.field(default_factory=set)
    replies: set[tuple[Message, ...]] = dataclasses.field(default_factory=set)
    unsolved: str = ""


def _overheard(place: Any, level: int, tokenizer: Tokenizer, limit: int, seconds: float) -> _Heard:
    """What is said in scenes that poor answers are given in; in every third, good ones."""
    heard = _Heard()
    for seed in range(PROBED):
        scene = opened(place, seed, level, seconds)
        if isinstance(scene, str) or scene.turn is None:
            continue
        answer = _answers(place, scene, seed, tokenizer, limit)
        try:
            _play(scene, answer, place.turns * place.seats, seconds, heard)
        except TimeoutError:
            break  # a world that hangs would be waited for many times
    if heard.unsolved:
        say(f"solve of {place.name} fails, {heard.unsolved}: the context is that of other answers")
    return heard


def _answers(
    place: Any, scene: Scene, seed: int, tokenizer: Tokenizer, limit: int
) -> Callable[[int], str]:
    """What is answered in a played scene, by turn: at most ``limit`` tokens."""
    assert scene.turn is not None  # it has just begun
    poor = _poor(place, scene.turn.messages[-1].content, tokenizer, limit)
    good = seed % 3 == 0 and hasattr(place, "solve")

    def answer(turn: int) -> str:
        text = _solution(place, scene) if good else poor[(seed + turn) % len(poor)]
        return tokenizer.decode(tokenizer.encode(text)[:limit])

    return answer


class _Unsolved(Exception):
    """A world's own ``solve`` failed; the text says how, or is empty where nobody need know."""


def _solution(place: Any, scene: Scene) -> str:
    """The world's own answer."""
    try:
        text = place.solve(scene)
    except TimeoutError:
        raise
    except Mistake as error:  # some tasks have none: who imitates it is told so
        raise _Unsolved("") from error
    except Exception as error:
        raise _Unsolved(f"it raises {explain(error)}") from error
    if not isinstance(text, str):
        raise _Unsolved(f"it returns {text!r:.40}, no text")
    return text


def _play(
    scene: Scene, answer: Callable[[int], str], most: int, seconds: float, heard: _Heard
) -> None:
    """Answer until the scene is over or fails, and keep what is said."""
    known: set[int] = set()
    for turn in range(most):
        if scene.turn is None:
            break
        kept = heard.replies if scene.turn.seat in known else heard.openings
        kept.add(scene.turn.messages)
        known.add(scene.turn.seat)
        with patience(seconds):
            try:
                said = answer(turn)
            except _Unsolved as error:
                heard.unsolved = heard.unsolved or str(error)
                break
            if not _goes_on(scene, said):
                break


def _goes_on(scene: Scene, said: str) -> bool:
    """Whether a scene takes an answer. The run itself counts scenes that fail, and says why."""
    try:
        scene.say(said)
    except TimeoutError:
        raise
    except Exception:  # a user's world may raise anything
        return False
    return True


def _poor(place: Any, opening: str, tokenizer: Tokenizer, limit: int) -> list[str]:
    """Answers of a model that knows nothing yet: nothing, nonsense, words that it was told, and
    calls of tools that are wrong. They may be longer than ``limit``."""
    poor = ["", "x" * limit, "1" * limit, *re.findall(r"\w+", opening)[:WORDS]]
    tools = getattr(place, "tools", {})
    for name in (*tools, "tool_call") if tools else ():
        begin, end = f"<{name}>", f"</{name}>"
        poor.append(begin + opening)
        if name not in BUSY:
            room = max(limit - len(tokenizer.encode(begin + end)), 0)
            inside = tokenizer.decode(tokenizer.encode(opening)[:room])
            poor += [(begin + end) * limit, begin + inside + end]
    return [*poor, '<tool_call>{"name":"x"}</tool_call>'] if tools else poor


def imitated(
    asked: Speech, place: Any, levels: tuple[int, ...], voice: Voice
) -> tuple[list[Line], Voice]:
    """The texts to imitate, and the voice with a context that they fit in.

    It is that of the longest, in a world's own solutions at least the voice's; where a context is
    asked for, longer texts are marked as cut. What will be left out is said.
    """
    wide = dataclasses.replace(voice, context=BOUNDLESS)
    if asked.texts:
        lines = of_file(asked.texts, wide, _kept_out(asked))
    else:
        lines = solved(place, levels, wide, asked.examples)
    least = 0 if asked.texts else voice.context
    longest = max((len(line.ids) for line in lines if not line.failed), default=0)
    context = asked.context or rounded(max(least, longest))
    for line in lines:
        line.cut |= len(line.ids) > context
    _tell(lines, context)
    return lines, dataclasses.replace(voice, context=context)


def heard(seeds: list[list[Line]]) -> list[list[Line]]:
    """Every seed's lines; said how many of them failed, and how many verdicts came too late."""
    if late := sum(line.late for own in seeds for line in own):
        say(f"{late} verdicts ran past their time limit: each is worth 0")
    failed = [line.failed for own in seeds for line in own if line.failed]
    if failed:
        count = sum(map(len, seeds))
        say(f"{len(failed)} of {count} answers count 0, for their scenes failed, as: {failed[0]}")
    return seeds


def compared(asked: Speech) -> list[Pair]:
    """The pairs of the file that is asked for, without those whose question is held out."""
    pairs = pairs_of_file(asked.texts)
    left = [pair for pair in pairs if not _kept_out(asked)(pair.messages)]
    if not left:
        raise Mistake(f"every question of {asked.texts} is held out; make held_out smaller")
    if len(left) < len(pairs):
        say(f"{len(pairs) - len(left)} of {len(pairs)} pairs are left out: {HELD_OUT}")
    return left


def _kept_out(asked: Speech) -> Callable[[Sequence[Message]], bool]:
    return functools.partial(held_out, share=asked.held_out)


def _tell(lines: list[Line], context: int) -> None:
    """Say how many texts are left out, and why; where all are, there is a Mistake instead."""
    failed = [line.failed for line in lines if line.failed]
    cut = sum(line.cut and not line.failed for line in lines)
    if len(failed) + cut == len(lines):
        return
    said = f"of {len(lines)} texts to imitate are left out"
    if cut:
        say(f"{cut} {said}: they have more than {context} tokens; --context allows more")
    if failed:
        say(f"{len(failed)} {said}: they failed, as: {failed[0]}")
