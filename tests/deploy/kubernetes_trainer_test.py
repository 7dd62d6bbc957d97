"""deploy/kubernetes/trainer.yaml: the command of the runtime's pods, run here by
two processes with the variables that Kubeflow Trainer sets, and with TLS.

Pod 0 is asked to stop; both pods started again go on with the run.

    python3 kubernetes_trainer_test.py HEADROOM
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
FLAGS = ["--cfg=yolov5n", "--synthetic-input", "--img=64", "--batch=4",
         "--threads=1", "--noval", "--noplots", "--max-steps=24"]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start_pods(folder, port, processes, flags):
    runtime = next(iter(yaml.safe_load_all(
        (kube.FOLDER / "trainer.yaml").read_text())))
    job, = kube.job_documents(runtime)
    command = [word.replace("/runs", f"{folder}/runs")
               .replace("/certs", f"{folder}/certs")
               for word in kube.container_of(job)["command"]]
    pods = []
    for index in range(2):
        environment = dict(
            os.environ, PATH=f"{HEADROOM.parent}:{os.environ['PATH']}",
            PET_NNODES="2", PET_NODE_RANK=str(index),
            PET_NPROC_PER_NODE=processes, PET_MASTER_ADDR="localhost",
            PET_MASTER_PORT=str(port))
        with open(folder / f"pod-{index}.log", "a") as log:
            pods.append(subprocess.Popen(
                command + flags, env=environment, stdout=log, stderr=log,
                cwd=folder))
    return pods


def ends_of(pods, folder):
    try:
        return [pod.wait(240) for pod in pods]
    except subprocess.TimeoutExpired:
        for pod in pods:
            pod.kill()
        raise AssertionError(logs(folder)) from None


def logs(folder):
    return "\n".join(f"{file.name}:\n{file.read_text()}"
                     for file in sorted(folder.glob("pod-*.log")))


def steps(folder):
    file = folder / "runs/localhost/steps.jsonl"
    if not file.exists():
        return []
    return [json.loads(line)["step"] for line in file.read_text().splitlines()
            if line.endswith("}")]


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "runs").mkdir()
        subprocess.run([HEADROOM, "coordinator", "--init-certs",
                        folder / "certs", "--cert-names", "localhost"],
                       check=True, stdout=subprocess.DEVNULL)
        port = free_port()
        pods = start_pods(folder, port, "1", FLAGS)
        end = time.monotonic() + 240
        while len(steps(folder)) < 2 and time.monotonic() < end:
            time.sleep(0.05)
        pods[0].send_signal(signal.SIGTERM)
        ends = ends_of(pods, folder)
        # The policy of the Job replaces pods that end so.
        assert ends == [130, 130], (ends, logs(folder))
        done = steps(folder)
        assert 2 <= len(done) < 24, (done, logs(folder))
        assert list((folder / "runs/localhost/checkpoints").iterdir())

        # `auto`, on a machine without GPUs, is one worker a pod.
        ends = ends_of(start_pods(folder, port, "auto", FLAGS), folder)
        assert ends == [0, 0], (ends, logs(folder))
        assert steps(folder) == list(range(24)), (steps(folder), logs(folder))
        assert [run.name for run in (folder / "runs").iterdir()] == [
            "localhost"]
    print("two pods train as one run, stop at a committed step and go on")


main()
