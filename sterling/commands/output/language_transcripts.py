"""Print transcripts of a language model for ``sterling play``: problems, answers, verdicts."""

from __future__ import annotations

import argparse
import itertools
from typing import TYPE_CHECKING, Any

from sterling.commands.options import option_values

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from sterling.language.engine.transcript import Transcript
    from sterling.language.tokenizer import Tokenizer

DEFAULT_EPISODES = 5
GOOD, BAD = "green", "red"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``sterling play`` for language models."""
    group = parser.add_argument_group("language models", "print problems and answers as text")
    add = group.add_argument
    add(
        "--episodes",
        type=option_values.integer,
        metavar="N",
        help=f"problems to show ({DEFAULT_EPISODES})",
    )
    add("--sampled", action="store_true", help="sample the answers instead of decoding greedily")


def check_options(chosen: argparse.Namespace, run: Any) -> None:
    """Raise Mistake for options that do not apply to this kind of run."""
    from sterling.types import Mistake

    if run.settings.speech is None:
        if chosen.episodes is not None or chosen.sampled:
            raise Mistake("--episodes and --sampled are for language models. Use --steps N.")
    elif chosen.video is not None or chosen.steps is not None:
        raise Mistake("A language model cannot be filmed. Leave out --video and --steps.")
    if chosen.episodes is not None and chosen.episodes < 1:
        raise Mistake(f"--episodes must be at least 1; got {chosen.episodes}.")


def carry_out(chosen: argparse.Namespace, run: Any, seed: int) -> int:
    """Print the answers of one seed's model, and their mean reward."""
    import jax.numpy as jnp

    from sterling.report.live.console import PlainConsole
    from sterling.training.language.base_model import language_settings, starting_model
    from sterling.training.language.evaluate_scenes import answer_scenes

    settings = run.settings
    episodes = DEFAULT_EPISODES if chosen.episodes is None else chosen.episodes
    every = jnp.asarray(settings.seeds, jnp.int32)
    lines = answer_scenes(run.agent, settings, every, episodes, explore=chosen.sampled)
    tokenizer = starting_model(language_settings(settings).model).tokenizer
    console = PlainConsole(soft_wrap=True)
    how = "sampled" if chosen.sampled else "greedy"
    console.print(f"{settings.title} on {settings.name}, seed {seed}, {how}", style="bold")
    own = sorted(lines[settings.seeds.index(seed)], key=lambda line: (line.scene, line.seat))
    for line in own:
        print_line(console, line, tokenizer)
    heard = [line for line in own if not line.seat]
    mean = sum(line.reward for line in heard) / len(heard)
    console.print(f"\nmean reward {mean:.3g} of {len(heard)} problems", style="dim")
    return 0


def print_line(console: Console, line: Transcript, tokenizer: Tokenizer) -> None:
    """Print one transcript: what the model was told, what it answered, each turn's verdict."""
    from rich.text import Text

    seat = f", seat {line.seat}" if line.seat else ""
    console.print(Text(f"\nscene {line.scene + 1}{seat}", style="dim"))
    spoken = 0
    for own, ids in turn_segments(line):
        if own is None:
            console.print(Text("  (begins anew: what was said before is forgotten)", style="dim"))
            continue
        text = tokenizer.decode(ids).strip("\n")
        if not own:
            console.print(Text(_indent(text, "  ")))
            continue
        shown = Text(_indent(text or "(nothing)", "  > "), style="bold")
        if spoken < len(line.verdicts):
            verdict = line.verdicts[spoken]
            style = GOOD if verdict.reward >= 0.5 else BAD
            named = "".join(f", {name} {each:g}" for name, each in verdict.rewards.items())
            said = f"   {verdict.reason}, {verdict.reward:g}{named}"
            shown.append(said, style=f"not bold {style}")
        console.print(shown)
        spoken += 1
    for words in [line.failed] * bool(line.failed) + ["cut off"] * line.cut:
        console.print(Text(f"  {words}", style=BAD))


def turn_segments(line: Transcript) -> Iterator[tuple[bool | None, list[int]]]:
    """Yield the tokens of each turn, and whether the model wrote them; None where a context
    begins anew."""
    for context in line.contexts:
        if context.start:
            yield None, []
        pairs = zip(line.own[context], line.turn[context], line.ids[context], strict=True)
        for (own, _), part in itertools.groupby(pairs, key=lambda each: (each[0], each[1])):
            yield own, [token for _, _, token in part]


def _indent(text: str, first: str) -> str:
    return first + text.replace("\n", "\n" + " " * len(first))
