"""Checks that the links of the guide have targets, its flags exist and its commands run.

    guide_test.py HEADROOM HEADROOM_SHAPES [links|commands|a_third_of_the_commands|site]

Every block of commands in README.md and deploy/guide has a mark above it:
<!-- run --> if this test runs the block, in a folder with a small data set
`my/data.yaml`, a copy of it as `bccd/data.yaml`, and weights
`best.safetensors`; <!-- run: exit N --> if the block must end with exit code N;
<!-- run: --img 640 as 64, --epochs 100 as 2 --> if the page has the size that
people need, and the test runs a smaller size that takes seconds;
<!-- needs: cluster --> (or card, network, or time) if the test cannot run it.
a_third_of_the_commands runs the commands of README.md and of a third of the
pages; each commit selects another third. Exit code 77: mkdocs is not installed.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
GUIDE = ROOT / "deploy/guide"
PAGES = [ROOT / "README.md", *sorted(GUIDE.rglob("*.md"))]
TRACKED = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True).stdout.split()
LINKED = sorted({*PAGES, *(ROOT / name for name in TRACKED)})  # the READMEs of folders too
BLOCK = re.compile(r"(?:^<!-- (.*?) -->\n)?^```sh\n(.*?)^```", re.M | re.S)
MARK = re.compile(r"run(: .*)?$|needs: (cluster|card|network|time)$")
problems = []


def problem(page, words):
    problems.append(f"{page.relative_to(ROOT)}: {words}")


def blocks(page):
    return [(match[1] or "", match[2]) for match in BLOCK.finditer(page.read_text())]


def anchor(title):
    """A heading's anchor, as GitHub and mkdocs make it."""
    return re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-")


def as_tested(page, mark, commands):
    """Returns the commands with the test's sizes, and the exit code with which they must end."""
    code = 0
    for part in mark.partition(": ")[2].split(", ") if ": " in mark else []:
        if exits := re.fullmatch(r"exit (\d+)", part):
            code = int(exits[1])
            continue
        real, _, size = part.partition(" as ")
        small, count = re.subn(rf"{re.escape(real)}(?!\S)", f"{real.split()[0]} {size}", commands)
        if not size or count == 0:
            problem(page, f"the mark's '{part}' changes nothing in: {commands[:80]}")
        commands = small
    return commands, code


def check_links():
    for page in LINKED:
        text = page.read_text()
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            if re.match(r"https?:", target):
                continue
            path, _, part = target.partition("#")
            file = (page.parent / path).resolve() if path else page
            if not file.exists():
                problem(page, f"the link {target} leads nowhere")
            elif part and part not in map(anchor, re.findall(r"^#+ (.*)$", file.read_text(), re.M)):
                problem(page, f"{target}: there is no such heading")


def check_flags():
    known = set(re.findall(r"--[a-z][a-z0-9-]*", (GUIDE / "reference.md").read_text()))
    for page in PAGES:
        for _, commands in blocks(page):
            for command in re.sub(r"\\\n", " ", commands).splitlines():
                words = command.split("#")[0]
                if not re.match(r"\s*(build/bin/)?headroom ", words):
                    continue
                for flag in re.findall(r"(?<!\S)--[a-z][a-z0-9-]*", words):
                    if flag not in known:
                        problem(page, f"{flag} is not in reference.md: {words.strip()}")


def pages_of_this_commit():
    count = subprocess.run(["git", "rev-list", "--count", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    first = int(count.stdout or 0) % 3
    return [PAGES[0], *PAGES[1:][first::3]]


def run_commands(headroom, shapes, pages):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        fresh = folder / "fresh"
        fresh.mkdir()
        environment = {**os.environ, "PATH": f"{headroom.parent}:{os.environ['PATH']}"}

        def run(command, where):
            return subprocess.run(["bash", "-euo", "pipefail", "-c", command], cwd=where,
                                  env=environment, capture_output=True, text=True, timeout=300)

        made = run(f"{shapes} my --train 32 --val 8 --size 64 && headroom train --data "
                   "my/data.yaml --cfg yolov5n --img 64 --batch 16 --epochs 1 --device cpu "
                   "--workers 1 --noplots && cp runs/train/exp/weights/best.safetensors . && "
                   "cp -r my bccd && rm -r runs", fresh)
        assert made.returncode == 0, made.stderr
        for page in PAGES:
            for mark, commands in blocks(page):
                found = MARK.match(mark)
                if not found:
                    problem(page, f"no mark, or an unknown one ({mark}), above: {commands[:80]}")
                elif mark.startswith("run") and page in pages:
                    where = folder / page.stem
                    shutil.copytree(fresh, where)
                    small, code = as_tested(page, mark, commands)
                    result = run(small, where)
                    if result.returncode != code:
                        problem(page, f"exit code {result.returncode}:\n{small}"
                                f"{result.stderr[-2000:]}")
                    shutil.rmtree(where)


def build_site():
    mkdocs = ROOT / ".deps/venv/bin/mkdocs"
    mkdocs = str(mkdocs) if mkdocs.exists() else shutil.which("mkdocs")
    if mkdocs is None:
        print("mkdocs is not installed")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as site:
        result = subprocess.run([mkdocs, "build", "--strict", "-f", GUIDE.parent / "mkdocs.yml", "-d",
                                 site], capture_output=True, text=True)
        if result.returncode != 0:
            problems.append(result.stdout + result.stderr)


part = sys.argv[3]
if part == "links":
    check_links()
    check_flags()
elif part in ("commands", "a_third_of_the_commands"):
    programs = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
    run_commands(*programs, PAGES if part == "commands" else pages_of_this_commit())
else:
    build_site()
print("\n".join(problems))
sys.exit(1 if problems else 0)
