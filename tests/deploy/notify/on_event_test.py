"""Tests headroom train --on-event: which events a program gets, and that no program disturbs the run.

    on_event_test.py HEADROOM FAKE_WORKER [NAME OF A TEST ...]

Most tests run with workers that only pretend to train (tests/deploy/cli/fake_worker.cpp).
"""

import json
import os
import pathlib
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True
import servers

ROOT = pathlib.Path(__file__).resolve().parents[3]
HEADROOM, FAKE_WORKER = (pathlib.Path(sys.argv.pop(1)).resolve() for _ in range(2))
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(("MLFLOW_", "KUBEFLOW_", "FAKE_", "HEADROOM_", "LD_LIBRARY_PATH"))}
KEEPS = "#!/bin/sh\nexec cat > kept.jsonl\n"


class OnEventTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)
        # headroom looks for headroom-worker in its own folder, where it finds the fake worker.
        (self.folder / "bin").mkdir()
        shutil.copy(HEADROOM, self.folder / "bin/headroom")
        shutil.copy(FAKE_WORKER, self.folder / "bin/headroom-worker")
        (self.folder / "images").mkdir()
        (self.folder / "data.yaml").write_text("train: images\nval: images\nnames: [a]\n")
        self.run_folder = self.folder / "runs/train/exp"

    def program(self, name, text):
        file = self.folder / name
        file.write_text(text)
        file.chmod(file.stat().st_mode | stat.S_IXUSR)
        return ["--on-event", "./" + name]

    def start(self, *words, headroom=None, **environment):
        if headroom is None:  # the fake worker does not make the run's folder
            (self.run_folder / "weights").mkdir(parents=True)
            words = ["--data", "data.yaml", "--cfg", "yolov5n", "--noautoanchor", "--exist-ok", *words]
        return subprocess.Popen([headroom or self.folder / "bin/headroom", "train", "--page", "off", *words],
                                cwd=self.folder, env={**CLEAN, **environment}, stdout=subprocess.DEVNULL,
                                stderr=subprocess.PIPE, text=True)

    def finish(self, process, code=0):
        said = process.communicate(timeout=100)[1]
        self.assertEqual(process.returncode, code, said)
        return said

    def real(self, *words, **environment):
        """Starts a real training of three steps."""
        return self.start("--synthetic-input", "--cfg", "yolov5n", "--img", "64", "--batch", "4", "--threads", "1",
                          "--device", "cpu", "--max-steps", "3", "--noval", "--noplots", "--processes", "1", *words,
                          headroom=HEADROOM, **environment)

    def kept(self):
        return [json.loads(line) for line in (self.folder / "kept.jsonl").read_text().splitlines()]

    def test_a_program_gets_the_start_the_events_and_the_end_of_a_run(self):
        keeps = self.program("keeps.sh", KEEPS)
        self.finish(self.real(*keeps))
        start, *events, end = self.kept()
        self.assertEqual({key: start[key] for key in ("event", "run", "folder", "resumed", "events_from")},
                         {"event": "run_start", "run": "exp", "folder": str(self.run_folder), "resumed": False,
                          "events_from": 0})
        self.assertEqual((start["config"]["global_batch_size"], start["config"]["hyp.lr0"]), ("4", "0.01"))
        written = [json.loads(line) for line in (self.run_folder / "events.jsonl").read_text().splitlines()]
        self.assertEqual([event for event in events if event["event"] != "progress"], written)
        progress = [event for event in events if event["event"] == "progress"][-1]
        self.assertEqual((progress["step"], sorted(progress["metrics"])),
                         (3, ["box_loss", "cls_loss", "images_per_second", "obj_loss"]))
        self.assertEqual((end["event"], end["exit_code"], end["dropped"]), ("run_end", 0, 0))
        self.assertEqual(end["reason"], written[-1]["reason"])
        self.assertNotIn("on_event", (self.run_folder / "run.yaml").read_text())
        # On resume --on-event must be given again, and the program gets only new events.
        (self.folder / "kept.jsonl").unlink()
        self.finish(self.start("--resume", "runs/train/exp", "--max-steps", "4", headroom=HEADROOM))
        self.assertFalse((self.folder / "kept.jsonl").exists())
        self.finish(self.start("--resume", "runs/train/exp", "--max-steps", "5", *keeps, headroom=HEADROOM))
        start, *events, end = self.kept()
        written = (self.run_folder / "events.jsonl").read_text()
        self.assertTrue(start["resumed"])
        self.assertEqual([event for event in events if event["event"] != "progress"],
                         [json.loads(line) for line in written[start["events_from"]:].splitlines()])

    def test_programs_that_fail_end_nothing_and_are_said(self):
        programs = [
            *self.program("dies.sh", "#!/bin/sh\necho 'cannot go on' >&2\nexit 3\n"),
            *self.program("closes.sh", "#!/bin/sh\nexec <&-\nexit 0\n"),
            *self.program("crashes.sh", "#!/bin/sh\nread line\nkill -SEGV $$\n"),
            *self.program("floods.sh", "#!/bin/sh\ncat >/dev/null &\nyes 'much to say' >&2\n"),
            *self.program("sleeps.sh", "#!/bin/sh\ntrap '' TERM\nwhile :; do sleep 1; done\n"),
            *self.program("keeps.sh", KEEPS)]
        process = self.start(*programs)
        begin = time.monotonic()
        said = self.finish(process)
        self.assertLess(time.monotonic() - begin, 30)
        self.assertIn("warning: --on-event ./dies.sh ended with exit code 3 (cannot go on): training goes on without it",
                      said)
        self.assertIn("--on-event ./crashes.sh ended with exit code 139", said)
        for name in ("floods", "sleeps"):
            self.assertIn(f"--on-event ./{name}.sh still runs after the run's end: it is ended", said)
        for name in ("closes", "keeps"):
            self.assertNotIn(name, said)
        self.assertEqual(self.kept()[-1]["event"], "run_end")
        logs = list((self.run_folder / "logs").glob("on-event*.jsonl"))
        self.assertLess(sum(file.stat().st_size for file in logs), 40 << 20)
        text = "".join(file.read_text() for file in logs)
        self.assertIn('"process": "--on-event ./floods.sh"', text.replace('":"', '": "'))
        self.assertEqual(self.left_over(), [])

    def left_over(self):
        """The processes of this test that still run."""
        found = []
        for file in pathlib.Path("/proc").glob("[0-9]*/cwd"):
            try:
                if file.resolve() == self.folder:
                    found.append((file.parent / "cmdline").read_bytes())
            except OSError:
                pass
        return [words for words in found if words]

    def test_what_a_program_leaves_behind_delays_no_end(self):
        holds = self.program("holds.sh", "#!/bin/sh\nexec 3<&0\nsleep 90 <&3 &\necho $! > left\n"
                             "exec 3<&-\nexec cat > kept.jsonl\n")
        writes = self.program("writes.sh", "#!/bin/sh\nyes >&2 &\nexec cat > /dev/null\n")
        begin = time.monotonic()
        try:
            said = self.finish(self.start(*holds, *writes))
            self.assertLess(time.monotonic() - begin, 20)
            self.assertNotIn("still runs", said)
            self.assertEqual(self.kept()[-1]["event"], "run_end")
            self.assertEqual(self.left_over(), [b"sleep\x0090\0"])
        finally:
            os.kill(int((self.folder / "left").read_text()), signal.SIGKILL)

    def test_programs_get_the_environment_from_before_a_launcher(self):
        (self.folder / "bin").rename(self.folder / "libexec")
        (self.folder / "bin").mkdir()
        shutil.copy(ROOT / "deploy/bundle/launcher.sh", self.folder / "bin/headroom")
        for library in ("lib/some.so", "site/torch/lib/libtorch_cpu.so", "tools/python3"):
            (self.folder / library).parent.mkdir(parents=True)
        (self.folder / "site/torch/lib/libtorch_cpu.so").touch()
        shows = "#!/bin/sh\nenv > $(basename $0).txt\nexec cat > /dev/null\n"
        self.program("tools/python3", shows)
        words = [*self.program("shows.sh", shows), "--mlflow", "http://127.0.0.1:1"]
        for before in ({}, {"LD_LIBRARY_PATH": "/theirs"}):
            shutil.rmtree(self.run_folder, ignore_errors=True)
            self.finish(self.start(*words, PATH=f"{self.folder / 'tools'}:{CLEAN['PATH']}",
                                   HEADROOM_PIP_LIBTORCH=str(self.folder / "site"), **before))
            for program in ("shows.sh", "python3"):
                lines = (self.folder / f"{program}.txt").read_text().splitlines()
                self.assertEqual([line for line in lines if line.startswith("LD_LIBRARY_PATH=")],
                                 [f"LD_LIBRARY_PATH={path}" for path in before.values()])
                ours = [line for line in lines if line.startswith("HEADROOM_") and "MLFLOW" not in line]
                self.assertEqual(ours, [])

    def test_a_program_that_reads_too_slowly_loses_events_and_not_the_end(self):
        slow = self.program("slow.sh", "#!/bin/sh\nwhile [ ! -e go ]; do sleep 0.1; done\nexec cat > kept.jsonl\n")
        process = self.start(*slow, FAKE_WORKER="talk")
        events = self.run_folder / "events.jsonl"
        self.wait_for(events.exists)
        # The fake worker does not write run.yaml.
        (self.folder / "run.yaml").write_text("epochs: 3\n")
        (self.folder / "run.yaml").rename(self.run_folder / "run.yaml")
        self.wait_for(lambda: events.read_text().count('"picture"') == 200)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        time.sleep(0.5)
        (self.folder / "go").touch()
        said = self.finish(process, 130)
        dropped = int(re.search(r"--on-event ./slow.sh reads too slowly: (\d+) events were dropped", said)[1])
        self.assertEqual(said.count("too slowly"), 1)
        self.assertGreater(dropped, 50)
        self.assertLess(dropped, 190)
        start, *passed, end = self.kept()
        self.assertEqual(start["config"]["epochs"], "3")
        self.assertEqual((start["event"], end["event"], end["dropped"]), ("run_start", "run_end", dropped))
        written = [json.loads(line) for line in events.read_text().splitlines()]
        passed = [event for event in passed if event["event"] != "progress"]
        self.assertEqual(len(passed) + dropped, len(written))
        # The oldest of the waiting events are dropped. The pipe already has some older ones.
        pictures = [event for event in written if event["event"] == "picture"]
        self.assertIn(pictures[-1], passed)
        self.assertIn(pictures[0], passed)

    def wait_for(self, condition, seconds=30):
        deadline = time.monotonic() + seconds
        while not condition():
            self.assertLess(time.monotonic(), deadline, "it did not happen")
            time.sleep(0.02)

    def test_a_further_interrupt_ends_the_wait(self):
        process = self.start(*self.program("sleeps.sh", "#!/bin/sh\nsleep 100\n"), FAKE_WORKER="slow")
        self.wait_for(lambda: "committed" in process.stderr.readline())
        begin = time.monotonic()
        process.send_signal(signal.SIGINT)
        self.wait_for(lambda: "interrupted after step 3" in process.stderr.readline())
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        self.finish(process, 130)
        self.assertLess(time.monotonic() - begin, 8)

    def test_hostile_servers_cost_no_run(self):
        for mlflow, webhook in (("headers", "status line"), ("status line", "silence"), ("drip", "headers"), ("body", "continue"), ("continue", "body")):
            with self.subTest(mlflow=mlflow, webhook=webhook):
                shutil.rmtree(self.folder / "runs", ignore_errors=True)
                hostile = [servers.Hostile(kind) for kind in (mlflow, webhook)]
                for server in hostile:
                    self.addCleanup(server.stop)
                process = self.real("--mlflow", hostile[0].address, "--webhook",
                                    hostile[1].address + "/services/secret")
                is_seen = False
                while process.poll() is None and not is_seen:
                    lines = self.left_over()
                    is_seen = any(b"notify\0webhook" in line for line in lines)
                    time.sleep(0.01)
                self.assertTrue(is_seen)
                shown = [line for line in lines if b"secret" in line and b"--webhook" not in line]
                self.assertEqual(shown, [], "the list of processes shows a secret")
                said = self.finish(process)
                self.assertIn(f"warning: MLflow at {hostile[0].address} has not got the parameters, ", said)
                self.assertIn(f"warning: the webhook at {hostile[1].address} has not got 1 message", said)
                self.assertNotIn("secret", said)
                self.assertEqual(len((self.run_folder / "steps.jsonl").read_text().splitlines()), 3)

    def test_the_flags_reach_their_services(self):
        mlflow, webhook = servers.Mlflow(), servers.Server()
        self.addCleanup(mlflow.stop)
        self.addCleanup(webhook.stop)
        said = self.finish(self.real("--mlflow", mlflow.address + "/", "--mlflow-experiment", "mine", "--webhook",
                                     webhook.address))
        self.assertIn(f"MLflow: {mlflow.address}/#/experiments/7/runs/run1\n", said)
        run = mlflow.only_run()
        self.assertEqual((run["name"], run["status"], run["params"]["global_batch_size"]), ("exp", "FINISHED", "4"))
        self.assertEqual(mlflow.experiments, {"mine"})
        self.assertEqual([body["event"] for body in webhook.bodies()], ["run_over"])
        self.assertEqual(json.loads((self.run_folder / "mlflow.json").read_text())["run_id"], "run1")
        said = self.finish(self.start("--resume", "runs/train/exp", "--max-steps", "4", headroom=HEADROOM))
        self.assertIn("give --mlflow URI to go on there", said)


if __name__ == "__main__":
    unittest.main()
