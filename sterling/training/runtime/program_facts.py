"""What a compiled program depends on beside its arguments, for ``program_store.py``."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
from pathlib import Path
from typing import Any

import equinox
import gymnasium
import jax
import jaxlib
import numpy as np
import optax

from sterling.training.config.settings import Settings

PACKAGES = (jax, jaxlib, equinox, optax, np, gymnasium)
SOURCES = (".py", ".json")  # endings of the package's files that programs come from
CACHE_OPTIONS = "cache"  # in the names of JAX's options that say where programs are kept
CPU_FILE = Path("/proc/cpuinfo")


@functools.cache
def environment() -> dict[str, Any]:
    """Return the facts of this process: source, versions, processor, options of JAX and XLA."""
    options = {name: repr(value) for name, value in jax.config.values.items()}
    named = ("XLA_", "JAX_", "LIBXLA", "TF_")
    variables = {name: value for name, value in os.environ.items() if name.startswith(named)}
    kept = {
        name: value
        for name, value in sorted((options | variables).items())
        if CACHE_OPTIONS not in name.lower()
    }
    device = jax.devices()[0]
    return {
        "source": source_hash(),
        "versions": [platform.python_version(), *(each.__version__ for each in PACKAGES)],
        "device": [device.platform, device.device_kind, device.client.platform_version],
        "devices": jax.device_count(),
        "processor": [platform.machine(), os.cpu_count(), processor_features()],
        "options": kept,
    }


def plain(settings: Settings) -> str:
    """Return the settings as text."""
    return json.dumps(settings.to_json(), sort_keys=True, default=str)


def source_hash() -> str:
    """Return the hash of Sterling's source files."""
    root, digest = str(Path(__file__).parents[2]), hashlib.sha256()
    found = [
        os.path.join(folder, name)
        for folder, _, names in os.walk(root)
        for name in names
        if name.endswith(SOURCES)
    ]
    for path in sorted(found):
        with open(path, "rb") as file:
            content = file.read()
        digest.update(f"{path.removeprefix(root)} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()


def processor_features() -> str:
    """Return the hash of what the processor can do, as far as the system says it."""
    try:
        lines = CPU_FILE.read_text().split("\n\n")[0].splitlines()
    except OSError:
        return platform.processor()
    kept = [
        line for line in lines if line.partition("\t")[0] in ("flags", "Features", "model name")
    ]
    return hashlib.sha256("\n".join(kept).encode()).hexdigest()
