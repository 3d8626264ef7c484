"""Choose the tests to run: those that a change can affect, or one part of the slow ones."""
