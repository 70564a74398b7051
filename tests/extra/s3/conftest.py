"""A real server of the S3 protocol."""

from collections.abc import Iterator

import pytest

from tests.support.object_store import ObjectStore


@pytest.fixture(scope="session")
def object_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    with ObjectStore(tmp_path_factory.mktemp("object-store")) as store:
        yield store
