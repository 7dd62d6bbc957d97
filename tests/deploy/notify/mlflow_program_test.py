"""Tests deploy/notify/mlflow.py with a server on loopback: nothing is lost or sent twice, whatever the server does.

    mlflow_program_test.py [NAME OF A TEST ...]
"""

import contextlib
import io
import json
import os
import pathlib
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import tracemalloc
import unittest
import unittest.mock

ROOT = pathlib.Path(__file__).resolve().parents[3]
PROGRAM = ROOT / "deploy/notify/mlflow.py"
sys.path[:0] = [str(PROGRAM.parent)]
sys.dont_write_bytecode = True
import mlflow
import servers

COLUMNS = "epoch,train/box_loss,metrics/mAP_0.5:0.95,val/box_loss\n"
TWO_EPOCHS = ["0,0.5,0.25,", "1,0.25,0.5,1"]
END = {"event": "run_end", "exit_code": 0, "reason": "all 8 steps done", "seconds": 5}


class MlflowTest(unittest.TestCase):
    def setUp(self):
        self.server = servers.Mlflow()
        self.addCleanup(self.server.stop)
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)
        self.write_epochs(TWO_EPOCHS)
        self.said = io.StringIO()

    def write(self, name, text):
        (self.folder / name).parent.mkdir(exist_ok=True)
        (self.folder / name).write_text(text)

    def write_epochs(self, lines):
        self.write("results.csv", COLUMNS + "".join(line + "\n" for line in lines))
        self.write("events.jsonl", "".join(
            json.dumps({"event": "epoch", "step": 4, "time": f"1970-01-01T00:00:0{epoch}.500Z", "epoch": epoch}) + "\n"
            for epoch in range(len(lines))))

    def start(self, resumed=False):
        return {"event": "run_start", "run": "exp3", "folder": str(self.folder), "resumed": resumed, "events_from": 0,
                "config": {"data": "shapes.yaml", "epochs": "9"}}

    def run_of(self, resumed=False, experiment="shapes & more"):
        with contextlib.redirect_stdout(self.said):
            return mlflow.Run(mlflow.Client(self.server.address, "Bearer secret"), self.server.address, experiment,
                              self.start(resumed))

    def advance(self, run, end=None):
        """Sends what is new; returns the lines that this prints."""
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            run.advance(end)
        return said.getvalue().splitlines()

    def fails(self, run, end=None):
        """Expects that the delivery fails; returns the reason."""
        with self.assertRaises(mlflow.Undelivered) as failure:
            self.advance(run, end)
        return str(failure.exception)

    def expect_all_of_two_epochs(self):
        self.assertEqual(self.server.values("train/box_loss"), [(0, 0.5), (1, 0.25)])
        self.assertEqual(self.server.values("metrics/mAP_0.5-0.95"), [(0, 0.25), (1, 0.5)])
        self.assertEqual(self.server.values("val/box_loss"), [(1, 1)])
        self.assertEqual(self.server.only_run()["params"]["data"], "shapes.yaml")

    def limit(self, seconds):
        mlflow.REQUEST_LIMIT, before = seconds, mlflow.REQUEST_LIMIT
        self.addCleanup(setattr, mlflow, "REQUEST_LIMIT", before)

    def test_all_of_a_run_arrives(self):
        run = self.run_of()
        self.write("weights/best.safetensors", "w" * 300_000)
        self.assertRegex(self.advance(run)[0], "/#/experiments/7/runs/run1$")
        self.expect_all_of_two_epochs()
        found = self.server.only_run()
        self.assertIn(("train/box_loss", 1, 1500), found["metrics"])
        self.assertEqual((found["status"], found["name"]), ("RUNNING", "exp3"))
        self.write("results.png", "png")
        self.assertEqual(run.left(END), "the end's state, results.png")
        self.advance(run, END)
        self.assertEqual(run.left(END), "")
        self.assertEqual(found["status"], "FINISHED")
        self.assertEqual(found["tags"]["headroom.end"], "all 8 steps done")
        self.assertEqual(found["tags"]["headroom.processes_lost"], "0")
        self.assertEqual(self.server.artifacts,
                         {"7/run1/best.safetensors": b"w" * 300_000, "7/run1/results.png": b"png"})
        self.assertEqual(self.server.authorizations, {"Bearer secret"})

    def test_a_name_and_a_password_may_have_any_bytes(self):
        names = {"MLFLOW_TRACKING_USERNAME": os.fsdecode(b"\xff"), "MLFLOW_TRACKING_PASSWORD": "x"}
        with unittest.mock.patch.dict(os.environ, names):
            self.assertEqual(mlflow.Follower.authorization(), "Basic /zp4")

    def test_an_experiment_may_have_any_bytes(self):
        program = self.program(self.server.address, HEADROOM_MLFLOW_EXPERIMENT=os.fsdecode(b"\xff"))
        said = program.communicate(json.dumps(self.start()) + "\n" + json.dumps(END) + "\n", timeout=30)[0]
        self.assertEqual((program.returncode, self.server.experiments), (0, {"\ufffd"}), said)

    def test_a_name_that_cannot_be_looked_up_is_no_connection(self):
        client = mlflow.Client("http://ml..example", "")
        with self.assertRaisesRegex(mlflow.Undelivered, "^no connection$"):
            client.send("GET", "/", b"", 5, False)

    def test_exit_codes_are_states(self):
        for code, state in ((0, "FINISHED"), (5, "FAILED"), (130, "KILLED")):
            self.server.runs.clear()
            self.advance(self.run_of(), dict(END, exit_code=code))
            self.assertEqual(self.server.only_run()["status"], state)

    def test_events_are_tags_and_no_number_is_a_text(self):
        self.write_epochs(["0,nan,-inf,"])
        with open(self.folder / "events.jsonl", "a") as events:
            events.write('{"event":"generation","generation":3}\n{"event":"loss_of_process"}\nno JSON\n'
                         '{"event":"out_of_memory"}\n{"event":"out_of_memory"}\n{"event":"loss_of_process"')
        self.advance(self.run_of())
        tags = self.server.only_run()["tags"]
        self.assertEqual([tags["headroom." + key] for key in ("generation", "processes_lost", "out_of_memory_retries")],
                         ["3", "1", "2"])
        self.assertEqual(self.server.values("train/box_loss"), [(0, "NaN")])
        self.assertEqual(self.server.values("metrics/mAP_0.5-0.95"), [(0, "-Infinity")])

    def test_no_fault_of_the_server_loses_anything(self):
        """Each fault begins at the first request, then at the second, and so on. All later requests fail too."""
        for status, body, says in (
                (500, b"", "HTTP 500"), (429, b"", "HTTP 429"), (403, b"", "HTTP 403, access denied"),
                (200, b"<html><body>log in</body></html>", "not MLflow's"),
                (200, b'\x1b[31m\xff{"run":', "not MLflow's"),
                (200, b'{"run":[1],"experiment":"x"}', "not MLflow's"),
                (200, b"[" * 100_000, "not MLflow's"),
                (302, b"", "a redirect to https://login.example, which")):
            with self.subTest(status=status, body=body[:40]):
                self.server.runs.clear()
                self.server.experiments.clear()
                run = self.run_of()
                for spared in range(6):
                    requests = []

                    def fault(*what, requests=requests, spared=spared, status=status, body=body):
                        requests.append(what)
                        if len(requests) <= spared:
                            return None
                        return status, body, {"Location": "https://login.example/a?secret=1", "Retry-After": "17"}

                    self.server.fault = fault
                    try:
                        self.advance(run)
                    except mlflow.Undelivered as failure:
                        self.assertIn(says, str(failure))
                        self.assertEqual(failure.pause, 17 if status in (429, 403, 500) else 0)
                    self.server.fault = None
                self.advance(run)
                self.assertEqual(run.left(None), "")
                self.expect_all_of_two_epochs()

    def test_a_lost_reply_creates_nothing_twice(self):
        run = self.run_of()
        self.server.loses_answers = True
        for _ in range(3):
            self.fails(run)
        self.server.loses_answers = False
        self.advance(run)
        self.write_epochs([*TWO_EPOCHS, "2,0.125,,"])
        self.server.loses_answers = True
        self.fails(run)
        self.server.loses_answers = False
        self.advance(run)
        self.assertEqual(self.server.values("train/box_loss"), [(0, 0.5), (1, 0.25), (2, 0.125)])

    def test_the_time_and_size_of_an_answer_are_limited(self):
        self.limit(0.3)
        for kind, says in (("silence", "no answer within 0.3s"), ("drip", "no answer within 0.3s"),
                           ("status line", "no HTTP"), ("headers", "no HTTP"),
                           ("body", "an answer longer than 1 MiB"), ("continue", "no answer within 0.3s")):
            with self.subTest(kind):
                hostile = servers.Hostile(kind)
                self.addCleanup(hostile.stop)
                run = mlflow.Run(mlflow.Client(hostile.address, ""), hostile.address, "x", self.start())
                begin = time.monotonic()
                self.assertIn(says, self.fails(run))
                self.assertLess(time.monotonic() - begin, 3)
        self.limit(30)
        self.server.fault = lambda *_: (200, b"x" * (mlflow.LONGEST_ANSWER + 1))
        self.assertEqual(self.fails(self.run_of()), "an answer longer than 1 MiB")
        nobody = mlflow.Run(mlflow.Client("http://127.0.0.1:1", ""), "http://127.0.0.1:1", "x", self.start())
        self.assertEqual(self.fails(nobody), "no connection")

    def test_a_redirect_to_no_address_is_a_refusal_too(self):
        self.server.fault = lambda *_: (302, b"", {"Location": "http://["})
        self.assertIn("a redirect to another page, which", self.fails(self.run_of()))

    def test_faults_are_named_with_python_3_6_too(self):
        cases = ((ssl.SSLError(1, "[SSL: CERTIFICATE_VERIFY_FAILED] failed"), "its certificate is not valid"),
                 (ssl.CertificateError("another name"), "its certificate is not valid"),
                 (ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER]"), "no TLS connection"),
                 (ConnectionRefusedError(), "no connection"))
        with unittest.mock.patch.object(ssl, "SSLCertVerificationError"):
            del ssl.SSLCertVerificationError  # exists since Python 3.7
            for error, says in cases:
                with unittest.mock.patch("http.client.HTTPConnection.connect", side_effect=error):
                    self.assertIn(says, self.fails(self.run_of()))

    def test_a_long_list_of_events_is_read_line_by_line(self):
        with open(self.folder / "events.jsonl", "w") as events:
            for _ in range(20):
                events.write('{"event":"loss_of_process"' + " " * 1_000_000 + "}\n")
            events.write('{"event":"loss_of_process"')
        run = self.run_of()
        tracemalloc.start()
        self.addCleanup(tracemalloc.stop)
        run.read_events()
        self.assertLess(tracemalloc.get_traced_memory()[1], 10_000_000)
        run.read_events()
        self.assertEqual(run.losses, 20)

    def test_refused_parameters_delay_nothing(self):
        self.server.fault = lambda method, path, headers, body: (
            (400, b'{"message":"too long"}') if b'"params"' in body else None)
        run = self.run_of()
        self.assertEqual(self.advance(run)[1:], ["MLflow: the server refuses parameters, which are not sent again "
                                                 "(HTTP 400: too long)"])
        self.assertEqual(run.left(None), "")
        self.assertEqual(len(self.server.values("train/box_loss")), 2)
        self.assertEqual(self.advance(run), [])

    def test_a_resumed_run_goes_on_as_the_same(self):
        self.advance(self.run_of(), dict(END, exit_code=130))
        run = self.run_of(resumed=True)
        asked = []
        self.server.fault = lambda method, path, headers, body: asked.append(body)
        self.advance(run)
        self.assertFalse([body for body in asked if b'"metrics"' in body or b'"params"' in body], "nothing is repeated")
        self.assertEqual(self.server.only_run()["status"], "RUNNING")
        self.expect_all_of_two_epochs()
        # The second epoch is trained again, in another layout.
        self.write_epochs([TWO_EPOCHS[0], "1,0.26,0.5,1", "2,0.125,,"])
        self.advance(run)
        self.assertEqual(self.server.values("train/box_loss")[-1], (2, 0.125))
        self.assertEqual(self.server.only_run()["metrics"]["train/box_loss", 1, 1500], 0.26)

    def test_another_run_or_experiment_is_another_run_there(self):
        self.advance(self.run_of())
        self.advance(self.run_of())  # not resumed
        self.assertEqual(len(self.server.runs), 2)
        self.advance(self.run_of(resumed=True, experiment="other"))
        self.assertEqual(len(self.server.runs), 3)
        self.assertIn("MLflow: the run was in experiment shapes & more at " + self.server.address,
                      self.said.getvalue())

    def test_a_run_deleted_on_the_server_is_made_anew(self):
        run = self.run_of()
        self.advance(run)
        self.server.runs.clear()
        self.write_epochs([*TWO_EPOCHS, "2,0.125,,"])
        with contextlib.redirect_stdout(self.said):
            self.assertRaises(mlflow.Undelivered, run.advance, None)
        self.assertEqual(self.said.getvalue(), "MLflow: run run1 is gone there; a new one gets all of it\n")
        self.assertRegex(self.advance(run)[0], "/runs/run2$")
        self.assertEqual(len(self.server.values("train/box_loss")), 3)

    def test_a_server_without_artifacts_is_named(self):
        self.write("results.png", "png")
        # A hostile or broken server may name a path outside of its artifacts; nothing may be written there.
        for root in ("s3://bucket/", "mlflow-artifacts:/../../x?y="):
            self.server.artifact_root = root
            run = self.run_of()
            self.assertIn(root, self.advance(run, END)[1])
            self.assertEqual(run.left(END), "")
        self.assertEqual(self.server.artifacts, {})

    def test_a_damaged_record_means_a_new_run(self):
        for record in ("[", "[]", json.dumps({
                "server": self.server.address, "experiment": "shapes & more", "run_id": "../x", "mark": "a",
                "parameters": "x", "epochs": -3})):
            self.server.runs.clear()
            self.write("mlflow.json", record)
            self.advance(self.run_of(resumed=True))
            self.expect_all_of_two_epochs()

    # --- The whole program

    def program(self, address, *before, **environment):
        process = subprocess.Popen(
            [*before, sys.executable, "-I", str(PROGRAM)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, bufsize=1,
            env={**os.environ, "HEADROOM_MLFLOW": address, "HEADROOM_MLFLOW_EXPERIMENT": "headroom", **environment})
        self.addCleanup(process.__exit__, None, None, None)
        self.addCleanup(process.kill)
        return process

    @staticmethod
    def tell(process, *lines):
        for line in lines:
            process.stdin.write(json.dumps(line) + "\n")

    def test_the_program_sends_a_run_and_ends(self):
        process = self.program(self.server.address, MLFLOW_TRACKING_USERNAME="me", MLFLOW_TRACKING_PASSWORD="hunter2")
        self.tell(process, self.start(), {"event": "epoch"}, END)
        said = process.communicate(timeout=30)[0]
        self.assertEqual((process.returncode, said), (0, f"MLflow: {self.server.address}/#/experiments/7/runs/run1\n"))
        self.assertEqual(self.server.only_run()["status"], "FINISHED")
        self.assertEqual(self.server.authorizations, {"Basic bWU6aHVudGVyMg=="})

    def test_a_lower_limit_of_memory_stays(self):
        process = self.program(self.server.address, "sh", "-c", 'ulimit -d 400000 && exec "$@"', "sh")
        self.tell(process, self.start(), END)
        said = process.communicate(timeout=30)[0]
        self.assertEqual((process.returncode, said), (0, f"MLflow: {self.server.address}/#/experiments/7/runs/run1\n"))

    def test_a_run_that_never_began_is_not_shown(self):
        process = self.program(self.server.address)
        self.tell(process, dict(self.start(), config=None), END)
        self.assertEqual((process.communicate(timeout=30)[0], process.returncode), ("", 0))
        self.assertEqual(self.server.runs, {})

    def test_the_end_comes_before_an_upload_that_it_cut(self):
        is_uploading, is_over = threading.Event(), threading.Event()
        self.addCleanup(is_over.set)

        def fault(method, *_):
            if method != "PUT":
                return None
            is_uploading.set()
            is_over.wait(30)
            return 500, b""

        self.server.fault = fault
        self.write("weights/best.safetensors", "weights")
        process = self.program(self.server.address)
        self.tell(process, self.start())
        self.assertTrue(is_uploading.wait(30))
        self.tell(process, END)
        for _ in range(500):
            if self.server.only_run()["status"] == "FINISHED":
                break
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        said = process.communicate(timeout=30)[0].splitlines()
        self.assertEqual(said[1:], [f"warning: MLflow at {self.server.address} has not got best.safetensors"])
        self.assertEqual(self.server.only_run()["status"], "FINISHED")

    def test_one_line_when_the_server_is_away_one_when_it_is_back_and_one_at_the_end(self):
        self.server.fault = lambda *_: (503, b"")
        process = self.program(self.server.address)
        self.tell(process, self.start())
        name = f"MLflow at {self.server.address}"
        self.assertEqual(process.stdout.readline(), f"warning: {name} does not answer as it should (HTTP 503): "
                         "training goes on, and what it misses follows\n")
        self.server.fault = None
        self.assertRegex(process.stdout.readline(), "/runs/run1$")
        self.assertEqual(process.stdout.readline(), name + " is back\n")
        self.server.fault = lambda *_: (503, b"")
        self.tell(process, END)
        self.assertIn("does not answer", process.stdout.readline())
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.communicate(timeout=30)[0],
                         f"warning: {name} has not got the end's state (HTTP 503)\n")

    def test_it_ends_with_the_process_of_the_run(self):
        process = self.program("http://127.0.0.1:1")
        self.tell(process, self.start())
        process.stdin.close()
        self.assertEqual(process.wait(timeout=30), 0)


if __name__ == "__main__":
    unittest.main()
