"""Experience on disk: datasets, their formats, what is wrong with them, what they are good for."""

from sterling.data.check import check as check
from sterling.data.check import sound as sound
from sterling.data.dataset import Dataset as Dataset
from sterling.data.dataset import Episode as Episode
from sterling.data.describe import Description as Description
from sterling.data.describe import describe as describe
from sterling.data.findings import Finding as Finding
from sterling.data.join import concatenate as concatenate
from sterling.data.recommend import Advice as Advice
from sterling.data.recommend import recommend as recommend
from sterling.data.relabel import inverse_actions as inverse_actions
from sterling.data.relabel import otr as otr
from sterling.data.repair import repaired as repaired
