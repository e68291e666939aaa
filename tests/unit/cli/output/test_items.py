from __future__ import annotations

import numpy as np
import pytest

from shardkeep.cli.output.items import print_item
from shardkeep.jobs import RecordItem, RowItem


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        (RecordItem(3, b"\x1b[31m", None), "record 3  5 bytes\n  '\\x1b[31m'\n"),
        (RecordItem(0, b"x" * 30, None), "record 0  30 bytes\n  'xxxxxxxxxxxxxxxxxxxxxxxx'… (30 bytes)\n"),
        (
            RecordItem(
                0,
                b"..",
                {"label": np.array([3]), "im\x1bage": [b"\x89P"], "w": np.arange(10, dtype="f4") / 10},
            ),
            "record 0  2 bytes\n"
            "  im\\x1bage  bytes    '\\x89P'\n"
            "  label      int64    3\n"
            "  w          float32  0.0 0.1 0.2 0.3 0.4 0.5 0.6 0.7 … (2 more)\n",
        ),
        (RowItem("/x", 7, np.float32(0.1)), "7  0.1\n"),
        (RowItem("/x", 7, "a\x1bb"), "7  a\\x1bb\n"),
        (RowItem("/x", 7, np.arange(10)), "7  0 1 2 3 4 5 6 7 … (2 more)\n"),
        (RowItem("/x", 7, np.eye(2)), "7  [[1.0, 0.0], [0.0, 1.0]]\n"),
        (
            RowItem("/x", 7, np.array([(1, b"q", [1, 2])], [("a", "i4"), ("b", "S1"), ("c", "i4", 2)])[0]),
            "7  a=1  b='q'  c=1 2\n",
        ),
    ],
)
def test_an_item_is_printed_with_its_values_escaped(
    capsys: pytest.CaptureFixture[str], item: RecordItem | RowItem, expected: str
) -> None:
    print_item(item)
    assert capsys.readouterr().out == expected
