"""Facts of a kernel below another root."""

from pathlib import Path

from shardkeep.diagnosis.kernel import Kernel


def test_a_setting_is_read_below_the_root(tmp_path: Path) -> None:
    folder = tmp_path / "proc/sys/vm"
    folder.mkdir(parents=True)
    (folder / "max_map_count").write_text("65530\n")
    kernel = Kernel(str(tmp_path))
    assert kernel.setting("vm/max_map_count") == "65530"
    assert kernel.setting("vm/overcommit_memory") is None
    assert kernel.has("proc/sys/vm/max_map_count") and not kernel.has("proc/sys/fs")
