#!/usr/bin/env python3
"""Installs the wheel in an environment of its own, and compares it with the built program.

    wheel_test.py BUILD LIBTORCH

LIBTORCH is the folder that contains torch/, as unpacked from torch's wheel. The
environment gets links to its files, as if pip had installed them.
HEADROOM_TORCH_SITE names another site-packages folder. Exit 77 (skipped) if
torch or venv is not available.
"""

import base64
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
BUILD, LIBTORCH = (pathlib.Path(word) for word in sys.argv[1:3])
TRAIN = ["train", "--cfg", "yolov5n", "--img", "64", "--batch", "4", "--processes", "1",
         "--threads", "1", "--synthetic-input", "--max-steps", "3", "--device", "cpu"]
# Amazon Linux 2023 and RHEL 9; Ubuntu 22.04 has glibc 2.35 and GLIBCXX 3.4.30.
OLDEST = ["GLIBC=2.34", "GLIBCXX=3.4.29", "CXXABI=1.3.13", "GCC=4.8"]


def run(*words, code=0, cwd=None, **variables):
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": os.environ.get("HOME", "/"),
                   **variables}
    done = subprocess.run([str(word) for word in words], cwd=cwd, env=environment, check=False,
                          text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
    return done.stdout, done.stderr


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


def figures(folder):
    lines = (folder / "runs/train/exp/steps.jsonl").read_text().splitlines()
    return [(step["loss"], step["grad_norm"]) for step in map(json.loads, lines)]


class Environment:
    """A virtual environment. Its torch consists of links to the files, and metadata with name and version."""

    def __init__(self, folder):
        self.folder = folder
        run(sys.executable, "-m", "venv", folder)
        self.site = next(folder.glob("lib/python3*/site-packages"))

    def pip(self, *words, code=0):
        return run(self.folder / "bin/python", "-m", "pip", "install", "--no-index", *words,
                   code=code)

    def program(self, *words, **options):
        return run(self.folder / "bin/headroom", *words, **options)

    def set_torch(self, version, files=()):
        for old in [*self.site.glob("torch-*.dist-info/*"), self.site / "torch",
                    self.site / "nvidia"]:
            old.unlink(missing_ok=True)
        for old in self.site.glob("torch-*.dist-info"):
            old.rmdir()
        for name, target in files:
            (self.site / name).symlink_to(target)
        info = self.site / f"torch-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n")


def check_contents(wheel, unpacked):
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(unpacked)
        names = set(archive.namelist())
        record = next(name for name in names if name.endswith("/RECORD"))
        for line in archive.read(record).decode().splitlines():
            name, digest, size = line.rsplit(",", 2)
            names.remove(name)
            if name != record:
                content = archive.read(name)
                found = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=")
                assert (digest, size) == (f"sha256={found.decode()}", str(len(content))), name
        assert not names, f"not in RECORD: {names}"
    program = unpacked / "headroom_program"
    inside = {path.name for path in (program / "lib").iterdir()}
    unwanted = [name for name in inside if re.match(
        r"lib(stdc\+\+|gcc_s|c\.|X|xcb|GL|lapack|blas|gfortran|mpi|torch|opencv)", name)]
    assert len(inside) > 40 and not unwanted, unwanted
    # The plugin of the ghost ranks is only for tests on a card.
    plugins = set(BUILD.glob("bin/libheadroom_*.so")) - {BUILD / "bin/libheadroom_ghost_hold.so"}
    assert plugins
    for plugin in plugins:
        assert (program / "libexec" / plugin.name).exists(), f"{plugin} is not in the wheel"
    assert not list(unpacked.rglob("*.pyc"))
    compiled = {path for path in unpacked.rglob("*.so*") if program not in path.parents}
    assert not compiled, f"compiled Python: {compiled}"
    # Another distribution has the name headroom, and a package headroom/.
    assert wheel.name.startswith("headroom_train-"), wheel
    outside = {path.name for path in unpacked.iterdir() if path.suffix != ".dist-info"}
    assert outside == {"headroom.py", "headroom_program", "headroom_train"}, outside
    metadata = next(unpacked.glob("headroom_train-*.dist-info/METADATA")).read_text()
    assert "\nName: headroom-train\n" in metadata, metadata


def check_symbols(unpacked, wheel):
    tool = REPOSITORY / "deploy/bundle/symbol_versions.py"
    printed, _ = run(sys.executable, "-B", tool, "check", unpacked, *OLDEST)
    print(printed, end="")
    assert "headroom_program/libexec/headroom-worker" in printed
    # Checks that this test can fail: it finds a file that needs a newer library than allowed.
    _, refused = run(sys.executable, "-B", tool, "check", unpacked, "GLIBC=2.17", code=1)
    assert re.search(r"libexec/headroom asks for GLIBC_\S+, but may ask for 2.17", refused)
    version = (unpacked / "headroom_program/VERSION").read_text()
    glibc = re.search(r"^GLIBC 2\.(\d+) or newer$", version, re.MULTILINE)
    assert f"-manylinux_2_{glibc[1]}_x86_64.whl" in wheel.name, (wheel, version)


def check_release(folder, wheel):
    bom = json.loads(run(sys.executable, "-B", REPOSITORY / "deploy/wheel/sbom.py", wheel)[0])
    versions = {each["name"]: each["version"] for each in bom["components"]}
    assert versions["torch"] == "2.11.0" and len(versions) > 40, versions
    for package in ("libgrpc++1.51", "libopencv-core-dev"):
        found, _ = run("dpkg-query", "-W", "-f", "${Version}", package)
        assert versions[package] == found, (package, versions[package], found)

    script = ["bash", REPOSITORY / "deploy/wheel/release.sh", folder]
    variables = {"HEADROOM_BUILD_FOLDER": str(BUILD), "HEADROOM_LIBTORCH": str(LIBTORCH)}
    git = ["git", "-c", "safe.directory=*", "-C", REPOSITORY]
    try:
        changed, _ = run(*git, "status", "--porcelain", "--untracked-files=no")
    except AssertionError:
        print("release.sh not tried: this is no git repository")
        return
    if changed:
        _, refused = run(*script, code=1, **variables)
        assert "not committed" in refused, refused
        print("release.sh not tried: there are changes that are not committed")
        return
    _, said = run(*script, **variables)
    assert "as the project headroom-train" in said and f"upload {folder}/{wheel.name}\n" in said, said
    sums = (folder / "SHA256SUMS").read_text()
    listed = {line.split("  ")[1] for line in sums.splitlines()}
    assert listed == {path.name for path in folder.iterdir()} - {"SHA256SUMS"}, sums
    run("sha256sum", "--check", "--strict", "SHA256SUMS", cwd=folder)
    # release.sh builds the wheel anew: the same files must give the same bytes.
    assert hashlib.sha256(wheel.read_bytes()).hexdigest() in sums, sums
    archive = next(folder.glob("*-source.tar.gz"))
    assert f"{archive.name[:-14]}/CMakeLists.txt" in run("tar", "-tzf", archive)[0].splitlines()
    notes = (folder / "NOTES.md").read_text()
    assert "GLIBC 2." in notes and "pip install headroom-train==" in notes, notes


def check_refusals(environment, wheel, torch):
    # pip refuses a wheel for another processor, and one without torch, before it installs anything.
    other = wheel.with_name(re.sub("x86_64", "aarch64", wheel.name))
    other.write_bytes(wheel.read_bytes())
    assert "is not a supported wheel on this platform" in environment.pip(other, code=1)[1]
    assert "torch==2.11.0" in environment.pip(wheel, code=1)[1]

    environment.pip("--no-deps", wheel)
    refusals = [(None, r"torch is not installed in \S+: \S+ -m pip install torch==2\.11\.0"),
                ("2.10.0", r"torch 2\.10\.0 is installed in \S+, but 2\.11\.0 is needed: "
                           r"\S+ -m pip install torch==2\.11\.0")]
    for version, line in refusals:
        if version:
            environment.set_torch(version, torch)
        for words in (TRAIN, ["detect", "--weights", "none.pt"]):
            _, refused = environment.program(*words, code=2)
            assert re.fullmatch(r"\[libtorch\] " + line + r"\n", refused), refused
        run(environment.folder / "bin/headroom-worker", "--version", code=2)
        # Commands without tensors still work.
        assert environment.program("train", "--help")[0].startswith("headroom train: ")
        assert environment.program("--version")[0] == run(BUILD / "bin/headroom", "--version")[0]


def check_names(environment, wheel, folder):
    """Installs another distribution with a package and a program `headroom` before and after the wheel."""
    python, wheel_of_others = environment.folder / "bin/python", folder / "headroom-9.9-py3-none-any.whl"
    with zipfile.ZipFile(wheel_of_others, "w") as archive:
        info = "headroom-9.9.dist-info"
        for name, text in {"headroom/__init__.py": "whose = 'theirs'\n\ndef main():\n    print(whose)\n",
                           f"{info}/METADATA": "Metadata-Version: 2.1\nName: headroom\nVersion: 9.9\n",
                           f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
                           f"{info}/entry_points.txt": "[console_scripts]\nheadroom = headroom:main\n",
                           f"{info}/RECORD": ""}.items():
            archive.writestr(name, text)
    _, said = run(python, "-c", "import headroom", code=1)
    assert said.splitlines()[-1] == ("ImportError: headroom-train is imported as headroom_train: "
                                     "write `import headroom_train as headroom`"), said
    whose = [python, "-c", "import headroom; print(headroom.whose)"]
    client = [python, "-c", "import headroom_train; headroom_train.plan(cfg='yolov5n')"]
    environment.pip("--no-deps", wheel_of_others)
    assert run(*whose)[0] == "theirs\n"
    _, said = run(*client, code=1)
    assert "bin/headroom is not the trainer headroom, but another program" in said, said
    environment.pip("--no-deps", "--force-reinstall", wheel)
    assert run(*whose)[0] == "theirs\n"
    assert environment.program("--version")[0] == run(BUILD / "bin/headroom", "--version")[0]
    run(python, "-m", "pip", "uninstall", "--yes", "headroom-train")
    assert run(*whose)[0] == "theirs\n", "pip has removed a file of another distribution"
    run(python, "-m", "pip", "uninstall", "--yes", "headroom")


def check_training(environment, wheel, torch, folder):
    (folder / "built").mkdir()
    run(BUILD / "bin/headroom", *TRAIN, cwd=folder / "built")
    built = figures(folder / "built")
    assert len(built) == 3
    # The CPU build has a version of its own, and no files of CUDA.
    half = folder / "half/torch"
    (half / "lib").mkdir(parents=True)
    source = dict(torch)["torch"]
    (half / "include").symlink_to(source / "include")
    for name in ("libtorch_cpu.so", "libc10.so", "libgomp.so.1"):
        (half / "lib" / name).symlink_to(source / "lib" / name)
    kinds = {"2.11.0": torch, "2.11.0+cpu": [("torch", half), *torch[1:]]}
    for version, files in kinds.items():
        environment.set_torch(version, files)
        environment.pip("--force-reinstall", "--no-deps", wheel)
        environment.pip(wheel)  # with its requirements: torch is installed
        here = folder / version
        here.mkdir()
        environment.program(*TRAIN, cwd=here)
        assert figures(here) == built, (version, figures(here), built)
    # The client finds the program of its environment.
    client = "import headroom_train; print(headroom_train.plan(cfg='yolov5n', synthetic_input=True, img=64)['plan']['layout'])"
    assert "data" in run(environment.folder / "bin/python", "-c", client)[0]


def main():
    site = os.environ.get("HEADROOM_TORCH_SITE")
    root = pathlib.Path(site) if site else LIBTORCH
    torch = [(name, root / name) for name in ("torch", "nvidia") if (root / name).exists()]
    header = root / "torch/include/torch/headeronly/version.h"
    if not header.exists() or "TORCH_VERSION_MINOR 11" not in header.read_text():
        skip(f"{root} holds no torch 2.11.0")
    print(f"torch: that of {root}")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        try:
            environment = Environment(folder / "environment")
        except AssertionError as error:
            skip(f"no virtual environment: {error}")
        printed, _ = run("bash", REPOSITORY / "deploy/wheel/wheel.sh", folder / "wheel",
                         HEADROOM_BUILD_FOLDER=str(BUILD), HEADROOM_LIBTORCH=str(LIBTORCH))
        wheel = pathlib.Path(printed.strip())
        check_contents(wheel, folder / "unpacked")
        check_symbols(folder / "unpacked", wheel)
        check_refusals(environment, wheel, torch)
        check_names(environment, wheel, folder)
        check_training(environment, wheel, torch, folder)
        check_release(folder / "release", wheel)
        print(f"{wheel.name}: {wheel.stat().st_size >> 10} KiB")


if __name__ == "__main__":
    main()
