"""Print what a run is: state, result, settings that differ from the defaults, and files."""

from __future__ import annotations

import ast
import contextlib
from pathlib import Path
from typing import Any

SKIPPED = (  # of config.json: shown elsewhere, or facts and no settings
    *("algorithm", "environment", "seeds", "steps", "updates", "config", "code", "versions"),
    *("hardware", "git", "time", "custom_algorithm", "custom_environment", "spaces", "context"),
    *("strategy", "envs", "observations", "continued_from", "schedules"),
)
USUAL = {"evaluate_episodes": 20, "evaluate_limit": 200_000, "checkpoint_minutes": 5.0}
GROUPS = {
    **{"speech": "LanguageSettings", "data": "LogSettings", "guide": "Guidance"},
    "init": "InitSettings",
}
HIDDEN = ("data.hash", "init.hash", "init.checkpoint", "init.seeds", "init.statistics_hash")
FILES = {
    "config.json": "the resolved settings",
    "metrics.jsonl": "one row per log interval",
    "result.json": "the final numbers",
    "curve.png": "the learning curve",
    "episodes.safetensors": "the last evaluation's episodes",
    "checkpoints": "the saved policies and everything that resuming needs",
    "tensorboard": "event files of TensorBoard",
    "parts": "the folders of the processes that trained its seeds",
}
FILM_ENDINGS = (".mp4", ".gif")


def carry_out(folder: Path) -> int:
    """Print the run in ``folder``."""
    from sterling.report.text_tables import text_table
    from sterling.report.watch.run_state import describe_run
    from sterling.training.saving import run_folder

    config = run_folder.read_config(folder)
    described = describe_run(folder)
    rows = [["algorithm", described["algorithm"]], ["environment", described["environment"]]]
    rows += [["seeds", ", ".join(map(str, described["seeds"]))], ["state", _state_text(described)]]
    if observed := config.get("observations"):
        rows.append(["observations", "; ".join(observed).replace("observations: ", "")])
    rows += _result_rows(folder)
    print(text_table(["", ""], rows).lstrip("\n").lstrip())
    changed = changed_settings(config)
    print("\nsettings that differ from the defaults" if changed else "\nall settings are defaults")
    if changed:
        print(text_table(["  setting", "value", "default", ""], changed))
    print("\nfiles")
    print(text_table(["  file", "size", ""], _file_rows(folder), " r "))
    return 0


def changed_settings(config: dict[str, Any]) -> list[list[str]]:
    """Return the settings of a run that differ from the defaults: name, value, default, and
    "preset" where the value is the preset's for this environment."""
    from sterling.training.fields.presets import load_preset

    usual = _default_fields(config["algorithm"])
    preset = load_preset(config["algorithm"], config["environment"])
    fields = {**config["config"], **config.get("schedules", {})}
    own = {name: x for name, x in fields.items() if name in usual}
    for name, value in config.items():
        if name in GROUPS and isinstance(value, dict):
            fields = _group_defaults(GROUPS[name])
            own |= {f"{name}.{field}": x for field, x in value.items()}
            usual |= {f"{name}.{field}": x for field, x in fields.items()}
        elif name not in SKIPPED and value not in (None, "", 0, [], {}, False):
            own[name], usual[name] = value, USUAL.get(name)
    rows = []
    for name, value in own.items():
        if name not in HIDDEN and not _is_equal(usual.get(name), value):
            mark = "preset" if name in preset and _is_equal(preset[name], value) else ""
            rows.append([f"  {name}", _shown(value), _shown(usual.get(name)), mark])
    return rows


def _default_fields(algorithm: str) -> dict[str, Any]:
    """Return the defaults of an algorithm's fields; {} if its source cannot be read here."""
    from sterling.commands.options.algorithm_options import config_fields
    from sterling.system.mistake import Mistake

    with contextlib.suppress(Mistake, OSError, ValueError, SyntaxError, ImportError):
        return {each.name: _parse(each.default) for each in config_fields(algorithm)[1]}
    return {}


def _group_defaults(name: str) -> dict[str, Any]:
    """Return the defaults of a group of settings, from its source."""
    from sterling.commands.options.class_source import class_fields, find_class
    from sterling.lookup.user_imports import source_file

    path = source_file("sterling.training.config.run_options")
    found = find_class(path, name) if path else None
    fields = class_fields(found) if found else None
    return {each.name: _parse(each.default) for each in (fields or {}).values()}


def _parse(text: str) -> Any:
    """Return the value of a default as it is written in source."""
    if text == 'float("inf")':
        return float("inf")
    with contextlib.suppress(ValueError, SyntaxError):
        return ast.literal_eval(text)
    return text


def _is_equal(usual: Any, value: Any) -> bool:
    if isinstance(value, list) and isinstance(usual, (list, tuple)):
        return list(usual) == value
    return bool(usual == value)


def _shown(value: Any) -> str:
    return "none" if value is None else str(value)


def _state_text(described: dict[str, Any]) -> str:
    at, budget = described["progress"], described["budget"]
    return f"{described['state']}, {at:,} of {budget:,} {described['unit']} per seed"


def _result_rows(folder: Path) -> list[list[str]]:
    """Return the rows about a finished run: returns and channels with their intervals, time."""
    from sterling.report.live.live_progress import format_duration
    from sterling.statistics import Headline
    from sterling.statistics.scores.headline import cautions_of
    from sterling.training.saving import run_folder

    result = run_folder.read_result(folder)
    if result is None:
        return []
    rows = []
    if stopped := result.get("stopped"):
        rows.append(["stopped early", f"by {stopped['by']}: {stopped['reason']}"])
    finals = {name: Headline.from_json(x) for name, x in result.get("final", {}).items()}
    for name, made in finals.items():
        rows.append([f"final {name}", made.full_text() if name == "return" else str(made)])
    if failed := result.get("failed_seeds"):
        rows.append(["failed seeds", ", ".join(map(str, failed))])
    rows += [["note", each] for each in cautions_of(finals.values())]
    return [*rows, ["time", format_duration(result["wall_seconds"])]]


def _file_rows(folder: Path) -> list[list[str]]:
    rows = []
    films = {path.name: "a film" for path in sorted(folder.iterdir())
             if path.suffix in FILM_ENDINGS}  # fmt: skip
    for name, words in (FILES | films).items():
        path = folder / name
        if path.exists():
            every = [path] if path.is_file() else [each for each in path.rglob("*")]
            size = sum(each.stat().st_size for each in every if each.is_file())
            rows.append([f"  {path}", _size_text(size), words])
    return rows


def _size_text(size: float | int) -> str:
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"
