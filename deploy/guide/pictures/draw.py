#!/usr/bin/env python3
"""Draws the guide's pictures from real runs, as SVG for light and dark pages.

    python3 deploy/guide/pictures/draw.py BUILD_DIRECTORY [PICTURE...]

BUILD_DIRECTORY holds bin/headroom and bin/headroom-shapes. Without names all
pictures are drawn, into this file's folder: memory, losses and recovery from
what the programs say and write, rooms from tests/repo/include_rules.cpp, cube
and processes from the design.
"""

import datetime
import json
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
STYLE = """<style>
text{font:13px system-ui,sans-serif;fill:#24292f}
.small{font-size:11px}.soft{fill:#57606a}.line{stroke:#8c959f;fill:none}
.a{fill:#4c78a8}.b{fill:#f58518}.c{fill:#54a24b}.d{fill:#b8b8b8}
.sa{stroke:#4c78a8}.sb{stroke:#f58518}.sc{stroke:#54a24b}
.box{fill:#f6f8fa;stroke:#8c959f}.limit{stroke:#d1242f;stroke-dasharray:6 4}
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.soft{fill:#9198a1}
.box{fill:#161b22;stroke:#57606a}.line{stroke:#57606a}.limit{stroke:#ff7b72}}
</style>"""
GIB = 1 << 30


def text(x, y, words, kind="", anchor="start"):
    words = words.replace("&", "&amp;").replace("<", "&lt;")
    return f'<text x="{x:g}" y="{y:g}" class="{kind}" text-anchor="{anchor}">{words}</text>'


def box(x, y, width, height, kind="box"):
    return (f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" '
            f'rx="3" class="{kind}"/>')


def line(points, kind="line", width=1.5):
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{path}" class="{kind}" fill="none" stroke-width="{width:g}"/>'


def save(name, width, height, title, parts):
    """One SVG file. The title comes first, because screen readers read it."""
    HERE.joinpath(f"{name}.svg").write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img"><title>{title}</title>{STYLE}'
        + "\n".join(parts) + "</svg>\n")


def headroom(build, *words, folder=None):
    return subprocess.run([build / "bin/headroom", *words], check=True, cwd=folder,
                          capture_output=True, text=True).stdout


def memory(build):
    """Predicted bytes of a step under each activation policy."""
    parts = []
    names = [("state", "d"), ("images", "c"), ("kept for backward", "a"), ("transient", "b")]
    top, scale, limit = 40, 250 / (4 * GIB), 2 * GIB
    base = top + 250
    for i, policy in enumerate(["keep", "lean", "recompute", "offload"]):
        plan = json.loads(headroom(
            build, "plan", "--cfg", "yolov5s", "--img", "640", "--batch", "16",
            "--processes", "1", "--activations", policy, "--json"))
        items = plan["stages"][0]["memory"]
        state = sum(items[key] for key in [
            "parameters", "gradients", "accumulated_gradients", "moments", "average",
            "statistics", "workspace", "targets", "communication"])
        y, x = base, 70 + 130 * i
        for value, kind in zip([state, items["images"], items["activations"],
                                items["transient"]], "dcab"):
            y -= value * scale
            parts.append(box(x, y, 80, value * scale, kind))
        above = 14 if abs(y - base + limit * scale) < 14 else 6
        parts += [text(x + 40, base + 18, policy, anchor="middle"),
                  text(x + 40, y - above, f"{items['total'] / GIB:.2f} GiB", "small", "middle")]
    y = base - limit * scale
    parts += [line([(50, y), (600, y)], "limit"), text(604, y + 4, "2 GiB", "small")]
    for i, (name, kind) in enumerate(names):
        parts += [box(60 + 140 * i, 8, 12, 12, kind), text(78 + 140 * i, 18, name, "small")]
    save("memory", 660, 320, "Memory of a step of yolov5s, 16 images of 640 px, by policy", parts)


def shapes(build, folder):
    subprocess.run([build / "bin/headroom-shapes", folder / "shapes", "--train", "64", "--val",
                    "8", "--size", "64"], check=True, capture_output=True)
    return ["train", "--data", folder / "shapes/data.yaml", "--cfg", "yolov5n", "--img", "64",
            "--batch", "32", "--bn-group", "8", "--device", "cpu", "--threads", "1", "--noval",
            "--precision", "fp64", "--noplots", "--seed", "0", "--project", folder / "runs"]


def steps(folder, key):
    with open(folder / "steps.jsonl") as file:
        return [json.loads(row)[key] for row in file]


def losses(build):
    """Losses of the same run in 1, 2 and 4 processes, in float64."""
    parts, widths = [], {1: ("sa", 9), 2: ("sb", 5), 4: ("sc", 1.5)}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        words = shapes(build, folder)
        curves = {}
        for processes in widths:
            headroom(build, *words, "--max-steps", "24", "--processes", str(processes),
                     "--name", str(processes))
            curves[processes] = steps(folder / "runs" / str(processes), "loss")
    low = min(min(curve) for curve in curves.values())
    high = max(max(curve) for curve in curves.values())
    for i, (processes, (kind, width)) in enumerate(widths.items()):
        points = [(60 + 500 * n / (len(curves[processes]) - 1),
                   30 + 200 * (high - loss) / (high - low))
                  for n, loss in enumerate(curves[processes])]
        parts += [line(points, kind, width), line([(420, 40 + 22 * i), (450, 40 + 22 * i)],
                                                  kind, width),
                  text(458, 44 + 22 * i, f"{processes} process{'es' if processes > 1 else ''}",
                       "small")]
    parts += [line([(60, 30), (60, 230), (560, 230)]), text(20, 34, f"{high:.2f}", "small"),
              text(20, 234, f"{low:.2f}", "small"), text(310, 252, "step", "small", "middle")]
    save("losses", 600, 262, "Losses of 1, 2 and 4 processes lie on top of one another", parts)


def recovery(build):
    """What happens around a killed worker, second by second."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        headroom(build, *shapes(build, folder), "--max-steps", "20", "--processes", "2",
                 "--inject", "kill@rank=1,step=10,phase=backward", "--name", "killed")
        with open(folder / "runs/killed/events.jsonl") as file:
            events = [json.loads(row) for row in file]

    def seconds(event):
        return datetime.datetime.fromisoformat(event["time"].replace("Z", "+00:00")).timestamp()

    lost = next(i for i, event in enumerate(events) if event["event"] == "loss_of_process")
    shown = [event for event in events[max(0, lost - 1):]
             if event["event"] in ("fault", "loss_of_process", "generation", "join", "plan")][:6]
    begin, end = seconds(shown[0]), max(seconds(shown[-1]), seconds(shown[0]) + 0.1)
    parts = [line([(40, 30), (680, 30)], "line", 2)]
    for i, event in enumerate(shown):
        x, y = 40 + 620 * (seconds(event) - begin) / (end - begin), 70 + 24 * i
        parts += [f'<circle cx="{x:.1f}" cy="30" r="5" class="{"b" if i == 0 else "a"}"/>',
                  text(40, y, f"+{seconds(event) - begin:.2f} s  {event['event']}: "
                       f"{event['reason'][:92]}", "small")]
    save("recovery", 720, 80 + 24 * len(shown), "A worker is killed in its backward pass", parts)


def cube(_):
    """The three axes of a layout (data, pipeline, spatial) as a cube that is cut into ranks."""
    parts, side, slant = [], 70, 34
    for z in (1, 0):
        for y in (0, 1):
            for x in (0, 1):
                left, top = 120 + x * (side + 8) + z * (slant + 8), 60 + y * (side + 8) - z * (slant + 8) + 40
                parts.append(box(left, top, side, side, "abcd"[(x + 2 * y) % 4]))
                parts.append(text(left + side / 2, top + side / 2 + 4,
                                  f"rank {4 * y + 2 * x + z}", "small", "middle"))
    parts += [text(198, 274, "data: other samples", anchor="middle"),
              text(14, 150, "pipeline:"), text(14, 168, "other layers"),
              text(330, 60, "spatial: other lines"), text(330, 78, "of each image")]
    save("cube", 480, 290, "Eight ranks: data=2, pipeline=2, spatial=2", parts)


def processes(_):
    """The processes of a run: which one starts which, and what they send each other."""
    parts = [box(20, 20, 150, 40), text(95, 45, "headroom train", anchor="middle"),
             box(20, 110, 150, 40), text(95, 135, "coordinator", anchor="middle"),
             box(260, 110, 150, 40), text(335, 135, "agent (a node)", anchor="middle"),
             box(220, 210, 110, 40), text(275, 235, "worker 0", anchor="middle"),
             box(360, 210, 110, 40), text(415, 235, "worker 1", anchor="middle"),
             line([(95, 60), (95, 110)]), line([(170, 40), (335, 40), (335, 110)]),
             line([(170, 130), (260, 130)], "sa"), text(215, 122, "gRPC", "small", "middle"),
             line([(300, 150), (275, 210)]), line([(370, 150), (415, 210)]),
             line([(330, 230), (360, 230)], "sb", 3),
             text(345, 272, "tensors: NCCL, Gloo, MPI, shared memory", "small", "middle"),
             text(490, 235, "runs/train/exp", "small")]
    save("processes", 590, 290, "The processes of a run", parts)


def include_rules():
    """The rooms that each room may include, read from the rules that a test checks."""
    source = HERE.parents[2].joinpath("tests/repo/include_rules.cpp").read_text()
    source = re.sub(r"//.*", "", source)
    groups = {}

    def rooms_of(words):
        found = set(re.findall(r'"([^"]+)"', words))
        return found.union(*(groups[name] for name in re.findall(r"\b\w+\b", words)
                             if name in groups))

    for name, words in re.findall(r"(?:std::vector<std::string>|List) (\w+) =\s*\{([^;]*)\};",
                                  source):
        groups[name] = rooms_of(words)
    begin = source.index("<Rule> all = {") + len("<Rule> all = {")
    table = source[begin:source.index("return all;", begin)]
    rules, depth, entry = {}, 0, ""
    for character in table:
        depth += (character == "{") - (character == "}")
        entry += character
        if depth == 0 and entry.strip().startswith("{"):
            room, words = re.match(r'\s*\{\s*"([^"]+)",(.*)', entry, re.S).groups()
            rules[room] = rooms_of(words[:words.rindex("{")])  # the last list is of libraries
            entry = ""
        elif depth <= 0:
            entry = ""
    return rules


def rooms(_):
    """The rooms in layers, from the bottom up: a room may include only rooms below it."""
    rules = include_rules()
    used = set().union(*rules.values())
    rules = {room: others for room, others in rules.items() if others or room in used}
    level = {}

    def level_of(room):
        if room not in level:
            level[room] = 1 + max((level_of(one) for one in rules.get(room, ())
                                   if one != room), default=-1)
        return level[room]

    for room in rules:
        level_of(room)
    kinds = {"configs": "d", "parallel": "a", "proto": "d", "coordinator": "c", "worker": "b",
             "deploy": "c"}
    parts, height, most = [], max(level.values()) + 1, 6
    y = 14
    for number in range(height - 1, -1, -1):
        names = sorted(room for room in rules if level[room] == number)
        for i in range(0, len(names), most):
            line_of = names[i:i + most]
            width = 880 / len(line_of) if len(line_of) > 4 else 220
            for j, room in enumerate(line_of):
                parts += [box(20 + j * width + 3, y, width - 6, 26),
                          box(20 + j * width + 3, y, 5, 26, kinds[room.split("/")[0]]),
                          text(20 + (j + 0.5) * width + 2, y + 17,
                               room if len(line_of) <= 4 else room.replace("worker/", ""),
                               "small", "middle")]
            y += 32
        y += 6
    parts.append(text(460, y + 10, "a room includes from the levels below it alone; orange: "
                      "rooms of worker/", "small soft", "middle"))
    save("rooms", 920, y + 24, "The rooms of the code", parts)


def main():
    pictures = {f.__name__: f for f in (memory, losses, recovery, cube, processes, rooms)}
    build = pathlib.Path(sys.argv[1]).resolve()
    for name in sys.argv[2:] or pictures:
        pictures[name](build)
        print(HERE / f"{name}.svg")


if __name__ == "__main__":
    main()
