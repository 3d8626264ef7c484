"""What a language model is asked, who answers, and what each seat of a scene heard and said."""
