#!/usr/bin/env python3
"""The third-party parts of a wheel as a CycloneDX document.

    sbom.py WHEEL > sbom.json

The parts are listed in headroom_program/LIBRARIES, which the packing has written.
"""

from __future__ import annotations

import hashlib
import json
import pathlib
import re
import sys
import urllib.parse
import uuid
import zipfile
from typing import Any, Dict, List


def component(package: str, version: str, files: List[str]) -> Dict[str, Any]:
    purl = f"pkg:deb/debian/{package}@{urllib.parse.quote(version, safe='')}?arch=amd64"
    return {"type": "library", "name": package, "version": version, "purl": purl, "bom-ref": purl,
            "properties": [{"name": "headroom:file", "value": name} for name in files]}


def document(wheel: pathlib.Path) -> Dict[str, Any]:
    with zipfile.ZipFile(wheel) as archive:
        libraries = archive.read("headroom_program/LIBRARIES").decode()
        info = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = archive.read(info).decode()
    packages: Dict[str, Dict[str, Any]] = {}
    for line in libraries.splitlines():
        library, package, version = line.split("\t")
        if package == "-":
            raise SystemExit(f"sbom.py: no Debian package is known for {library}: "
                             "make releases on Debian, from its packages")
        packages.setdefault(package, component(package, version, []))["properties"].append(
            {"name": "headroom:file", "value": library})
    torch = re.search(r"^Requires-Dist: torch==(\S+)$", metadata, re.MULTILINE)
    own_version = re.search(r"^Version: (\S+)$", metadata, re.MULTILINE)
    if torch is None or own_version is None:
        raise SystemExit(f"sbom.py: {wheel} names no version, or no torch")
    purl = f"pkg:pypi/torch@{torch[1]}"
    beside = {"type": "library", "name": "torch", "version": torch[1], "purl": purl,
              "bom-ref": purl, "scope": "required",
              "description": "Not in the wheel: installed beside it."}
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    own = f"pkg:pypi/headroom-train@{own_version[1]}"
    return {
        "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, digest)}",
        "metadata": {"component": {
            "type": "application", "name": "headroom-train", "version": own_version[1], "purl": own,
            "bom-ref": own, "licenses": [{"license": {"id": "Apache-2.0"}}],
            "hashes": [{"alg": "SHA-256", "content": digest}]}},
        "components": [packages[name] for name in sorted(packages)] + [beside],
        "dependencies": [{"ref": own, "dependsOn": sorted(
            [each["bom-ref"] for each in packages.values()] + [purl])}],
    }


if __name__ == "__main__":
    print(json.dumps(document(pathlib.Path(sys.argv[1])), indent=1))
