import numpy as np
import pytest

from tests.unit.hdf5.merge.plain_files import write_file


@pytest.fixture
def three(tmp_path):
    return [write_file(tmp_path / f"{i}.h5", x=np.arange(i * 10, i * 10 + 10)) for i in range(3)]
