"""deploy/kubernetes: every document is valid for the API, and the pieces fit.

Exit 77 (skipped) where kubernetes-validate, which has the API's schemas, is
not installed: pip install kubernetes-validate.
"""
import pathlib
import re
import sys

try:
    import kubernetes_validate
    import yaml
except ImportError as error:
    print(f"skipped: {error.name} is not installed")
    sys.exit(77)

VERSION = "1.30"
FILE = (pathlib.Path(__file__).parents[2] / "deploy/kubernetes/headroom.yaml")


def container_of(job):
    return job["spec"]["template"]["spec"]["containers"][0]


def flag(container, name):
    for word in container["args"]:
        if word.startswith(name + "="):
            return word[len(name) + 1:]
    raise AssertionError(f"{container['name']} has no {name}")


def mounts_are_volumes(job):
    spec = job["spec"]["template"]["spec"]
    volumes = {volume["name"] for volume in spec["volumes"]}
    mounts = {mount["name"] for mount in container_of(job)["volumeMounts"]}
    assert mounts == volumes, (mounts, volumes)


def check_pieces(found):
    service = found["Service", "headroom-coordinator"]
    coordinator = found["Job", "headroom-coordinator"]
    worker = found["Job", "headroom-worker"]
    budget = found["PodDisruptionBudget", "headroom-coordinator"]
    labels = coordinator["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"] == labels
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

    claims = {name for kind, name in found if kind == "PersistentVolumeClaim"}
    used = set()
    for job in (coordinator, worker):
        mounts_are_volumes(job)
        pod = job["spec"]["template"]["spec"]
        assert pod["restartPolicy"] == "Never"  # podFailurePolicy wants it
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        for volume in pod["volumes"]:
            used.add(volume.get("persistentVolumeClaim", {}).get("claimName"))
            if "secret" in volume:  # others may not read a key
                assert volume["secret"]["defaultMode"] & 0o007 == 0
    assert used - {None} == claims, (used, claims)

    drained = [rule for rule in spec["podFailurePolicy"]["rules"]
               if 130 in rule.get("onExitCodes", {}).get("values", [])]
    assert [rule["action"] for rule in drained] == ["Ignore"]


def main():
    documents = list(yaml.safe_load_all(FILE.read_text()))
    assert len(documents) == 8, len(documents)
    for document in documents:
        kubernetes_validate.validate(document, VERSION, strict=True)
    found = {(d["kind"], d["metadata"]["name"]): d for d in documents}
    check_pieces(found)
    # A mistake is found: this test can fail.
    broken = dict(found["Service", "headroom-coordinator"], specs={})
    try:
        kubernetes_validate.validate(broken, VERSION, strict=True)
    except kubernetes_validate.ValidationError:
        pass
    else:
        raise AssertionError("a wrong key was not noticed")
    images = re.findall(r"image: (\S+)", FILE.read_text())
    assert len(set(images)) == 2
    print(f"{len(documents)} documents are valid for Kubernetes {VERSION}")


main()
