"""Runs the commands of deploy/kubernetes' pods as processes of this machine, with TLS.

headroom.yaml: the coordinator gets SIGTERM, as when its node is drained, and
continues. Then it is killed, and its successor finishes the run with the same
agent. trainer.yaml: two pods with the variables that Kubeflow Trainer sets get
SIGTERM and are started again; the run continues.

    python3 kubernetes_pods_test.py HEADROOM
"""
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time

import kubernetes_documents as kube

kube.skip_without(yaml="PyYAML")

import yaml  # noqa: E402

HEADROOM = pathlib.Path(sys.argv[1]).resolve()
NUM_STEPS = 40
FLAGS = ["--cfg=yolov5n", "--synthetic-input", "--img=64", "--batch=4",
         "--threads=1", "--noval", "--noplots", f"--max-steps={NUM_STEPS}"]
PATIENCE = 240  # seconds


class Pods:
    """Processes that take the place of pods, and a folder that takes the place of volumes."""

    def __init__(self, folder):
        self.folder = folder
        self.running = []
        for name in ("runs", "state"):
            (folder / name).mkdir()
        subprocess.run([HEADROOM, "coordinator", "--init-certs",
                        folder / "certs", "--cert-names", "localhost"],
                       check=True, stdout=subprocess.DEVNULL)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]

    def start(self, name, container, arguments, **variables):
        """Starts the command of a container with paths of the test's folder and the test's port."""
        command = container.get("command", ["headroom"]) + arguments
        for path in ("/runs", "/state", "/certs"):
            command = [word.replace(path, f"{self.folder}{path}")
                       for word in command]
        environment = dict(
            os.environ, PATH=f"{HEADROOM.parent}:{os.environ['PATH']}",
            **variables)
        with open(self.folder / f"{name}.log", "a") as log:
            pod = subprocess.Popen(command, env=environment, stdout=log,
                                   stderr=log, cwd=self.folder)
        self.running.append(pod)
        return pod

    def steps(self):
        for file in (self.folder / "runs").glob("*/steps.jsonl"):
            return [json.loads(line)["step"]
                    for line in file.read_text().splitlines()
                    if line.endswith("}")]
        return []

    def wait_for_steps(self, number):
        end = time.monotonic() + PATIENCE
        while len(self.steps()) < number:
            assert time.monotonic() < end, self.logs()
            time.sleep(0.02)

    def require_ends(self, pods, codes):
        try:
            found = [pod.wait(PATIENCE) for pod in pods]
        except subprocess.TimeoutExpired:
            raise AssertionError(self.logs()) from None
        assert found == codes, (found, self.logs())

    def logs(self):
        return "\n".join(f"{file.name}:\n{file.read_text()}"
                         for file in sorted(self.folder.glob("*.log")))

    def end(self):
        for pod in self.running:
            if pod.poll() is None:
                pod.kill()
                pod.wait()


def with_pods(check):
    with tempfile.TemporaryDirectory() as name:
        pods = Pods(pathlib.Path(name))
        try:
            check(pods)
            assert pods.steps() == list(range(NUM_STEPS)), pods.steps()
            assert len(list((pods.folder / "runs").iterdir())) == 1
        finally:
            pods.end()


def run_flags_replaced(container, **others):
    """The container's args without --data and --cfg, and with the values in `others`."""
    kept = [word for word in container["args"]
            if word.split("=")[0] not in ("--data", "--cfg")]
    for name, value in others.items():
        name = "--" + name.replace("_", "-")
        assert kube.flag(container, name)
        kept = [f"{name}={value}" if word.startswith(name + "=") else word
                for word in kept]
    return kept


def check_manifest(pods):
    jobs = kube.jobs_of(yaml.safe_load_all(
        (kube.FOLDER / "headroom.yaml").read_text()))
    container = kube.container_of(jobs["coordinator"])
    arguments = run_flags_replaced(
        container, listen=f"127.0.0.1:{pods.port}", expected_workers=1) + FLAGS
    coordinator = pods.start("coordinator", container, arguments)
    worker = kube.container_of(jobs["worker"])
    agent = pods.start("agent", worker, run_flags_replaced(
        worker, coordinator=f"localhost:{pods.port}"))
    pods.wait_for_steps(2)
    coordinator.send_signal(signal.SIGTERM)
    pods.wait_for_steps(6)
    assert coordinator.poll() is None, pods.logs()
    coordinator.kill()
    coordinator.wait()
    successor = pods.start("coordinator", container, arguments)
    pods.require_ends([agent, successor], [0, 0])


def check_drained_pod(pods):
    """A node is drained: its pod ends with 130, and another takes its place."""
    jobs = kube.jobs_of(yaml.safe_load_all(
        (kube.FOLDER / "headroom.yaml").read_text()))
    container = kube.container_of(jobs["coordinator"])
    coordinator = pods.start("coordinator", container, run_flags_replaced(
        container, listen=f"127.0.0.1:{pods.port}", expected_workers=2) + FLAGS)
    worker = kube.container_of(jobs["worker"])
    code, = (rule["onExitCodes"]["values"] for rule in
             jobs["worker"]["spec"]["podFailurePolicy"]["rules"]
             if rule["action"] == "Ignore" and "onExitCodes" in rule)

    def start(index, name):
        return pods.start(name, worker, run_flags_replaced(
            worker, coordinator=f"localhost:{pods.port}"),
            JOB_COMPLETION_INDEX=str(index))

    stays, leaves = (start(index, f"agent-{index}") for index in range(2))
    pods.wait_for_steps(1)
    leaves.send_signal(signal.SIGTERM)
    pods.require_ends([leaves], code)
    pods.require_ends([stays, start(1, "replaced"), coordinator], [0, 0, 0])


def check_trainer(pods):
    runtime = next(iter(yaml.safe_load_all(
        (kube.FOLDER / "trainer.yaml").read_text())))
    job, = kube.job_documents(runtime)
    container = kube.container_of(job)

    def start(processes):
        return [pods.start(f"pod-{index}", container, FLAGS, PET_NNODES="2",
                           PET_NODE_RANK=str(index), PET_MASTER_ADDR="localhost",
                           PET_MASTER_PORT=str(pods.port),
                           PET_NPROC_PER_NODE=processes) for index in range(2)]

    first = start("1")
    pods.wait_for_steps(2)
    first[0].send_signal(signal.SIGTERM)
    # The policy of the Job replaces pods that end with this code.
    pods.require_ends(first, [130, 130])
    assert 2 <= len(pods.steps()) < NUM_STEPS, pods.logs()
    assert list(pods.folder.glob("runs/localhost/checkpoints/step-*"))
    # On a machine without GPUs, `auto` means one worker per pod.
    pods.require_ends(start("auto"), [0, 0])


with_pods(check_manifest)
print("a coordinator that is killed after SIGTERM has a successor")
with_pods(check_drained_pod)
print("a drained pod ends with 130, and another takes its place")
with_pods(check_trainer)
print("two pods of a TrainJob stop at a committed step and go on")
