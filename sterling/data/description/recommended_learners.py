"""Recommend learners for a dataset, each with a reason and the paper behind it.

These are rules of thumb from published comparisons, applied to a dataset's statistics: a place to
begin, not a verdict. The scores cited are D4RL's, normalised to 100, of the last checkpoint, from
CORL's README (tinkoff-ai/CORL@6afec90; ``sterling/references/scores/corl-d4rl.json``).
"""

from __future__ import annotations

import dataclasses

from sterling.data.description.dataset_description import Description

GOOD_QUALITY = 0.75  # TQ from which imitation is enough
POOR_QUALITY = 0.5
BEST_TENTH_GAP = 0.25  # share of the range by which the best tenth must exceed the mean
STITCHING_GAIN = 0.1  # share of the range that the best continuations must gain
RANDOM_OUTCOMES = 0.05
RANDOM_ACTIONS = 0.5
LONG_EPISODE = 500  # steps

PERSPECTIVE = "Schweighofer et al. 2022, arXiv:2111.04714"
TRANSFORMERS = "Bhargava et al. 2024, arXiv:2305.14550"
DISPUTED = "Omori et al. 2025, arXiv:2507.10174"
WEIGHTING = "Hong et al., ICLR 2023"
CORL = "CORL, arXiv:2210.07105"


@dataclasses.dataclass(frozen=True)
class Advice:
    """Learners by name, the most promising first; the reason; the paper it is from."""

    learners: tuple[str, ...]
    reason: str
    source: str

    def __str__(self) -> str:
        return f"{', '.join(self.learners)}: {self.reason} [{self.source}]"


def recommend(found: Description) -> list[Advice]:
    """Return what to try, in order: one entry for every property that favours some learner."""
    if found.sparse == 1.0 and found.upside == 0.0:  # equal returns too: lengths do not differ
        reason = "every reward is the same: imitate, or first label rewards or set goals"
        return [Advice(("bc",), reason, "OTR, Luo et al. 2023, arXiv:2303.13971")]
    made = [*_by_quality(found), *_by_structure(found)]
    if not made:
        reason = "nothing stands out: a value learner that stays near the data, and a baseline"
        made = [Advice(("iql", "bc"), reason, "Kostrikov et al. 2022, arXiv:2110.06169")]
    return made


def _by_quality(found: Description) -> list[Advice]:
    made = []
    quality = found.quality.value if found.quality else None
    low, high = found.reference or (0.0, 0.0)
    width = (high - low) or abs(found.returns.value) or 1.0
    stands_out = (found.best - found.returns.value) / width
    if quality is not None and quality >= GOOD_QUALITY:
        reason = f"TQ is {quality:.2f}: imitation is competitive on good data"
        made.append(Advice(("bc", "td3+bc"), reason, PERSPECTIVE))
    if stands_out >= BEST_TENTH_GAP:
        reason = (
            f"the best tenth returns {found.best:.4g}, the mean is {found.returns.value:.4g}: "
            "first imitate only the best (halfcheetah-medium-expert: BC 56, 10%BC 90)"
        )
        made.append(Advice(("%bc", "iql"), reason, f"{CORL}; {WEIGHTING}"))
    if quality is not None and quality < POOR_QUALITY:
        wide = "" if found.coverage is None else f" and SACo {found.coverage:.2f}"
        names = ("cql", "iql") if found.discrete else ("rebrac", "edac", "iql")
        reason = (
            f"TQ is {quality:.2f}{wide}: a learner must improve on the data, which needs coverage "
            "(hopper-medium-replay: BC 30, IQL 97, ReBRAC 95)"
        )
        made.append(Advice(names, reason, f"{PERSPECTIVE}; {CORL}"))
    return made


def _by_structure(found: Description) -> list[Advice]:
    made = []
    stitched = found.crossing >= 0.2 and found.gain >= STITCHING_GAIN
    if stitched:
        reason = (
            f"episodes cross in {found.crossing:.0%} of the rows and the best continuation gains "
            f"{found.gain:.0%} of the range: value learners stitch, sequence models do not "
            "(antmaze-medium-play: DT 0, 10%BC 2, IQL 66, ReBRAC 90)"
        )
        made.append(Advice(("iql",) if found.discrete else ("rebrac", "iql"), reason, CORL))
    if found.world is not None and found.world > RANDOM_OUTCOMES:
        reason = (
            f"{found.world:.0%} of repeated state-action pairs have different outcomes: "
            "conditioning on returns mistakes luck for skill"
        )
        made.append(Advice(("cql", "iql"), reason, TRANSFORMERS))
    elif not stitched and (found.lengths.value >= LONG_EPISODE or 0.95 < found.sparse < 1.0):
        what = "episodes are long" if found.lengths.value >= LONG_EPISODE else "rewards are sparse"
        reason = (
            f"{what} and stitching gains little: sequence models do well, and imitating the best "
            "episodes may do as well"
        )
        made.append(Advice(("dt", "%bc"), reason, f"{TRANSFORMERS}; {DISPUTED}"))
    if found.policy is not None and found.policy > RANDOM_ACTIONS and not found.discrete:
        reason = (
            f"actions at similar observations keep {found.policy:.0%} of their variance: a "
            "multimodal policy may be needed"
        )
        made.append(Advice(("fql",), reason, "Park et al. 2025, arXiv:2502.02538"))
    return made
