"""Writes layers and a configuration as the archive of an image (docker load).

    pack_image.py coordinator|cpu|cuda NAME:TAG OUT.tar LAYER.tar...
"""
import gzip
import hashlib
import io
import json
import os
import pathlib
import sys
import tarfile

# As in the Dockerfile; image_test.py compares them.
PATHS = {"coordinator": ["LD_LIBRARY_PATH=/opt/headroom/lib",
                         "PATH=/opt/headroom/libexec:/usr/bin:/bin"],
         "worker": ["HEADROOM_LIBTORCH=/opt/libtorch",
                    "PATH=/opt/headroom/bin:/usr/bin:/bin"]}
HEALTH = {"Test": ["CMD", "headroom", "status", "--coordinator=127.0.0.1:29500",
                   "--certs=/certs", "--json"],
          "Interval": 20 * 10**9, "Timeout": 6 * 10**9, "Retries": 3}


def configuration(variant, diff_ids):
    kind = "coordinator" if variant == "coordinator" else "worker"
    config = {"User": "10001:10001", "Env": PATHS[kind], "WorkingDir": "/tmp",
              "Entrypoint": ["headroom"]}
    if kind == "coordinator":
        # The container's process is the agent, so no health check is needed.
        config["Healthcheck"] = HEALTH
    return {"architecture": "amd64", "os": "linux", "config": config,
            "rootfs": {"type": "layers", "diff_ids": diff_ids}}


def pack_layer(layer, folder):
    """Writes the layer as gzip beside the archive; returns its name and the digest of its content."""
    content = hashlib.sha256()
    packed = folder / f".{os.getpid()}-{layer.name}.gz"
    with open(layer, "rb") as plain, open(packed, "wb") as out:
        with gzip.GzipFile("", "wb", 6, out, mtime=0) as zipped:
            while part := plain.read(1 << 20):
                content.update(part)
                zipped.write(part)
    return packed, f"sha256:{content.hexdigest()}"


def main():
    variant, tag, out, *layers = sys.argv[1:]
    out = pathlib.Path(out)
    packed = []
    try:
        unpacked_bytes = sum(os.path.getsize(layer) for layer in layers)
        diff_ids = []
        for layer in map(pathlib.Path, layers):
            file, diff_id = pack_layer(layer, out.parent)
            packed.append(file)
            diff_ids.append(diff_id)
        config = json.dumps(configuration(variant, diff_ids)).encode()
        names = [f"{diff_id[7:]}.tar.gz" for diff_id in diff_ids]
        config_name = f"{hashlib.sha256(config).hexdigest()}.json"
        manifest = json.dumps([{"Config": config_name, "RepoTags": [tag],
                                "Layers": names}]).encode()
        partial = out.with_name(f".{os.getpid()}-{out.name}")
        packed.append(partial)
        with tarfile.open(partial, "w") as archive:
            for name, text in ((config_name, config), ("manifest.json", manifest)):
                entry = tarfile.TarInfo(name)
                entry.size = len(text)
                archive.addfile(entry, io.BytesIO(text))
            for name, file in zip(names, packed):
                archive.add(file, arcname=name)
        partial.rename(out)
    finally:
        for file in packed:
            file.unlink(missing_ok=True)
    print(f"{out}: {tag}, user 10001, {out.stat().st_size >> 20} MiB packed, "
          f"{unpacked_bytes >> 20} MiB unpacked")


main()
