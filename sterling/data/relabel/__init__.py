"""Labels for experience that lacks them: rewards from demonstrations, actions from a model."""

from sterling.data.relabel.inverse import inverse_actions as inverse_actions
from sterling.data.relabel.otr import otr as otr
