"""Tests headroom notify webhook and trainjob with servers on loopback, and which of their flags are refused.

    services_test.py HEADROOM [NAME OF A TEST ...]
"""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True
import servers

HEADROOM = pathlib.Path(sys.argv.pop(1)).resolve()
CLEAN = {name: value for name, value in os.environ.items()
         if not name.startswith(("MLFLOW_", "KUBEFLOW_", "SSL_CERT"))}
START = {"event": "run_start", "run": "exp3", "folder": "/runs/exp3", "resumed": False, "config": {}}


def event(kind, step=0, **more):
    return {"event": kind, "step": step, "rank": 0, "reason": "it <happened>", "time": "t", **more}


def end(code=5, reason="no worker is left"):
    return {"event": "run_end", "exit_code": code, "reason": reason, "dropped": 0, "seconds": 10}


def peak_mebibytes(pid):
    status = pathlib.Path("/proc/{}/status".format(pid)).read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


class ServicesTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)

    def serve(self, server):
        self.addCleanup(server.stop)
        return server

    def program(self, service, **environment):
        process = subprocess.Popen([HEADROOM, "notify", service], stdin=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True, bufsize=1, env={**CLEAN, **environment})
        self.addCleanup(process.__exit__, None, None, None)
        self.addCleanup(process.kill)
        return process

    def webhook(self, address):
        return self.program("webhook", HEADROOM_WEBHOOK=address)

    @staticmethod
    def tell(process, *lines):
        for line in lines:
            process.stdin.write(json.dumps(line) + "\n")

    def finish(self, process, *lines):
        """Writes the lines to the program and closes its input; returns the lines that it prints until its end."""
        self.tell(process, *lines)
        said = process.communicate(timeout=30)[1].splitlines()
        self.assertEqual(process.returncode, 0, said)
        return said

    def wait_for(self, condition, seconds=15):
        deadline = time.monotonic() + seconds
        while not condition():
            self.assertLess(time.monotonic(), deadline, "it did not happen")
            time.sleep(0.02)

    def certificates(self, name="certs", host="trainer.example"):
        folder = self.folder / name
        subprocess.run([HEADROOM, "coordinator", "--init-certs", folder, "--cert-names", host], check=True,
                       stdout=subprocess.DEVNULL)
        return folder

    # --- The webhook

    def test_faults_and_the_end_arrive_in_their_order_one_a_second(self):
        server = self.serve(servers.Server())
        process = self.webhook(server.address + "/services/secret")
        self.tell(process, START, event("epoch", 2), event("out_of_memory", 3, change="the step is tried again"),
                  event("out_of_memory", 4, change="from now on lean"), event("loss_of_process", 5),
                  event("loss_of_process", 6))
        self.wait_for(lambda: server.requests)
        time.sleep(0.5)
        self.assertEqual(len(server.requests), 1)
        begin = time.monotonic()
        # Once the run has ended, the waiting messages are sent without pauses.
        self.assertEqual(self.finish(process, {"event": "epoch"}, end()), [])
        self.assertLess(time.monotonic() - begin, 1)
        self.assertEqual({path for path, _, _ in server.requests}, {"/services/secret"})
        self.assertEqual(server.bodies()[0], {
            "event": "out_of_memory", "run": "exp3", "step": 4, "reason": "it <happened>", "time": "t",
            "text": "exp3, step 4: it <happened>"})
        self.assertEqual([body["event"] for body in server.bodies()[1:]],
                         ["loss_of_process", "loss_of_process", "run_over"])
        self.assertEqual((server.bodies()[-1]["reason"], server.bodies()[-1]["step"]), ("no worker is left", 6))

    def test_a_message_that_is_refused_for_good_is_dropped_and_reported_once(self):
        server = self.serve(servers.Server())
        server.fault = lambda *_: (410, b'{"message": "no such channel"}')
        process = self.webhook(server.address)
        self.tell(process, START, event("loss_of_process"), event("loss_of_process"))
        self.assertRegex(process.stderr.readline(), r"refuses a message, which is dropped \(HTTP 410: no such channel\)")
        time.sleep(1.5)  # the second message is sent one second later
        server.fault = None
        self.assertEqual(self.finish(process, end()), ["webhook: 2 messages were refused and dropped"])
        self.assertEqual(len(server.requests), 1)

    def test_other_refusals_are_repeated_and_no_secret_is_shown(self):
        for status in (401, 403, 408, 429, 500, 302):
            with self.subTest(status):
                server = self.serve(servers.Server())
                server.fault = lambda *_, status=status: (
                    status, b"", {"Location": "https://login.example/secret", "Retry-After": "1"})
                process = self.webhook(server.address + "/services/secret")
                self.tell(process, START, event("loss_of_process"))
                first = process.stderr.readline()
                self.assertIn(f"warning: the webhook at {server.address} does not answer as it should (HTTP {status}",
                              first)
                self.tell(process, end())
                time.sleep(0.2)
                process.send_signal(signal.SIGTERM)
                last = process.communicate(timeout=30)[1]
                self.assertIn(f"warning: the webhook at {server.address} has not got 2 messages (HTTP {status}", last)
                self.assertNotIn("secret", first + last)

    def test_a_full_queue_drops_the_oldest_and_counts_them(self):
        server = self.serve(servers.Server())
        server.fault = lambda *_: (503, b"")
        process = self.webhook(server.address)
        self.tell(process, START, *[event("loss_of_process", step) for step in range(107)])
        self.assertIn("does not answer", process.stderr.readline())
        server.fault = None
        said = self.finish(process, end())
        self.assertEqual(said, [f"the webhook at {server.address} is back",
                                "webhook: 8 messages more than the queue holds were dropped"])
        self.assertEqual([body["step"] for body in server.bodies()], [*range(8, 107), 106])
        self.assertEqual(server.bodies()[-1]["event"], "run_over")

    def test_what_a_hostile_server_sends_ends_nothing(self):
        for kind in servers.Hostile.KINDS:
            with self.subTest(kind):
                process = self.webhook(self.serve(servers.Hostile(kind)).address)
                self.tell(process, START, event("loss_of_process"), end())
                if kind in ("status line", "headers", "continue"):
                    self.assertIn("an answer that is no HTTP", process.stderr.readline())
                elif kind == "body":
                    self.assertIn("HTTP 500", process.stderr.readline())
                else:
                    time.sleep(0.5)
                # Most of this memory is the program itself.
                self.assertLess(peak_mebibytes(process.pid), 64)
                process.send_signal(signal.SIGTERM)
                self.assertIn("has not got 2 messages", process.communicate(timeout=30)[1])
                self.assertEqual(process.returncode, 0)

    def test_answers_that_are_read_to_the_end_of_their_head(self):
        early, no_http = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", "(an answer that is no HTTP)"
        for answer, fault in (
                (b"HTTP/1.1 204\r\n\r\n", None),
                (b"HTTP/1.0 200 \r\nContent-Length: 9\r\n\r\n", None),
                (early + b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", None),
                (early, no_http),
                (early * 2000, no_http),
                (b"HTTP/1.1 200 OK\r\nLink: </a>", no_http),
                (b"HTTP/1.1 2000\r\n\r\n", no_http),
                (b"HTTP/1.1-200 OK\r\n\r\n", no_http),
                (b"HTTP/1.\r\n\r\n", no_http),
                (b"", "(no answer)"),
                (b"HTTP/1.1 101 Switching Protocols\r\n\r\n", "(HTTP 101)"),
                (b"HTTP/1.1 503 Busy\r\nTransfer-Encoding: chunked\r\n\r\n14\r\n{\"message\": \"wait\"}\r\n0\r\n\r\n",
                 "(HTTP 503: wait)"),
                (b"HTTP/1.1 503\r\n\r\n" + b"x" * 200_000, "(HTTP 503)")):
            with self.subTest(answer[:50]):
                server = self.serve(servers.Fixed(answer))
                process = self.webhook(server.address)
                if fault is None:
                    self.assertEqual(self.finish(process, START, end()), [])
                    self.assertEqual(server.requests, 1)
                else:
                    self.tell(process, START, event("loss_of_process"))
                    self.assertIn(fault, process.stderr.readline())

    def test_a_server_that_asks_for_a_long_pause_gets_one(self):
        server = self.serve(servers.Fixed(b"HTTP/1.1 429 Slow\r\nRetry-After: 3600 \r\n\r\n"))
        process = self.webhook(server.address)
        self.tell(process, START, event("loss_of_process"))
        self.assertIn("HTTP 429", process.stderr.readline())
        time.sleep(2.5)
        self.assertEqual(server.requests, 1)

    def test_a_server_of_ipv6_gets_the_message(self):
        try:
            server = self.serve(servers.Fixed(b"HTTP/1.1 200 OK\r\n\r\n", host="::1"))
        except OSError:
            self.skipTest("this machine has no IPv6")
        self.assertEqual(self.finish(self.webhook(server.address), START, end()), [])
        self.assertEqual(server.requests, 1)
        # This address is on another machine, in a network that does not exist.
        process = self.webhook(server.address.replace("::1", "2001:db8::1"))
        self.tell(process, START, event("loss_of_process"))
        self.assertIn("no connection", process.stderr.readline())
        self.assertEqual(server.requests, 1)

    def test_it_ends_with_the_process_of_the_run(self):
        process = self.webhook("http://127.0.0.1:1")
        self.tell(process, START, event("loss_of_process"))
        self.assertIn("no connection", process.stderr.readline())
        process.stdin.close()
        self.assertEqual(process.wait(timeout=10), 0)

    def test_certificates_are_checked_for_the_name_and_the_authority(self):
        certificates = self.certificates(host="ml.example")
        server = self.serve(servers.Server(certificates, host="0.0.0.0"))
        other = self.serve(servers.Server())
        known = {"SSL_CERT_FILE": str(certificates / "ca.pem")}
        for address, environment, fault in (
                (server.address, {}, "certificate is not valid"),
                (server.address, known, None),
                (server.address + "?x=1", known, None),
                (server.address.replace("127.0.0.1", "127.0.0.2"), known, "certificate is not valid"),
                (server.address.replace("https", "http"), {}, "no answer"),
                (other.address.replace("http", "https"), {}, "no TLS connection"),
                ("http://127.0.0.1:1", {}, "no connection"),
                ("https://no-such-name.invalid", {}, "no connection")):
            with self.subTest(address=address, **environment):
                process = self.program("webhook", HEADROOM_WEBHOOK=address, **environment)
                if fault is None:
                    self.assertEqual(self.finish(process, START, end()), [])
                else:
                    self.tell(process, START, event("loss_of_process"))
                    self.assertIn(fault, process.stderr.readline())
        self.assertEqual([path for path, _, _ in server.requests], ["/", "/?x=1"])

    # --- The TrainJob

    def trainjob(self, server, certificates, **other):
        (self.folder / "token").write_text("first\n")
        return {"KUBEFLOW_TRAINER_SERVER_URL": server.address + "/apis/trainjobs/mine/status",
                "KUBEFLOW_TRAINER_SERVER_CA_CERT": str(certificates / "ca.pem"),
                "KUBEFLOW_TRAINER_SERVER_TOKEN": str(self.folder / "token"), **other}

    @staticmethod
    def progress(step, num_steps=200):
        return {"event": "progress", "step": step, "num_steps": num_steps, "epoch": 1, "num_epochs": 10,
                "metrics": {"box_loss": 0.0412, "obj_loss": None}}

    def test_progress_and_the_end_are_posted_with_the_present_token(self):
        certificates = self.certificates()
        server = self.serve(servers.Server(certificates))
        process = self.program("trainjob", **self.trainjob(server, certificates))
        self.tell(process, START, self.progress(30))
        self.wait_for(lambda: server.requests)
        path, headers, body = server.requests[0]
        status = body["trainerStatus"]
        self.assertEqual((path, headers["Content-Type"], headers["Authorization"]),
                         ("/apis/trainjobs/mine/status", "application/json", "Bearer first"))
        self.assertEqual(list(body), ["trainerStatus"])
        self.assertEqual(status["progressPercentage"], 15)
        self.assertNotIn("estimatedRemainingSeconds", status)  # the pace is not known yet
        self.assertEqual(status["metrics"], [
            {"name": "current_epoch", "value": "2"}, {"name": "total_epochs", "value": "10"},
            {"name": "current_step", "value": "30"}, {"name": "total_steps", "value": "200"},
            {"name": "box_loss", "value": "0.0412"}])
        self.assertRegex(status["lastUpdatedTime"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
        (self.folder / "token").write_text("second\n")
        self.tell(process, self.progress(199))
        self.wait_for(lambda: len(server.requests) == 2)
        status = server.bodies()[1]["trainerStatus"]
        self.assertEqual(status["progressPercentage"], 99)
        self.assertIn("estimatedRemainingSeconds", status)
        self.assertEqual(self.finish(process, end(0, "all done")), [])
        status = server.bodies()[2]["trainerStatus"]
        self.assertEqual((status["progressPercentage"], status["estimatedRemainingSeconds"]), (100, 0))
        self.assertEqual(server.requests[2][1]["Authorization"], "Bearer second")

    def test_a_run_that_stops_early_is_not_done(self):
        certificates = self.certificates()
        server = self.serve(servers.Server(certificates))
        process = self.program("trainjob", **self.trainjob(server, certificates))
        self.assertEqual(self.finish(process, START, self.progress(30), end(130)), [])
        status = server.bodies()[-1]["trainerStatus"]
        self.assertEqual(status["progressPercentage"], 15)
        self.assertNotIn("estimatedRemainingSeconds", status)

    def test_a_server_that_hangs_costs_the_end_3_seconds(self):
        certificates = self.certificates()
        server = self.serve(servers.Server(certificates))
        server.fault = lambda *_: time.sleep(6)
        process = self.program("trainjob", **self.trainjob(server, certificates))
        begin = time.monotonic()
        said = self.finish(process, START, self.progress(30), end(0))
        self.assertLess(time.monotonic() - begin, 4.5)
        self.assertIn("has not got the run's last progress (no answer within 3s)", said[-1])

    def test_another_authority_and_a_lost_token_are_reported(self):
        certificates = self.certificates()
        server = self.serve(servers.Server(certificates))
        for text, says in ((None, "token holds no token"), ("a b", "token holds no token"),
                           ("first", "certificate is not valid")):
            environment = self.trainjob(server, certificates)
            if text is None:
                (self.folder / "token").unlink()
            else:
                (self.folder / "token").write_text(text)
            if text == "first":
                shutil.copy(self.certificates("other", "localhost") / "ca.pem", certificates / "ca.pem")
            process = self.program("trainjob", **environment)
            self.tell(process, START, self.progress(30))
            self.assertIn(says, process.stderr.readline())
        self.assertEqual(server.requests, [])

    # --- Flags that headroom train refuses, and flags for which it only warns

    def refusal(self, *words, **environment):
        done = subprocess.run([HEADROOM, "train", "--synthetic-input", "--cfg", "yolov5n", "--img", "64", *words],
                              cwd=self.folder, env={**CLEAN, **environment}, stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True, timeout=60)
        self.assertEqual(done.returncode, 2, done.stderr)
        return done.stderr

    def test_an_invalid_address_is_refused_without_its_text(self):
        for address in ("ml.example", "ftp://ml.example", "https://", "https://:80", "https://name:hunter2@ml.example",
                        "https://ml.example:99999", "https://ml.example/a b", "https://ml.example:x", "https://[",
                        "https://]", "https://[]", "https://[::1", "https://::1", "https://[::1]x", "https://[::1]x:80",
                        "https://[::1]:", "https://[::1%lo]", "https://[ml.example]", "https://ml]example:80"):
            for flag in ("--mlflow", "--webhook"):
                said = self.refusal(flag, address)
                self.assertRegex(said, r"\A\[command line\] " + flag + r": (the|an) address.*\n\Z")
                self.assertNotIn("hunter2", said)
        self.assertIn("MLflow's interface cannot stand behind", self.refusal("--mlflow", "https://ml.example?x=1"))
        self.assertIn("counts with --mlflow alone", self.refusal("--mlflow-experiment", "x"))

    def test_credentials_never_travel_in_the_clear_beyond_loopback(self):
        far = ("--mlflow", "http://10.0.0.7:5000")
        said = self.refusal(*far, MLFLOW_TRACKING_TOKEN="hunter2")
        self.assertIn("MLFLOW_TRACKING_TOKEN is set, but http://10.0.0.7:5000 is plain HTTP", said)
        self.assertNotIn("hunter2", said)
        self.assertIn("MLFLOW_TRACKING_USERNAME is set", self.refusal(*far, MLFLOW_TRACKING_USERNAME="me"))
        said = self.refusal("--mlflow", "https://ml.example", MLFLOW_TRACKING_TOKEN="hunter2\r\nX: y")
        self.assertIn("has a character that no token may have", said)
        self.assertNotIn("hunter2", said)

    def test_mlflow_without_python_says_what_is_missing(self):
        self.assertIn("--mlflow needs python3, which is not in PATH: install Python 3.6",
                      self.refusal("--mlflow", "http://127.0.0.1:5000", PATH=str(self.folder)))

    def test_half_an_environment_of_a_trainjob_is_a_warning(self):
        whole = {"KUBEFLOW_TRAINER_SERVER_URL": "https://trainer:8082/x", "KUBEFLOW_TRAINER_SERVER_CA_CERT": "ca.pem",
                 "KUBEFLOW_TRAINER_SERVER_TOKEN": "token"}
        for changed, says in (({"KUBEFLOW_TRAINER_SERVER_CA_CERT": ""}, "CA_CERT is not set"),
                              ({"KUBEFLOW_TRAINER_SERVER_TOKEN": ""}, "TOKEN is not set"),
                              ({"KUBEFLOW_TRAINER_SERVER_URL": "http://trainer.kubeflow:8082/x"}, "is plain HTTP")):
            said = self.refusal("--on-event", "no-such-program", **{**whole, **changed})
            self.assertIn("warning: Kubeflow Trainer is not told of the progress: ", said)
            self.assertIn(says, said)

    def test_a_program_that_cannot_be_started_is_refused(self):
        (self.folder / "plain.txt").write_text("text")
        for name, says in (("no-such-program", "there is no such program"), ("./no/such", "there is no such program"),
                           ("./", "there is no such program"), ("./plain.txt", "may not be executed: chmod +x")):
            self.assertIn(f"--on-event {name}: ", self.refusal("--on-event", name))
            self.assertIn(says, self.refusal("--on-event", name))
        self.assertIn("is named twice", self.refusal("--on-event", "cat", "--on-event", "cat"))


if __name__ == "__main__":
    unittest.main()
