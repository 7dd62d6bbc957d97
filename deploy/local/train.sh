#!/usr/bin/env bash
# From a bare Debian machine to a trained detector: sets up, builds, trains.
# Finished steps are not repeated.
#
#   bash deploy/local/train.sh            draws a small data set, trains on it
#   bash deploy/local/train.sh FLAGS      trains with these flags of
#                                         `headroom train`
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
called_from="$PWD"

jobs="$(build_jobs)"
compiling=$(((8 + jobs - 1) / jobs))
say "four steps: system packages (1 to 3 minutes), LibTorch (0.5 to 0.8 GB, fetched beside the next step), compiling (about $compiling minutes with $jobs jobs), training; what is there already is not done again"
say "1 of 4: system packages"
bash "$repository/deploy/local/setup.sh" packages
say "2 of 4: fetching LibTorch beside step 3: a minute at 100 Mbit/s"
bash "$repository/deploy/local/setup.sh" libtorch &
fetching=$!
trap 'kill "$fetching" 2>/dev/null || true' EXIT
say "3 of 4: compiling, about $compiling minutes"
bash "$repository/deploy/local/build.sh" --without-libtorch headroom headroom-shapes
if kill -0 "$fetching" 2>/dev/null; then
  say "2 of 4: waiting for LibTorch, which the rest needs"
fi
wait "$fetching" || die "LibTorch could not be provided: see above"
trap - EXIT
bash "$repository/deploy/local/build.sh" headroom headroom-worker headroom-shapes

if [[ $# -gt 0 ]]; then
  say "4 of 4: training, as long as the flags say"
  cd "$called_from"
  exec "$repository/build/bin/headroom" train "$@"
fi
say "4 of 4: training, about 4 minutes on two cores"
cd "$repository"
if [[ ! -f runs/shapes/data.yaml ]]; then
  say "drawing a data set into runs/shapes"
  build/bin/headroom-shapes runs/shapes --train 512 --val 64 --size 160
fi
# One batch-norm group per batch: a feature that one image in a hundred has is
# scaled alike in training and validation only if groups are large. AdamW,
# because a network with random weights learns faster with it from so few
# images.
exec build/bin/headroom train --data runs/shapes/data.yaml --cfg yolov5n \
  --img 160 --batch 32 --bn-group 32 --optimizer AdamW --set hyp.lr0=0.002 \
  --epochs 50 --processes 2 --device cpu --seed 0 --name shapes
