"""Build runs that train language models: base model, tokenizer, context length, reward model."""
