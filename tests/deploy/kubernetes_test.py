"""Checks deploy/kubernetes/headroom.yaml and trainer.yaml: every document is valid
for its API, and the documents fit each other.

Exit 77 (skipped) if a package with schemas is not installed.
"""
import re

import kubernetes_documents as kube

kube.skip_without(yaml="PyYAML", kubernetes_validate="kubernetes-validate",
                  kubeflow_trainer_api="kubeflow-trainer-api")

import yaml  # noqa: E402


def check_manifest():
    text = (kube.FOLDER / "headroom.yaml").read_text()
    documents = list(yaml.safe_load_all(text))
    assert len(documents) == 8, len(documents)
    kube.require_valid(documents)
    kube.check_pieces(documents)
    assert len(set(re.findall(r"image: (\S+)", text))) == 2
    # Checks that this test can fail.
    service = next(d for d in documents if d["kind"] == "Service")
    assert kube.faults_of(dict(service, specs={})), "a wrong key was not noticed"
    print(f"{len(documents)} documents are valid for Kubernetes {kube.VERSION}")


def check_trainer():
    text = (kube.FOLDER / "trainer.yaml").read_text()
    runtime, train_job = yaml.safe_load_all(text)
    kube.require_valid([runtime, train_job])
    assert (train_job["spec"]["runtimeRef"]["name"]
            == runtime["metadata"]["name"])
    job, = kube.job_documents(runtime)
    # Trainer uses these three names to find the container to which it passes args.
    assert job["metadata"]["labels"][
        "trainer.kubeflow.org/trainjob-ancestor-step"] == "trainer"
    assert job["metadata"]["name"] == kube.container_of(job)["name"] == "node"
    kube.check_pod(job)
    container = kube.container_of(job)
    assert container["command"][:2] == ["sh", "-euc"]
    assert "args" not in container, "the TrainJob's take their place"
    reserved = "/var/run/secrets/kubeflow/trainer"
    assert all(mount["mountPath"] != reserved
               for mount in container["volumeMounts"])
    kube.check_flags_are_known(
        {"args": ["train", *train_job["spec"]["trainer"]["args"]]})

    mistakes = [
        dict(train_job, spec=dict(train_job["spec"], numNodes=2)),
        dict(train_job, spec={"trainer": {"numNodes": 2}}),
        dict(train_job, spec=dict(train_job["spec"],
                                  trainer={"numNodes": "two"})),
        dict(runtime, spec={"mlPolicy": {"numNodes": 2, "torchrun": {}}}),
    ]
    for mistake in mistakes:
        assert kube.faults_of(mistake), mistake["spec"]
    print("the runtime and the TrainJob are valid for trainer.kubeflow.org/"
          "v1alpha1")


check_manifest()
check_trainer()
