"""Listings of folders.

Covers `shardkeep.viewer.app`, `shardkeep.viewer.pages`, `shardkeep.viewer.view` and `shardkeep.viewer.views`.
"""

from __future__ import annotations

from shardkeep.files.kinds.kind import identify


def test_a_folder_of_many_files_has_pages_and_a_search(page, tmp_path):
    for number in range(450):
        (tmp_path / f"part-{number:04d}.txt").write_text("text")
    client = page()
    first = client.get("0").text
    assert "part-0199.txt" in first and "part-0200.txt" not in first and "of 450" in first
    last = client.get("0?view=files&first=100000").text
    assert "part-0449.txt" in last and "next →</a>" not in last
    found = client.get("0?view=files&find=0333").text
    assert found.count("part-0333.txt") > 0 and "part-0001" not in found
    assert "No file has such a name." in client.get("0?view=files&find=none").text


def test_an_empty_folder_and_a_missing_file_have_pages(page, tmp_path):
    client = page()
    assert "The folder is empty." in client.get("0").text
    answer = client.get("0/none.h5")
    assert answer.status_code == 404 and "no such file" in answer.text


def test_several_paths_have_a_first_page(page, tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b.txt").write_text("text")
    text = page(tmp_path / "a", tmp_path / "b.txt").get("").text
    assert "a folder" in text and "b.txt" in text


def test_a_file_without_permission_is_named_and_refused(page, tmp_path, monkeypatch):
    def refused(path):
        if path.endswith("secret.txt"):
            raise PermissionError(13, "Permission denied", path)
        return identify(path)

    (tmp_path / "secret.txt").write_text("text")
    for module in ("folder", "locations"):
        monkeypatch.setattr(f"shardkeep.viewer.{module}.identify", refused)
    assert "not readable: Permission denied" in page().get("0?view=files").text
    answer = page().get("0/secret.txt")
    assert answer.status_code == 403 and "Permission denied" in answer.text


def test_a_fault_of_a_view_is_an_error_page(page, monkeypatch, caplog):
    monkeypatch.setattr("shardkeep.viewer.folder.os.listdir", lambda path: 1 / 0)
    answer = page().get("0?view=files")
    assert answer.status_code == 500 and "a fault of the page" in answer.text
    assert "ZeroDivisionError" in caplog.text


def test_a_number_that_is_none_is_an_error_page(page):
    answer = page().get("0?view=files&first=x")
    assert answer.status_code == 422 and "first must be a whole number" in answer.text
