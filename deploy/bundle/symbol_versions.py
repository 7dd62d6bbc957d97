#!/usr/bin/env python3
"""Lists the C and C++ library versions that the ELF files of a folder need.

    symbol_versions.py list FOLDER       the highest versions of each file
    symbol_versions.py highest FOLDER    the highest versions of all files
    symbol_versions.py check FOLDER GLIBC=2.34 GLIBCXX=3.4.29 ...
                                         list, and exit 1 if one is higher
    symbol_versions.py lower FOLDER      changes references to a symbol that
                                         libstdc++ has under two versions to the
                                         older one (see LOWERED)

The loader refuses a file if the machine lacks one of the versions that the file
refers to, even if no symbol of that version is called. So this reads the version
references of `objdump -p`, and not only the symbols of `objdump -T`.
"""

from __future__ import annotations

import pathlib
import re
import struct
import subprocess
import sys
from typing import Dict, Iterator, List, Tuple

FAMILIES = ("GLIBC", "GLIBCXX", "CXXABI", "GCC")

# GCC 12 gave std::condition_variable::wait a new symbol version because it is
# noexcept now. libstdc++ keeps it under the old version too, and both behave
# the same.
LOWERED = {
    "GLIBCXX_3.4.30": ("GLIBCXX_3.4.11",
                       {"_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE"}),
}

Versions = Dict[str, Tuple[int, ...]]


def elf_files(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink():
            with path.open("rb") as file:
                if file.read(4) == b"\x7fELF":
                    yield path


def printed_by(*command: object) -> str:
    return subprocess.run([str(word) for word in command], check=True, text=True,
                          stdout=subprocess.PIPE).stdout


def versions_of(path: pathlib.Path) -> Versions:
    highest: Versions = {}
    _, _, references = printed_by("objdump", "-p", path).partition("Version References:")
    for family, number in re.findall(r"\b([A-Z]+)_(\d[0-9.]*)\b", references):
        version = tuple(int(part) for part in number.split("."))
        if family in FAMILIES:
            highest[family] = max(highest.get(family, ()), version)
    return highest


def text_of(version: Tuple[int, ...]) -> str:
    return ".".join(str(part) for part in version) if version else "-"


def elf_hash(name: bytes) -> int:
    value = 0
    for byte in name:
        value = (value << 4) + byte
        high = value & 0xF0000000
        value = (value ^ (high >> 24)) & ~high
    return value


def sections_of(content: bytes) -> Dict[str, Tuple[int, int]]:
    """Offset and size of each section of a little-endian 64-bit file, by name."""
    offset, = struct.unpack_from("<Q", content, 0x28)
    size, count, names = struct.unpack_from("<HHH", content, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", content, offset + i * size) for i in range(count)]
    table = headers[names][4]
    return {content[table + name:content.index(b"\0", table + name)].decode(): (at, length)
            for name, _, _, _, at, length in headers}


def lower(path: pathlib.Path, new: str, old: str, symbols: "set[str]") -> bool:
    """Changes the version reference `new` of the file to `old`; returns False if it has none."""
    using = set(re.findall(rf"\({re.escape(new)}\)\s+(\S+)", printed_by("objdump", "-T", path)))
    if not using:
        return False
    if not using <= symbols or len(new) != len(old):
        raise SystemExit(f"symbol_versions.py: {path} uses {', '.join(sorted(using - symbols))} "
                         f"of {new}, which has no older version: build on an older machine")
    content = bytearray(path.read_bytes())
    sections = sections_of(bytes(content))
    strings, strings_size = sections[".dynstr"]
    at = content.index(b"\0" + new.encode() + b"\0", strings, strings + strings_size) + 1
    content[at:at + len(new)] = old.encode()
    start, size = sections[".gnu.version_r"]
    # A reference begins with the hash of its name; the offset of the name is at
    # 8.
    for place in range(start, start + size, 4):
        if struct.unpack_from("<I", content, place)[0] == elf_hash(new.encode()) and (
                struct.unpack_from("<I", content, place + 8)[0] == at - strings):
            struct.pack_into("<I", content, place, elf_hash(old.encode()))
            path.write_bytes(content)
            return True
    raise SystemExit(f"symbol_versions.py: no reference to {new} in .gnu.version_r of {path}")


def show(folder: pathlib.Path, allowed: Versions) -> List[str]:
    print("".join(f"{family:<10}" for family in FAMILIES) + "file")
    beyond = []
    for path in elf_files(folder):
        versions = versions_of(path)
        name = str(path.relative_to(folder))
        print("".join(f"{text_of(versions.get(family, ())):<10}" for family in FAMILIES) + name)
        beyond += [f"{name} asks for {family}_{text_of(versions[family])}, "
                   f"but may ask for {text_of(most)} at most"
                   for family, most in allowed.items() if versions.get(family, ()) > most]
    return beyond


def main(words: List[str]) -> int:
    if len(words) < 2 or words[0] not in ("list", "highest", "check", "lower"):
        print(__doc__, file=sys.stderr)
        return 2
    command, folder = words[0], pathlib.Path(words[1])
    if command == "lower":
        for path in elf_files(folder):
            for new, (old, symbols) in LOWERED.items():
                if lower(path, new, old, symbols):
                    print(f"{path.relative_to(folder)}: {old} instead of {new}")
        return 0
    if command == "highest":
        highest: Versions = {}
        for path in elf_files(folder):
            for family, version in versions_of(path).items():
                highest[family] = max(highest.get(family, ()), version)
        for family in FAMILIES:
            print(f"{family} {text_of(highest.get(family, ()))} or newer")
        return 0
    allowed = {family: tuple(int(part) for part in number.split("."))
               for family, _, number in (word.partition("=") for word in words[2:])}
    beyond = show(folder, allowed)
    for line in beyond:
        print(line, file=sys.stderr)
    return 1 if beyond else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
