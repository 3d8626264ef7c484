"""Off-policy evaluation: estimate a policy's return from a dataset of another policy.

>>> from sterling.evaluation import TrainedPolicy, estimate_policy_value
>>> policy = TrainedPolicy.from_run(sterling.load("runs/iql"), data.spec)
>>> estimate_policy_value(policy, data, "fqe", gamma=0.99)
"""

from sterling.evaluation.off_policy.behaviour_clone import clone_behaviour as clone_behaviour
from sterling.evaluation.off_policy.behaviour_clone import deterministic as deterministic
from sterling.evaluation.off_policy.environment_returns import (
    BehaviourComparison as BehaviourComparison,
)
from sterling.evaluation.off_policy.environment_returns import (
    compare_with_behaviour as compare_with_behaviour,
)
from sterling.evaluation.off_policy.estimate_policy_value import METHODS as METHODS
from sterling.evaluation.off_policy.estimate_policy_value import behaviour as behaviour
from sterling.evaluation.off_policy.estimate_policy_value import (
    estimate_policy_value as estimate_policy_value,
)
from sterling.evaluation.off_policy.policy_probabilities import Policy as Policy
from sterling.evaluation.off_policy.policy_probabilities import TabularPolicy as TabularPolicy
from sterling.evaluation.off_policy.policy_probabilities import TrainedPolicy as TrainedPolicy
from sterling.evaluation.off_policy.policy_selection import rank_correlation as rank_correlation
from sterling.evaluation.off_policy.policy_selection import regret as regret
