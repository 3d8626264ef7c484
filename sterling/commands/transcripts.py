"""What ``sterling play`` shows of a language model: problems, its answers, the verdicts."""

from __future__ import annotations

import argparse
import itertools
from typing import TYPE_CHECKING, Any

from sterling.commands import readers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from sterling.language.talk import Line
    from sterling.language.tokenizer import Tokenizer

EPISODES = 5
GOOD, BAD = "green", "red"


def options(parser: argparse.ArgumentParser) -> None:
    """What can be asked for."""
    group = parser.add_argument_group("language models", "problems and answers, as text")
    add = group.add_argument
    add("--episodes", type=readers.integer, metavar="N", help=f"problems to show ({EPISODES})")
    add("--sampled", action="store_true", help="answers by chance (the likeliest tokens)")


def refuse(chosen: argparse.Namespace, run: Any) -> None:
    """Raise Mistake for options of one kind of run with a run of the other."""
    from sterling.types import Mistake

    if run.settings.speech is None:
        if chosen.episodes is not None or chosen.sampled:
            raise Mistake("--episodes and --sampled are for language models; say --steps N")
    elif chosen.video is not None or chosen.steps is not None:
        raise Mistake("a language model cannot be filmed; leave out --video and --steps")
    if chosen.episodes is not None and chosen.episodes < 1:
        raise Mistake(f"there is nothing to show of {chosen.episodes} episodes; ask for 1 or more")


def carry_out(chosen: argparse.Namespace, run: Any, seed: int) -> int:
    """Print what one seed's model says."""
    import jax.numpy as jnp

    from sterling.report.console import Output
    from sterling.training import speech

    settings = run.settings
    episodes = EPISODES if chosen.episodes is None else chosen.episodes
    every = jnp.asarray(settings.seeds, jnp.int32)
    lines = speech.spoken(run.agent, settings, every, episodes, explore=chosen.sampled)
    tokenizer = speech.start(speech.of(settings).model).tokenizer
    console = Output(soft_wrap=True)
    how = "sampled" if chosen.sampled else "greedy"
    console.print(f"{settings.title} on {settings.name}, seed {seed}, {how}", style="bold")
    own = sorted(lines[settings.seeds.index(seed)], key=lambda line: (line.scene, line.seat))
    for line in own:
        _show(console, line, tokenizer)
    heard = [line for line in own if not line.seat]
    mean = sum(line.reward for line in heard) / len(heard)
    console.print(f"\nmean reward {mean:.3g} of {len(heard)} problems", style="dim")
    return 0


def _show(console: Console, line: Line, tokenizer: Tokenizer) -> None:
    """One line: what was heard, what was said, each turn's verdict."""
    from rich.text import Text

    seat = f", seat {line.seat}" if line.seat else ""
    console.print(Text(f"\n{line.scene + 1}{seat}", style="dim"))
    spoken = 0
    for own, ids in segments(line):
        text = tokenizer.decode(ids).strip("\n")
        if not own:
            console.print(Text(_indented(text, "  ")))
            continue
        shown = Text(_indented(text or "(nothing)", "  > "), style="bold")
        if spoken < len(line.verdicts):
            verdict = line.verdicts[spoken]
            style = GOOD if verdict.reward >= 0.5 else BAD
            shown.append(f"   {verdict.reason}, {verdict.reward:g}", style=f"not bold {style}")
        console.print(shown)
        spoken += 1
    for words in [line.failed] * bool(line.failed) + ["cut off"] * line.cut:
        console.print(Text(f"  {words}", style=BAD))


def segments(line: Line) -> Iterator[tuple[bool, list[int]]]:
    """The line's tokens, one part for each time it was spoken to or spoke."""
    pairs = zip(line.own, line.turn, line.ids, strict=True)
    for (own, _), part in itertools.groupby(pairs, key=lambda each: (each[0], each[1])):
        yield own, [token for _, _, token in part]


def _indented(text: str, first: str) -> str:
    return first + text.replace("\n", "\n" + " " * len(first))
