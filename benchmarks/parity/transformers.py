"""Do Sterling and Hugging Face's transformers and PEFT open each other's folders, and agree?

    python benchmarks/parity/transformers.py --peers-python .venv-bench/bin/python

writes ``results/transformers.json``. This program runs with the Python that has Sterling; it starts
itself again, as the peer, with the one that has torch, transformers and peft. With ``--fixtures
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

HERE = Path(__file__).resolve().parent
sys.path = [each for each in sys.path if Path(each or ".").resolve() != HERE]  # our own name

import numpy as np  # noqa: E402

ROWS, TIME, NEW = 2, 32, 20
SIZES = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
LLAMA3 = {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0}
LLAMA3 |= {"high_freq_factor": 4.0, "original_max_position_embeddings": 64}
LINEAR = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}
PLAIN = {"rope_type": "default", "rope_theta": 1000000.0}
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {"model_type": "llama", "rope_parameters": LLAMA3},
    "llama-biases": {
        "model_type": "llama",
        "rope_parameters": LINEAR,
        "attention_bias": True,
        "mlp_bias": True,
        "tie_word_embeddings": True,
    },
    "qwen2": {"model_type": "qwen2", "rope_parameters": PLAIN, "tie_word_embeddings": True},
    "qwen3": {"model_type": "qwen3", "rope_parameters": PLAIN, "head_dim": 16},
}
CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content']"
    " + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
TALK = [("user", "what is 2"), ("assistant", "it is 2"), ("tool", "no, 4"), ("user", "again")]
TALK += [("assistant", "4"), ("user", "right")]


# The peer: transformers and PEFT.


def peer_make(folder: Path) -> None:
    """Checkpoints, adapters, and what comes out of them."""
    import torch
    import transformers
    from peft import LoraConfig, get_peft_model

    for number, (name, settings) in enumerate(FAMILIES.items()):
        torch.manual_seed(number)
        tokenizer = peer_tokenizer(settings["model_type"])
        config = transformers.AutoConfig.for_model(
            **(SIZES | settings),
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
        model = transformers.AutoModelForCausalLM.from_config(config).eval()
        with torch.no_grad():
            for part, weight in model.named_parameters():
                weight.normal_(1.0 if "norm" in part else 0.0, 0.2)
        model.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
        peer_record(model, folder / name)
        (folder / name / "talk.json").write_text(json.dumps(peer_talk(tokenizer)))
        torch.manual_seed(number)
        targets = ["q_proj", "v_proj", "o_proj", "up_proj", "down_proj"]
        lora = LoraConfig(r=4, lora_alpha=6, target_modules=targets, init_lora_weights=False)
        adapted = get_peft_model(model, lora)
        adapted.save_pretrained(folder / name / "adapter")
        peer_record(adapted, folder / name / "adapter")


def peer_open(folder: Path) -> None:
    """Open what Sterling wrote: each folder says by base.json what its base is, if it has one."""
    import transformers
    from peft import PeftModel

    for each in sorted(folder.iterdir()):
        base = each / "base.json"
        where = json.loads(base.read_text()) if base.exists() else str(each)
        model = transformers.AutoModelForCausalLM.from_pretrained(where, dtype="auto").eval()
        if base.exists():
            model = PeftModel.from_pretrained(model, str(each)).eval()
        else:
            tokenizer = transformers.AutoTokenizer.from_pretrained(str(each))
            (each / "talk.json").write_text(json.dumps(peer_talk(tokenizer)))
        peer_record(model, each)


def peer_tokenizer(family: str) -> Any:
    """A small byte-level BPE with ChatML's special tokens; Qwen's where transformers has one."""
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    letters = [*special, *"abcdefghijklmnopqrstuvwxyz0123456789,.?ĠĊ"]  # Ġ: space, Ċ: new line
    merges = [("Ċ", "Ċ"), ("i", "s"), ("Ġ", "is"), ("Ġ", "2")]
    words = {token: number for number, token in enumerate([*letters, *map("".join, merges)])}
    names = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
    if family == "llama":
        inner = Tokenizer(models.BPE(words, merges))
        inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        inner.decoder = decoders.ByteLevel()
        inner.add_special_tokens(special)
        made = transformers.PreTrainedTokenizerFast(tokenizer_object=inner, **names)
    else:
        made = transformers.Qwen2Tokenizer(words, merges, **names)
        made.add_special_tokens({"additional_special_tokens": special})
    made.chat_template = CHATML
    return made


def peer_record(model: Any, folder: Path) -> None:
    """Logits of fixed tokens, and the answer that follows a few of them when nothing is random."""
    import torch
    from safetensors.numpy import save_file

    rng = np.random.default_rng(0)
    ids = rng.integers(3, SIZES["vocab_size"], (ROWS, TIME))
    start = torch.tensor(ids[:, :8])
    with torch.no_grad():
        logits = model(torch.tensor(ids)).logits.float().numpy()
        # Written out: `generate` may stop early, and fills with padding then.
        said = start
        for _ in range(NEW):
            said = torch.cat([said, model(said).logits[:, -1:].argmax(-1)], 1)
        limits = {"max_new_tokens": NEW, "min_new_tokens": NEW, "do_sample": False}
        own = model.generate(input_ids=start, eos_token_id=[], **limits)
    content = {"ids": ids, "logits": logits, "greedy": said.numpy(), "generated": own.numpy()}
    save_file(content, folder / "expected.safetensors")


def peer_talk(tokenizer: Any) -> Any:
    """A conversation's tokens before each of the assistant's turns."""
    found = []
    messages = [{"role": role, "content": content} for role, content in TALK]
    for end in range(1, len(messages) + 1):
        if messages[end - 1]["role"] != "assistant":
            options = {"add_generation_prompt": True, "tokenize": True, "return_dict": False}
            found.append([end, tokenizer.apply_chat_template(messages[:end], **options)])
    return {"talk": TALK, "tokens before the assistant": found}


# Sterling.


def expected(folder: Path) -> dict[str, np.ndarray]:
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
            ids += tokenizer.going_on(new) if ids else tokenizer.opening(new)
            ids += [*tokenizer.encode(content), tokenizer.end]
            new = []
        ids += tokenizer.going_on(new) if ids else tokenizer.opening(new)
        if ids != whole:
            return False
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers-python", default=sys.executable)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "transformers.json")
    parser.add_argument("--fixtures", type=Path)
    parser.add_argument("--peer", nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.peer:
        {"make": peer_make, "open": peer_open}[asked.peer[0]](Path(asked.peer[1]))
        return
    with tempfile.TemporaryDirectory() as root:
        found = run(Path(root), asked.peers_python, asked.fixtures)
    asked.out.parent.mkdir(exist_ok=True)
    asked.out.write_text(json.dumps(found, indent=2) + "\n")
    print(json.dumps(found, indent=2))


def run(root: Path, python: str, fixtures: Path | None) -> dict[str, Any]:
    from sterling import language
    from sterling.language import lora, peft

    theirs, ours = root / "theirs", root / "ours"
    peer(python, "make", theirs)
    if fixtures is not None:
        keep(theirs, fixtures)
    loaded, again, models, tokenizers = {}, {}, {}, {}
    for name in FAMILIES:
        model, tokenizer = language.load(theirs / name)
        loaded[name] = compare(model, theirs / name)
        loaded[name]["same conversation"] = talks_alike(tokenizer, theirs / name)
        adapted = peft.read(theirs / name / "adapter", model)
        loaded[f"{name}, PEFT's adapter"] = compare(adapted, theirs / name / "adapter")
        models[name], tokenizers[name] = model, tokenizer
        models[f"{name}, merged adapter"] = lora.merged(adapted)
        language.save(ours / name, model, tokenizer)
        language.save(ours / f"{name}, merged adapter", adapted, tokenizer)
        peft.write(ours / f"{name}, adapter", adapted)
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
    folder.mkdir(exist_ok=True)
    subprocess.run([python, str(HERE / "transformers.py"), "--peer", verb, str(folder)], check=True)


def versions(python: str) -> dict[str, str]:
    names = ["torch", "transformers", "peft", "tokenizers", "safetensors"]
    code = "import sys; from importlib.metadata import version; "
    code += "print(*map(version, sys.argv[1:]))"
    done = subprocess.run([python, "-c", code, *names], check=True, capture_output=True, text=True)
    found = dict(zip(names, done.stdout.split(), strict=True))
    return found | {"jax": version("jax"), "python": platform.python_version()}


if __name__ == "__main__":
    main()
