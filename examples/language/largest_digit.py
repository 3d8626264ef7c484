"""Questions of one's own for language models: which of three digits is the largest?"""

import random


class LargestDigit:
    """Answers are judged by a program; no other model has an opinion."""

    def sample(self, seed, level):
        """Return question number ``seed``."""
        digits = random.Random(seed).choices("0123456789", k=3)
        return {"prompt": " ".join(digits), "answer": max(digits)}

    def verify(self, task, response):
        """Return the score of an answer, 0 to 1."""
        return float(response.strip() == task.answer)

    def solve(self, task):
        """Return an answer to imitate: one of the digits, right or wrong."""
        return random.Random(task.prompt).choice(task.prompt.split())


def make():
    """Return the task; `FILE.py:make` names it in a command."""
    return LargestDigit()
