"""Tests the images that build_image.sh makes. Programs run in them without root's
rights, and cannot write to the root file system.

    image_test.py BUILD LIBTORCH

Exit 77 (skipped) without mmdebstrap, root (for chroot), or a mirror of Debian.
HEADROOM_IMAGES=coordinator,cpu,cuda names the images that are built. A CUDA image
is built and its size is measured, but the test runs nothing in it.
"""
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.request

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
BUILD, LIBTORCH = (pathlib.Path(word) for word in sys.argv[1:3])
# By default, the mirror that this machine itself uses.
MIRROR = os.environ.get("HEADROOM_DEBIAN_MIRROR") or subprocess.run(
    ["apt-get", "indextargets", "--format", "$(SITE)", "Created-By: Packages"], check=False,
    stdout=subprocess.PIPE, text=True).stdout.split("\n")[0]
# The largest unpacked size in MiB. A larger image has something in it that it does not need.
MOST = {"coordinator": 120, "cpu": 660, "cuda": 6040}
TRAIN = ["train", "--cfg=yolov5n", "--img=64", "--batch=4", "--threads=1", "--synthetic-input",
         "--max-steps=3", "--device=cpu", "--page=off", "--noval", "--project=/runs"]


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


def run(*words, code=0, **options):
    done = subprocess.run([str(word) for word in words], check=False, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
    assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
    return done.stdout


def unpack(archive, root):
    """Writes the image's files below `root`; returns its configuration and its tag."""
    with tarfile.open(archive) as image:
        manifest, = json.load(image.extractfile("manifest.json"))
        whole = json.load(image.extractfile(manifest["Config"]))
        for layer in manifest["Layers"]:
            subprocess.run(["tar", "-C", root, "--numeric-owner", "-xzpf", "-"], check=True,
                           input=image.extractfile(layer).read())
    assert len(whole["rootfs"]["diff_ids"]) == len(manifest["Layers"])
    return whole["config"], manifest["RepoTags"][0]


class Container:
    """A mount name space in which only the volumes and /tmp can be written."""

    def __init__(self, root, config, volumes):
        self.root, self.config, self.volumes = root, config, volumes

    def command(self, words):
        user = self.config["User"]
        script = [f"mount --bind {self.root} {self.root}"]
        for name, folder in self.volumes.items():
            script.append(f"mount --bind {folder} {self.root}/{name}")
        script += [f"mount --rbind /dev {self.root}/dev", f"mount -t proc proc {self.root}/proc",
                   f"mount -t tmpfs tmpfs {self.root}/tmp",
                   f"mount -o remount,bind,ro {self.root}",
                   f"cd {self.root}{self.config['WorkingDir']}",
                   f"exec chroot --userspec={user} {self.root} /bin/env -i "
                   f"{shlex.join(self.config['Env'])} {shlex.join(map(str, words))}"]
        return ["unshare", "--mount", "--propagation", "private", "sh", "-euc",
                "\n".join(script)]

    def run(self, *words, code=0):
        return run(*self.command(words), code=code)


def check_dockerfile(config, kind):
    """Checks that the Dockerfile has the same settings for the target `kind`."""
    text = (REPOSITORY / "deploy/docker/Dockerfile").read_text().replace("\\\n", "")
    target = text.split(f" AS {kind}\n")[1].split("\nFROM ")[0]
    for line in config["Env"]:
        assert line in target, (line, target)
    assert f"USER {config['User']}\n" in target
    assert f"ENTRYPOINT {json.dumps(config['Entrypoint'])}" in target
    assert f"WORKDIR {config['WorkingDir']}\n" in target
    health = config.get("Healthcheck")
    found = re.search(r"HEALTHCHECK .*CMD (\[.*\])", target)
    assert (json.loads(found[1]) if found else None) == (health and health["Test"][1:])


def check_user_and_root(container):
    assert container.run("id", "-u").strip() == "10001"
    for path in ("/new", "/opt/headroom/new", "/etc/new"):
        container.run("touch", path, code=1)
    container.run("touch", "/tmp/new")
    # No process can become root: the image has no setuid program.
    unsafe = [path for path in container.root.rglob("*")
              if path.is_file() and not path.is_symlink() and path.stat().st_mode & 0o6000]
    assert not unsafe, unsafe


def check_worker(container, volumes):
    container.run(*container.config["Entrypoint"], *TRAIN)
    steps = (volumes["runs"] / "exp/steps.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in steps] == [0, 1, 2], steps
    owners = {path.stat().st_uid for path in volumes["runs"].rglob("*")}
    assert owners == {10001}, owners
    container.run("python3", "-I", "-c", "import http.client, json, ssl; ssl.create_default_context()")
    # The scripts in the manifests of deploy/kubernetes need these programs.
    for words in (["sh", "-euc", "true"], ["getent", "passwd", "headroom"],
                  ["find", "/dev", "-maxdepth", "1"], ["wc", "-l", "/etc/passwd"]):
        container.run(*words)
    assert container.run("sh", "-c", "fc=/etc/fonts/fonts.conf; [ -s $fc ] && "
                         "find /usr/share/fonts -name '*.ttf' | wc -l").strip() != "0"


def check_coordinator(container, volumes):
    run(BUILD / "bin/headroom", "coordinator", "--init-certs", volumes["certs"], "--cert-names",
        "localhost")
    run("chown", "-R", "10001:10001", volumes["certs"])
    health = container.config["Healthcheck"]["Test"][1:]
    container.run(*health, code=5)  # no server yet, so the health check must fail
    words = [*container.config["Entrypoint"], "coordinator", "--listen=127.0.0.1:29500",
             "--certs=/certs", "--log=/state/coordinator.log", "--project=/runs", "--cfg=yolov5n",
             "--synthetic-input", "--img=64", "--batch=4", "--expected-workers=1"]
    coordinator = subprocess.Popen(container.command(words), text=True, stderr=subprocess.PIPE)
    try:
        for line in coordinator.stderr:
            if "listening on" in line:
                break
        state = json.loads(container.run(*health))
        assert state, "the health check found nobody"
    finally:
        coordinator.terminate()
        coordinator.wait()


def main():
    if not shutil.which("mmdebstrap"):
        skip("mmdebstrap is not installed (apt-get install mmdebstrap)")
    if os.geteuid() != 0:
        skip("chroot needs root")
    try:
        urllib.request.urlopen(f"{MIRROR}/dists/bookworm/Release", timeout=20).close()
    except (OSError, ValueError) as error:
        skip(f"no mirror of Debian at {MIRROR}: {error}")
    script = REPOSITORY / "deploy/docker/build_image.sh"
    assert "usage" in subprocess.run(["bash", script, "gpu"], stderr=subprocess.PIPE, text=True,
                                     check=False).stderr
    environment = {**os.environ, "HEADROOM_BUILD_FOLDER": str(BUILD),
                   "HEADROOM_LIBTORCH": str(LIBTORCH), "HEADROOM_DEBIAN_MIRROR": MIRROR}
    for variant in os.environ.get("HEADROOM_IMAGES", "coordinator,cpu").split(","):
        with tempfile.TemporaryDirectory(prefix="headroom-image-") as name:
            folder = pathlib.Path(name)
            folder.chmod(0o755)
            root = folder / "root"
            root.mkdir()
            begin = time.monotonic()
            print(run("bash", script, variant, folder / "image.tar", env=environment).strip())
            seconds = time.monotonic() - begin
            config, tag = unpack(folder / "image.tar", root)
            (folder / "image.tar").unlink()
            mebibytes = int(run("du", "-sm", root).split()[0])
            assert mebibytes <= MOST[variant], (variant, mebibytes)
            kind = "coordinator" if variant == "coordinator" else "worker"
            assert tag.startswith(f"headroom-{kind}"), tag
            check_dockerfile(config, kind)
            volumes = {each: folder / each for each in ("runs", "state", "certs")}
            for volume in volumes.values():
                volume.mkdir()
                os.chown(volume, 10001, 10001)
            container = Container(root, config, volumes)
            check_user_and_root(container)
            if variant == "coordinator":
                check_coordinator(container, volumes)
            elif variant == "cpu":
                check_worker(container, volumes)
            print(f"{variant}: built in {seconds:.0f} s, {mebibytes} MiB, user {config['User']}")


main()
