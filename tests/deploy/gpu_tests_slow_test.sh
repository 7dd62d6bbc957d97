#!/usr/bin/env bash
# Tests the archive of deploy/local/gpu_tests.sh from end to end without a GPU:
# it is packed, unpacked in an empty folder, and run on the test device.
#
#   gpu_tests_slow_test.sh BUILD LIBTORCH
set -euo pipefail
build="$1"
export HEADROOM_LIBTORCH="$2"
repository="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
folder="$build/tests/gpu_tests_kit"
rm -rf "$folder"
mkdir -p "$folder"
bash "$repository/deploy/local/gpu_tests.sh" pack --without-card --build "$build" --out "$folder/kit.tar.zst"
tar -C "$folder" -xf "$folder/kit.tar.zst"
# This machine may have two cores that other programs use too, so each part gets
# three times its usual seconds.
bash "$folder/headroom-gpu-tests/gpu_tests.sh" run --without-card --parts all --seconds 3030 --results "$folder/results"
# Each part has run, and its output is stored.
python3 - "$folder/results" <<'END'
import json, pathlib, sys
folder = pathlib.Path(sys.argv[1])
summary = json.loads((folder / 'summary.json').read_text())
assert summary['verdict'] == 'passed' and len(summary['parts']) == 23, summary['verdict']
for part in summary['parts']:
    assert part['state'] == 'passed' and (folder / part['file']).exists(), part
assert (folder / 'summary.md').read_text().startswith('# GPU tests: passed\n')
END
