"""Which learners suit a dataset, why, and who found that out.

Rules of thumb from published comparisons, applied to measured figures: where to begin, not a
verdict. Scores named are D4RL's, normalised to 100, last checkpoint, from CORL's README
(tinkoff-ai/CORL@6afec90; ``sterling/references/scores/corl-d4rl.json``).
"""

from __future__ import annotations

import dataclasses

from sterling.data.describe import Description

GOOD = 0.75  # TQ from which imitating is enough
POOR = 0.5
FEW_BEST = 0.25  # of the range: how far the best tenth must stand out
STITCHED = 0.1  # of the range: what better continuations must bring
RANDOM_WORLD = 0.05
RANDOM_POLICY = 0.5
LONG = 500  # steps

PERSPECTIVE = "Schweighofer et al. 2022, arXiv:2111.04714"
TRANSFORMERS = "Bhargava et al. 2024, arXiv:2305.14550"
DISPUTED = "Omori et al. 2025, arXiv:2507.10174"
WEIGHTING = "Hong et al., ICLR 2023"
CORL = "CORL, arXiv:2210.07105"


@dataclasses.dataclass(frozen=True)
class Advice:
    """Learners by name, the first the likeliest; the reason; where it is from."""

    learners: tuple[str, ...]
    reason: str
    source: str

    def __str__(self) -> str:
        return f"{', '.join(self.learners)}: {self.reason} [{self.source}]"


def recommend(found: Description) -> list[Advice]:
    """What to try, in order; one entry for every property that speaks for some learner."""
    if found.sparse == 1.0 and found.upside == 0.0:  # where lengths differ they tell something
        reason = "every reward is the same; only imitation needs none (label rewards, or set goals)"
        return [Advice(("bc",), reason, "OTR, Luo et al. 2023, arXiv:2303.13971")]
    made = [*_by_quality(found), *_by_structure(found)]
    if not made:
        reason = "nothing stands out; a value learner that stays near the data, and its baseline"
        made = [Advice(("iql", "bc"), reason, "Kostrikov et al. 2022, arXiv:2110.06169")]
    return made


def _by_quality(found: Description) -> list[Advice]:
    made = []
    quality = found.quality.value if found.quality else None
    low, high = found.reference or (0.0, 0.0)
    width = (high - low) or abs(found.returns.value) or 1.0
    stands_out = (found.best - found.returns.value) / width
    if quality is not None and quality >= GOOD:
        reason = f"TQ is {quality:.2f}: imitation is competitive on good data"
        made.append(Advice(("bc", "td3+bc"), reason, PERSPECTIVE))
    if stands_out >= FEW_BEST:
        reason = (
            f"the best tenth returns {found.best:.4g} where the mean is {found.returns.value:.4g}: "
            "imitate only those first (halfcheetah-medium-expert: BC 56, 10%BC 90)"
        )
        made.append(Advice(("%bc", "iql"), reason, f"{CORL}; {WEIGHTING}"))
    if quality is not None and quality < POOR:
        wide = "" if found.coverage is None else f" and SACo {found.coverage:.2f}"
        names = ("cql", "iql") if found.discrete else ("rebrac", "edac", "iql")
        reason = (
            f"TQ is {quality:.2f}{wide}: values must improve on the data, which takes coverage "
            "(hopper-medium-replay: BC 30, IQL 97, ReBRAC 95)"
        )
        made.append(Advice(names, reason, f"{PERSPECTIVE}; {CORL}"))
    return made


def _by_structure(found: Description) -> list[Advice]:
    made = []
    stitched = found.crossing >= 0.2 and found.gain >= STITCHED
    if stitched:
        reason = (
            f"episodes meet in {found.crossing:.0%} of the rows and the best continuation brings "
            f"{found.gain:.0%} of the range more: values stitch, sequence models do not "
            "(antmaze-medium-play: DT 0, 10%BC 2, IQL 66, ReBRAC 90)"
        )
        made.append(Advice(("iql",) if found.discrete else ("rebrac", "iql"), reason, CORL))
    if found.world is not None and found.world > RANDOM_WORLD:
        reason = (
            f"{found.world:.0%} of repeated pairs have different outcomes: conditioning on returns "
            "mistakes luck for skill"
        )
        made.append(Advice(("cql", "iql"), reason, TRANSFORMERS))
    elif not stitched and (found.lengths.value >= LONG or 0.95 < found.sparse < 1.0):
        what = "episodes are long" if found.lengths.value >= LONG else "rewards are sparse"
        reason = (
            f"{what} and little is to be had by stitching: sequence models hold up, and imitating "
            "the best episodes may do as well"
        )
        made.append(Advice(("dt", "%bc"), reason, f"{TRANSFORMERS}; {DISPUTED}"))
    if found.policy is not None and found.policy > RANDOM_POLICY and not found.discrete:
        reason = (
            f"actions at like observations keep {found.policy:.0%} of their variance: a policy of "
            "several modes may be needed"
        )
        made.append(Advice(("fql",), reason, "Park et al. 2025, arXiv:2502.02538"))
    return made
