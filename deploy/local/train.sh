#!/usr/bin/env bash
# From a bare Debian machine to a trained detector: sets up, builds, trains.
#
#   bash deploy/local/train.sh            draws a small data set, trains on it
#   bash deploy/local/train.sh FLAGS      trains as the flags of
#                                         `headroom train` say
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
called_from="$PWD"

say "1 of 4: system packages; 2 of 4: LibTorch, 0.5 to 0.8 GB to fetch, beside"
say "  3 of 4: compiling, about 10 minutes of processor time for $(build_jobs) jobs;"
say "  4 of 4: training. What is there already is not done again."
bash "$repository/deploy/local/setup.sh" packages
bash "$repository/deploy/local/setup.sh" libtorch &
fetching=$!
trap 'kill "$fetching" 2>/dev/null || true' EXIT
say "3 of 4: compiling what needs no LibTorch"
bash "$repository/deploy/local/build.sh" --without-libtorch headroom headroom-shapes
wait "$fetching" || die "LibTorch could not be provided: see above"
trap - EXIT
say "3 of 4: compiling the rest"
bash "$repository/deploy/local/build.sh" headroom headroom-worker headroom-shapes
say "4 of 4: training"

if [[ $# -gt 0 ]]; then
  cd "$called_from"
  exec "$repository/build/bin/headroom" train "$@"
fi
cd "$repository"
if [[ ! -f runs/shapes/data.yaml ]]; then
  say "drawing a data set into runs/shapes"
  build/bin/headroom-shapes runs/shapes --train 512 --val 64 --size 160
fi
# Statistics over the whole batch: a feature that one image in a hundred shows
# is scaled alike in training and validation only where groups are large. AdamW,
# because a network with random weights learns so few images sooner with it.
exec build/bin/headroom train --data runs/shapes/data.yaml --cfg yolov5n \
  --img 160 --batch 32 --bn-group 32 --optimizer AdamW --set hyp.lr0=0.002 \
  --epochs 50 --processes 2 --device cpu --seed 0 --name shapes
