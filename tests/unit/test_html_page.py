"""Pages of reports."""

from shardkeep.html_page import page, scrolling, text_table


def test_texts_are_escaped() -> None:
    body = scrolling(text_table(["File"], [["<script>"]]))
    html = page("a & b", "1 < 2", body, good=True, rules=".x { }\n")
    assert "<script>" not in html and "&lt;script&gt;" in html
    assert "<title>a &amp; b: 1 &lt; 2</title>" in html and ".x { }" in html
    assert 'class="verdict good"' in html and 'class="verdict bad"' in page("a", "b", "", good=False)
