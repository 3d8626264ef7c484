"""Label datasets: rewards from demonstrations (OTR), actions from an inverse dynamics model."""

from sterling.data.relabel.inverse_dynamics import inverse_actions as inverse_actions
from sterling.data.relabel.optimal_transport import otr as otr
