"""Runs of two processes beside a real MLflow server, which is stopped, killed and restarted.

    mlflow_test.py HEADROOM HEADROOM_SHAPES

The server is $HEADROOM_MLFLOW, .deps/mlflow/bin/mlflow (python3 -m venv .deps/mlflow, and pip install mlflow there), or
mlflow in PATH. Exit code 77: there is none.
"""

import contextlib
import csv
import json
import os
import pathlib
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
# The bound also holds if other programs use the machine. A step that waited 60 s for a server would take far longer.
MOST_SLOWER = 1.5
STEPS_IN_A_WINDOW = 24
PAIRS = 4


def find_server():
    named = os.environ.get("HEADROOM_MLFLOW") or str(ROOT / ".deps/mlflow/bin/mlflow")
    return named if pathlib.Path(named).exists() else shutil.which("mlflow")


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def wait_for(what, condition, seconds=400):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError(f"waited {seconds} s in vain for {what}")


class Server:
    """An MLflow server that can be stopped, killed and restarted with its data."""

    def __init__(self, program, folder):
        self.program, self.folder, self.port = program, folder, free_port()
        self.address = f"http://127.0.0.1:{self.port}"
        self.process = None

    def start(self):
        words = [self.program, "server", "--host", "127.0.0.1", "--port", str(self.port), "--workers", "1",
                 "--backend-store-uri", f"sqlite:///{self.folder}/mlflow.db",
                 "--artifacts-destination", str(self.folder / "artifacts")]
        with open(self.folder / "server.txt", "ab") as log:
            self.process = subprocess.Popen(words, stdout=log, stderr=log, cwd=self.folder, start_new_session=True)
        wait_for("the server's start", self.is_there)

    def is_there(self):
        with contextlib.suppress(OSError):
            return urllib.request.urlopen(self.address + "/health", timeout=2).status == 200
        return False

    def signal(self, number):
        os.killpg(self.process.pid, number)

    def kill(self):
        self.signal(signal.SIGKILL)
        self.process.wait()

    def ask(self, path, body=None):
        request = urllib.request.Request(self.address + "/api/2.0/" + path,
                                         data=None if body is None else json.dumps(body).encode(),
                                         headers={"Content-Type": "application/json"})
        return urllib.request.urlopen(request, timeout=60).read()

    def runs(self, experiment):
        found = json.loads(self.ask(f"mlflow/experiments/get-by-name?experiment_name={experiment}"))
        body = {"experiment_ids": [found["experiment"]["experiment_id"]]}
        return json.loads(self.ask("mlflow/runs/search", body)).get("runs", [])

    def metric(self, run_id, key):
        answer = json.loads(self.ask(f"mlflow/metrics/get-history?run_id={run_id}&metric_key={key}&max_results=5000"))
        return [(one.get("step", 0), one["value"]) for one in answer.get("metrics", [])]


def steps_of(run):
    """The complete lines of steps.jsonl; an empty list before the run has begun."""
    with contextlib.suppress(FileNotFoundError):
        return [json.loads(line) for line in (run / "steps.jsonl").read_text().splitlines(True) if line.endswith("\n")]
    return []


def num_epochs(run):
    return len((run / "results.csv").read_text().splitlines()) - 1


def expect_all_metrics(server, run_id, run):
    """Checks that the server has each figure of results.csv exactly once."""
    with open(run / "results.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    for column in rows[0]:
        if column == "epoch":
            continue
        wanted = [(int(row["epoch"]), float(row[column])) for row in rows if row[column]]
        found = sorted(server.metric(run_id, column.replace(":", "-")))
        assert found == wanted, f"{column}: {found} is not {wanted}"
    return len(rows)


class Test:
    def __init__(self, headroom, data, folder):
        self.headroom, self.data, self.folder = headroom, data, folder

    def train(self, *more, wait=True):
        words = [self.headroom, "train", *more]
        if "--resume" not in more:
            words += ["--data", str(self.data), "--cfg", "yolov5n", "--img", "96", "--batch", "8", "--threads", "1",
                      "--workers", "1", "--processes", "2", "--noautoanchor"]
        process = subprocess.Popen(words, cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if not wait:
            return process
        text = process.communicate(timeout=400)[1]
        assert process.returncode == 0, text
        return text

    def window(self, run):
        """The seconds of each of a run's next steps."""
        first = len(steps_of(run)) + 1  # the current step began before the window
        wait_for("steps", lambda: len(steps_of(run)) >= first + STEPS_IN_A_WINDOW)
        return [step["seconds"] for step in steps_of(run)[first:first + STEPS_IN_A_WINDOW]]

    def outage(self, server):
        run = self.folder / "runs/train/outage"
        process = self.train("--epochs", "10000", "--patience", "0", "--name", "outage", "--mlflow", server.address,
                             "--mlflow-experiment", "trial", wait=False)
        try:
            wait_for("the first metrics", lambda: has_metrics(server, "trial"))
            ratios = []
            for number in range(PAIRS):
                before = statistics.median(self.window(run))
                server.signal(signal.SIGSTOP)
                during = statistics.median(self.window(run))
                server.signal(signal.SIGCONT)
                ratios.append(during / before)
                print(f"pair {number + 1}: a step takes {before * 1000:.1f} ms before, {during * 1000:.1f} ms while "
                      f"the server stands still: ratio {ratios[-1]:.3f}")
            print(f"median ratio {statistics.median(ratios):.3f}")
            before = statistics.median(self.window(run))
            server.kill()
            during = statistics.median(self.window(run))
            print(f"killed: {before * 1000:.1f} ms before, {during * 1000:.1f} ms while it is away: "
                  f"ratio {during / before:.3f}")
            missed = num_epochs(run)
            server.start()
            run_id = server.runs("trial")[0]["info"]["run_id"]
            wait_for("what was missed", lambda: len(server.metric(run_id, "train/box_loss")) > missed)
            process.send_signal(signal.SIGTERM)  # SIGINT may be ignored: tests run in the background
            text = process.communicate(timeout=400)[1]
        finally:
            if process.poll() is None:
                process.kill()
        assert process.returncode == 130, text
        assert "does not answer as it should" in text and "is back" in text, text
        assert text.count("is back") <= 2 + PAIRS, text
        assert "has not got" not in text, text
        (made,) = server.runs("trial")
        info, data = made["info"], made["data"]
        assert info["status"] == "KILLED" and info["run_name"] == "outage", info
        print(f"all metrics of {expect_all_metrics(server, info['run_id'], run)} epochs are there")
        parameters = {one["key"]: one["value"] for one in data["params"]}
        assert parameters["epochs"] == "10000" and parameters["hyp.lr0"] == "0.01", parameters
        tags = {one["key"]: one["value"] for one in data["tags"]}
        events = [json.loads(line)["event"] for line in (run / "events.jsonl").read_text().splitlines()]
        assert tags["headroom.generation"] == str(events.count("generation")), tags
        assert tags["headroom.processes_lost"] == str(events.count("loss_of_process")), tags
        for file in (run / "results.png", run / "weights/best.safetensors"):
            path = info["artifact_uri"].removeprefix("mlflow-artifacts:/") + "/" + file.name
            kept = server.ask("mlflow-artifacts/artifacts/" + path)
            assert kept == file.read_bytes(), f"{file.name}: {len(kept)} bytes"
        assert statistics.median(ratios) < MOST_SLOWER, "an outage costs steps"

    def resume(self, server):
        run = self.folder / "runs/train/cut"
        asked = ["--mlflow", server.address, "--mlflow-experiment", "resumed"]
        self.train("--epochs", "4", "--max-steps", "12", "--name", "cut", *asked)
        (cut,) = server.runs("resumed")
        text = self.train("--resume", str(run), "--max-steps", "0")
        assert "give --mlflow URI to go on there" in text, text
        shutil.rmtree(run)
        self.train("--epochs", "4", "--max-steps", "12", "--name", "cut", "--inject", "kill@rank=1,step=7", *asked)
        text = self.train("--resume", str(run), "--max-steps", "0", *asked)
        runs = server.runs("resumed")
        assert [one["info"]["status"] for one in runs] == ["FINISHED", "FINISHED"], runs
        info = next(one for one in runs if one["info"]["run_id"] != cut["info"]["run_id"])
        tags = {one["key"]: one["value"] for one in info["data"]["tags"]}
        assert int(tags["headroom.processes_lost"]) >= 1, tags
        assert info["info"]["run_id"] in text, text
        assert expect_all_metrics(server, info["info"]["run_id"], run) == 4

    def nobody(self):
        """A server that never answers costs at most the time-out at the end."""
        with socket.socket() as silent:
            silent.bind(("127.0.0.1", 0))
            silent.listen(64)
            address = f"http://127.0.0.1:{silent.getsockname()[1]}"
            process = self.train("--epochs", "2", "--name", "nobody", "--mlflow", address, "--webhook",
                                 address + "/services/secret", wait=False)
            run = self.folder / "runs/train/nobody"
            wait_for("the run's end", lambda: is_over(run))
            begin = time.monotonic()
            text = process.communicate(timeout=60)[1]
        seconds = time.monotonic() - begin
        assert process.returncode == 0, text
        # The time-out is 10 s; a busy machine needs some seconds more to end the processes.
        assert 9 < seconds < 20, f"{seconds} s"
        missing = "the parameters, the metrics of 2 epochs, the end's state, results.png, best.safetensors"
        assert f"MLflow at {address} has not got {missing}" in text, text
        assert f"the webhook at {address} has not got 1 message" in text, text
        assert "secret" not in text, text
        print(f"a server that never answers costs {seconds:.1f} s at the end")


def is_over(run):
    with contextlib.suppress(FileNotFoundError):
        return '"run_over"' in (run / "events.jsonl").read_text()
    return False


def has_metrics(server, experiment):
    with contextlib.suppress(urllib.error.HTTPError):
        return any(server.metric(run["info"]["run_id"], "train/box_loss") for run in server.runs(experiment))
    return False


def main():
    program = find_server()
    if program is None:
        print("skipped: no mlflow in $HEADROOM_MLFLOW, .deps/mlflow/bin or PATH")
        return 77
    headroom, shapes = (str(pathlib.Path(word).resolve()) for word in sys.argv[1:3])
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        subprocess.run([shapes, str(folder / "shapes"), "--train", "37", "--val", "9", "--size", "128"],
                       check=True, stdout=subprocess.DEVNULL)
        server = Server(program, folder)
        test = Test(headroom, folder / "shapes/data.yaml", folder)
        test.nobody()
        server.start()
        try:
            test.outage(server)
            test.resume(server)
        finally:
            server.kill()
    return 0


if __name__ == "__main__":
    sys.exit(main())
