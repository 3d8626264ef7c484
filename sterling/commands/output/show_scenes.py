"""Show a language model's worst and best evaluation scenes, for ``sterling show RUN --worst 5``."""

from __future__ import annotations

import argparse

from sterling.commands.output import language_transcripts


def carry_out(chosen: argparse.Namespace) -> int:
    """Answer the final evaluation's scenes again, with the same random numbers, and print those
    with the lowest and highest rewards."""
    import jax.numpy as jnp

    import sterling
    from sterling.report.live.console import PlainConsole
    from sterling.training.language.base_model import language_settings, starting_model
    from sterling.training.language.evaluate_scenes import answer_scenes
    from sterling.types import Mistake

    if chosen.film is not None or chosen.page is not None:
        raise Mistake("Scenes of a language model are printed. Leave out --film and --page.")
    run = sterling.load(chosen.folder)
    settings = run.settings
    if settings.algorithm == "reward":
        raise Mistake("A reward model writes no answers. Use `sterling evaluate`.")
    seeds = settings.seeds if chosen.seed is None else (settings.seeds[run.place(chosen.seed)],)
    episodes = settings.evaluate_episodes or language_transcripts.DEFAULT_EPISODES
    every = answer_scenes(
        run.agent, settings, jnp.asarray(settings.seeds, jnp.int32), episodes, explore=True
    )
    lines = [(seed, line) for seed in seeds for line in every[settings.seeds.index(seed)]
             if not line.seat]  # fmt: skip
    tokenizer = starting_model(language_settings(settings).model).tokenizer
    console = PlainConsole(soft_wrap=True)
    for title, count, sign in (("worst", chosen.worst, 1), ("best", chosen.best, -1)):
        if count is None:
            continue
        ranked = sorted(lines, key=lambda pair: (sign * pair[1].reward, pair[0], pair[1].scene))
        console.print(f"\n{title} {len(ranked[:count])} of {len(lines)} scenes", style="bold")
        for seed, line in ranked[:count]:
            console.print(f"\nseed {seed}, reward {line.reward:g}", style="bold", end="")
            language_transcripts.print_line(console, line, tokenizer)
    return 0
