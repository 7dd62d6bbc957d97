"""Shows a run in MLflow: the program that `headroom train --mlflow URI` starts.

It follows the run as any program of --on-event does (deploy/cli/event_programs.h),
reads the files of the run's folder, and uses the server's REST interface:

  parameters   the settings of run.yaml, once; a server may refuse some
  metrics      the columns of results.csv, step = epoch, as they appear
  tags         generation, lost processes, out-of-memory retries, the end
  artifacts    results.png and best.safetensors, if the server stores artifacts
               itself (mlflow-artifacts:)
  state        RUNNING, then FINISHED, FAILED or KILLED

mlflow.json in the run's folder stores the MLflow run's id and what has arrived, so
that a resumed run continues it. A message whose answer was lost is sent again with
the same times, which the server treats as the same message. If the answer to the
creation of a run was lost, the run is searched by a unique tag.

Environment: HEADROOM_MLFLOW (the address), HEADROOM_MLFLOW_EXPERIMENT, and the
credentials MLFLOW_TRACKING_TOKEN, or _USERNAME and _PASSWORD. Python 3.6 or newer
and its standard library are enough.
"""

import base64
import datetime
import http.client
import json
import math
import os
import re
import resource
import signal
import ssl
import sys
import threading
import time
import urllib.parse
import uuid

API = "/api/2.0/mlflow/"
ARTIFACT_API = "/api/2.0/mlflow-artifacts/artifacts/"
OTHER = "an answer that is not MLflow's; see the address"
MARK = "headroom_mark"
PICTURE, WEIGHTS = "results.png", "best.safetensors"
# MLflow allows 1,000 metrics and 100 parameters per request.
EPOCHS_AT_ONCE, PARAMETERS_AT_ONCE = 50, 100
LONGEST_VALUE = 500  # older servers refuse longer values
LONGEST_ANSWER = 1 << 20
MOST_MEMORY = 1 << 29
INTERVAL = 1.0  # seconds between two looks at the run's files
LONGEST_PAUSE = 60
CONNECT_LIMIT, REQUEST_LIMIT, FILE_LIMIT = 5, 60, 600  # seconds
WEIGHTS_INTERVAL = 60  # least seconds between two uploads of weights, which may improve in every epoch
MOST_WAITS = 4


class Undelivered(Exception):
    """The server did not accept a message."""

    def __init__(self, why, status=0, pause=0):
        super().__init__(why)
        self.status, self.pause = status, pause


class Late(Undelivered):
    """The time limit of a request has passed."""


class Cut(Exception):
    """A request was aborted because the run has ended."""


class Stopped(BaseException):
    """The time for sending the last messages after the run's end is over."""


def say(line):
    print(line, flush=True)


def one_line(text, most):
    """`text` without control characters, cut to `most` bytes of UTF-8."""
    text = "".join(c if c.isprintable() else " " for c in str(text))
    return text.encode("utf-8", "replace")[:most].decode("utf-8", "ignore")


def json_object(text):
    """The JSON object in `text`; {} if `text` is not a JSON object."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def member(value, key, kind=str):
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, kind) else kind()


def is_plain(name):
    """Whether an id may be used in an address or a filter."""
    return re.fullmatch(r"[A-Za-z0-9_-]{1,128}", name) is not None


def artifact_path(uri):
    """The path after "mlflow-artifacts:/"; "" for artifacts of another kind, or an invalid path."""
    scheme = "mlflow-artifacts:/"
    if not uri.startswith(scheme):
        return ""
    path = uri[len(scheme):]
    if path.startswith("/"):  # //HOST/PATH
        path = path[1:].partition("/")[2]
    return path if re.fullmatch(r"[A-Za-z0-9_./-]+", path) and ".." not in path else ""


def pair(key, value):
    return {"key": key, "value": one_line(value, LONGEST_VALUE)}


def number(text):
    """A cell's number for MLflow, or None. NaN and infinity become texts, because JSON does not have them."""
    try:
        value = float(text)
    except ValueError:
        return None
    if math.isnan(value):
        return "NaN"
    return value if math.isfinite(value) else ("Infinity" if value > 0 else "-Infinity")


def milliseconds(text):
    """The time of an event ("2026-11-21T08:23:00.123Z") since 1970; None if `text` is not a time."""
    try:
        moment = datetime.datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ")
    except ValueError:
        return None
    return round(moment.replace(tzinfo=datetime.timezone.utc).timestamp() * 1000)


def now():
    return int(time.time() * 1000)


def written(file):
    """When the file was written; None if it does not exist."""
    try:
        return os.stat(file).st_mtime_ns
    except OSError:
        return None


class Results:
    """results.csv: its columns and its complete lines, as (text, epoch, cells)."""

    def __init__(self, file):
        self.columns, self.lines = [], []
        try:
            with open(file, newline="", encoding="utf-8", errors="replace") as csv:
                complete = csv.read().split("\n")[:-1]
        except OSError:
            return
        for line in complete:
            cells = line.rstrip("\r").split(",")
            if not self.columns:
                self.columns = cells
            elif len(cells) == len(self.columns) and cells[0].strip().isdigit():
                self.lines.append((line, int(cells[0]), cells))


class Client:
    """Sends requests to the server, each within a time limit, whatever the server does.

    Only the look-up of the server's name takes as long as the system allows.
    Redirects are not followed, because they would send the credentials elsewhere.
    """

    def __init__(self, address, authorization):
        self.address = urllib.parse.urlsplit(address)
        self.headers = {"User-Agent": "headroom", "Accept": "application/json"}
        if authorization:
            self.headers["Authorization"] = authorization
        self.is_asking = False
        self.has_ended = lambda: False
        signal.signal(signal.SIGALRM, self.interrupt)

    def interrupt(self, *_):
        if self.is_asking:
            raise Cut() if self.may_be_cut and self.has_ended() else Late("no answer in time")

    def connection(self):
        host, port = self.address.hostname, self.address.port
        if self.address.scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=CONNECT_LIMIT)
        context = ssl.create_default_context()
        # A Python that was built for another distribution does not find this one's authorities.
        for file in ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
                     "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"):
            if "SSL_CERT_FILE" not in os.environ and os.path.exists(file):
                context.load_verify_locations(file)
                break
        return http.client.HTTPSConnection(host, port, timeout=CONNECT_LIMIT, context=context)

    def send(self, method, path, body, limit, may_be_cut):
        """The answer: status, headers, text. `body` is bytes or an open file."""
        headers = dict(self.headers)
        if isinstance(body, bytes):
            headers["Content-Type"] = "application/json"
        else:
            headers["Content-Type"] = "application/octet-stream"
            headers["Content-Length"] = str(os.fstat(body.fileno()).st_size)
        self.may_be_cut = may_be_cut
        fault = "no connection"
        connection = self.connection()
        try:
            self.is_asking = True
            signal.setitimer(signal.ITIMER_REAL, max(limit, 0.001))
            if may_be_cut and self.has_ended():
                raise Cut()
            connection.connect()
            connection.sock.settimeout(limit)
            fault = "no answer"
            connection.request(method, self.address.path + path, body, headers)
            answer = connection.getresponse()
            text = answer.read(LONGEST_ANSWER + 1)
            fault = ""
        except Late:
            fault = "no answer within {:.3g}s".format(limit)
        except (ssl.SSLError, ssl.CertificateError) as error:
            # Python 3.6 has no SSLCertVerificationError, and its CertificateError is only for a wrong name.
            if isinstance(error, ssl.CertificateError) or "CERTIFICATE_VERIFY_FAILED" in str(error):
                fault = "its certificate is not valid for this name and this machine's list of authorities"
            else:
                fault = "no TLS connection"
        except http.client.RemoteDisconnected:
            pass
        except OSError as error:
            if not fault.endswith("answer") and "timed out" in str(error):
                fault += " in time"
        except (http.client.HTTPException, ValueError, MemoryError):
            # An invalid host name raises ValueError.
            fault = "an answer that is no HTTP" if fault == "no answer" else fault
        finally:
            self.is_asking = False
            signal.setitimer(signal.ITIMER_REAL, 0)
            connection.close()
        if not fault and len(text) > LONGEST_ANSWER:
            fault = "an answer longer than 1 MiB"
        if fault:
            raise Undelivered(fault)
        return answer.status, answer.headers, text


def origin(address):
    """Scheme and host of a server's redirect: the rest may be a secret."""
    try:
        parts = urllib.parse.urlsplit(address)
    except ValueError:
        return "another page"
    return one_line(parts.scheme + "://" + parts.netloc, 200) if parts.netloc else "another page"


def require_good(status, headers, text):
    """Raises Undelivered with the server's message unless the answer is good."""
    if 200 <= status < 300:
        return
    why = "HTTP {}".format(status)
    if 300 <= status < 400:
        raise Undelivered("{}, a redirect to {}, which is not followed: give that address instead".format(
            why, origin(headers.get("Location", ""))))
    if status in (401, 403):
        why += ", access denied"
    message = member(json_object(text), "message")
    if message:
        why += ": " + one_line(message, 200)
    pause = headers.get("Retry-After", "")
    raise Undelivered(why, status, min(int(pause), LONGEST_PAUSE) if re.fullmatch(r"[0-9]{1,6}", pause) else 0)


class Record:
    """The content of mlflow.json: which MLflow run this is, and what has arrived there."""

    def __init__(self, first_event):
        self.server = self.experiment = self.experiment_id = self.run_id = self.artifacts = self.mark = ""
        self.epochs = 0  # lines of results.csv that have arrived
        self.parameters = False  # the parameters have arrived, or were refused
        self.first_event = first_event  # where the run begins in events.jsonl


class Artifact:
    """A file, and its state when it was last sent."""

    def __init__(self, file):
        self.file, self.sent, self.when = file, None, None

    def is_due(self):
        """Whether the file has changed since it was last sent."""
        return written(self.file) not in (None, self.sent)

    def name(self):
        return os.path.basename(self.file)


class Run:
    """The MLflow run of a run's folder. advance() never sends again what has arrived."""

    def __init__(self, client, server, experiment, start):
        self.client, self.server, self.experiment = client, server, experiment
        self.folder, self.name, self.config = start["folder"], start["run"], start["config"]
        self.record = Record(start["events_from"])
        self.picture = Artifact(self.path(PICTURE))
        self.weights = Artifact(self.path("weights", WEIGHTS))
        self.is_open = False
        self.may_be_made = False  # the server may have created the run, but its answer was lost
        self.has_state = False  # the final state has arrived
        self.takes_artifacts = True
        self.arrived = []  # the lines of results.csv that the server has
        self.times = {}  # when each epoch ended, in milliseconds
        self.line_times = {}  # the time that was sent with each line
        self.waits = self.losses = self.retries = 0
        self.tags, self.sent_tags = {}, {}
        self.end = None
        if start["resumed"]:
            self.read_record()
        self.next_event = self.record.first_event
        self.results = Results(self.path("results.csv"))

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def read_record(self):
        try:
            with open(self.path("mlflow.json"), encoding="utf-8") as file:
                known = json_object(file.read())
        except (OSError, ValueError):
            return
        if not known:
            return
        if (member(known, "server"), member(known, "experiment")) != (self.server, self.experiment):
            say("MLflow: the run was in experiment {} at {}; here it begins anew".format(
                one_line(member(known, "experiment"), 100), one_line(member(known, "server"), 200)))
            return
        if not is_plain(member(known, "mark")) or (member(known, "run_id") and not is_plain(member(known, "run_id"))):
            return
        for key, value in vars(self.record).items():
            if key in known and isinstance(known[key], type(value)):
                setattr(self.record, key, max(known[key], 0) if isinstance(value, int) else known[key])
        self.may_be_made = not self.record.run_id
        # A resumed run has removed the lines of the epochs that it repeats.
        self.arrived = [line for line, _, _ in Results(self.path("results.csv")).lines[:self.record.epochs]]

    def write_record(self):
        file = self.path("mlflow.json")
        try:
            with open(file + ".new", "w", encoding="utf-8") as new:
                json.dump(vars(self.record), new, indent=2)
                new.write("\n")
            os.replace(file + ".new", file)
        except OSError:
            pass  # The run itself reports a full disk, and only a resume needs the record.

    def read_events(self):
        try:
            with open(self.path("events.jsonl"), "rb") as file:
                if file.seek(0, os.SEEK_END) < self.next_event:
                    self.next_event = 0  # the file is a new one
                file.seek(self.next_event)
                for line in file:  # line by line: a long run's file is larger than MOST_MEMORY
                    if not line.endswith(b"\n"):
                        return  # the line is not complete yet
                    self.next_event += len(line)
                    self.take_event(json_object(line.decode("utf-8", "replace")))
        except OSError:
            return

    def take_event(self, event):
        kind, ended = member(event, "event"), milliseconds(member(event, "time"))
        if kind == "epoch" and isinstance(event.get("epoch"), int) and ended is not None:
            self.times[event["epoch"]] = ended
        if kind == "generation" and isinstance(event.get("generation"), int):
            self.tags["headroom.generation"] = str(event["generation"])
        self.losses += kind == "loss_of_process"
        self.retries += kind == "out_of_memory"

    def read(self):
        self.results = Results(self.path("results.csv"))
        self.read_events()
        self.tags["headroom.processes_lost"] = str(self.losses)
        self.tags["headroom.out_of_memory_retries"] = str(self.retries)
        # From the first changed line on, all lines must be sent again.
        same = 0
        for arrived, (line, _, _) in zip(self.arrived, self.results.lines):
            if arrived != line:
                break
            same += 1
        del self.arrived[same:]

    def advance(self, end):
        """Sends all that is new. `end` is None while the run goes on, then its run_end event."""
        self.end = end
        self.read()
        if not self.is_open:
            self.open()
        self.send_epochs()
        self.send_tags()
        if end and not self.has_state:
            self.call("runs/update", {"run_id": self.record.run_id, "end_time": now(),
                                      "status": {0: "FINISHED", 130: "KILLED"}.get(end["exit_code"], "FAILED")})
            self.has_state = True
        if not self.record.parameters:
            self.send_parameters()
        if end:
            self.send_artifact(self.picture)
        self.send_artifact(self.weights)

    def left(self, end):
        """Names what has not arrived yet."""
        parts = [] if self.record.parameters else ["the parameters"]
        waiting = len(Results(self.path("results.csv")).lines) - len(self.arrived)
        if waiting > 0:
            parts.append("the metrics of {} epoch{}".format(waiting, "" if waiting == 1 else "s"))
        if end and not self.has_state:
            parts.append("the end's state")
        if end and self.takes_artifacts:
            parts += [artifact.name() for artifact in (self.picture, self.weights) if artifact.is_due()]
        return ", ".join(parts)

    def send(self, method, path, body, limit=None):
        limit = self.end["seconds"] if self.end else limit or REQUEST_LIMIT
        return self.client.send(method, path, body, limit, self.end is None)

    def ask(self, path, body):
        """Sends `body` as JSON by POST. Returns the answer's status, headers and text."""
        return self.send("POST", API + path, json.dumps(body).encode())

    def call(self, path, body):
        """Like ask(), but returns the JSON object in the answer, and raises Undelivered for a failure."""
        status, headers, text = self.ask(path, body)
        answer = json_object(text)
        if (status == 404 and self.is_open and answer.get("error_code") == "RESOURCE_DOES_NOT_EXIST"):
            self.forget()
            raise Undelivered("it has no such run any more")
        require_good(status, headers, text)
        if not answer and text.strip() != b"{}":
            raise Undelivered(OTHER)
        return answer

    def forget(self):
        say("MLflow: run {} is gone there; a new one gets all of it".format(self.record.run_id))
        self.record = Record(self.record.first_event)
        self.is_open = self.may_be_made = False
        self.arrived, self.sent_tags = [], {}
        self.picture.sent = self.weights.sent = None

    # --- The run on the server

    def open(self):
        record = self.record
        if not record.mark:
            record.mark, record.server, record.experiment = uuid.uuid4().hex, self.server, self.experiment
            self.write_record()
        if record.run_id:
            self.is_open = True  # so that call() reports a run that was deleted
            try:
                self.call("runs/update", {"run_id": record.run_id, "status": "RUNNING"})
            except (Undelivered, Cut):
                self.is_open = False
                raise
        else:
            record.experiment_id = self.find_experiment()
            if not self.find_made_run():
                self.make_run()
            self.write_record()
        self.is_open = True
        self.takes_artifacts = artifact_path(record.artifacts) != ""
        say("MLflow: {}/#/experiments/{}/runs/{}".format(self.server, record.experiment_id, record.run_id))
        if not self.takes_artifacts:
            say("MLflow: the server leaves artifacts to its clients ({}), so {} and {} are not sent; "
                "mlflow server --serve-artifacts takes them".format(
                    one_line(record.artifacts, 200), PICTURE, WEIGHTS))

    def find_experiment(self):
        def named():
            return self.send("GET", API + "experiments/get-by-name?experiment_name=" +
                             urllib.parse.quote(self.experiment, safe=""), b"")

        answer = named()
        if answer[0] == 404:
            made = self.ask("experiments/create", {"name": self.experiment})
            answer = named()  # another client may have created it in the meantime
            if not 200 <= answer[0] < 300:
                require_good(*made)
        require_good(*answer)
        experiment = member(json_object(answer[2]), "experiment", dict)
        if not is_plain(member(experiment, "experiment_id")):
            raise Undelivered(OTHER)
        if member(experiment, "lifecycle_stage") == "deleted":
            raise Undelivered("experiment {} is deleted there: restore it, or choose another "
                              "--mlflow-experiment".format(one_line(self.experiment, 100)))
        return experiment["experiment_id"]

    def find_made_run(self):
        if not self.may_be_made:
            return False
        found = member(self.call("runs/search", {
            "experiment_ids": [self.record.experiment_id], "max_results": 1,
            "filter": "tags.{} = '{}'".format(MARK, self.record.mark)}), "runs", list)
        if found:
            self.take_run(found[0])
        return bool(found)

    def make_run(self):
        self.may_be_made = True
        self.take_run(self.call("runs/create", {
            "experiment_id": self.record.experiment_id, "run_name": self.name, "start_time": now(),
            "tags": [pair(MARK, self.record.mark), pair("mlflow.source.name", "headroom"),
                     pair("mlflow.source.type", "LOCAL")]}).get("run"))

    def take_run(self, run):
        info = member(run, "info", dict)
        if not is_plain(member(info, "run_id")):
            raise Undelivered(OTHER)
        self.record.run_id, self.record.artifacts = info["run_id"], member(info, "artifact_uri")

    # --- What is sent

    def log_batch(self, **what):
        # MLflow's answer is an empty object. Any other answer means that nothing was stored.
        if self.call("runs/log-batch", dict(what, run_id=self.record.run_id)):
            raise Undelivered(OTHER)

    def send_parameters(self):
        parameters = [pair(key, value) for key, value in self.config.items()]
        refusal = ""
        for first in range(0, len(parameters), PARAMETERS_AT_ONCE):
            try:
                self.log_batch(params=parameters[first:first + PARAMETERS_AT_ONCE])
            except Undelivered as failure:
                if failure.status != 400:
                    raise
                refusal = str(failure)  # values that are too long, or that have changed
        if refusal:
            say("MLflow: the server refuses parameters, which are not sent again ({})".format(refusal))
        self.record.parameters = True
        self.write_record()

    def send_epochs(self):
        lines = self.results.lines
        # The run writes an epoch's line first and the event with its time a moment later: wait for the event.
        if self.end is None and len(self.arrived) < len(lines) and lines[-1][1] not in self.times:
            self.waits += 1
            if self.waits < MOST_WAITS:
                return
        self.waits = 0
        while len(self.arrived) < len(lines):
            part = lines[len(self.arrived):len(self.arrived) + EPOCHS_AT_ONCE]
            metrics = []
            for line, epoch, cells in part:
                # If a line is sent again, it keeps its time, so that the server sees the same message.
                ended = self.line_times.setdefault(line, self.times.get(epoch, now()))
                for column, cell in list(zip(self.results.columns, cells))[1:]:
                    value = number(cell)
                    if value is not None:
                        # Many servers refuse a colon in a metric's name.
                        metrics.append({"key": column.replace(":", "-"), "value": value, "timestamp": ended,
                                        "step": epoch})
            self.log_batch(metrics=metrics)
            self.arrived += [line for line, _, _ in part]
            self.record.epochs = len(self.arrived)
            self.write_record()

    def send_tags(self):
        if self.end:
            self.tags["headroom.end"] = self.end["reason"]
        changed = [pair(key, value) for key, value in self.tags.items() if self.sent_tags.get(key) != value]
        if changed:
            self.log_batch(tags=changed)
            self.sent_tags = dict(self.tags)

    def send_artifact(self, artifact):
        if not self.takes_artifacts or not artifact.is_due():
            return
        if not self.end and artifact.when and time.monotonic() - artifact.when < WEIGHTS_INTERVAL:
            return
        version = written(artifact.file)
        try:
            file = open(artifact.file, "rb")
        except OSError:
            raise Undelivered(artifact.file + " cannot be read")
        with file:
            require_good(*self.send(
                "PUT", ARTIFACT_API + artifact_path(self.record.artifacts) + "/" + artifact.name(), file, FILE_LIMIT))
        artifact.sent, artifact.when = version, time.monotonic()


class Follower:
    """Reads the run's events on standard input, and sends what is new every second until all has arrived."""

    def __init__(self):
        self.address = os.environ["HEADROOM_MLFLOW"]
        parts = urllib.parse.urlsplit(self.address)
        self.server = "MLflow at {}://{}".format(parts.scheme, parts.netloc)
        self.client = Client(self.address, self.authorization())
        self.client.has_ended = lambda: self.end is not None
        self.start = self.end = self.run = None
        self.changed = threading.Event()
        self.why_away = ""
        signal.signal(signal.SIGTERM, self.stop)
        threading.Thread(target=self.read, daemon=True).start()

    @staticmethod
    def authorization():
        token, name = (os.environ.get("MLFLOW_TRACKING_" + key, "") for key in ("TOKEN", "USERNAME"))
        if token:
            return "Bearer " + token
        password = os.environ.get("MLFLOW_TRACKING_PASSWORD", "")
        # Name and password may have bytes that are not UTF-8.
        return "Basic " + base64.b64encode(os.fsencode(name + ":" + password)).decode() if name else ""

    def stop(self, *_):
        raise Stopped()

    def read(self):
        for line in sys.stdin.buffer:
            event = json_object(line.decode("utf-8", "replace"))
            if event.get("event") == "run_start":
                self.start = event
            if event.get("event") == "run_end":
                self.end = event
                self.changed.set()
                signal.pthread_kill(threading.main_thread().ident, signal.SIGALRM)
        if self.end is None:
            os._exit(0)  # the run's own process is gone

    def follow(self):
        is_away, failures = False, 0
        while True:
            end = self.end
            self.changed.clear()
            pause = INTERVAL
            try:
                if self.start and self.start["config"] is not None:
                    self.run = self.run or Run(self.client, self.address, self.experiment(), self.start)
                    self.run.advance(end)
                if is_away:
                    say(self.server + " is back")
                is_away, failures = False, 0
                if end and not (self.run and self.run.left(end)):
                    return
            except Cut:
                continue
            except Undelivered as failure:
                self.why_away = one_line(failure, 300)
                if not is_away:
                    say("warning: {} does not answer as it should ({}): training goes on, and what it misses "
                        "follows".format(self.server, self.why_away))
                is_away = True
                if not end:  # at the end there is no time for longer pauses
                    pause = min(max(INTERVAL * 2 ** min(failures, 6), failure.pause), LONGEST_PAUSE)
                failures += 1
            if self.end is end:
                self.changed.wait(pause)

    @staticmethod
    def experiment():
        # The name may have bytes that are not UTF-8, which the server would refuse.
        return os.fsencode(os.environ["HEADROOM_MLFLOW_EXPERIMENT"]).decode("utf-8", "replace")

    def give_up(self):
        left = self.run.left(self.end) if self.run else ""
        if left:
            say("warning: {} has not got {}{}".format(
                self.server, left, " ({})".format(self.why_away) if self.why_away else ""))


def limit_memory():
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    most = MOST_MEMORY if hard == resource.RLIM_INFINITY else min(hard, MOST_MEMORY)
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def main():
    limit_memory()
    follower = Follower()
    try:
        follower.follow()
    except Stopped:
        follower.give_up()
    except Exception as error:  # a bug in this program is reported in one line, without a traceback
        say("MLflow: " + one_line(repr(error), 300))
        os._exit(1)
    os._exit(0)  # do not wait for the thread that reads standard input


if __name__ == "__main__":
    main()
