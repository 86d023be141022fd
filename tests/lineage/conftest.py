"""A store of the example hub, which no test may change."""

import json
from pathlib import Path

import pytest

from support.inline import ingest_inline
from tstore.catalog import open_store

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="session")
def example_store(tmp_path_factory):
    store = tmp_path_factory.mktemp("lineage") / "store"
    ingest_inline(EXAMPLES / "hub", store)
    return open_store(str(store))


@pytest.fixture(scope="session")
def truth():
    """True parent of each example repository, and what its card says."""
    return json.loads((EXAMPLES / "lineage.json").read_text())
