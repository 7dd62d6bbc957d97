"""Checks the /metrics of a real run, and that they have all metrics of the dashboard in deploy/grafana.

    grafana_test.py HEADROOM

A run of two processes exports the metrics. A call with a wrong token is refused
meanwhile, so that the counter of refused calls is not 0. This script checks the
format of the answer, and so does Prometheus's own parser if prometheus_client
is installed. Then the answer must contain every metric, label and value that
the dashboard's expressions use.
"""

import copy
import json
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "deploy/grafana"
SAMPLE = re.compile(r'([a-z_:][a-z0-9_:]*)(?:\{(.*)\})? (\S+)$')
LABEL = re.compile(r'([a-z_][a-z0-9_]*)="((?:[^"\\]|\\.)*)"(?:,|$)')
SELECTOR = re.compile(r'\b(headroom_\w+)(?:\{([^}]*)\})?')
MATCHER = re.compile(r'\s*(\w+)(=~|!~|!=|=)"([^"]*)"\s*(?:,|$)')
OF_PROMETHEUS = {"instance", "job"}  # labels that Prometheus adds when it reads the metrics


def parse(text):
    """Returns {metric: [(labels, value)]}; the list of a metric without a sample is empty."""
    assert text.endswith("\n"), "the last line has no end"
    types, helps, samples, seen = {}, set(), {}, set()
    for line in text.splitlines():
        if line.startswith("# HELP "):
            name, words = line[7:].split(" ", 1)
            assert name not in helps and words.strip(), line
            helps.add(name)
            continue
        if line.startswith("# TYPE "):
            name, kind = line[7:].split(" ")
            assert name not in types and kind in ("gauge", "counter", "summary"), line
            assert (kind == "counter") == name.endswith("_total"), line
            types[name] = kind
            samples[name] = []
            continue
        found = SAMPLE.match(line)
        assert found, f"no line of the format: {line}"
        name, inside, value = found.groups()
        whole = re.sub("_(sum|count)$", "", name)
        if types.get(whole) == "summary":
            samples.setdefault(name, [])
        assert name in samples, f"{name} has no type"
        labels = dict(LABEL.findall(inside or ""))
        assert LABEL.sub("", inside or "") == "", f"labels of {line}"
        key = (name, tuple(sorted(labels.items())))
        assert key not in seen, f"twice: {line}"
        seen.add(key)
        samples[name].append((labels, float(value)))
    assert set(types) == helps, set(types) ^ helps
    return samples


def agrees_with_prometheus(text, samples):
    try:
        from prometheus_client.parser import text_string_to_metric_families
    except ImportError:
        print("not checked by Prometheus's own parser: prometheus_client is not installed")
        return
    theirs = sorted((sample.name, sorted(sample.labels.items()), sample.value)
                    for family in text_string_to_metric_families(text)
                    for sample in family.samples)
    ours = sorted((name, sorted(labels.items()), value)
                  for name, found in samples.items() for labels, value in found)
    assert theirs == ours, "Prometheus reads other values"


def queries(dashboard):
    """(where, expression, legend) of panels, annotations and variables."""
    for panel in dashboard["panels"]:
        assert panel["targets"], panel["title"]
        for target in panel["targets"]:
            yield panel["title"], target["expr"], target["legendFormat"]
    for note in dashboard["annotations"]["list"]:
        yield note["name"], note["expr"], ""
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["name"], variable["query"], ""


def faults(dashboard, samples):
    """Metrics that the dashboard queries and the run does not export."""
    found = []
    for where, expression, legend in queries(dashboard):
        selectors = SELECTOR.findall(expression)
        if not selectors:
            found.append(f"{where}: no metric in {expression}")
        for name, inside in selectors:
            if not samples.get(name):
                found.append(f"{where}: the run has no {name}")
                continue
            if MATCHER.sub("", inside):
                found.append(f"{where}: cannot read {{{inside}}}")
            labels = set.intersection(*(set(labels) for labels, _ in samples[name]))
            for label, operator, value in MATCHER.findall(inside):
                if label in OF_PROMETHEUS:
                    continue
                values = [labels_of.get(label) for labels_of, _ in samples[name]]
                if operator != "=" or value not in values:
                    found.append(f"{where}: {name} has no {label}{operator}\"{value}\"")
            for label in re.findall(r"\{\{\s*(\w+)\s*\}\}", legend):
                if label not in labels | OF_PROMETHEUS:
                    found.append(f"{where}: {name} has no label {label}")
    return found


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def answer(address):
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as response:
        assert response.headers["Content-Type"].startswith("text/plain"), response.headers
        return response.read().decode()


def metrics_of_a_run(headroom, folder):
    """/metrics of a run of two processes that has taken a step and refused a call."""
    address = f"127.0.0.1:{free_port()}"
    right = pathlib.Path(folder) / "right.token"  # a run with a token listens at a port
    right.write_text("1" * 64 + "\n")
    right.chmod(0o600)
    run = subprocess.Popen(
        [headroom, "train", "--synthetic-input", "--cfg", "yolov5n", "--img", "64", "--batch",
         "4", "--processes", "2", "--device", "cpu", "--threads", "1", "--noval", "--noplots",
         "--max-steps", "5000", "--metrics", address, "--token-file", right],
        cwd=folder, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    lines = []
    reader = threading.Thread(target=lambda: lines.extend(iter(run.stderr.readline, "")))
    reader.start()
    try:
        wrong = pathlib.Path(folder) / "wrong.token"
        wrong.write_text("0" * 64 + "\n")
        wrong.chmod(0o600)
        text, refused = "", False
        limit = time.monotonic() + 120
        while time.monotonic() < limit:
            assert run.poll() is None, "".join(lines)
            named = re.search(r"--coordinator (\S+)", "".join(lines))
            if named and not refused:
                status = subprocess.run([headroom, "status", "--coordinator", named[1],
                                         "--token-file", wrong], capture_output=True, check=False)
                refused = True
                assert status.returncode == 2 and b"wrong join token" in status.stderr, status
            if refused:
                text = answer(address)
                if re.search(r"^headroom_steps [1-9]", text, re.M):
                    return text
            time.sleep(0.2)
        raise AssertionError("no step within 120 s: " + "".join(lines) + text)
    finally:
        run.send_signal(signal.SIGINT)
        run.wait(60)
        reader.join()


def check_scraping():
    text = (FOLDER / "prometheus.yml").read_text()
    try:
        import yaml
    except ImportError:
        print("prometheus.yml is read as text: yaml is not installed")
        assert re.search(r'targets: \["127\.0\.0\.1:9464"\]', text)
        return
    jobs = yaml.safe_load(text)["scrape_configs"]
    targets = [target for job in jobs for static in job["static_configs"]
               for target in static["targets"]]
    guide = (FOLDER.parent / "guide/watching.md").read_text()
    assert targets and all(f"--metrics {target}" in guide for target in targets), targets


def main():
    check_scraping()
    dashboard = json.loads((FOLDER / "dashboard.json").read_text())
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids)), ids
    with tempfile.TemporaryDirectory() as folder:
        text = metrics_of_a_run(pathlib.Path(sys.argv[1]).resolve(), folder)
    samples = parse(text)
    agrees_with_prometheus(text, samples)
    found = faults(dashboard, samples)
    assert not found, "\n".join(found)
    drawn = {name for _, expression, _ in queries(dashboard)
             for name, _ in SELECTOR.findall(expression)}
    ours = {name for name in samples if name.startswith("headroom_")}
    assert drawn == ours, f"not drawn: {ours - drawn}"
    # Checks that this test can fail: it finds each of these mistakes.
    for wrong in ("headroom_stages", 'headroom_workers{state="asleep"}', "up"):
        broken = copy.deepcopy(dashboard)
        broken["panels"][0]["targets"][0]["expr"] = wrong
        assert len(faults(broken, samples)) == 1, wrong
    print(f"{len(ids)} panels draw the {len(ours)} metrics of a run")


main()
