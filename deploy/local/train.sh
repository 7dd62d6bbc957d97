#!/usr/bin/env bash
# From a bare Debian machine to a trained detector: sets up, builds, trains.
#
#   bash deploy/local/train.sh            draws a small data set, trains on it
#   bash deploy/local/train.sh FLAGS      trains as the flags of
#                                         `headroom train` say
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
called_from="$PWD"
bash "$repository/deploy/local/setup.sh"
bash "$repository/deploy/local/build.sh" headroom headroom-worker headroom-shapes

if [[ $# -gt 0 ]]; then
  cd "$called_from"
  exec "$repository/build/bin/headroom" train "$@"
fi
cd "$repository"
if [[ ! -f runs/shapes/data.yaml ]]; then
  say "drawing a data set into runs/shapes"
  build/bin/headroom-shapes runs/shapes --train 512 --val 64 --size 160
fi
exec build/bin/headroom train --data runs/shapes/data.yaml --cfg yolov5n \
  --img 160 --batch 32 --epochs 80 --processes 2 --device cpu --seed 0 \
  --name shapes
