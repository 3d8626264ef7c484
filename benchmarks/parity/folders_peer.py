"""The peer's side of ``folders.py``: transformers and PEFT, under a Python that has them.

python folders_peer.py make|open FOLDER
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

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
    "mistral": {"model_type": "mistral", "rope_parameters": PLAIN, "sliding_window": None},
    "phi3": {"model_type": "phi3", "rope_parameters": PLAIN | {"partial_rotary_factor": 0.5}},
    "smollm3": {
        "model_type": "smollm3",
        "rope_parameters": PLAIN,
        "no_rope_layers": [1, 0],
        "tie_word_embeddings": True,
    },
    "olmo2": {"model_type": "olmo2", "rope_parameters": PLAIN},
}
CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content']"
    " + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
TALK = [("user", "what is 2"), ("assistant", "it is 2"), ("tool", "no, 4"), ("user", "again")]
TALK += [("assistant", "4"), ("user", "right")]


def make(folder: Path) -> None:
    """Checkpoints, adapters, and what comes out of them."""
    import torch
    import transformers
    from peft import LoraConfig, get_peft_model

    for number, (name, settings) in enumerate(FAMILIES.items()):
        torch.manual_seed(number)
        tokenizer = small_tokenizer(settings["model_type"])
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
        record(model, folder / name)
        (folder / name / "talk.json").write_text(json.dumps(talk_tokens(tokenizer)))
        torch.manual_seed(number)
        targets = ["q_proj", "v_proj", "o_proj", "up_proj", "down_proj"]
        if settings["model_type"] == "phi3":
            targets = ["qkv_proj", "gate_up_proj", "down_proj"]
        lora = LoraConfig(r=4, lora_alpha=6, target_modules=targets, init_lora_weights=False)
        adapted = get_peft_model(model, lora)
        adapted.save_pretrained(folder / name / "adapter")
        record(adapted, folder / name / "adapter")


def open_ours(folder: Path) -> None:
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
            (each / "talk.json").write_text(json.dumps(talk_tokens(tokenizer)))
        record(model, each)


def small_tokenizer(family: str) -> Any:
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


def record(model: Any, folder: Path) -> None:
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


def talk_tokens(tokenizer: Any) -> Any:
    """A conversation's tokens before each of the assistant's turns."""
    found = []
    messages = [{"role": role, "content": content} for role, content in TALK]
    for end in range(1, len(messages) + 1):
        if messages[end - 1]["role"] != "assistant":
            options = {"add_generation_prompt": True, "tokenize": True, "return_dict": False}
            found.append([end, tokenizer.apply_chat_template(messages[:end], **options)])
    return {"talk": TALK, "tokens before the assistant": found}


if __name__ == "__main__":
    {"make": make, "open": open_ours}[sys.argv[1]](Path(sys.argv[2]))
