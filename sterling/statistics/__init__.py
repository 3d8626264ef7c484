"""Numbers with intervals: a score leaves the system only through here.

Plain arrays in, frozen dataclasses out; nothing is remembered between calls. See
``docs/statistics.md`` for which interval is taken when, and how often it holds what it should.
"""

from sterling.statistics.aggregate import Aggregate as Aggregate
from sterling.statistics.aggregate import cvar as cvar
from sterling.statistics.aggregate import gap as gap
from sterling.statistics.comparison import Comparison as Comparison
from sterling.statistics.comparison import Decision as Decision
from sterling.statistics.curves import Curve as Curve
from sterling.statistics.curves import auc as auc
from sterling.statistics.curves import curve as curve
from sterling.statistics.decide import compare as compare
from sterling.statistics.family import RankChange as RankChange
from sterling.statistics.family import Worst as Worst
from sterling.statistics.family import generalisation_gap as generalisation_gap
from sterling.statistics.family import rank_changes as rank_changes
from sterling.statistics.family import worst_context as worst_context
from sterling.statistics.headline import Headline as Headline
from sterling.statistics.headline import headline as headline
from sterling.statistics.improvement import improve as improve
from sterling.statistics.interval import Estimate as Estimate
from sterling.statistics.interval import estimate as estimate
from sterling.statistics.load import load as load
from sterling.statistics.normalise import Table as Table
from sterling.statistics.normalise import normalise as normalise
from sterling.statistics.normalise import table as table
from sterling.statistics.normalise import tables as tables
from sterling.statistics.order import Ranks as Ranks
from sterling.statistics.order import ranks as ranks
from sterling.statistics.power import need as need
from sterling.statistics.power import power as power
from sterling.statistics.profiles import Profile as Profile
from sterling.statistics.profiles import profile as profile
from sterling.statistics.scores import Scores as Scores
from sterling.statistics.spread import Tolerance as Tolerance
from sterling.statistics.spread import tolerance as tolerance
