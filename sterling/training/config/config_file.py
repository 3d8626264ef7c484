"""Files of settings: read the arguments of a run from one, and write those of a run.

A file holds what config.json holds, or options by their names, or both; any part may be left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from sterling.lookup.peer_names import unknown_option
from sterling.system.mistake import Mistake
from sterling.system.settings_file import read_settings_file, to_yaml
from sterling.system.shown_values import shown_value
from sterling.training.fields.unread_fields import idle_fields

# entries of config.json that are facts about a run, and no settings
FACTS = (
    *("spaces", "custom_algorithm", "custom_environment", "code", "earlier"),
    *("versions", "hardware", "git", "time", "observations", "continued_from"),
)
MARKS = ("custom_algorithm", "versions")  # entries that only a run's own config.json has
SHORT_NAMES = {"env": "env_options"}  # other words for the same argument
LOG_ENTRIES = ("path", "hash")  # of the dataset in config.json, beside options
MERGED = ("env_options", "online", "space")  # whose entries are replaced one by one
NESTED = {"config": "an object of fields", "speech": "an object of options"}


def read_config_file(path: str | Path) -> dict[str, Any]:
    """Return the arguments of a run by name, from a file of settings (YAML, JSON or TOML).

    The parts of config.json become arguments of ``sterling.train``: the fields in ``config`` and
    the options in ``speech`` and ``data`` stand beside the others. Raise Mistake, naming the file,
    if it cannot be read or has an entry of a wrong form.
    """
    found = {name.replace("-", "_"): value for name, value in read_settings_file(path).items()}
    is_record = any(name in found for name in MARKS)
    try:
        return _arguments(found, is_record)
    except Mistake as error:
        raise Mistake(f"{path}: {error}") from error
    except (TypeError, ValueError, AttributeError) as error:
        raise Mistake(f"{path}: a value cannot be used ({error}).") from error


def _arguments(found: dict[str, Any], is_record: bool) -> dict[str, Any]:
    if found.get("custom_environment") or found.get("custom_algorithm"):
        raise Mistake(
            "this run used an object that is not stored. Put it into a file and name that, as "
            "my_world.py:make (docs/extending.md)."
        )
    made: dict[str, Any] = {"preset": False} if is_record else {}
    found = _with_given_fields(found) if is_record else found
    for name, value in found.items():
        if name in FACTS or name in _computed_names(found, is_record):
            continue
        if name in NESTED:
            parts = _mapping(name, value, NESTED[name])
            made = _without_clash(made, {_plain(each): x for each, x in parts.items()})
        elif name == "data":
            made = _without_clash(made, _log_arguments(value))
        elif name == "guide":
            made = _without_clash(made, _guide_arguments(value))
        elif name == "init":
            made = _without_clash(made, _init_arguments(value))
        elif name == "phases":
            made = _without_clash(made, {"then": [_phase_arguments(each) for each in value or ()]})
        else:
            made = _without_clash(made, {SHORT_NAMES.get(name, name): value})
    if "env_options" in made:
        made["env_options"] = env_arguments(made["env_options"])
    if made.get("environment") == "":
        del made["environment"]
    return {name: _as_typed(name, value) for name, value in made.items()}


def _as_typed(name: str, value: Any) -> Any:
    """Return a value that is written as on the command line: ``seeds: 3,7``, ``levels: 2``,
    ``return_within: 0,500``."""
    if name == "seeds" and isinstance(value, str):
        return [int(part) for part in value.split(",") if part.strip()]
    if name in ("return_within", "within") and isinstance(value, str):
        low, high = (float(part) if part.strip() else None for part in value.split(","))
        return low, high
    return str(value) if name == "levels" and isinstance(value, int) else value


def _computed_names(found: Mapping[str, Any], is_record: bool) -> set[str]:
    """Return the entries of a run that are computed: the context that its environment needs, and
    the envs of a run that trains a language model."""
    speaks = isinstance(found.get("speech"), Mapping)
    return ({"context"} if is_record or speaks else set()) | ({"envs"} if speaks else set())


def _plain(name: Any) -> str:
    return str(name).replace("-", "_")


def _mapping(name: str, value: Any, wanted: str) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise Mistake(f"{name} must be {wanted}; got {shown_value(value)}.")
    return value


def _without_clash(made: dict[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Return both; raise Mistake for a name that is in both."""
    for name in more:
        if name in made:
            raise Mistake(f"{name} is given twice. Leave one out.")
    return {**made, **more}


def _log_arguments(value: Any) -> dict[str, Any]:
    """Return the dataset's path and how it is used, from a path or config.json's ``data``."""
    if not isinstance(value, Mapping):
        return {} if value is None else {"data": value}
    rest = {name: each for name, each in value.items() if name not in LOG_ENTRIES}
    return {"data": value.get("path"), **rest}


def _guide_arguments(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        return {} if value is None else {"guide": value}
    from sterling.training.config.run_options import Guidance

    return {"guide": Guidance(**value)}


def _init_arguments(value: Any) -> dict[str, Any]:
    """Return what a run started from as ``init`` takes it, from config.json's form of it."""
    if not isinstance(value, Mapping):
        return {} if value is None else {"init": value}
    beside = f"+{value['statistics']}" if value.get("statistics") else ""
    return {"init": f"{value.get('path')}{beside}"}


def _with_given_fields(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of config.json with the fields as a user gives them: every schedule, which
    config.json holds apart, is the value of its field, a list of layer sizes has no depth, and
    fields of a part that is off are left out."""
    known = dict(found)
    schedules, fields = known.pop("schedules", None) or {}, known.get("config")
    if isinstance(fields, Mapping):
        listed = [name for name, value in fields.items()
                  if name.endswith("width") and isinstance(value, (list, tuple))]  # fmt: skip
        left_out = [name.removesuffix("width") + "depth" for name in listed]
        left_out += idle_fields(str(known.get("algorithm")), fields)
        kept = {name: x for name, x in fields.items() if name not in left_out}
        known["config"] = kept | schedules
    return known


def _phase_arguments(value: Any) -> Any:
    """Return a further phase as ``then`` takes it, from config.json's form of it."""
    if not isinstance(value, Mapping):
        return value
    rest = {name: each for name, each in value.items() if each and name not in ("data", "fields")}
    return {**rest, **_log_arguments(value.get("data")), **value.get("fields", {})}


def env_arguments(value: Any) -> dict[str, Any]:
    """Return an environment's options, from a mapping or a list of KEY=VALUE."""
    if isinstance(value, (list, tuple)) and all(isinstance(each, str) for each in value):
        from sterling.lookup.name_suggestions import parse_literal

        pairs = [each.partition("=") for each in value]
        return {name: parse_literal(text) for name, _, text in pairs}
    return dict(_mapping("env_options", value, "an object, such as {max_episode_steps: 500}"))


def with_config_file(
    path: str | Path | None, given: Mapping[str, Any], known: Iterable[str] = ()
) -> dict[str, Any]:
    """Return the arguments ``given``, and below them those of the file (None: no file).

    Options of the environment, and fields that change online, are replaced one by one. ``known``:
    further names that the file may hold; with them, other names raise Mistake. See
    :func:`check_names`.
    """
    if path is None:
        return dict(given)
    found = read_config_file(path)
    names = list(known)
    if names:
        check_names(path, found, names)
    made = {**found, **given}
    for name in MERGED:
        if isinstance(found.get(name), Mapping) and isinstance(given.get(name), Mapping):
            made[name] = {**found[name], **given[name]}
    return made


def check_names(path: str | Path, found: Iterable[str], known: Iterable[str]) -> None:
    """Raise Mistake for the first name of a file that is not known, with the nearest one."""
    names = list(known)
    for name in found:
        if name not in names:
            raise Mistake(f"{path}: unknown key {name!r}{unknown_option(name, names)}")


def config_yaml(plain: Mapping[str, Any], made_by: str) -> str:
    """Return a run's config.json as YAML that makes the same run; what is empty is left out.

    Raise Mistake if the run used objects that are not stored.
    """
    _arguments(dict(plain), True)  # raises for a run that cannot be made again from its settings
    plain = _with_given_fields(plain)
    left_out = {*FACTS, *_computed_names(plain, True)}
    kept = {name: value for name, value in plain.items()
            if name not in left_out and value not in (None, "", {}, [])}  # fmt: skip
    kept = {"algorithm": kept.pop("algorithm"), **kept, "preset": False}
    for name in ("steps", "updates", "evaluate_every", "log_every"):
        if kept.get(name) == 0:
            del kept[name]
    return f"# sterling train --config FILE makes this run again ({made_by})\n{to_yaml(kept)}"
