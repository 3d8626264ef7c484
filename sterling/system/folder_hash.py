"""Hash the files of a folder that holds a model: a Hugging Face folder, or a run."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

MODEL_FILES = (
    *("config.json", "tokenizer*.json", "chat_template.jinja", "*.safetensors"),
    *("model/*", "checkpoints/*/*"),  # of a run
)
NOT_OF_A_MODEL = "episodes.safetensors"  # of a run: its latest evaluation


def model_hash(folder: str) -> str:
    """Return the SHA-256 of the files that make a folder's model, and of their names; "" if it has
    no config.json. Files whose size and time are unchanged are read once a process."""
    if not Path(folder, "config.json").is_file():
        return ""
    found = {path for pattern in MODEL_FILES for path in Path(folder).glob(pattern)}
    files = sorted(path for path in found if path.is_file() and path.name != NOT_OF_A_MODEL)
    stats = [(path, path.stat()) for path in files]
    return _hash(folder, tuple((str(path), x.st_size, x.st_mtime_ns) for path, x in stats))


@functools.lru_cache(maxsize=8)
def _hash(folder: str, files: tuple[tuple[str, int, int], ...]) -> str:
    whole = hashlib.sha256()
    for name, _, _ in files:
        with Path(name).open("rb") as file:
            own = hashlib.file_digest(file, "sha256").hexdigest()
        whole.update(f"{Path(name).relative_to(folder)} {own}\n".encode())
    return whole.hexdigest()
