#!/usr/bin/env bash
# Builds the core without the annex (CMake's HEADROOM_ANNEX=OFF) into
# build-core, runs its unit tests, trains a few steps, and shows that a part
# that is left out is refused in one line.
# REQUIRES: setup.sh has run. Needs some 20 minutes on two cores without ccache.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
cd "$repository"

LIBTORCH_ROOT="$(libtorch_root)"
export LIBTORCH_ROOT
cmake --preset release -B build-core -DHEADROOM_ANNEX=OFF >&2
ninja -C build-core -j "$(build_jobs)" >&2
ctest --test-dir build-core -j "$((2 * $(nproc)))" --output-on-failure -L unit -LE slow

folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
core="$repository/build-core/bin"
"$core/headroom-shapes" "$folder/shapes" --train 32 --val 8 --size 64 >&2
(cd "$folder" && "$core/headroom" train --data shapes/data.yaml --cfg yolov5n --img 64 \
  --batch 8 --epochs 1 --processes 2 --workers 1)
(cd "$folder" && "$core/headroom" val --data shapes/data.yaml \
  --weights runs/train/exp/weights/best.safetensors --img 64)
status=0
refusal="$("$core/headroom" prune --weights x.safetensors 2>&1)" || status=$?
[[ $status == 2 && $refusal == *HEADROOM_ANNEX=ON* ]] ||
  die "prune is not refused as it should be ($status): $refusal"
say "the core builds, passes its unit tests, trains and validates alone"
