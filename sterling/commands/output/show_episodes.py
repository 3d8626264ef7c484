"""Show a run's worst and best evaluation episodes, for ``sterling show RUN --worst 3``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sterling.commands.options import option_values

if TYPE_CHECKING:
    from sterling.report.episodes.episodes_file import EpisodeId, EvaluatedEpisodes


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose episodes."""
    add = parser.add_argument_group("episodes", "of the last evaluation").add_argument
    number = option_values.integer
    add("--worst", type=number, metavar="N", help="show the N episodes with the lowest returns")
    add("--best", type=number, metavar="N", help="show the N episodes with the highest returns")
    add("--seed", type=number, metavar="N", help="only episodes of this seed (all seeds)")
    add("--film", type=Path, metavar="FOLDER", help="also film these episodes, one file each")
    add("--page", type=Path, metavar="FILE.html", help="also write them as a page")


def is_asked(chosen: argparse.Namespace) -> bool:
    """Whether episodes are asked for; raise Mistake for options that would have no effect."""
    from sterling.system.mistake import Mistake

    counts = {name: getattr(chosen, name) for name in ("worst", "best")}
    for name, count in counts.items():
        if count is not None and count < 1:
            raise Mistake(f"--{name} must be at least 1; got {count}.")
    if any(count is not None for count in counts.values()):
        return True
    for name in ("seed", "film", "page"):
        if getattr(chosen, name) is not None:
            raise Mistake(f"--{name} is about episodes. Add --worst N or --best N.")
    return False


def carry_out(chosen: argparse.Namespace) -> int:
    """Print the episodes; film them and write the page if asked."""
    from sterling.training.saving import run_folder

    config = run_folder.read_config(chosen.folder)
    if config.get("speech"):
        from sterling.commands.output import show_scenes

        return show_scenes.carry_out(chosen)
    looked = EpisodeLook(chosen.folder, config)
    groups = looked.choose(chosen.worst, chosen.best, chosen.seed)
    made = looked.with_steps([which for _, ids in groups for which in ids])
    _print_episodes(config, made, groups)
    films = {} if chosen.film is None else looked.film(chosen.film)
    for path in films.values():
        print(path)
    if chosen.page is not None:
        from sterling.report.episodes.episode_page import write_page

        print(write_page(chosen.page, config, made, groups, films))
    return 0


class EpisodeLook:
    """A run whose evaluation episodes are looked at; its agents are loaded only if needed."""

    def __init__(self, folder: Path, config: dict[str, Any]):
        from sterling.report.episodes.episodes_file import read_episodes
        from sterling.training.saving import run_folder

        self.folder, self.config = folder, config
        self._run: Any = None
        self._finished = run_folder.read_result(folder) is not None
        self.made: Any = read_episodes(folder)
        if self.made is None:
            self.made = self._evaluate()
        self.wanted: list[EpisodeId] = []

    def choose(
        self, worst: int | None, best: int | None, seed: int | None
    ) -> list[tuple[str, list[EpisodeId]]]:
        """Return the chosen episodes under their titles, such as "worst 3"."""
        from sterling.report.episodes.episodes_file import choose_episodes
        from sterling.system.mistake import Mistake

        if seed is not None and seed not in self.made.seeds:
            known = ", ".join(map(str, self.made.seeds))
            raise Mistake(f"the run has no seed {seed}; it has {known}")
        groups = []
        for title, count, is_best in (("worst", worst, False), ("best", best, True)):
            if count is not None:
                ids = choose_episodes(self.made, count, best=is_best, seed=seed)
                groups.append((f"{title} {len(ids)}", ids))
        if not any(ids for _, ids in groups):
            raise Mistake("every seed failed: add --seed N to see its episodes")
        return groups

    def with_steps(self, wanted: list[EpisodeId]) -> EvaluatedEpisodes:
        """Return the episodes with the steps of the ``wanted`` ones, which are played again if they
        were not recorded and the final policies are there."""
        from sterling.system.terminal_messages import print_notice

        self.wanted = list(dict.fromkeys(wanted))
        missing = [which for which in self.wanted if which not in self.made.steps]
        if not missing:
            return self.made
        if not self.made.facts.get("final") or not self._finished:
            print_notice("the run is not finished: steps that were not recorded cannot be shown")
            return self.made
        from sterling.training.evaluation.episode_replay import replay_episodes
        from sterling.training.evaluation.save_episodes import save_episodes

        self.made, other = replay_episodes(self.run, self.made, missing)
        if other:
            print_notice(
                f"{len(other)} of {len(missing)} episodes went differently when they were played "
                "again (another machine, or an environment with randomness of its own): they are "
                "listed without their steps"
            )
        if len(other) < len(missing):
            save_episodes(self.folder, self.made)
        return self.made

    def film(self, folder: Path) -> dict[EpisodeId, Path]:
        """Film the wanted episodes into a folder; return the films' paths."""
        from sterling.training.evaluation.episode_film import film_episodes

        return film_episodes(self.run, self.made, self.wanted, folder)

    @property
    def run(self) -> Any:
        """Return the loaded run."""
        if self._run is None:
            import sterling

            self._run = sterling.load(self.folder)
        return self._run

    def _evaluate(self) -> EvaluatedEpisodes:
        """Evaluate the final policies of a run whose folder has no episodes."""
        from sterling.report.episodes.episodes_file import read_episodes
        from sterling.system.mistake import Mistake

        if not self._finished:
            raise Mistake(
                f"{self.folder} has no evaluation yet. Wait for the first one (--evaluate-every N "
                "evaluates during training), or finish the run."
            )
        self.run.evaluate(self.config.get("evaluate_episodes") or 20, keep=True)
        made = read_episodes(self.folder)
        if made is None:
            raise Mistake(f"the episodes could not be written to {self.folder}. Free disk space.")
        return made


def _print_episodes(
    config: dict[str, Any], made: EvaluatedEpisodes, groups: list[tuple[str, list[EpisodeId]]]
) -> None:
    from sterling.lookup.user_imports import short_name
    from sterling.report.episodes.episode_text import episode_text, episodes_table

    facts, count = made.facts, made.columns["return"].size
    at = f"update {facts['update']:,}" if facts.get("update") else f"step {facts.get('step'):,}"
    whose = "the final policies" if facts.get("final") else f"the policies at {at}"
    print(f"{short_name(config['algorithm'])} on {facts['environment']}: ", end="")
    print(f"{count} evaluation episodes of {whose}")
    for title, ids in groups:
        print(f"\n{title}\n{episodes_table(made, ids)}")
    for which in dict.fromkeys(which for _, ids in groups for which in ids):
        print(f"\n{episode_text(made, which)}")
