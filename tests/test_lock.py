"""The lock that ``make`` installs fits what ``pyproject.toml`` asks for, and carries hashes."""

import re
import tomllib
from pathlib import Path

from every_case import every
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
LOCK = (ROOT / "requirements" / "locked.txt").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
RUNTIME = (ROOT / "requirements" / "runtime.txt").read_text()
PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", re.MULTILINE)
PINS, RUNTIME_PINS = PIN.findall(LOCK), PIN.findall(RUNTIME)
ASKED = [
    *PROJECT["dependencies"],
    *PROJECT["optional-dependencies"]["test"],
    *PROJECT["optional-dependencies"]["dev"],
]


@every("text", ASKED)
def test_every_dependency_is_locked_within_its_range(text):
    wanted = Requirement(text)
    name = canonicalize_name(wanted.name)
    versions = [version for pinned, version in PINS if canonicalize_name(pinned) == name]
    assert versions, f"{name} is not in the lock; run make lock"
    for version in versions:
        assert wanted.specifier.contains(version), f"{name} {version}; run make lock"


@every("text", PROJECT["dependencies"])
def test_runtime_requirements_pin_every_dependency(text):
    name = canonicalize_name(Requirement(text).name)
    assert name in [canonicalize_name(pinned) for pinned, _ in RUNTIME_PINS]


def test_runtime_requirements_are_a_subset_of_the_lock():
    assert set(RUNTIME_PINS) <= set(PINS)
    assert len(RUNTIME_PINS) < 0.7 * len(PINS)


def test_every_locked_package_carries_a_hash():
    blocks = re.split(r"^(?=[A-Za-z0-9])", LOCK, flags=re.MULTILINE)[1:]
    assert len(blocks) == len(PINS)
    assert all("--hash=sha256:" in block for block in blocks)


def test_pyproject_dependencies_have_an_upper_bound():
    loose = [text for text in ASKED if "<" not in text and "==" not in text]
    assert not loose, "give each dependency a lower and an upper bound"
