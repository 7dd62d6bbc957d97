#!/usr/bin/env python3
"""Makes a wheel from the folder that wheel.sh has filled, and prints its path.

    pack_wheel.py REPOSITORY FOLDER OUT

The same files give the same bytes.
"""

from __future__ import annotations

import base64
import hashlib
import pathlib
import re
import sys
import zipfile

# In file names a - of the distribution's name headroom-train is a _.
DISTRIBUTION = "headroom_train"
# Must equal _TORCH in headroom_program/__init__.py.
TORCH = "2.11.0"


def first(pattern: str, text: str) -> str:
    found = re.search(pattern, text, re.MULTILINE)
    if found is None:
        raise SystemExit(f"pack_wheel.py: nothing matches {pattern}")
    return found[1]


def metadata(repository: pathlib.Path, version: str) -> str:
    project = (repository / "CMakeLists.txt").read_text()
    return f"""Metadata-Version: 2.1
Name: headroom-train
Version: {version}
Summary: {first(r'DESCRIPTION "([^"]+)"', project)}
License: Apache-2.0
Requires-Python: >=3.10
Requires-Dist: torch=={TORCH}
Description-Content-Type: text/markdown

The programs headroom and headroom-worker, and the package headroom_train that starts them from Python.
LibTorch is that of the installed torch. licenses/ beside the programs has those of the libraries inside.
"""


def main(repository: pathlib.Path, folder: pathlib.Path, out: pathlib.Path) -> None:
    version = first(r"^project\(headroom VERSION (\S+)", (repository / "CMakeLists.txt").read_text())
    # pip compares the tag with the machine's C library.
    glibc = first(r"^GLIBC (\S+) or newer$", (folder / "headroom_program/VERSION").read_text())
    tag = f"py3-none-manylinux_{glibc.replace('.', '_')}_x86_64"
    info = folder / f"{DISTRIBUTION}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(metadata(repository, version))
    (info / "WHEEL").write_text("Wheel-Version: 1.0\nGenerator: headroom/deploy/wheel\n"
                                f"Root-Is-Purelib: false\nTag: {tag}\n")
    (info / "entry_points.txt").write_text(
        "[console_scripts]\nheadroom = headroom_program:headroom\n"
        "headroom-worker = headroom_program:headroom_worker\n")
    (info / "LICENSE").write_bytes((repository / "LICENSE").read_bytes())
    wheel = out / f"{DISTRIBUTION}-{version}-{tag}.whl"
    lines = []
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:

        def add(name: str, content: bytes, mode: int) -> None:
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.external_attr = (0o100000 | mode) << 16
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED)

        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            name, content = path.relative_to(folder).as_posix(), path.read_bytes()
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            lines.append(f"{name},sha256={digest},{len(content)}\n")
            add(name, content, 0o755 if path.stat().st_mode & 0o100 else 0o644)
        record = f"{info.name}/RECORD"
        add(record, "".join([*lines, f"{record},,\n"]).encode(), 0o644)
    print(wheel)


if __name__ == "__main__":
    main(*(pathlib.Path(word) for word in sys.argv[1:4]))
