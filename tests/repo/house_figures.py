#!/usr/bin/env python3
"""Measures a checkout: its lines, types and files, how many files its folders have,
whether folders include each other in circles, and how many files repeat one fact.

    python3 tests/repo/house_figures.py [--root DIR] [--check] [--json]

--root DIR  the checkout to measure; the default is the one that holds this file
--check     ends with status 1 when a figure is above its limit (LIMITS)
--json      prints the figures as JSON, with all names instead of the first ones

LIMITS has the largest number of source lines. A change that adds lines raises this
number, and states how many lines it added and removed. No file or sentence is cut to
stay below it. The measured files are those that git tracks. Without git, they are all
files outside of folders whose names begin with a dot or with "build". A source file is
a .h, .cpp, .cu or .cuh file outside tests/; empty lines and comments count as lines.
"""
import argparse
import collections
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys

SOURCE = (".h", ".cpp", ".cu", ".cuh")

# The largest value of each figure that --check accepts.
LIMITS = {
    "source lines": 150700,
    "files in the largest folder": 51,
    "circles between folders": 0,
}

# Names of one operator of the network. A change of that operator has to edit
# every file that has one of them.
OPERATOR = re.compile(r"squeeze_?excite", re.IGNORECASE)

# Uses of a library that its authors did not intend, by the text of a file.
BENT_LIBRARIES = {
    "a function of the C library is redefined":
        re.compile(r"^int (accept4?|connect)\(int ", re.MULTILINE),
    "the text of a library's log is parsed": re.compile(r"gpr_set_log_verbosity\("),
    "a private class is declared by hand": re.compile(r"gloo_stubs"),
}

TYPE = re.compile(r"^\s*(?:template <.*>\s*)?(?:class|struct|enum class|enum)\s+"
                  r"(?:\[\[\w+\]\]\s+)?\w+(?:\s+final)?(?:\s*:[^:;][^;{]*)?\s*\{", re.MULTILINE)


def folder_of(path):
    return path.rpartition("/")[0] or "."


def tracked_files(root):
    """Paths relative to root, with slashes, in order."""
    listed = subprocess.run(["git", "-C", str(root), "ls-files", "-z"],
                            capture_output=True, check=False)
    if listed.returncode == 0 and listed.stdout:
        names = os.fsdecode(listed.stdout).split("\0")
        return sorted(name for name in names if name and (root / name).is_file())
    names = []
    for folder, below, files in os.walk(root):
        below[:] = [name for name in below if not name.startswith((".", "build"))]
        names += [(pathlib.Path(folder) / name).relative_to(root).as_posix() for name in files]
    return sorted(names)


def read_texts(root, names):
    """Texts by name; an image or another binary file has an empty text."""
    return {name: (root / name).read_text(encoding="utf-8", errors="replace") for name in names}


def includes_of(sources):
    """(includer, included, line of text) for includes among the sources."""
    pattern = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
    found = []
    for name, text in sources.items():
        for wanted in pattern.findall(text):
            beside = os.path.normpath(os.path.join(folder_of(name), wanted))
            target = wanted if wanted in sources else beside
            if target in sources:
                found.append((name, target))
    return found


def single_users(sources, includes):
    """Headers that one source file includes besides their own .cpp or .cu."""
    users = collections.defaultdict(set)
    for includer, included in includes:
        if os.path.splitext(includer)[0] != os.path.splitext(included)[0]:
            users[included].add(includer)
    return sorted(name for name in sources if name.endswith(".h") and len(users[name]) == 1)


def circles(includes):
    """Groups of folders that reach each other, and the includes between them."""
    examples = collections.defaultdict(list)
    for includer, included in includes:
        ends = (folder_of(includer), folder_of(included))
        if ends[0] != ends[1]:
            examples[ends].append(f"{includer} includes {included}")
    reached = {}
    for start in {end for ends in examples for end in ends}:
        seen, waiting = set(), [start]
        while waiting:
            at = waiting.pop()
            for a, b in examples:
                if a == at and b not in seen:
                    seen.add(b)
                    waiting.append(b)
        reached[start] = seen
    groups = {tuple(end for end in sorted(reached)
                    if end in reached[start] and start in reached[end])
              for start in reached if start in reached[start]}
    found = []
    for group in sorted(groups):
        inside = {ends: texts for ends, texts in examples.items() if set(ends) <= set(group)}
        both_ways = {ends: texts for ends, texts in inside.items() if ends[::-1] in inside}
        found.append({"folders": list(group),
                      "includes": {f"{a} -> {b}": sorted(texts)[:2]
                                   for (a, b), texts in sorted((both_ways or inside).items())}})
    return found


def room_of(path):
    """The room of a file: "parallel/cuda" for "parallel/cuda/kernels/launch.h"."""
    return "/".join(path.split("/")[:2]) if path.count("/") > 1 else folder_of(path)


def arrows(includes):
    """Pairs of rooms in which the first room includes the second."""
    return {(room_of(a), room_of(b)) for a, b in includes if room_of(a) != room_of(b)}


def measure(root):
    texts = read_texts(root, tracked_files(root))
    sources = {name: text for name, text in texts.items()
               if name.endswith(SOURCE) and not name.startswith("tests/")}
    tests = {name: len(text.splitlines()) for name, text in texts.items()
             if name.startswith("tests/") and name.endswith(SOURCE + (".py", ".sh"))}
    lengths = {name: len(text.splitlines()) for name, text in sources.items()}
    folders = collections.Counter(folder_of(name) for name in sources)
    includes = includes_of(sources)
    found = circles(includes)
    anonymous = {name: len(re.findall(r"^namespace \{", text, re.MULTILINE))
                 for name, text in sources.items()}
    repeated = {name: number for name, number in anonymous.items() if number > 1}
    bags = {name: len(re.findall(r"\bstruct \w*Inputs \{", text)) for name, text in sources.items()}
    bags = {name: number for name, number in bags.items() if number}
    operator = {name: len(OPERATOR.findall(text)) for name, text in sources.items()
                if OPERATOR.search(text)}
    bent = {f"{what}: {name}": 1 for what, pattern in BENT_LIBRARIES.items()
            for name, text in sources.items() if pattern.search(name + "\n" + text)}
    figures = {
        "source files": len(sources),
        "source lines": sum(lengths.values()),
        "test lines": sum(tests.values()),
        "median length": statistics.median(lengths.values() or [0]),
        "types": sum(len(TYPE.findall(text)) for text in sources.values()),
        "files in the largest folder": max(folders.values(), default=0),
        "headers with a single user": len(single_users(sources, includes)),
        "files that know one operator": len(operator),
        "files with several namespace {": len(repeated),
        "structs called Inputs": sum(bags.values()),
        "arrows between rooms": len(arrows(includes)),
        "circles between folders": len(found),
        "libraries bent": len(bent),
    }
    names = {
        "files in the largest folder": folders,
        "files that know one operator": operator,
        "files with several namespace {": repeated,
        "structs called Inputs": bags,
        "libraries bent": bent,
    }
    names = {key: dict(sorted(each.items(), key=lambda item: (-item[1], item[0])))
             for key, each in names.items()}
    return figures, names, found


def main():
    options = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    options.add_argument("--root", type=pathlib.Path,
                         default=pathlib.Path(__file__).resolve().parents[2])
    options.add_argument("--check", action="store_true")
    options.add_argument("--json", action="store_true")
    asked = options.parse_args()
    figures, names, found = measure(asked.root)
    above = [key for key, limit in LIMITS.items() if figures[key] > limit]
    if asked.json:
        print(json.dumps({"figures": figures, "limits": LIMITS, "above": above,
                          "names": names, "circles": found}, indent=1))
    else:
        for key, value in figures.items():
            limit = f"at most {LIMITS[key]:,}" if key in LIMITS else ""
            print(f"{key:32}{value:>10,}  {limit}{'  ABOVE' if key in above else ''}")
            for name, number in list(names.get(key, {}).items())[:5]:
                print(f"    {number:>8,}  {name}")
        for circle in found:
            print("circle: " + ", ".join(circle["folders"]))
            for ends, texts in circle["includes"].items():
                print(f"  {ends}\n    " + "\n    ".join(texts))
    return 1 if asked.check and above else 0


if __name__ == "__main__":
    sys.exit(main())
