import pytest
from small_datasets import make_arrays

from corsdice.data import Dataset, dataset_from


@pytest.fixture
def arrays():
    return make_arrays()


@pytest.fixture
def dataset(arrays) -> Dataset:
    return dataset_from(arrays)
