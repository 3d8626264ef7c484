"""Pareto fronts against published fronts, hand calculation and brute force."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sterling.equations.pareto import crowding, hypervolume, nondominated

# (treasure, -steps): Vamplew 2011, "Empirical evaluation methods for multiobjective reinforcement
# learning algorithms", table 1
TREASURES = (1, 2, 3, 5, 8, 16, 24, 50, 74, 124)
STEPS = (1, 3, 5, 7, 8, 9, 13, 14, 17, 19)


def _inclusion_exclusion(points: np.ndarray, reference: np.ndarray) -> float:
    """Return the hypervolume as the alternating sum over all subsets of points."""
    above = np.maximum(points - reference, 0.0)
    return sum(
        -((-1.0) ** size) * above[list(chosen)].min(0).prod()
        for size in range(1, len(points) + 1)
        for chosen in itertools.combinations(range(len(points)), size)
    )


def test_hypervolume_of_deep_sea_treasure_is_the_published_one() -> None:
    """1155 for the true front and reference (0, -25) (Vamplew 2011; Van Moffaert & Nowe 2014)."""
    front = np.stack([TREASURES, np.negative(STEPS)], -1)
    assert nondominated(front).all()
    assert hypervolume(front, np.array([0, -25])) == 1155.0


def test_hypervolume_of_three_objectives_by_hand() -> None:
    """Three boxes of volume 6, three overlaps of volume 2, one of all three of volume 1."""
    points = np.array([(1, 2, 3), (2, 3, 1), (3, 1, 2)])
    assert hypervolume(points, np.zeros(3)) == 3 * 6 - 3 * 2 + 1


@pytest.mark.parametrize("objectives", [1, 2, 3, 4])
def test_hypervolume_equals_inclusion_exclusion(objectives: int) -> None:
    """Equal coordinates, repeated points, and points below the reference included."""
    random = np.random.default_rng(objectives)
    for count in (0, 1, 2, 9):
        points = random.integers(0, 6, (count, objectives)) / 4.0
        points = np.concatenate([points, points[:1]])
        reference = np.full(objectives, 0.3)
        expected = _inclusion_exclusion(points, reference)
        assert hypervolume(points, reference) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("of", [np.asarray, jnp.asarray])
def test_nondominated_equals_its_definition(of: object) -> None:
    points = np.random.default_rng(0).integers(0, 5, (40, 3)).astype(np.float32)
    expected = [
        not any((other >= point).all() and (other > point).any() for other in points)
        for point in points
    ]
    mask = nondominated(of(points))  # type: ignore[operator]
    assert isinstance(mask, jax.Array if of is jnp.asarray else np.ndarray)
    assert np.asarray(mask).tolist() == expected


def test_unfilled_rows_of_minus_infinity_are_dominated() -> None:
    points = np.array([[1.0, 2.0], [-np.inf, -np.inf], [2.0, 1.0]])
    assert nondominated(points).tolist() == [True, False, True]


@pytest.mark.parametrize("of", [np.asarray, jnp.asarray])
def test_crowding_by_hand(of: object) -> None:
    """Ranges 10 and 8: (1, 5) has neighbours 0, 4 and 8, 2; (4, 2) has 1, 10 and 5, 0."""
    points = of(np.array([(4.0, 2.0), (0.0, 8.0), (10.0, 0.0), (1.0, 5.0)]))  # type: ignore[operator]
    inside = [(10 - 1) / 10 + (5 - 0) / 8, (4 - 0) / 10 + (8 - 2) / 8]
    found = np.asarray(crowding(points))
    np.testing.assert_allclose(found, [inside[0], np.inf, np.inf, inside[1]], rtol=1e-6)


def test_crowding_ignores_points_that_are_not_valid() -> None:
    """Whatever stands in rows not valid, the others' distances are those of the rest alone."""
    points = np.random.default_rng(1).integers(0, 6, (12, 2)).astype(np.float64)
    valid = np.arange(12) % 3 > 0
    points[0], points[3] = np.inf, -np.inf
    found = crowding(points, valid)
    np.testing.assert_array_equal(found[valid], crowding(points[valid]))
    assert not found[~valid].any()


def test_crowding_of_one_point_and_of_equal_points() -> None:
    """A single point is an extreme; among equal points those between the first and last have 0."""
    assert crowding(np.ones((1, 2))).tolist() == [np.inf]
    assert crowding(np.ones((3, 2))).tolist() == [np.inf, 0.0, np.inf]
