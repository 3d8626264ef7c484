"""Read a file of settings: YAML, JSON or TOML, with numbers as people write them."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Hashable
from pathlib import Path
from typing import Any

from sterling.system.mistake import Mistake
from sterling.system.shown_values import short_text

SUFFIXES = (".yaml", ".yml", ".json", ".toml")
_NUMBER_TAGS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
# YAML 1.1 reads 3e-4, 1e6 and inf as text, and 1:30 as ninety
_INTEGER = re.compile(r"[-+]?[0-9][0-9_]*$")
_NUMBER = re.compile(
    r"[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*|[0-9][0-9_]*(?=[eE]))(?:[eE][-+]?[0-9]+)?$"
    r"|[-+]?\.?(?:inf|Inf|INF)$|\.(?:nan|NaN|NAN)$"
)


def read_settings_file(path: str | Path) -> dict[str, Any]:
    """Return the settings in a file, by name; the file's ending says how it is written.

    Numbers may be written as 3e-4, 1e6, 1_000_000 and inf. Raise Mistake, naming the file, if it
    cannot be read, is not well formed, gives a name twice, or is not a mapping.
    """
    place = Path(path).expanduser()
    if place.suffix.lower() not in SUFFIXES:
        raise Mistake(f"{path} is no file of settings. Name it .yaml, .json or .toml.")
    try:
        text = place.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise Mistake(f"{path} is not text in UTF-8 ({error.reason}).") from error
    except OSError as error:
        raise Mistake(f"{path} cannot be read ({error.strerror}). Give the path of a file.") from (
            error
        )
    found = _parse(place.suffix.lower(), text, str(path))
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise Mistake(f"{path} must hold names and values, such as `steps: 100_000`.")
    return {str(name): value for name, value in found.items()}


def _parse(suffix: str, text: str, path: str) -> Any:
    try:
        if suffix == ".json":
            return json.loads(text, object_pairs_hook=_unique_pairs)
        if suffix == ".toml":
            return tomllib.loads(text)
        return _parse_yaml(text)
    except Mistake as error:
        raise Mistake(f"{path}: {error}") from error
    except (ValueError, RecursionError) as error:
        raise Mistake(f"{path} cannot be read: {short_text(str(error))}") from error


def _unique_pairs(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    """Return the pairs as a mapping; raise Mistake for a name that is given twice."""
    made: dict[Any, Any] = {}
    for name, value in pairs:
        if name in made:
            raise Mistake(f"{name} is given twice. Leave one out.")
        made[name] = value
    return made


def _parse_yaml(text: str) -> Any:
    """Parse YAML without tags for objects: it holds plain values only."""
    import yaml  # imported here: most commands need no YAML

    class Loader(yaml.SafeLoader):
        """A loader with numbers as people write them, and without repeated names."""

    _recognise_numbers(Loader)

    def integer(loader: Any, node: Any) -> int:
        return int(loader.construct_scalar(node))

    def number(loader: Any, node: Any) -> float | int:
        word = loader.construct_scalar(node).lower()
        value = float(re.sub(r"\.(?=inf|nan)", "", word))
        return int(value) if "." not in word and value.is_integer() else value  # 1e6 is a count

    def mapping(loader: Any, node: Any) -> dict[Hashable, Any]:
        loader.flatten_mapping(node)
        return _unique_pairs(
            [(loader.construct_object(key, deep=True), loader.construct_object(value, deep=True))
             for key, value in node.value]
        )  # fmt: skip

    Loader.add_constructor(_NUMBER_TAGS[0], integer)
    Loader.add_constructor(_NUMBER_TAGS[1], number)
    Loader.add_constructor("tag:yaml.org,2002:map", mapping)
    try:
        return yaml.load(text, Loader)  # a SafeLoader: no objects are made
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


def _recognise_numbers(kind: Any) -> None:
    """Let a loader read, and a dumper quote, what people write as numbers."""
    kind.yaml_implicit_resolvers = {
        first: [one for one in known if one[0] not in _NUMBER_TAGS]
        for first, known in kind.yaml_implicit_resolvers.items()
    }
    starts = list("-+0123456789.iI")
    kind.add_implicit_resolver(_NUMBER_TAGS[0], _INTEGER, starts)
    kind.add_implicit_resolver(_NUMBER_TAGS[1], _NUMBER, starts)


def to_yaml(content: dict[str, Any]) -> str:
    """Return plain values as YAML: names in their order, lists in one line."""
    import yaml

    class Dumper(yaml.SafeDumper):
        """A dumper with lists in one line."""

    _recognise_numbers(Dumper)

    def one_line(dumper: Any, value: Any) -> Any:
        plain = all(not isinstance(each, (dict, list)) for each in value)
        return dumper.represent_sequence("tag:yaml.org,2002:seq", value, flow_style=plain)

    Dumper.add_representer(list, one_line)
    return str(yaml.dump(content, Dumper=Dumper, sort_keys=False, width=100, allow_unicode=True))
