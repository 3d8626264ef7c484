"""Judging without a world: what a policy is worth, from a log of another one.

>>> from sterling.judging import Trained, judge
>>> policy = Trained.of(sterling.load("runs/iql"), data.spec)
>>> judge(policy, data, "fqe", gamma=0.99)
"""

from sterling.judging.clone import cloned as cloned
from sterling.judging.clone import deterministic as deterministic
from sterling.judging.judge import METHODS as METHODS
from sterling.judging.judge import behaviour as behaviour
from sterling.judging.judge import judge as judge
from sterling.judging.policies import Chances as Chances
from sterling.judging.policies import Policy as Policy
from sterling.judging.policies import Trained as Trained
from sterling.judging.selection import rank_correlation as rank_correlation
from sterling.judging.selection import regret as regret
from sterling.judging.world import Beside as Beside
from sterling.judging.world import beside_behaviour as beside_behaviour
