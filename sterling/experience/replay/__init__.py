"""The replay buffer: storage, sampling, priorities, n-step windows, hindsight, model rollouts."""
