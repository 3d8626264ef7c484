"""What processes beside a run import: JAX would take each of them seconds and memory."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "module",
    [
        "sterling.envs.goal_worlds.goal_tasks",
        "sterling.envs.hosted.pettingzoo_env",
        "sterling.envs.hosted.registered_env",
        "sterling.envs.hosted.worker_loop",
        "sterling.envs.padding.padded_observations",
        "sterling.language.adapters.user_tasks",
        "sterling.language.agent_programs.resident_process",
        "sterling.language.sandbox.run_untrusted",
        "sterling.language.tasks",
        "sterling.system.processes.answer_process",
    ],
)
def test_module_of_a_process_beside_a_run_imports_no_jax(module):
    program = f"import sys, {module}; print({{'jax', 'equinox'}} & set(sys.modules))"
    said = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert said.stdout == "set()\n"
