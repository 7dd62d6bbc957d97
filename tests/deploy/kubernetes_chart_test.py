"""Renders deploy/kubernetes/chart for several sets of values with `helm`, or with
Helm's own library (helm-python-sdk) if `helm` is not installed.

Every document is valid for its API, and the documents fit each other. The
defaults give the same documents as headroom.yaml. A value out of range is
refused with one clear line. The chart uses Kueue only through labels: it makes
no objects of Kueue's kinds.
"""
import copy
import json
import re
import shutil
import subprocess

import kubernetes_documents as kube

HELM = shutil.which("helm")
kube.skip_without(yaml="PyYAML", kubernetes_validate="kubernetes-validate",
                  kubeflow_trainer_api="kubeflow-trainer-api",
                  cloudcoil="cloudcoil-models-cert-manager",
                  **({} if HELM else {"helm_python": "helm-python-sdk"}))

import yaml  # noqa: E402

if not HELM:
    import helm_python

CHART = kube.FOLDER / "chart"
KEEP = {"helm.sh/resource-policy": "keep"}


class Refused(Exception):
    """The chart refused the values with this message."""


def rendered(values, name):
    if HELM:
        made = subprocess.run(
            [HELM, "template", name, CHART, "--namespace", "training",
             "--values", "-"], input=json.dumps(values), text=True,
            capture_output=True, check=False)
        if made.returncode != 0:
            raise Refused(made.stderr)
        return made.stdout
    with helm_python.Chart.load(str(CHART)) as chart:
        try:
            chart.validate_schema(values)
            made = chart.render(values, name=name, namespace="training")
        except helm_python.HelmError as error:
            raise Refused(str(error)) from error
    return "\n---\n".join(text for file, text in made.items()
                          if file.endswith(".yaml"))


def documents_of(values, name="headroom"):
    return [document for document
            in yaml.safe_load_all(rendered(values, name)) if document]


def by_name(documents):
    return {(d["kind"], d["metadata"]["name"]): d for d in documents}


def check_defaults_are_the_manifest():
    chart = by_name(documents_of({}))
    for name in ("headroom-runs", "headroom-data"):
        claim = chart["PersistentVolumeClaim", name]
        assert claim["metadata"].pop("annotations") == KEEP
    plain = by_name(yaml.safe_load_all(
        (kube.FOLDER / "headroom.yaml").read_text()))
    assert set(chart) == set(plain), set(chart) ^ set(plain)
    for key, document in plain.items():
        assert chart[key] == document, f"{key} differs from headroom.yaml"


def devices_of(documents):
    """The device flags of the coordinator."""
    words = kube.container_of(kube.jobs_of(documents)["coordinator"])["args"]
    return [word for word in words if word.startswith("--device")]


def check_devices():
    data = ["--data=/data/data.yaml", "--cfg=yolov5s"]
    for gpus, flags, told in (
            (0, data, []),  # each pod chooses its device
            (8, data, ["--device=all"]),  # so a pod without its GPUs is refused
            (8, data + ["--device=cpu"], ["--device=cpu"]),
            (8, ["--device=0,1"] + data, ["--device=0,1"]),
            (8, data + ["--set=share_devices=true"], ["--device=all"]),
            (0, data + ["--device=all"], ["--device=all"])):
        for form in ("Jobs", "JobSet"):
            documents = documents_of({
                "form": form, "workers": {"gpus": gpus},
                "run": {"flags": flags}})
            assert devices_of(documents) == told, (gpus, flags, form)


def check_gpus():
    documents = documents_of({
        "workers": {"pods": 4, "gpus": 8, "efa": 4, "sharedMemory": "64Gi",
                    "nodeSelector": {"node.kubernetes.io/instance-type":
                                     "p4d.24xlarge"},
                    "tolerations": [{"key": "spot", "operator": "Exists"}],
                    "env": [{"name": "NCCL_SOCKET_IFNAME", "value": "eth0"}],
                    "runtimeClassName": "nvidia"},
        "images": {"pullSecrets": ["registry"], "pullPolicy": "Always"}})
    check(documents)
    pod = kube.pod_of(kube.jobs_of(documents)["worker"])
    container = pod["containers"][0]
    assert kube.flag(container, "--processes") == "8"
    assert devices_of(documents) == ["--device=all"]
    resources = container["resources"]
    assert resources["limits"] == resources["requests"] == {
        "cpu": "4", "memory": "16Gi", "nvidia.com/gpu": 8,
        "vpc.amazonaws.com/efa": 4, "hugepages-2Mi": "5120Mi"}
    assert container["securityContext"]["capabilities"] == {
        "drop": ["ALL"], "add": ["IPC_LOCK"]}
    assert container["imagePullPolicy"] == "Always"
    assert container["env"][0]["value"] == "eth0"
    assert pod["imagePullSecrets"] == [{"name": "registry"}]
    assert pod["runtimeClassName"] == "nvidia"
    assert [each["key"] for each in pod["tolerations"]] == [
        "nvidia.com/gpu", "spot"]
    memory, = (each["emptyDir"] for each in pod["volumes"]
               if each["name"] == "shm")
    assert memory == {"medium": "Memory", "sizeLimit": "64Gi"}


def secret_files(job):
    """The files in /certs, and the names of the Secrets that contain them."""
    sources, = (volume["projected"]["sources"]
                for volume in kube.pod_of(job)["volumes"]
                if volume["name"] == "certs")
    secrets = [source["secret"] for source in sources]
    return ({item["path"] for secret in secrets for item in secret["items"]},
            {secret["name"] for secret in secrets})


def check_cert_manager():
    for issuer, kind in (("", "Issuer"), ("company", "ClusterIssuer")):
        documents = documents_of({"tls": {"certManager": {
            "enabled": True, "issuerName": issuer, "issuerKind": kind}}})
        check(documents)
        found = by_name(documents)
        jobs = kube.jobs_of(documents)
        client = {"ca.pem", "client.pem", "client.key", "token"}
        files, secrets = secret_files(jobs["worker"])
        assert files == client
        server_files, server_secrets = secret_files(jobs["coordinator"])
        assert server_files == client | {"server.pem", "server.key"}
        made = {d["spec"]["secretName"] for d in documents
                if d["kind"] == "Certificate"}
        assert (secrets | server_secrets) - made == {"headroom-token"}
        server = found["Certificate", "headroom-server"]["spec"]
        address = kube.flag(kube.container_of(jobs["worker"]), "--coordinator")
        assert address.split(":")[0] in server["dnsNames"]
        assert "127.0.0.1" in server["ipAddresses"]  # the address of the health probes
        for part in ("server", "client"):
            reference = found["Certificate", f"headroom-{part}"]["spec"][
                "issuerRef"]
            assert reference == {"name": issuer or "headroom-ca", "kind": kind}
        assert (("Issuer", "headroom-ca") in found) == (issuer == "")


def check_queue():
    queue = {"name": "team-a", "priorityClass": "high"}
    labels = {"kueue.x-k8s.io/queue-name": "team-a",
              "kueue.x-k8s.io/priority-class": "high"}
    documents = documents_of({"queue": queue})
    check(documents)
    found = by_name(documents)
    worker = found["Job", "headroom-worker"]["metadata"]["labels"]
    assert worker == {"app": "headroom", **labels}
    assert found["Job", "headroom-coordinator"]["metadata"]["labels"] == {
        "app": "headroom"}

    documents = documents_of({"queue": queue, "form": "JobSet",
                              "workers": {"gpus": 1, "efa": 1}})
    check(documents)
    job_set, = (d for d in documents if d["kind"] == "JobSet")
    assert job_set["metadata"]["labels"] == {"app": "headroom", **labels}
    assert not [d for d in documents if d["kind"] == "Job"]
    mistakes = {"spec.restarts": 3, "spec.suspend": "yes",
                "spec.replicatedJobs.0.template.spec.template.spec.grace": 3,
                "spec.replicatedJobs.1.template.spec.completions": "two"}
    for path, value in mistakes.items():
        assert kube.faults_of(changed(job_set, path, value)), path


def changed(document, path, value):
    document = copy.deepcopy(document)
    *way, last = path.split(".")
    at = document
    for step in way:
        at = at[int(step) if step.isdigit() else step]
    at[last] = value
    return document


def check_volumes_and_switches():
    documents = documents_of({
        "volumes": {"data": {"existingClaim": "images"},
                    "runs": {"size": "2Ti", "storageClass": "efs"}},
        "workers": {"pods": 3, "processes": 2, "cpu": 8, "gracePeriodSeconds": 600},
        "run": {"flags": ["--data=/data/other.yaml", "--cfg=yolov5n",
                          "--batch=64", "--set=hyp.lr0=0.001"]},
        "podDisruptionBudget": False, "networkPolicy": False}, "second")
    check(documents, "second", {"images"})
    kinds = [d["kind"] for d in documents]
    assert "PodDisruptionBudget" not in kinds and "NetworkPolicy" not in kinds
    claim = by_name(documents)["PersistentVolumeClaim", "second-runs"]["spec"]
    assert claim["storageClassName"] == "efs"
    assert claim["resources"]["requests"]["storage"] == "2Ti"
    jobs = kube.jobs_of(documents)
    coordinator = kube.container_of(jobs["coordinator"])
    assert "--batch=64" in coordinator["args"]
    assert kube.flag(coordinator, "--expected-workers") == "6"
    assert kube.pod_of(jobs["worker"])["terminationGracePeriodSeconds"] == 600
    limits = kube.container_of(jobs["worker"])["resources"]["limits"]
    assert limits["cpu"] == "8"
    # Two runs in one namespace do not interfere.
    first = kube.jobs_of(documents_of({}))["worker"]
    assert (first["spec"]["template"]["metadata"]["labels"]
            != jobs["worker"]["spec"]["template"]["metadata"]["labels"])


def check_grace_period():
    """The minimum is above the time that an agent gives its workers to save."""
    agent = (kube.ROOT / "deploy/cli/process/agent.cpp").read_text()
    to_save = int(re.search(r"kTimeToSave = std::chrono::seconds\((\d+)\)",
                            agent)[1])
    schema = json.loads((CHART / "values.schema.json").read_text())
    least = schema["properties"]["workers"]["properties"][
        "gracePeriodSeconds"]["minimum"]
    assert least >= to_save + 10, (least, to_save)


REFUSALS = [
    ({"workers": {"pods": 0}}, "at '/workers/pods': minimum: got 0, want 1"),
    ({"workers": {"pods": 2.5}}, "at '/workers/pods': got number, want integer"),
    ({"workers": {"gpus": 17}}, "at '/workers/gpus': maximum: got 17, want 16"),
    ({"workers": {"gpus": -1}}, "at '/workers/gpus': minimum: got -1, want 0"),
    ({"workers": {"efa": 33, "gpus": 8}},
     "at '/workers/efa': maximum: got 33, want 32"),
    ({"workers": {"gracePeriodSeconds": 5}},
     "at '/workers/gracePeriodSeconds': minimum: got 5, want 45"),
    ({"workers": {"memory": "16 GB"}},
     "at '/workers/memory': '16 GB' does not match pattern"),
    ({"workers": {"cpu": 0}}, "at '/workers/cpu': minimum: got 0, want 1"),
    ({"workers": {"gpu": 1}}, "at '/workers': additional properties 'gpu'"),
    ({"form": "Deployment"},
     "at '/form': value must be one of 'Jobs', 'JobSet'"),
    ({"volumes": {"runs": {"size": "0Gi"}}},
     "at '/volumes/runs/size': '0Gi' does not match pattern"),
    ({"tls": {"certManager": {"duration": "90d"}}},
     "at '/tls/certManager/duration': '90d' does not match pattern"),
    ({"queue": {"name": "Team A"}},
     "at '/queue/name': 'Team A' does not match pattern"),
    ({"workers": {"efa": 1}}, "workers.efa: EFA adapters serve NCCL, and "
     "workers.gpus is 0: set workers.gpus, or workers.efa to 0"),
    ({"queue": {"priorityClass": "high"}},
     "queue.priorityClass: a priority needs a queue: set queue.name"),
    ({"run": {"flags": ["--listen=0.0.0.0:1"]}},
     "run.flags: --listen is set by the chart: leave it out"),
    ({"run": {"flags": ["--batch 64"]}},
     "run.flags: '--batch 64' has white space: write --flag=value"),
]


def check_refusals():
    for values, line in REFUSALS:
        try:
            rendered(values, "headroom")
        except Refused as refusal:
            told = str(refusal).strip().splitlines()
            assert sum(line in each for each in told) == 1, (values, told)
            assert len(told) <= 3, told
        else:
            raise AssertionError(f"{values} was not refused")
    try:
        rendered({}, "r" * 51)
    except Refused as refusal:
        assert "51 characters: give one of at most 50" in str(refusal)
    else:
        raise AssertionError("a long name was not refused")


def check(documents, name="headroom", existing=frozenset()):
    kube.require_valid(documents)
    kube.check_pieces(documents, name, existing)


def check_lint():
    if HELM:
        subprocess.run([HELM, "lint", "--strict", CHART], check=True)
        return
    made = helm_python.lint(str(CHART))
    warning = 2  # severity 1 is only advice
    assert not made["errors"], made
    assert all(each["severity"] < warning for each in made["messages"]), made


def main():
    check(documents_of({}))
    check_lint()
    check_defaults_are_the_manifest()
    check_gpus()
    check_devices()
    check_cert_manager()
    check_queue()
    check_volumes_and_switches()
    check_grace_period()
    check_refusals()
    # Checks that a wrong Certificate is found too.
    certificate = next(d for d in documents_of({"tls": {"certManager": {
        "enabled": True}}}) if d["kind"] == "Certificate")
    assert kube.faults_of(changed(certificate, "spec.issuer", "ca"))
    assert kube.faults_of(changed(certificate, "spec.privateKey", {
        "algorithm": "DSA"}))
    print(f"the chart is valid for 7 sets of values and refuses "
          f"{len(REFUSALS) + 1}, rendered by "
          f"{HELM or 'helm-python-sdk'}")


main()
