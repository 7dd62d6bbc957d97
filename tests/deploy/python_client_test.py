"""Tests the client package of deploy/python on real runs of two processes.

    python_client_test.py HEADROOM HEADROOM_SHAPES [runs|files|weights|frame|types]

Exit code 77: a package that the part needs is not installed; its name is printed.
"""

import ast
import contextlib
import fcntl
import importlib
import io
import json
import os
import pathlib
import pickle
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
CLIENT = ROOT / "deploy/python"
sys.dont_write_bytecode = True
sys.path.insert(0, str(CLIENT))

import headroom_train
from headroom_train.files import StepReader
from headroom_train.process import TrainProcess
from headroom_train.program import flag_words

PROGRAM, SHAPES = (str(pathlib.Path(word).resolve()) for word in sys.argv[1:3])
MODEL = {"cfg": "yolov5n", "img": 64, "batch": 8, "device": "cpu", "workers": 1,
         "threads": 1, "noplots": True}


def need(package):
    try:
        return importlib.import_module(package)
    except ImportError:
        print(f"skipped: {package} is not installed")
        sys.exit(77)


@contextlib.contextmanager
def refused(exit_code, *words):
    """The code in the `with` block must be refused with this exit code and this text."""
    try:
        yield
    except headroom_train.HeadroomError as error:
        assert error.exit_code == exit_code, (error.exit_code, error.text)
        for word in words:
            assert word in error.text, f"{word!r} is not in: {error.text}"
        assert str(pickle.loads(pickle.dumps(error))) == error.text
        return
    raise AssertionError(f"nothing was refused, expected {exit_code} {words}")


def draw_data():
    subprocess.run([SHAPES, "my", "--train", "32", "--val", "8", "--size", "64"], check=True,
                   stdout=subprocess.DEVNULL)
    return "my/data.yaml"


# Runs.

def followed_to_its_end(data):
    printed = io.StringIO()
    run = headroom_train.train(data=data, **MODEL, epochs=3, processes=2, log_to=printed,
                         set={"hyp.lr0": 0.02, "hyp.mosaic": 0}, layout={"data": 2})
    assert run.state == "running"
    followed = []
    for step in run.follow():
        followed.append(step)
        if len(followed) == 1:
            assert run.state == "running", "follow() told nothing before the end"
    assert [step["step"] for step in followed] == list(range(12)), followed
    outcome = run.wait()
    assert outcome["exit_code"] == 0 and outcome["steps"] == 12, outcome
    assert pathlib.Path(outcome["run_directory"]) == run.path
    assert run.state == "finished"
    assert run.steps() == followed
    assert all(len(step["memory"]) == 2 for step in followed)
    epochs = run.epochs()
    assert epochs.column("epoch") == [0, 1, 2], epochs
    assert isinstance(epochs[2]["metrics/mAP_0.5"], float) and epochs[0]["x/lr0"] > 0
    assert run.summary["map50"] == outcome["map50"] and run.best.exists()
    assert run.plan["layout"]["data_parallel_size"] == 2, run.plan
    assert "hyp.lr0" in (run.path / "run.yaml").read_text() or "lr0: 0.02" in (
        run.path / "run.yaml").read_text()
    kinds = run.events().column("event")
    assert kinds[-1] == "run_over" and "validation" in kinds, kinds
    assert any("results in" in line for line in run.log)
    assert printed.getvalue().splitlines() == run.log
    again = headroom_train.Run(run.path)
    assert again.state == "finished" and list(again.follow()) == followed
    assert again.wait()["exit_code"] == 0
    assert again.stop()["exit_code"] == 0, "a run that has ended is left alone"
    return run


def stopped_and_resumed(data):
    run = headroom_train.train(data=data, **MODEL, epochs=200, processes=2, program=PROGRAM)
    try:
        run.wait(timeout=0.1)
        raise AssertionError("wait() did not wait")
    except TimeoutError as error:
        assert str(run.path) in str(error)
    before = []
    for step in run.follow():
        before.append(step)
        if len(before) == 3:
            break
    outcome = run.stop()
    assert outcome["exit_code"] == 130, outcome
    assert run.wait()["exit_code"] == 130 and run.state != "running", run.state
    committed = run.steps()
    assert len(committed) >= 3 and committed[:3] == before
    with refused(130, "resume"):  # another Run object of the stopped run gets an error
        headroom_train.Run(run.path).wait()

    resumed = run.resume(max_steps=len(committed) + 4)
    assert resumed.path == run.path
    after = list(resumed.follow())
    assert [step["step"] for step in after] == list(range(len(committed) + 4))
    assert resumed.wait()["steps"] == len(committed) + 4 and resumed.state == "finished"
    return resumed


def left_by_its_python(data):
    """A run continues when the Python process that started it ends. Another Python process finds and stops the run."""
    code = ("import headroom_train, json, sys; "
            "print(headroom_train.train(**json.loads(sys.argv[1])).path)")
    request = {**MODEL, "data": data, "epochs": 500, "processes": 2}
    done = subprocess.run([sys.executable, "-Bc", code, json.dumps(request)], check=True,
                          env={**os.environ, "PYTHONPATH": str(CLIENT)}, capture_output=True)
    run = headroom_train.Run(done.stdout.decode().strip())
    assert run.state == "running" and run.log == []
    committed = len(run.steps())
    for step in run.follow():
        if step["step"] > committed + 1:  # a step after the end of that process
            break
    outcome = run.stop()
    assert outcome["exit_code"] == 130 and outcome["steps"] > committed, outcome


def processes_here():
    """Other processes that were started in this folder."""
    here, found = os.getcwd(), []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # the process has ended, or belongs to another user
            if os.readlink(process / "cwd") == here and process.name != str(os.getpid()):
                found.append(process.name)
    return found


def killed(data):
    run = headroom_train.train(data=data, **MODEL, epochs=200, processes=2)
    next(run.follow())
    run._process.popen.kill()
    with refused(5, "signal 9"):
        run.wait()
    limit = time.monotonic() + 60
    while processes_here() and time.monotonic() < limit:  # its children end by themselves
        time.sleep(0.1)
    assert not processes_here() and headroom_train.Run(run.path).state != "running"


def compared(runs):
    table = headroom_train.compare([runs[0], runs[1].path])
    assert table.column("run") == [run.path.name for run in runs], table
    assert table.column("state") == ["finished"] * 2
    assert table[0]["map50"] == runs[0].summary["map50"]
    assert table[0]["map"] == runs[0].summary["map"]
    assert table[0]["peak_bytes"] == max(runs[0].summary["peak_bytes"])
    assert table[0]["seconds"] == runs[0].summary["wall_seconds"]
    assert table[0]["steps"] == len(runs[0].steps()) and table[0]["retries"] == 0, table
    assert table[0]["precision"] == runs[0].summary["precision"], table
    speeds = sorted(step["images_per_second"] for step in runs[0].steps())
    assert table[0]["images_per_second"] == speeds[len(speeds) // 2]
    settings = table[0]["settings"]
    assert settings["hyp.lr0"] == "0.02" and settings["epochs"] == "3", settings
    assert table[1]["settings"]["hyp.lr0"] == "0.01" and "batch" not in settings, table
    lines = str(table).splitlines()
    assert len(lines) == 3 and lines[0].startswith("run ") and runs[0].path.name in lines[1]
    assert "hyp.lr0=0.02" in lines[1], lines
    printed = subprocess.run([PROGRAM, "status", *[run.path for run in runs]], check=True,
                             stdout=subprocess.PIPE).stdout.decode()
    assert "hyp.lr0=0.02" in printed.splitlines()[1], printed
    assert headroom_train.compare([runs[0]])[0]["run"] == runs[0].path.name, "one run is a table, too"
    everything = headroom_train.compare([runs[0].path.parent])
    assert len(everything) >= 2 and headroom_train.compare([]) == []
    with refused(2, "run.yaml"):
        headroom_train.compare(["my"])
    named = headroom_train.Table([{"run": "<b>&"}])
    assert "&lt;b&gt;&amp;" in named._repr_html_() and "<b>" not in named._repr_html_()


def refused_requests(data):
    folders = sorted(pathlib.Path("runs/train").iterdir())
    with refused(2, "nowhere.yaml"):
        headroom_train.train(data="nowhere.yaml", **MODEL)
    with refused(2, "--epoch"):
        headroom_train.train(data=data, epoch_s=3)
    with refused(2, "json"):
        headroom_train.train(data=data, json=True)
    with refused(3, "--memory-limit"):
        headroom_train.train(data=data, **MODEL, memory_limit="1MiB")
    with refused(2, "coordinator="):
        headroom_train.train(data=data, coordinator="127.0.0.1:1")
    (pathlib.Path("my/labels/train").rename("my/labels/gone"))
    with refused(4):
        headroom_train.train(data=data, **MODEL)
    pathlib.Path("my/labels/gone").rename("my/labels/train")
    assert sorted(pathlib.Path("runs/train").iterdir()) == folders, "a refusal left something"
    with refused(2, "HEADROOM_PROGRAM"), without_program():
        headroom_train.train(data=data)
    with refused(2, "no-such-program"):
        headroom_train.plan(program="no-such-program")
    with refused(2, "run.yaml"):
        headroom_train.Run("my")
    with refused(2, "--ifm"):
        headroom_train.plan(ifm=3)


@contextlib.contextmanager
def without_program():
    kept = {name: os.environ.pop(name) for name in ("HEADROOM_PROGRAM", "PATH")}
    try:
        yield
    finally:
        os.environ.update(kept)


def other_commands(run, data):
    plan = headroom_train.plan(cfg="yolov5n", img=(64, 96), batch=8)
    assert plan["exit_code"] == 0, plan
    sweep = headroom_train.plan(cfg="yolov5n", sweep=["img=64,96", "batch=4..8"])
    assert len(sweep["cells"]) == 4, sweep
    judged = headroom_train.val(data=data, weights=run.best, img=64, batch=8)
    assert abs(judged["map50"] - run.summary["map50"]) < 1e-9, judged
    report = headroom_train.verify(data=data)
    assert "splits" in report, report
    found = headroom_train.detect(weights=run.best, source="my/images/val", img=64, conf_thres=0.01)
    assert len(list(found.paths[0].glob("*.*"))) == 8, found
    assert headroom_train.detect(weights=run.best, source="my/images/val", nosave=True).text
    written = headroom_train.export(weights=run.best, include=["onnx", "torchscript", "pt"],
                                    img=64)
    assert [path.suffix for path in written.paths] == [".onnx", ".torchscript", ".pt"], written
    assert all(path.stat().st_size > 1 << 20 for path in written.paths)


def left_behind():
    """The client waits for the end of the program, not for a child process that still holds the program's output."""
    program = pathlib.Path("leaves.sh")
    program.write_text("#!/bin/sh\nsleep 60 &\necho $! > left\necho why >&2\nexit 3\n")
    program.chmod(0o755)
    begin = time.monotonic()
    with refused(3, "why"):
        TrainProcess([str(program.resolve())], None).wait(20)
    assert time.monotonic() - begin < 20
    os.kill(int(pathlib.Path("left").read_text()), 9)


def check_runs():
    left_behind()
    data = draw_data()
    run = followed_to_its_end(data)
    resumed = stopped_and_resumed(data)
    compared([run, resumed])
    other_commands(run, data)
    refused_requests(data)
    left_by_its_python(data)
    killed(data)


# Files.

def folder_of_a_run(name, steps):
    folder = pathlib.Path(name)
    folder.mkdir()
    (folder / "run.yaml").write_text("command: train\n")
    (folder / "steps.jsonl").write_text("".join(line_of(step) for step in range(steps)))
    return folder


def line_of(step, **more):
    return json.dumps({"step": step, **more}) + "\n"


def half_written_lines():
    folder = folder_of_a_run("half", 3)
    with (folder / "steps.jsonl").open("a") as file:
        file.write('{"step":3,"lo')
    run = headroom_train.Run(folder)
    assert run.state == "killed"
    assert run.steps().column("step") == [0, 1, 2]
    assert [step["step"] for step in run.follow()] == [0, 1, 2]
    with refused(5, "killed"):
        run.wait()
    with refused(2, "summary.json", "first epoch"):
        run.summary
    (folder / "results.csv").write_text("epoch,a,b\n0,0.5,\n1,0.25")
    assert run.epochs() == [{"epoch": 0, "a": 0.5, "b": None}]


def damaged_lines():
    folder = folder_of_a_run("damaged", 2)
    with (folder / "steps.jsonl").open("ab") as file:
        file.write(b'{"step":2,"lo\xff\n' + line_of(3).encode())
    run = headroom_train.Run(folder)
    with refused(4, "steps.jsonl:3"):
        run.steps()
    seen = []
    with refused(4, "steps.jsonl"):
        seen.extend(run.follow())
    for text in ("[1]\n", '"a"\n', "{}\n", '{"step":"1"}\n'):
        (folder / "steps.jsonl").write_text(text)
        with refused(4, "steps.jsonl"):
            list(run.follow())
    (folder / "summary.json").write_text("{")
    with refused(4, "summary.json"):
        run.summary
    (folder / "results.csv").write_text("epoch,a\n0,0.5\n1,abc\n")
    with refused(4, "results.csv:3"):
        run.epochs()


def growing_file():
    """Tests a reader of steps.jsonl while a run writes it, is resumed, and is replaced by another run."""
    folder = folder_of_a_run("growing", 0)
    path = folder / "steps.jsonl"
    path.unlink()
    reader = StepReader(path)
    new = lambda: [step["step"] for step in reader.new_steps()]
    assert new() == []
    path.write_text(line_of(0) + line_of(1) + '{"st')
    assert new() == [0, 1] and new() == []
    with path.open("a") as file:
        file.write('ep":2}\n' + line_of(3))
    assert new() == [2, 3]
    # The run is resumed from step 2. The new lines are longer than the old ones.
    os.truncate(path, len(line_of(0)) * 2)
    assert new() == []
    with path.open("a") as file:
        file.write("".join(line_of(step, seconds=0.123456) for step in (2, 3, 4)))
    assert new() == [4]
    # The file is removed during the run and written anew.
    path.rename(folder / "kept")
    assert new() == []
    path.write_text(line_of(5))
    assert new() == [5]
    (folder / ".older-run").touch()
    with path.open("a") as file:
        file.write(line_of(6))
    assert new() == []
    path.rename(folder / "kept2")
    path.write_text(line_of(0))
    (folder / ".older-run").unlink()
    with refused(2, "another run"):
        new()
    reader.close()


def samples_of_a_step():
    """Lists and positions; the expected numbers are those of worker/data/sampling/sampler_test.cpp."""
    assert headroom_train.samples_of({"samples": [5, 1]}) == [5, 1]
    positions = {"seed": 2**40 + 5, "epoch": 2, "begin": 118280, "end": 118287}
    assert headroom_train.samples_of({"samples": positions, "epoch_samples": 118287}) == \
        [83394, 52272, 111965, 84882, 58580, 26970, 68331]
    positions = {"seed": 7, "epoch": 3, "begin": 0, "end": 10}
    assert headroom_train.samples_of({"samples": positions, "epoch_samples": 10}) == [4, 1, 8, 3, 5, 6, 7, 0, 9, 2]
    try:
        headroom_train.samples_of({"samples": {**positions, "order": "--rect"}, "epoch_samples": 10})
        raise AssertionError("the order of --rect is not known")
    except headroom_train.HeadroomError as refusal:
        assert "a run with --rect" in refusal.text


def live_run():
    """follow() continues while a coordinator holds the lock of the folder, and ends when the lock is free."""
    folder = folder_of_a_run("live", 1)
    run = headroom_train.Run(folder)
    with (folder / "coordinator.log.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert run.state == "running"
        steps = run.follow(poll_seconds=0.01)
        assert next(steps)["step"] == 0
        with refused(2, "no process of this machine"):
            run.stop()
        with (folder / "steps.jsonl").open("a") as file:
            file.write(line_of(1))
    assert [step["step"] for step in steps] == [1]
    assert run.state == "killed"


def flags():
    assert flag_words({"bn_group": 32, "cos_lr": True, "rect": False, "weights": None,
                       "img": (320, 640), "data": pathlib.Path("a b/c.yaml"), "freeze": range(2),
                       "layout": {"data": 2, "pipeline": 1}, "batch": -1, "inject": [],
                       "set": {"hyp.lr0": 1e-05, "cos_lr": True}}) == [
        "--bn-group", "32", "--cos-lr", "--img", "320", "640", "--data", "a b/c.yaml",
        "--freeze", "0", "1", "--layout", "data=2,pipeline=1", "--batch", "-1",
        "--set", "hyp.lr0=1e-05", "--set", "cos_lr=true"]


def check_files():
    half_written_lines()
    damaged_lines()
    growing_file()
    samples_of_a_step()
    live_run()
    flags()
    version = subprocess.run([PROGRAM, "--version"], capture_output=True, text=True, check=True)
    named = re.search(r'^version = "(.*)"', (CLIENT / "pyproject.toml").read_text(), re.M)
    assert version.stdout.split()[1] == named[1], "pyproject.toml has another version"
    for source in CLIENT.glob("**/*.py"):  # they must be valid for the oldest supported Python
        ast.parse(source.read_text(), feature_version=(3, 9))
    # The package needs only the standard library.
    alone = subprocess.run([sys.executable, "-ISc", "import sys; sys.path.insert(0, sys.argv[1]); "
                            "sys.dont_write_bytecode = True; import headroom_train; "
                            "print(sorted({'numpy', 'pandas', 'torch'} & set(sys.modules)))",
                            CLIENT], capture_output=True, text=True, check=True)
    assert alone.stdout.strip() == "[]", alone.stdout


# Weights.

def safetensors(header, data, length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(kind, shape, begin, end):
    return {"dtype": kind, "shape": shape, "data_offsets": [begin, end]}


def damaged_weights(sound):
    pair = {"a": entry("F32", [2], 0, 8), "b": entry("F32", [1], 8, 12)}
    cases = {
        "cut": sound[:-1],
        "longer": sound + b"\0",
        "empty": b"",
        "too few": sound[:7],
        "no header": safetensors(pair, bytes(12), length=1 << 62),
        "header beyond the file": safetensors(pair, bytes(12), length=1000),
        "no JSON": safetensors(b"{", b""),
        "no UTF-8": safetensors(b'{"\xff":1}', b""),
        "deep": safetensors(b"[" * 100000, b""),
        "no object": safetensors([], b""),
        "a shape for other bytes": safetensors({**pair, "b": entry("F32", [2], 8, 12)}, bytes(12)),
        "shared bytes": safetensors({**pair, "b": entry("F32", [1], 4, 8)}, bytes(8)),
        "a gap": safetensors({**pair, "b": entry("F32", [1], 12, 16)}, bytes(16)),
        "ends before it begins": safetensors({"a": entry("F32", [1], 4, 0)}, bytes(4)),
        "a negative side": safetensors({"a": entry("F32", [-1], 0, 4)}, bytes(4)),
        "a fraction": safetensors({"a": entry("F32", [1.0], 0, 4)}, bytes(4)),
        "a boolean": safetensors({"a": entry("F32", [True], 0, 4)}, bytes(4)),
        "sides that no array has": safetensors({"a": entry("F32", [0, 1 << 80], 0, 0)}, b""),
        "an unknown dtype": safetensors({"a": entry("F31", [1], 0, 4)}, bytes(4)),
        "no offsets": safetensors({"a": {"dtype": "F32", "shape": [1]}}, bytes(4)),
        "a key twice": safetensors(b'{"a":1,"a":2}', b""),
        "NaN": safetensors(b'{"a":NaN}', b""),
        "metadata of numbers": safetensors({"__metadata__": {"a": 1}}, b""),
    }
    for name, content in cases.items():
        path = pathlib.Path(f"{name}.safetensors")
        path.write_bytes(content)
        with refused(4, path.name):
            headroom_train.load_weights(path)
        with refused(4, path.name):
            headroom_train.load_metadata(path)
    with refused(2, "nowhere.safetensors"):
        headroom_train.load_weights("nowhere.safetensors")
    with refused(2, "kind="):
        headroom_train.load_weights("a.safetensors", kind="jax")


def check_weights():
    numpy = need("numpy")
    run = headroom_train.train(data=draw_data(), **MODEL, epochs=1)
    run.wait()
    weights = headroom_train.load_weights(run.best)
    assert weights["model.0.conv.weight"].shape == (16, 3, 6, 6), sorted(weights)
    assert all(numpy.isfinite(array).all() for array in weights.values())
    assert len(weights) > 300 and weights["model.0.conv.weight"].std() > 0
    assert headroom_train.load_metadata(run.best), "no metadata"
    sound = run.best.read_bytes()
    damaged_weights(sound)
    # Elements of each type. A bfloat16 consists of the upper 16 bits of a float32.
    one = numpy.array([1.5, -2, 0.25], dtype="<f4")
    pathlib.Path("types.safetensors").write_bytes(safetensors(
        {"half": entry("F16", [3], 12, 18), "single": entry("F32", [1, 3], 0, 12),
         "brain": entry("BF16", [3], 18, 24), "truth": entry("BOOL", [2], 24, 26),
         "none": entry("I64", [0, 4], 26, 26), "scalar": entry("U8", [], 26, 27)},
        one.tobytes() + one.astype("<f2").tobytes() + (one.view("<u4") >> 16).astype(
            "<u2").tobytes() + b"\1\0\7"))
    kinds = headroom_train.load_weights("types.safetensors")
    for name in ("half", "single", "brain"):
        assert (kinds[name].ravel() == one).all(), (name, kinds[name])
    assert kinds["single"].shape == (1, 3) and kinds["half"].dtype == numpy.float16
    assert kinds["truth"].tolist() == [True, False] and kinds["none"].shape == (0, 4)
    assert kinds["scalar"] == 7
    kinds["single"][0, 0] = 3  # fails if the arrays cannot be written
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        print("not checked: torch is not installed")
        with refused(2, "pip install torch"):
            headroom_train.load_weights(run.best, kind="torch")
        return
    tensors = headroom_train.load_weights(run.best, kind="torch")
    assert tensors.keys() == weights.keys()
    assert all((tensors[name].numpy() == array).all() for name, array in weights.items())
    kinds = headroom_train.load_weights("types.safetensors", kind="torch")
    assert kinds["brain"].dtype == torch.bfloat16 and kinds["brain"].tolist() == one.tolist()
    assert kinds["none"].shape == (0, 4) and kinds["scalar"].item() == 7


# Frames and types.

def check_frame():
    table = headroom_train.Table([{"step": 0, "memory": [{"rank": 0, "bytes": 5}], "lr": [0.1, 0.2]},
                            {"step": 1, "memory": [{"rank": 0, "bytes": 6}], "loss": 0.5}])
    sys.modules["pandas"], kept = None, sys.modules.pop("pandas", None)
    with refused(2, "pip install pandas"):
        table.frame()
    del sys.modules["pandas"]
    if kept is not None:
        sys.modules["pandas"] = kept
    need("pandas")
    frame = table.frame()
    assert list(frame.columns) == ["step", "memory.0.rank", "memory.0.bytes", "lr", "loss"]
    assert frame["memory.0.bytes"].tolist() == [5, 6]
    assert frame["loss"].isna().tolist() == [True, False]
    assert headroom_train.Table().frame().empty


def check_types():
    need("mypy")
    shutil.copytree(CLIENT, "python")
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir=/dev/null", "-p", "headroom_train"]
    found = subprocess.run(command, cwd="python", capture_output=True, text=True)
    assert found.returncode == 0, found.stdout + found.stderr
    # Checks that this test can fail.
    with open("python/headroom_train/wrong.py", "w") as file:
        file.write("from headroom_train import Run\nnumber: int = Run('a').state\n")
    found = subprocess.run(command, cwd="python", capture_output=True, text=True)
    assert "wrong.py:2" in found.stdout, found.stdout


def end_runs():
    """Ends the processes that a failed test has started."""
    for definition in pathlib.Path("runs/train").glob("*/run.yaml"):
        run = headroom_train.Run(definition.parent)
        if run.state == "running":
            with contextlib.suppress(headroom_train.HeadroomError):
                run.stop(60)


def main():
    os.environ["HEADROOM_PROGRAM"] = PROGRAM
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            {"runs": check_runs, "files": check_files, "weights": check_weights,
             "frame": check_frame, "types": check_types}[sys.argv[3]]()
        finally:
            end_runs()
            os.chdir("/")


if __name__ == "__main__":
    main()
