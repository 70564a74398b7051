"""The faults that are planted to test the simulation replace source text that exists."""

import pytest

from tests.simulation.audit_plants import Plant
from tests.simulation.planted import ALL_PLANTS, planted


@pytest.mark.parametrize("plant", ALL_PLANTS, ids=lambda plant: plant.name)
def test_planted_fault_still_fits_the_source(plant: Plant) -> None:
    with planted(plant):
        pass
