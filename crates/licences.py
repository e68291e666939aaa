"""Write crates/THIRD-PARTY.txt: the crates that a wheel contains, with the texts of their licences.

Run it after a change of Cargo.lock. The wheels and the source distribution contain the file, as the licences
demand.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent
NAMES = ("LICEN", "COPYING", "NOTICE", "UNLICENSE")


def cargo(*arguments: str) -> str:
    """Return the output of cargo."""
    return subprocess.run(["cargo", *arguments], cwd=HERE, capture_output=True, text=True, check=True).stdout


def main() -> None:
    """Write the file."""
    tree = cargo("tree", "--locked", "-p", "shardkeep-py", "-e", "normal,no-proc-macro", "--prefix", "none")
    linked = {tuple(line.split()[:2]) for line in tree.splitlines()}
    texts: dict[str, list[str]] = {}
    parts = ["Rust crates in the wheels of Shardkeep, and their licences. Made by crates/licences.py.\n"]
    for package in json.loads(cargo("metadata", "--locked", "--format-version", "1"))["packages"]:
        if (package["name"], f"v{package['version']}") not in linked or package["source"] is None:
            continue
        name = f"{package['name']} {package['version']}"
        parts.append(f"{name}: {package['license']}\n")
        for file in sorted(Path(package["manifest_path"]).parent.rglob("*")):
            # Of a bundled C library, too: libdeflate-sys.
            if file.is_file() and file.name.upper().startswith(NAMES) and file.suffix not in (".rs", ".py"):
                texts.setdefault(
                    "\n".join(map(str.rstrip, file.read_text().strip().splitlines())), []
                ).append(name)
    for text, names in texts.items():
        parts.append(f"\n{'-' * 100}\n{', '.join(dict.fromkeys(names))}:\n\n{text}\n")
    (HERE / "THIRD-PARTY.txt").write_text("".join(parts), encoding="utf-8")


if __name__ == "__main__":
    main()
