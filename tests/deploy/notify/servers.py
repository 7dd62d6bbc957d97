"""Servers on loopback for the tests of deploy/notify: an MLflow server, one that records requests, and hostile ones."""

import http.server
import json
import socket
import ssl
import threading
import time
import urllib.parse


class Server:
    """Calls answer(method, path, headers, body) for each request; it returns a status, a body and optionally headers.
    `fault`, if set, is called first with the same arguments. If it returns an answer, this one is sent instead."""

    def __init__(self, certificates=None, host="127.0.0.1"):
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def handle_request(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                what = (self.command, self.path, self.headers, body)
                found = outer.fault(*what) if outer.fault else None
                status, text, *headers = found or outer.answer(*what)
                self.send_response(status)
                for name, value in (headers[0] if headers else {}).items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            do_GET = do_POST = do_PUT = handle_request

            def log_message(self, *_):
                pass

        class Quiet(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_):
                pass

        self.fault, self.requests = None, []
        self.server = Quiet((host, 0), Handler)
        if certificates:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificates / "server.pem", certificates / "server.key")
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.port = self.server.server_address[1]
        self.address = f"{'https' if certificates else 'http'}://127.0.0.1:{self.port}"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def answer(self, method, path, headers, body):
        self.requests.append((path, headers, json.loads(body)))
        return 200, b"ok"

    def bodies(self):
        return [body for _, _, body in self.requests]

    def stop(self):
        self.server.shutdown()
        self.server.server_close()


class Mlflow(Server):
    """The part of an MLflow server that a run uses. As in the real server, two metrics with equal name, step and time
    are one metric."""

    def __init__(self):
        self.runs, self.artifacts, self.experiments, self.authorizations = {}, {}, set(), set()
        self.loses_answers, self.artifact_root, self.made = False, "mlflow-artifacts:/7/", 0
        super().__init__()

    def answer(self, method, path, headers, body):
        self.authorizations.add(headers.get("Authorization"))
        answer = self.handle(path, body)
        return (502, b"") if self.loses_answers else answer

    def handle(self, path, body):
        artifacts, api = "/api/2.0/mlflow-artifacts/artifacts/", "/api/2.0/mlflow/"
        missing = (404, b'{"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "no such thing"}')
        if path.startswith(artifacts):
            self.artifacts[path[len(artifacts):]] = body
            return 200, b"{}"
        what, _, query = path[len(api):].partition("?")
        asked, result = json.loads(body or b"{}"), {}
        if what == "experiments/get-by-name":
            name = urllib.parse.parse_qs(query)["experiment_name"][0]
            if name not in self.experiments:
                return missing
            result["experiment"] = {"experiment_id": "7", "name": name, "lifecycle_stage": "active"}
        elif what == "experiments/create":
            self.experiments.add(asked["name"])
            result["experiment_id"] = "7"
        elif what == "runs/create":
            self.made += 1
            run = self.runs[f"run{self.made}"] = {"name": asked["run_name"], "status": "RUNNING", "metrics": {},
                                                  "params": {}, "tags": {}}
            run["tags"].update((tag["key"], tag["value"]) for tag in asked["tags"])
            result["run"] = self.info(f"run{self.made}")
        elif what == "runs/search":
            result["runs"] = [self.info(name) for name, run in self.runs.items()
                              if asked["filter"] == f"tags.headroom_mark = '{run['tags']['headroom_mark']}'"]
        elif asked["run_id"] not in self.runs:
            return missing
        else:
            run = self.runs[asked["run_id"]]
            run["status"] = asked.get("status", run["status"])
            for kind in ("params", "tags"):
                run[kind].update((one["key"], one["value"]) for one in asked.get(kind, []))
            for one in asked.get("metrics", []):
                run["metrics"][one["key"], one["step"], one["timestamp"]] = one["value"]
        return 200, json.dumps(result).encode()

    def info(self, name):
        return {"info": {"run_id": name, "artifact_uri": self.artifact_root + name}}

    def only_run(self):
        (run,) = self.runs.values()
        return run

    def values(self, key):
        """The values of a metric, as (step, value)."""
        return [(step, value) for (name, step, _), value in sorted(self.only_run()["metrics"].items()) if name == key]


class Hostile:
    """A server that sends bytes that no correct server sends; `kind` is one of KINDS."""

    KINDS = ("status line", "headers", "drip", "silence", "body", "continue")

    def __init__(self, kind, host="127.0.0.1"):
        self.kind, self.is_over = kind, False
        is_ipv6 = ":" in host
        self.listener = socket.create_server((host, 0), family=socket.AF_INET6 if is_ipv6 else socket.AF_INET)
        self.address = f"http://{f'[{host}]' if is_ipv6 else host}:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                peer = self.listener.accept()[0]
            except OSError:
                return
            threading.Thread(target=self.serve, args=(peer,), daemon=True).start()

    def serve(self, peer):
        with peer:
            try:
                peer.recv(1 << 16)
                if self.kind == "status line":
                    peer.sendall(b"HTTP/1.1 " + b"a" * 50_000 + b"\r\n\r\n")
                elif self.kind == "headers":
                    peer.sendall(b"HTTP/1.1 200 OK\r\n")
                    while not self.is_over:
                        peer.sendall(b"A: " + b"b" * 1000 + b"\r\n")
                elif self.kind == "body":
                    peer.sendall(b"HTTP/1.1 500 Error\r\nContent-Length: %d\r\n\r\n" % (2 << 30))
                    for _ in range(2 << 10):
                        peer.sendall(bytes(1 << 20))
                elif self.kind == "continue":
                    while not self.is_over:
                        peer.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
                while not self.is_over and self.kind != "status line":
                    time.sleep(0.05)
                    if self.kind == "drip":
                        peer.sendall(b"x")
            except OSError:
                pass

    def stop(self):
        self.is_over = True
        self.listener.close()


class Fixed(Hostile):
    """A server that sends the same bytes to every client, and closes the connection."""

    def __init__(self, answer, host="127.0.0.1"):
        self.answer, self.requests = answer, 0
        super().__init__("", host)

    def serve(self, peer):
        with peer:
            peer.recv(1 << 16)
            self.requests += 1
            peer.sendall(self.answer)
