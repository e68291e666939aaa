"""Versions against requirements."""

import pytest

from shardkeep.diagnosis.examination.software.specifiers import allows, parse_requirement


@pytest.mark.parametrize(
    ("specifiers", "version", "expected"),
    [
        ("", "1.0", True),
        (">=0", "0.0.1", True),
        ("<2", "1.26.4", True),
        ("<2", "2.0.0", False),
        ("<2", "2.0.0rc1", False),
        ("==2.0.0", "2.0", True),
        ("==2.9.*", "2.9.3", True),
        ("==2.9.*", "2.10.0", False),
        ("!=4.21.0,!=4.21.1,<6.0.0dev,>=3.20.3", "4.21.1", False),
        ("!=4.21.0,!=4.21.1,<6.0.0dev,>=3.20.3", "5.29.5", True),
        ("!=4.21.0,!=4.21.1,<6.0.0dev,>=3.20.3", "6.31.1", False),
        ("!=2.9.*", "2.9.1", False),
        ("~=1.4.2", "1.4.9", True),
        ("~=1.4.2", "1.5.0", False),
        ("~=1.4", "1.9", True),
        (">=3.12", "3.12.1+local", True),
        ("<=2.0.0", "2.0.1", False),
        ("> 1.0 , < 1.2", "1.1", True),
        ("not a specifier", "1.0", True),
    ],
)
def test_versions_are_compared_by_their_numbers(specifiers: str, version: str, expected: bool) -> None:
    assert allows(specifiers, version) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("numpy<2.2.0,>=1.26.0", ("numpy", "<2.2.0,>=1.26.0")),
        ("protobuf (!=4.21.0,<5)", ("protobuf", "!=4.21.0,<5")),
        ("jax[cuda12]>=0.4", ("jax", ">=0.4")),
        ("absl-py", ("absl-py", "")),
        ("pytest>=8; extra == 'test'", None),
        ('tomli; python_version < "3.11"', None),
    ],
)
def test_a_requirement_is_parsed_unless_it_has_a_marker(text: str, expected: object) -> None:
    assert parse_requirement(text) == expected
