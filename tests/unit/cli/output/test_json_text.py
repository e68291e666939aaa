from __future__ import annotations

import json
import sys

from shardkeep.cli.output.json_text import json_text


def test_json_escapes_every_character_that_is_not_printable() -> None:
    # Of the planes of ideographs and of those without a character, some.
    some = [*range(0x20000), *range(0x20000, sys.maxunicode + 1, 97), sys.maxunicode]
    text = "".join(map(chr, some))
    value = {"text": text, "none": [None, True, 0.5, -7]}
    without_surrogates = "".join(char for char in text if not 0xD800 <= ord(char) < 0xE000)
    for indent in (None, 2):
        shown = json_text(value, indent=indent)
        assert not [char for char in shown if not char.isprintable() and char != "\n"]
        assert "\n" not in shown or indent
        loaded = json.loads(shown)
        assert loaded["none"] == value["none"]
        assert loaded["text"].startswith(without_surrogates[:0xD800])
        assert loaded["text"].endswith(without_surrogates[0xD800:])
        assert shown.encode()
        assert "größe" in json_text(["größe"], indent=indent)


def test_json_keeps_what_is_printable() -> None:
    assert json_text({"größe": "語\x9b\u202e\x7f"}) == '{"größe": "語\\u009b\\u202e\\u007f"}'


def test_names_that_are_not_utf8_are_json_for_strict_parsers() -> None:
    name = b"run\xff\xe9\\.h5".decode("utf-8", "surrogateescape")
    for indent in (None, 2):
        shown = json_text({name: name}, indent=indent)
        assert json.loads(shown) == {"run\\xff\\xe9\\.h5": "run\\xff\\xe9\\.h5"}
        assert json.loads(shown.encode()).popitem()[0].encode()
    assert json.loads(json_text("\ud800")) == "\\ud800"
