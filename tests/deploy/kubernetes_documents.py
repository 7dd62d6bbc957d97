"""Code that the tests of deploy/kubernetes share: the schema of every kind of
document, and the checks that the documents of one run fit each other.

Core kinds are checked against the API's own schemas (kubernetes-validate).
JobSet, ClusterTrainingRuntime and TrainJob are checked against the models that
Kubeflow publishes for its API (kubeflow-trainer-api), Certificate and Issuer
against models made from cert-manager's definitions (cloudcoil). These models
accept unknown keys, but these checks do not. The models do not contain the rules
that those APIs state as expressions (CEL).
"""
import functools
import importlib
import pathlib
import sys

VERSION = "1.30"
ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deploy/kubernetes"
TRAINER = "kubeflow_trainer_api.models."
MODELS = {
    ("jobset.x-k8s.io/v1alpha2", "JobSet"):
        (TRAINER + "jobset_v1alpha2_job_set", "JobsetV1alpha2JobSet"),
    ("trainer.kubeflow.org/v1alpha1", "TrainJob"):
        (TRAINER + "trainer_v1alpha1_train_job", "TrainerV1alpha1TrainJob"),
    ("trainer.kubeflow.org/v1alpha1", "ClusterTrainingRuntime"):
        (TRAINER + "trainer_v1alpha1_cluster_training_runtime",
         "TrainerV1alpha1ClusterTrainingRuntime"),
    ("cert-manager.io/v1", "Certificate"):
        ("cloudcoil.models.cert_manager.v1", "Certificate"),
    ("cert-manager.io/v1", "Issuer"):
        ("cloudcoil.models.cert_manager.v1", "Issuer"),
}
# Classes of the models whose value is a single number or text.
PLAIN = {
    "IoK8sApimachineryPkgApiResourceQuantity": {"type": ["string", "number"]},
    "IoK8sApimachineryPkgUtilIntstrIntOrString": {"type": ["string", "integer"]},
}


def skip_without(**packages):
    """Exits with 77 if a module is missing; `packages` maps each module to its package."""
    for module, package in packages.items():
        try:
            importlib.import_module(module)
        except ImportError as error:
            if (error.name or "").split(".")[0] != module:
                raise
            print(f"skipped: {package} is not installed (pip install {package})")
            sys.exit(77)


def without_unknown_keys(schema):
    """Returns the schema with the rule that objects may have only the keys that it names."""
    if isinstance(schema, list):
        return [without_unknown_keys(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: without_unknown_keys(each) for key, each in schema.items()}
    if isinstance(schema.get("properties"), dict):
        made.setdefault("additionalProperties", False)
    return made


@functools.cache
def model_validator(api_version, kind):
    import jsonschema
    module, name = MODELS[api_version, kind]
    model = getattr(importlib.import_module(module), name)
    schema = without_unknown_keys(model.model_json_schema(by_alias=True))
    schema.get("$defs", {}).update(
        {key: each for key, each in PLAIN.items() if key in schema["$defs"]})
    return jsonschema.Draft202012Validator(schema)


def job_documents(document):
    """The Jobs that a controller makes from a JobSet or a ClusterTrainingRuntime."""
    spec = document["spec"]
    if document["kind"] == "ClusterTrainingRuntime":
        spec = spec["template"]["spec"]
    for each in spec["replicatedJobs"]:
        metadata = dict(each["template"].get("metadata", {}), name=each["name"])
        yield {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata,
               "spec": each["template"]["spec"]}


def faults_of(document):
    """The faults of a document, one line each."""
    import kubernetes_validate
    key = document["apiVersion"], document["kind"]
    if key not in MODELS:
        try:
            kubernetes_validate.validate(document, VERSION, strict=True)
        except kubernetes_validate.ValidationError as error:
            return [f"{key[1]}: {error}"]
        return []
    found = [f"{key[1]}: {error.json_path}: {error.message}"
             for error in model_validator(*key).iter_errors(document)]
    if not found and key[1] in ("JobSet", "ClusterTrainingRuntime"):
        for job in job_documents(document):
            found += faults_of(job)
    return found


def require_valid(documents):
    for document in documents:
        faults = faults_of(document)
        assert not faults, "\n".join(faults)


def jobs_of(documents):
    """All Jobs, including those of a JobSet, by the last part of their names."""
    found = {}
    for document in documents:
        made = [document] if document["kind"] == "Job" else []
        if document["kind"] == "JobSet":
            made = job_documents(document)
        for job in made:
            found[job["metadata"]["name"].rsplit("-", 1)[-1]] = job
    return found


def pod_of(job):
    return job["spec"]["template"]["spec"]


def container_of(job):
    return pod_of(job)["containers"][0]


def flag(container, name):
    for word in container["args"]:
        if word.startswith(name + "="):
            return word[len(name) + 1:]
    raise AssertionError(f"{container['name']} has no {name}")


def check_flags_are_known(container):
    """Checks that the command, which is the first argument, has every flag."""
    command, *words = container["args"]
    known = set()
    for line in (ROOT / "tests/repo/frozen_cli.txt").read_text().splitlines():
        if line.startswith(command + " "):
            known.update(line.split()[1:])
    assert len(known) > 4, command
    for word in words:
        assert word.split("=")[0] in known, f"{command} has no {word}"


def check_pod(job):
    pod = pod_of(job)
    volumes = {volume["name"] for volume in pod["volumes"]}
    mounts = {mount["name"] for mount in container_of(job)["volumeMounts"]}
    assert mounts == volumes, (mounts, volumes)
    assert pod["restartPolicy"] == "Never"  # required by podFailurePolicy
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    limits = container_of(job)["resources"]["limits"]
    for name, amount in container_of(job)["resources"]["requests"].items():
        if "/" in name or name.startswith("hugepages"):
            assert limits.get(name) == amount, name  # required by the API
    for volume in pod["volumes"]:
        secret = volume.get("secret") or volume.get("projected")
        if secret:  # no other user may read a key
            assert secret["defaultMode"] & 0o007 == 0
    grace = pod["terminationGracePeriodSeconds"]
    assert job["metadata"]["name"].endswith("coordinator") or grace >= 45, grace


def check_pieces(documents, name="headroom", existing=frozenset()):
    """Checks that the documents of one run fit each other. `existing` are the
    volume claims that exist already."""
    found = {(d["kind"], d["metadata"]["name"]): d for d in documents}
    assert len(found) == len(documents), "two documents have one name"
    jobs = jobs_of(documents)
    coordinator, worker = jobs["coordinator"], jobs["worker"]
    service = found["Service", f"{name}-coordinator"]
    labels = coordinator["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"] == labels
    for budget in (d for d in documents if d["kind"] == "PodDisruptionBudget"):
        assert budget["spec"]["selector"]["matchLabels"] == labels
    assert worker["spec"]["template"]["metadata"]["labels"] != labels

    port = service["spec"]["ports"][0]
    listen = flag(container_of(coordinator), "--listen")
    address = flag(container_of(worker), "--coordinator")
    ports = container_of(coordinator)["ports"]
    assert {p["name"]: p["containerPort"] for p in ports}[
        port["targetPort"]] == int(listen.split(":")[1])
    assert address == f"{service['metadata']['name']}:{port['port']}"

    spec = worker["spec"]
    assert spec["completionMode"] == "Indexed"
    assert spec["completions"] == spec["parallelism"]
    workers = spec["completions"] * int(flag(container_of(worker),
                                             "--processes"))
    assert workers == int(flag(container_of(coordinator),
                               "--expected-workers"))

    claims = {each for kind, each in found if kind == "PersistentVolumeClaim"}
    used = set()
    for job in (coordinator, worker):
        check_pod(job)
        check_flags_are_known(container_of(job))
        for volume in pod_of(job)["volumes"]:
            used.add(volume.get("persistentVolumeClaim", {}).get("claimName"))
    assert used - {None} == claims | existing, (used, claims, existing)

    drained = [rule for rule in spec["podFailurePolicy"]["rules"]
               if 130 in rule.get("onExitCodes", {}).get("values", [])]
    assert [rule["action"] for rule in drained] == ["Ignore"]
