"""Do Sterling and Hugging Face's transformers and PEFT open each other's folders, and agree?

    python benchmarks/parity/folders.py --peers-python .venv-bench/bin/python

writes ``results/folders.json``. This program runs with the Python that has Sterling; it starts
``folders_peer.py`` with the one that has torch, transformers and peft. With ``--fixtures
tests/language/fixtures`` the small checkpoints that tests read are made anew as well.

1. transformers makes small random checkpoints of each family, and records logits and greedy
   answers; Sterling loads and compares.
2. Sterling saves what it loaded, a model of its own (single and sharded) and LoRA adapters;
   transformers and PEFT open them, and what they compute is compared with what Sterling computed.
3. Conversations: the tokens of Sterling's turns, joined, against ``apply_chat_template``'s.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from folders_peer import FAMILIES, NEW, TALK

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parents[1]))

from benchmarks import evidence  # noqa: E402


def expected(folder: Path) -> dict[str, np.ndarray]:
    """What the peer recorded of a folder."""
    from safetensors.numpy import load_file

    return load_file(folder / "expected.safetensors")


def compare(model: Any, folder: Path) -> dict[str, Any]:
    """The largest difference of logits, and whether greedy answers are the same."""
    import equinox
    import jax.numpy as jnp

    wanted = expected(folder)
    logits = np.asarray(model(jnp.asarray(wanted["ids"], jnp.int32)))
    said = wanted["greedy"][:, :8]
    score = equinox.filter_jit(model)
    for _ in range(NEW):  # in one shape: what follows a token does not change it
        row = np.pad(said, ((0, 0), (0, 8 + NEW - said.shape[1])))
        best = np.asarray(score(jnp.asarray(row, jnp.int32)))[:, said.shape[1] - 1].argmax(-1)
        said = np.concatenate([said, best[:, None]], 1)
    return {
        "largest difference of logits": float(np.abs(logits - wanted["logits"]).max()),
        "largest logit": float(np.abs(wanted["logits"]).max()),
        "same greedy tokens": bool((said == wanted["greedy"]).all()),
        "same as generate": bool((said == wanted["generated"]).all()),
    }


def talks_alike(tokenizer: Any, folder: Path) -> bool:
    """Whether turns, joined, are the conversation written at once."""
    from sterling.language.scene import Message

    for end, whole in json.loads((folder / "talk.json").read_text())["tokens before the assistant"]:
        ids: list[int] = []
        new: list[Message] = []
        for role, content in TALK[:end]:
            if role != "assistant":
                new.append(Message(role, content))
                continue
            ids += tokenizer.encode_continuation(new) if ids else tokenizer.encode_opening(new)
            ids += [*tokenizer.encode(content), tokenizer.end]
            new = []
        ids += tokenizer.encode_continuation(new) if ids else tokenizer.encode_opening(new)
        if ids != whole:
            return False
    return True


def main() -> None:
    """Compare, write the file, print it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers-python", default=sys.executable)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "folders.json")
    parser.add_argument("--fixtures", type=Path)
    asked = parser.parse_args()
    begun = evidence.begin()
    with tempfile.TemporaryDirectory() as root:
        found = run(Path(root), asked.peers_python, asked.fixtures)
    evidence.write(asked.out, found, begun, [0])
    print(json.dumps(found, indent=2))


def run(root: Path, python: str, fixtures: Path | None) -> dict[str, Any]:
    """Both directions, in folders below ``root``."""
    from sterling import language
    from sterling.language.models import lora, peft_folder

    theirs, ours = root / "theirs", root / "ours"
    peer(python, "make", theirs)
    if fixtures is not None:
        keep(theirs, fixtures)
    loaded, again, models, tokenizers = {}, {}, {}, {}
    for name in FAMILIES:
        model, tokenizer = language.load(theirs / name)
        loaded[name] = compare(model, theirs / name)
        loaded[name]["same conversation"] = talks_alike(tokenizer, theirs / name)
        adapted = peft_folder.read_adapters(theirs / name / "adapter", model)
        loaded[f"{name}, PEFT's adapter"] = compare(adapted, theirs / name / "adapter")
        models[name], tokenizers[name] = model, tokenizer
        models[f"{name}, merged adapter"] = lora.merge_adapters(adapted)
        language.save(ours / name, model, tokenizer)
        language.save(ours / f"{name}, merged adapter", adapted, tokenizer)
        peft_folder.write_adapters(ours / f"{name}, adapter", adapted)
        (ours / f"{name}, adapter" / "base.json").write_text(json.dumps(str(ours / name)))
        models[f"{name}, adapter"] = adapted
    for name, own in (("characters", language.Tokenizer.characters()),
                      ("bytes", language.Tokenizer.bytes())):  # fmt: skip
        model = language.tiny(own.vocabulary, "nano")
        shard = 100_000 if name == "bytes" else 5_000_000_000
        language.save(ours / f"tiny, {name}", model, own, shard=shard)
        models[f"tiny, {name}"], tokenizers[f"tiny, {name}"] = model, own
    peer(python, "open", ours)
    for name, model in models.items():
        again[name] = compare(model, ours / name)
        if name in tokenizers:
            again[name]["same conversation"] = talks_alike(tokenizers[name], ours / name)
    return {
        "versions": versions(python),
        "theirs, opened here": loaded,
        "ours, opened there": again,
    }


def keep(theirs: Path, fixtures: Path) -> None:
    """What tests read: weights, configuration, tokenizer, and what came out."""
    for name in FAMILIES:
        (fixtures / name).mkdir(parents=True, exist_ok=True)
        for file in sorted((theirs / name).iterdir()):
            if file.is_file():
                (fixtures / name / file.name).write_bytes(file.read_bytes())


def peer(python: str, verb: str, folder: Path) -> None:
    """Let the peer make models, or open ours."""
    folder.mkdir(exist_ok=True)
    subprocess.run([python, str(HERE / "folders_peer.py"), verb, str(folder)], check=True)


def versions(python: str) -> dict[str, str]:
    """Of the packages on both sides."""
    names = ["torch", "transformers", "peft", "tokenizers", "safetensors"]
    code = "import sys; from importlib.metadata import version; "
    code += "print(*map(version, sys.argv[1:]))"
    done = subprocess.run([python, "-c", code, *names], check=True, capture_output=True, text=True)
    found = dict(zip(names, done.stdout.split(), strict=True))
    return found | {"jax": version("jax"), "python": platform.python_version()}


if __name__ == "__main__":
    main()
