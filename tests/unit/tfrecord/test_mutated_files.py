"""Files with random changes, read as columns and for their schema.

Covers `shardkeep.tfrecord.example.columns` and `shardkeep.tfrecord.example.schema`.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

import shardkeep as sk
from shardkeep.tfrecord import Writer, infer_schema, read_columns

MUTATIONS = 150


def mutated(good: bytes, chance: random.Random) -> bytes:
    data = bytearray(good)
    for _ in range(chance.randrange(1, 4)):
        at = chance.randrange(len(data))
        match chance.randrange(4):
            case 0:
                data[at] ^= 1 << chance.randrange(8)
            case 1:
                data[at] = chance.choice([0, 1, 127, 128, 255])
            case 2:
                del data[at : at + chance.randrange(1, 9)]
            case _:
                data[at:at] = chance.randbytes(chance.randrange(1, 5))
        if not data:
            data = bytearray(b"\0")
    return bytes(data)


def examples(path: Path) -> None:
    with Writer(path) as writer:
        for number in range(20):
            writer.write_example({"x": number, "words": [b"one", b"two"], "f": [0.5] * 3})


@pytest.mark.parametrize("seed", range(2))
def test_mutated_files_have_columns_or_a_typed_error(seed: int, tmp_path: Path) -> None:
    path = tmp_path / "x.tfrecord"
    examples(path)
    good = path.read_bytes()
    chance = random.Random(seed)
    features = {"x": sk.FixedLen(), "words": sk.VarLen("bytes"), "f": sk.FixedLen((3,), "float32")}
    for _ in range(MUTATIONS):
        path.write_bytes(mutated(good, chance))
        for call in (lambda: infer_schema(path), lambda: read_columns(path, features)):
            try:
                call()
            except sk.ShardkeepError as error:
                json.dumps(str(error))
