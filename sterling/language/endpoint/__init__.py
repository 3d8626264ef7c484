"""Chat completions in OpenAI's form: how requests are read, matched and answered."""
