"""An agent whose answers are written by a test."""

from concurrent.futures import Future

from sterling.language.engine.ask import Said


class ScriptedAgent:
    """Each of its seeds answers with what its method ``answer(ask, seed, row)`` returns: tokens.
    They end an answer, if ``stops``; every token's log-probability is -1."""

    seeds, stops, version = 1, True, 0

    def answer(self, ask, seed, row):
        raise NotImplementedError

    def samplers(self, shapes):
        return [ScriptedSampler(self, seed) for seed in range(self.seeds)]


class ScriptedSampler:
    """The sampler of one seed of a scripted agent."""

    def __init__(self, agent, seed):
        self.agent, self.seed = agent, seed

    def ask(self, asks):
        found = []
        for row, ask in enumerate(asks):
            ids, future = self.agent.answer(ask, self.seed, row), Future()
            future.set_result(Said(ids, [-1.0] * len(ids), self.agent.stops, self.agent.version))
            found.append(future)
        return found

    def close(self):
        pass
