"""Numbers with intervals: a score leaves the system only through here."""

from sterling.statistics.interval import Estimate as Estimate
from sterling.statistics.interval import estimate as estimate
