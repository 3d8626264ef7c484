"""Numbers with intervals: every score that Sterling reports comes from here.

Functions take plain arrays and return frozen dataclasses, without any state between calls. See
``docs/statistics.md`` for which interval is taken when, and its measured coverage.
"""

from sterling.statistics.comparisons.comparison_result import Comparison as Comparison
from sterling.statistics.comparisons.comparison_result import Decision as Decision
from sterling.statistics.comparisons.decide_comparison import compare as compare
from sterling.statistics.comparisons.improvement_probability import improve as improve
from sterling.statistics.comparisons.rank_intervals import Ranks as Ranks
from sterling.statistics.comparisons.rank_intervals import ranks as ranks
from sterling.statistics.comparisons.seed_power import need as need
from sterling.statistics.comparisons.seed_power import power as power
from sterling.statistics.intervals.aggregates import Aggregate as Aggregate
from sterling.statistics.intervals.aggregates import cvar as cvar
from sterling.statistics.intervals.aggregates import gap as gap
from sterling.statistics.intervals.curve_intervals import Curve as Curve
from sterling.statistics.intervals.curve_intervals import auc as auc
from sterling.statistics.intervals.curve_intervals import curve as curve
from sterling.statistics.intervals.estimates import Estimate as Estimate
from sterling.statistics.intervals.estimates import estimate as estimate
from sterling.statistics.intervals.performance_profiles import Profile as Profile
from sterling.statistics.intervals.performance_profiles import profile as profile
from sterling.statistics.intervals.tolerance_band import Tolerance as Tolerance
from sterling.statistics.intervals.tolerance_band import tolerance as tolerance
from sterling.statistics.scores.context_family import RankChange as RankChange
from sterling.statistics.scores.context_family import Worst as Worst
from sterling.statistics.scores.context_family import generalisation_gap as generalisation_gap
from sterling.statistics.scores.context_family import rank_changes as rank_changes
from sterling.statistics.scores.context_family import worst_context as worst_context
from sterling.statistics.scores.headline import Headline as Headline
from sterling.statistics.scores.headline import headline as headline
from sterling.statistics.scores.load_scores import load as load
from sterling.statistics.scores.normalised_scores import Table as Table
from sterling.statistics.scores.normalised_scores import normalise as normalise
from sterling.statistics.scores.normalised_scores import table as table
from sterling.statistics.scores.normalised_scores import tables as tables
from sterling.statistics.scores.score_table import Scores as Scores
