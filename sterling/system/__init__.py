"""The operating system: files, signals, pickling, terminal messages. Nothing of learning."""
