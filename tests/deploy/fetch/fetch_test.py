"""Tests headroom fetch with HTTPS servers and a proxy on loopback.

    fetch_test.py HEADROOM [NAME OF A TEST ...]
"""

import fcntl
import hashlib
import http.server
import json
import os
import pathlib
import re
import select
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.dont_write_bytecode = True

HEADROOM = pathlib.Path(sys.argv.pop(1)).resolve()
CLEAN = {name: value for name, value in os.environ.items()
         if not re.search("proxy|SSL_CERT|CURL_|XDG_CACHE", name, re.IGNORECASE)}


def weights(seed, size=300_000):
    """Bytes that begin like a safetensors file."""
    header = b'{"__metadata__":{"model":"yolov5n"}}'
    return struct.pack("<Q", len(header)) + header + bytes((seed + i * i) % 251 for i in range(size))


class Server:
    """Serves `content` with an ETag and ranges. Each entry of `faults` changes one request."""

    def __init__(self, certificates=None, host="127.0.0.1"):
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                outer.requests.append((self.path, dict(self.headers)))
                fault = outer.faults.pop(0) if outer.faults else {}
                status, body, headers = outer.answer(self.path, self.headers)
                status = fault.get("status", status)
                headers.update(fault.get("headers", {}))
                for name in fault.get("without", ()):
                    headers.pop(name)
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body[:fault.get("cut", len(body))])
                while fault.get("endless"):
                    self.wfile.write(bytes(1000))
                    time.sleep(0.01)
                self.close_connection = True

            def log_message(self, *_):
                pass

        class Quiet(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_):
                pass

        self.content, self.has_etag, self.faults, self.requests = weights(1), True, [], []
        self.server = Quiet((host, 0), Handler)
        if certificates:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificates / "server.pem", certificates / "server.key")
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.port = self.server.server_address[1]
        self.host = f"{host}:{self.port}"
        self.address = f"{'https' if certificates else 'http'}://{self.host}"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def answer(self, path, headers):
        if not path.split("?")[0].endswith("/yolov5n.pt"):
            return 404, b"no such file", {"Content-Length": "12"}
        etag = f'"{hashlib.md5(self.content).hexdigest()}"'
        found = {"ETag": etag, "Last-Modified": "Tue, 22 Nov 2022 16:21:43 GMT"} if self.has_etag else {}
        asked = re.fullmatch(r"bytes=(\d+)-", headers.get("Range", ""))
        if asked and headers.get("If-Range") == etag:
            begin = int(asked[1])
            body = self.content[begin:]
            found["Content-Range"] = f"bytes {begin}-{len(self.content) - 1}/{len(self.content)}"
            return 206, body, {**found, "Content-Length": str(len(body))}
        return 200, self.content, {**found, "Content-Length": str(len(self.content))}

    def stop(self):
        self.server.shutdown()
        self.server.server_close()


class Proxy:
    """Answers CONNECT requests, and records them."""

    def __init__(self):
        self.requests = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client = self.listener.accept()[0]
            except OSError:
                return
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client):
        head = b""
        while b"\r\n\r\n" not in head:
            head += client.recv(4096)
        self.requests.append(head.decode())
        host, port = head.split()[1].decode().split(":")
        with client, socket.create_connection((host, int(port))) as server:
            client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            while True:
                for source in select.select([client, server], [], [])[0]:
                    data = source.recv(1 << 16)
                    if not data:
                        return
                    (server if source is client else client).sendall(data)

    def stop(self):
        self.listener.close()


class FetchTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.holder = tempfile.TemporaryDirectory()
        cls.certificates, cls.others = (cls.authority(name) for name in ("certs", "others"))

    @classmethod
    def tearDownClass(cls):
        cls.holder.cleanup()

    @classmethod
    def authority(cls, name):
        folder = pathlib.Path(cls.holder.name) / name
        subprocess.run([HEADROOM, "coordinator", "--init-certs", folder, "--cert-names", "127.0.0.1"], check=True,
                       stdout=subprocess.DEVNULL)
        return folder

    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name) / "headroom/weights"
        self.file, self.note = self.folder / "yolov5n.pt", self.folder / "yolov5n.pt.json"
        self.environment = {**CLEAN, "XDG_CACHE_HOME": holder.name,
                            "SSL_CERT_FILE": str(self.certificates / "ca.pem")}
        self.server = self.serve(Server(self.certificates))

    def serve(self, server):
        self.addCleanup(server.stop)
        return server

    def fetch(self, *words, code=0, server=None, **environment):
        """Runs a fetch for which the licence is accepted; returns its output."""
        words = words or ("yolov5n.pt", "--from", (server or self.server).address, "--accept-licence")
        done = subprocess.run([HEADROOM, "fetch", *words], env={**self.environment, **environment},
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
        self.assertEqual(done.returncode, code, done.stdout)
        if code:
            self.assertEqual(done.stdout.count("\n"), 1, done.stdout)  # a refusal has one line
        return done.stdout

    def assert_stored(self, content):
        self.assertEqual(self.file.read_bytes(), content)
        self.assertEqual(json.loads(self.note.read_text())["sha256"], hashlib.sha256(content).hexdigest())
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()),
                         ["accepted_licences", "yolov5n.pt", "yolov5n.pt.json"])

    def assert_nothing_stored(self):
        self.assertFalse(self.file.exists())
        self.assertFalse(self.note.exists())

    # --- Whole files

    def test_a_file_is_stored_whole_with_a_note_of_what_the_server_said(self):
        said = self.fetch()
        self.assert_stored(self.server.content)
        digest = hashlib.sha256(self.server.content).hexdigest()
        for words in (f"from:     {self.server.address}/yolov5n.pt", f"answer:   {self.server.host}: 293 KiB (300044 bytes), ETag",
                      "last modified Tue, 22 Nov 2022", f"sha256:   {digest}, noted now", "AGPL-3.0", str(self.file),
                      "headroom train --data DATA.YAML --weights yolov5n.pt"):
            self.assertIn(words, said)
        note = json.loads(self.note.read_text())
        self.assertEqual((note["bytes"], note["host"], note["address"]),
                         (len(self.server.content), self.server.host, f"{self.server.address}/yolov5n.pt"))

    def test_a_file_that_is_there_is_not_asked_for_again(self):
        self.fetch()
        said = self.fetch("yolov5n")  # .pt may be left out
        self.assertEqual(len(self.server.requests), 1)
        self.assertIn(f"is there: {self.file}", said)
        self.assertIn("as noted at the first fetch", said)

    def test_a_damaged_file_is_fetched_again(self):
        self.fetch()
        self.file.write_bytes(b"damaged")
        self.assertIn("as noted at the first fetch", self.fetch())
        self.assert_stored(self.server.content)

    def test_a_file_that_was_put_there_by_hand_stays(self):
        self.folder.mkdir(parents=True)
        self.file.write_bytes(b"mine")
        self.assertIn("no fetch has noted one", self.fetch())
        self.assertEqual((self.file.read_bytes(), self.server.requests), (b"mine", []))

    def test_others_may_read_the_file_if_the_umask_lets_them(self):
        self.fetch()
        umask = os.umask(0)
        os.umask(umask)
        self.assertEqual(self.file.stat().st_mode & 0o777, 0o644 & ~umask)

    def test_a_link_in_place_of_the_received_bytes_is_not_followed(self):
        self.folder.mkdir(parents=True)
        target = self.folder.parent / "mine"
        (self.folder / "yolov5n.pt.partial").symlink_to(target)
        self.assertIn("yolov5n.pt.partial cannot be written", self.fetch(code=5))
        self.assertFalse(target.exists())

    def test_the_received_bytes_are_locked_until_they_have_their_name(self):
        self.server.content = weights(1) + bytes(100_000_000)
        partial = self.folder / "yolov5n.pt.partial"
        fetch = subprocess.Popen([HEADROOM, "fetch", "yolov5n.pt", "--from", self.server.address, "--accept-licence"],
                                 env=self.environment, stdout=subprocess.DEVNULL)
        looks = 0
        while fetch.poll() is None:
            try:
                with partial.open("rb") as file:
                    if os.fstat(file.fileno()).st_size < len(self.server.content):
                        continue
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                    self.assertFalse(partial.exists(), "the lock was given back early")
            except BlockingIOError:
                looks += 1
            except FileNotFoundError:
                pass
        self.assertEqual(fetch.returncode, 0)
        self.assertGreater(looks, 0)
        self.assert_stored(self.server.content)

    # --- The licence

    def test_parallel_first_fetches_all_note_the_licence(self):
        for _ in range(5):
            fetches = [subprocess.Popen([HEADROOM, "fetch", "yolov5s.pt", "--from", self.server.address,
                                         "--accept-licence"], env=self.environment, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.PIPE, text=True) for _ in range(8)]
            for fetch in fetches:
                said = fetch.communicate(timeout=60)[1]
                self.assertTrue("HTTP 404" in said or "another headroom fetch" in said, said)
            accepted = self.folder / "accepted_licences"
            self.assertEqual(set(accepted.read_text().splitlines()), {"AGPL-3.0"})
            accepted.unlink()

    def test_without_an_accepted_licence_nothing_is_asked_for(self):
        said = self.fetch("yolov5n.pt", "--from", self.server.address, code=2)
        self.assertIn("under AGPL-3.0 (https://www.gnu.org/licenses/agpl-3.0.html), which you have not accepted", said)
        self.assertIn("add --accept-licence", said)
        self.assertEqual(self.server.requests, [])

    def test_an_accepted_licence_is_remembered(self):
        self.fetch()
        self.file.unlink()
        self.fetch("yolov5n.pt", "--from", self.server.address)
        self.assert_stored(self.server.content)

    # --- Transfers that break

    def test_a_transfer_that_breaks_goes_on_where_it_ended(self):
        self.server.faults = [{"cut": 100_000}]
        said = self.fetch(code=5)
        self.assertIn(f"the transfer from {self.server.host} broke after 97.7 KiB (100000 bytes) of 293 KiB (300044 bytes)", said)
        self.assertIn("type the same command again: it goes on where this one ended", said)
        self.assert_nothing_stored()
        self.assertIn("resumed after 97.7 KiB (100000 bytes)", self.fetch())
        self.assertEqual(self.server.requests[1][1]["Range"], "bytes=100000-")
        self.assert_stored(self.server.content)

    def test_a_part_of_an_older_content_is_not_mixed_with_a_newer_one(self):
        self.server.faults = [{"cut": 100_000}]
        self.fetch(code=5)
        self.server.content = weights(2)
        self.fetch()
        self.assert_stored(weights(2))

    def test_without_an_etag_a_broken_transfer_begins_anew(self):
        self.server.has_etag, self.server.faults = False, [{"cut": 100_000}]
        self.fetch(code=5)
        self.fetch()
        self.assertNotIn("Range", self.server.requests[1][1])
        self.assert_stored(self.server.content)

    def test_a_part_that_no_server_could_continue_begins_anew(self):
        self.server.faults = [{"cut": 100_000}, {"status": 416}]
        self.fetch(code=5)
        self.fetch()
        self.assert_stored(self.server.content)

    def test_after_another_part_than_was_asked_for_the_transfer_begins_anew(self):
        self.server.faults = [{"cut": 100_000}, {"headers": {"Content-Range": "bytes 50-299/300"}}]
        self.fetch(code=5)
        self.fetch()
        self.assert_stored(self.server.content)

    def test_a_server_that_does_not_say_the_length_is_refused(self):
        self.server.faults = [{"without": ["Content-Length"]}]
        self.assertIn("does not say how many bytes", self.fetch(code=2))
        self.assert_nothing_stored()

    def test_a_server_that_does_not_say_the_length_is_not_listened_to_for_long(self):
        self.server.faults = [{"without": ["Content-Length"], "endless": True}]
        self.assertIn("does not say how many bytes", self.fetch(code=2))
        self.assert_nothing_stored()

    def test_less_than_the_rest_is_a_broken_transfer(self):
        size = len(self.server.content)
        self.server.faults = [{"cut": 100_000}, {"cut": 50_000, "headers": {
            "Content-Length": "50000", "Content-Range": f"bytes 100000-149999/{size}"}}]
        self.fetch(code=5)
        self.assertIn(f"broke after 146 KiB (150000 bytes) of 293 KiB ({size} bytes)", self.fetch(code=5))
        self.assert_nothing_stored()
        self.fetch()
        self.assertEqual(self.server.requests[2][1]["Range"], "bytes=150000-")
        self.assert_stored(self.server.content)

    def test_a_part_that_was_not_asked_for_is_a_broken_transfer(self):
        self.server.faults = [{"status": 206}]
        self.assertIn("it sent HTTP 206", self.fetch(code=5))
        self.assert_nothing_stored()
        self.fetch()
        self.assertNotIn("Range", self.server.requests[1][1])
        self.assert_stored(self.server.content)

    # --- Other contents

    def test_other_bytes_than_at_the_first_fetch_are_refused_with_both_digests(self):
        self.fetch()
        self.file.unlink()
        self.server.content = weights(2)
        said = self.fetch(code=2)
        for seed in (1, 2):
            self.assertIn(hashlib.sha256(weights(seed)).hexdigest(), said)
        self.assertIn(f"remove {self.note} and fetch again", said)
        self.assertFalse(self.file.exists())
        self.note.unlink()
        self.fetch()
        self.assert_stored(weights(2))

    def test_a_web_page_is_not_stored(self):
        self.server.content = b"<html>Sign in</html>"
        self.assertIn("is text (HTML or XML), not weights", self.fetch(code=2))
        self.assert_nothing_stored()

    def test_a_file_that_is_not_on_the_server_is_refused_with_its_address(self):
        said = self.fetch("yolov5s.pt", "--from", self.server.address, "--accept-licence", code=2)
        self.assertIn(f"HTTP 404 of {self.server.host}: it has no file {self.server.address}/yolov5s.pt", said)
        for status in (503, 429):
            self.server.faults = [{"status": status}]
            self.assertIn(f"HTTP {status}", self.fetch(code=5))

    # --- Servers and certificates

    def test_a_redirect_to_another_server_is_followed(self):
        first = self.serve(Server(self.certificates))
        first.faults = [{"status": 302, "headers": {"Location": f"{self.server.address}/a%20b/yolov5n.pt?signed=a%2Bb"}}]
        self.fetch(server=first)
        self.assertEqual(self.server.requests[0][0], "/a%20b/yolov5n.pt?signed=a%2Bb")
        self.assert_stored(self.server.content)

    def test_a_redirect_within_the_server_is_followed(self):
        self.server.faults = [{"status": 301, "headers": {"Location": "/new/yolov5n.pt"}}]
        self.fetch()
        self.assert_stored(self.server.content)

    def test_a_redirect_to_plain_http_is_refused(self):
        plain = self.serve(Server())
        self.server.faults = [{"status": 302, "headers": {"Location": f"{plain.address}/yolov5n.pt"}}]
        said = self.fetch(code=2)
        self.assertIn("leads to an address that is not https://, where the file would come unencrypted", said)
        self.assertEqual(plain.requests, [])

    def test_endless_redirects_end(self):
        self.server.faults = [{"status": 302, "headers": {"Location": "/yolov5n.pt"}}] * 30
        self.assertIn("redirects more than 10 times", self.fetch(code=2))

    def test_plain_http_is_refused(self):
        plain = self.serve(Server())
        self.assertIn("is not https://, so the file would come unencrypted", self.fetch(server=plain, code=2))
        self.assertEqual(plain.requests, [])

    def test_addresses_that_cannot_be_used_are_refused(self):
        for address, why in {"": "--from is empty",
                             self.server.address.replace("//", "//me:SECRET@"): "has a user or a password",
                             "https://": "names no server", "https://[::1/": "is no address"}.items():
            said = self.fetch("yolov5n.pt", "--from", address, "--accept-licence", code=2)
            self.assertIn(why, said)
            self.assertNotIn("SECRET", said)
        self.assertEqual(self.server.requests, [])

    def test_a_scheme_may_be_written_in_capitals(self):
        self.fetch("yolov5n.pt", "--from", self.server.address.replace("https", "HTTPS"), "--accept-licence")
        self.assert_stored(self.server.content)

    def test_a_certificate_of_an_unknown_authority_is_refused(self):
        said = self.fetch(code=5, SSL_CERT_FILE=str(self.others / "ca.pem"))
        self.assertIn(f"{self.server.host} cannot be reached: SSL certificate problem", said)
        self.assertIn("its authority: SSL_CERT_FILE=FILE", said)
        self.assertEqual(self.server.requests, [])

    def test_a_named_authority_counts_beside_a_folder_of_others(self):
        self.fetch(SSL_CERT_DIR=str(self.others))
        self.assert_stored(self.server.content)

    def test_of_two_files_of_authorities_the_refusal_names_the_one_that_counts(self):
        said = self.fetch(code=5, CURL_CA_BUNDLE=str(self.others / "ca.pem"))
        self.assertIn("its authority: CURL_CA_BUNDLE=FILE", said)

    def test_a_certificate_of_another_name_is_refused(self):
        server = self.serve(Server(self.certificates, host="127.0.0.2"))
        self.assertIn(f"{server.host} cannot be reached: SSL: ", self.fetch(server=server, code=5))
        self.assertEqual(server.requests, [])

    def test_a_server_that_is_not_there_is_named(self):
        self.server.stop()
        self.assertIn(f"{self.server.host} cannot be reached: Failed to connect", self.fetch(code=5))

    def test_without_curl_the_refusal_says_what_to_install(self):
        said = self.fetch(code=5, PATH="/nowhere")
        self.assertIn("the program curl, which downloads, is not in PATH: install it, or get", said)

    def test_a_file_that_another_process_fetches_is_left_to_it(self):
        self.folder.mkdir(parents=True)
        with (self.folder / "yolov5n.pt.partial").open("wb") as partial:
            fcntl.flock(partial, fcntl.LOCK_EX)
            self.assertIn("is being written by another headroom fetch", self.fetch(code=5))
        self.assertEqual(self.server.requests, [])

    def test_the_proxy_of_the_environment_is_used_unless_no_proxy_names_the_host(self):
        proxy = self.serve(Proxy())
        address = f"http://me:secret@127.0.0.1:{proxy.port}"
        self.fetch(https_proxy=address)
        self.assert_stored(self.server.content)
        self.assertEqual(len(proxy.requests), 1)
        self.assertIn(f"CONNECT 127.0.0.1:{self.server.port}", proxy.requests[0])
        self.assertIn("Proxy-Authorization: Basic bWU6c2VjcmV0", proxy.requests[0])
        self.file.unlink()
        self.fetch(HTTPS_PROXY=address, NO_PROXY="example.org, 127.0.0.1")
        self.assertEqual(len(proxy.requests), 1)

    # --- Names

    def test_networks_that_cannot_be_trained_here_are_refused_with_those_that_can(self):
        for name in ("yolo11n.pt", "yolov8s-pose.pt", "yolov5s-seg.pt", "../yolov5n.pt"):
            said = self.fetch(name, code=2)
            self.assertIn(f"{name} is none of the published weights", said)
            self.assertIn("yolov5n.pt, yolov5s.pt, ", said)
        self.assertIn("no weights are named", self.fetch("--accept-licence", code=2))

    def test_weights_that_are_not_there_are_answered_with_the_command_that_gets_them(self):
        for command in (["train", "--synthetic-input"], ["val", "--data", "d.yaml"], ["export"]):
            done = subprocess.run([HEADROOM, *command, "--weights", "yolov5n.pt"], env=self.environment,
                                  cwd=self.holder.name, capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 2)
            self.assertIn("[weights] there is no file yolov5n.pt; Ultralytics publishes it at https://github.com/"
                          "ultralytics/yolov5/releases/download/v7.0/yolov5n.pt under AGPL-3.0, and nothing is "
                          "downloaded unasked: type headroom fetch yolov5n.pt, then this command again", done.stderr)

    def test_fetched_weights_are_found_by_name_and_a_line_says_so(self):
        self.fetch()
        done = subprocess.run([HEADROOM, "plan", "--weights", "yolov5n.pt", "--batch", "2", "--img", "64", "--device",
                               "cpu", "--processes", "1"], env=self.environment, cwd=self.holder.name,
                              capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"weights: yolov5n.pt is {self.file}, which headroom fetch stored (Ultralytics, AGPL-3.0)",
                      done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
