#!/usr/bin/env python3
"""Measures a checkout: how many lines it has, how full its folders, how long its
texts, whether its folders include each other in circles, and how often the word
"row" stands for a layer of a model. No file or sentence is cut for a figure.

    python3 tests/repo/house_figures.py [--root DIR] [--check] [--json]

--root DIR  the checkout to measure; without it the one that holds this file
--check     ends with status 1 when a figure is above its limit (LIMITS)
--json      prints the figures as JSON, with all names instead of the first ones

Files are those that git tracks; where there is no git, those of a walk that
leaves out folders that begin with a dot or with "build". A source file is a
.h, .cpp, .cu or .cuh file outside tests/. Its length is its number of lines,
empty ones and comments included. Words are counted as `wc -w` does: what stands
between white space. A folder's files are those that lie in it directly.
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
    "source lines": 129140,
    "files in the largest folder": 48,
    "circles between folders": 0,
    "row for layer": 0,
}

# Identifiers in which "row" means a layer. They were collected by reading every
# identifier with "row" in it; the many that mean a line of an image, of a table
# or of a file, or a match of the loss, are not listed. Each is a whole word.
LAYER_IDENTIFIERS = r"""
    Row(Program|Runner|Tape|Cost|Costs|CostParity|Inside|Time|Modules|Widths|Factory)
    Row(Call|Notes|Begins|Name|Maps|Outcome|Collective|Gather|GatherTest|MemoryTest)
    (Program|Model|Mixture|Partition|Time|Table|Built|BuiltMap|Make|Counted|Of)Row
    (ZeroRow|GatherRow)Runner  (Captured|Sharded|Model|Run)Rows  ShardedRowsTest
    \w*row_(program|runner|tape|costs?|modules|widths|time|work|factory|gather|memory)(_\w+)?
    (program|table|build|fail|toy|module|mixture|begin|end|set|before|shard|next)_row
    row_(text|change|parts|multiple|values|gradients|sizes?|of|at)_?  padded_row_size
    part_of_row_?  (units|stage)_of_row  largest_(gathered_)?row  run_row  close_row
    (captured|captures|sharded|model|stage|memory|keep|forward|small|gathered)_rows
    (exchange|collective|average|distribute|run|run_stage|four|large)_rows_?
    num_frozen_rows  num_rows_(frozen)?  num_row_runs  kMaxRows  kMostRows  kCopiesOfARow
    rows_(for_plan|of_stage|of_model|join|text|under|to_capture)  plan_needs_rows
    run_rows_by_policy  sum_of_rows  of_rows?  for_rows  has_all_rows  kRowCollective
    try_policies_of_all_rows  try_faster_rows  tolerance_of_rows  kRowsWithConvolutions
""".split()

# Phrases in which the word means a layer in any file.
LAYER_PHRASES = [
    r"\brows? of (a|the|its|this|yolov5\w*('s)?) (model|table|network|stage)",
    r"\b(model|pipeline|stage|table)('s|s')? rows?\b(?! of (cells|pixels|tiles))",
    r"\b(frozen|recomputed|lean|gathered|sharded|captured|offloaded|kept) rows?\b",
    r"\brows? (is|are) (lean|recomputed|offloaded|captured|gathered|frozen)\b",
    r"\b(table_?|graph|request_?|stage_?|teacher|report|pruned)\.rows\b",
    r"\brow's (parameters|weights|forward|backward|inputs?|outputs?|policy)\b",
]

# In these folders the plain word means a layer, too, unless its line speaks of
# another thing that has rows, or its file is one that deals with such things.
LAYER_FOLDERS = re.compile(
    r"(coordinator|configs/layers|deploy/cli/plan|worker/(step|checkpoint)|"
    r"parallel/(plan|planner|predict|pipeline|zero|data_parallel))(/|$)")
OTHER_FILES = re.compile(
    r".*/(vote|split_network|step_prediction|parallel_context|stage_step|stage_forward|device_training|"
    r"operators|convolution|op_context|sample_recipe|halo|loss|resampling|rank_share)(_test)?\.(h|cpp)$")
PLAIN_WORD = re.compile(r"\b[Rr]ows?\b")
OTHER_ROWS = re.compile(
    r"in a row|[Hh]alo|image|pixel|\bmaps?\b|cells?\b|column|edge|row-major|text_table|"
    r"csv|\bblocks?\b|around|height|narrow\(|RowRange|RowWindow|LabelRow|label|"
    r"[Cc]ells|head_?\.|line\(|--rows|\"rows\"|\bmatch|rows /|global batch")


def num_words(text):
    """Tokens with a letter or a digit: the bars between a table's cells are none."""
    return sum(any(map(str.isalnum, token)) for token in text.split())


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
    """Texts by name. In an image or another file of bytes nothing is found."""
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


def row_for_layer(texts):
    """How often "row" means a layer, by file. Each place counts once."""
    identifiers = re.compile(r"\b(?:" + "|".join(LAYER_IDENTIFIERS) + r")\b")
    phrases = re.compile("|".join(LAYER_PHRASES))
    counts = collections.Counter()
    for name in set(texts) - {"tests/repo/house_figures.py"}:
        is_layer_folder = (LAYER_FOLDERS.match(name.removeprefix("tests/")) is not None
                           and OTHER_FILES.match(name) is None)
        for line in texts[name].split("\n"):
            places = {match.start() for match in identifiers.finditer(line)}
            for match in phrases.finditer(line):
                places.update(match.start() + word.start()
                              for word in PLAIN_WORD.finditer(match.group()))
            if is_layer_folder and not OTHER_ROWS.search(line):
                places.update(match.start() for match in PLAIN_WORD.finditer(line))
            counts[name] += len(places)
    return +counts


def measure(root):
    texts = read_texts(root, tracked_files(root))
    sources = {name: text for name, text in texts.items()
               if name.endswith(SOURCE) and not name.startswith("tests/")}
    lengths = {name: len(text.splitlines()) for name, text in sources.items()}
    folders = collections.Counter(folder_of(name) for name in sources)
    markdown = {name: text for name, text in texts.items() if name.endswith(".md")}
    words = {name: num_words(text) for name, text in markdown.items()}
    includes = includes_of(sources)
    rows = row_for_layer(texts)
    found = circles(includes)
    figures = {
        "source files": len(sources),
        "source lines": sum(lengths.values()),
        "mean length": round(statistics.mean(lengths.values() or [0]), 1),
        "median length": statistics.median(lengths.values() or [0]),
        "files in the largest folder": max(folders.values(), default=0),
        "headers": sum(name.endswith(".h") for name in sources),
        "headers with a single user": len(single_users(sources, includes)),
        "words of the root README": words.get("README.md", 0),
        "words of all Markdown": sum(words.values()),
        "circles between folders": len(found),
        "row for layer": sum(rows.values()),
    }
    names = {
        "files in the largest folder": folders,
        "words of all Markdown": words,
        "row for layer": rows,
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
