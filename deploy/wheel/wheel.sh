#!/usr/bin/env bash
# Packs the built programs as a wheel, from the same files as bundle.sh.
#
#   wheel.sh [FOLDER]     default build/wheel; prints the wheel's path
#
# REQUIRES: build/ (deploy/local/build.sh); HEADROOM_BUILD_FOLDER names another.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../local/common.sh"
source "$repository/deploy/bundle/collect.sh"

build="${HEADROOM_BUILD_FOLDER:-$repository/build}"
out="$(realpath -m "${1:-$build/wheel}")"
staging="$(mktemp -d)"
trap 'rm -rf "$staging"' EXIT
cp -r "$repository"/deploy/wheel/headroom_program \
  "$repository"/deploy/python/{headroom_train,headroom.py} "$staging"
collect_programs "$staging/headroom_program"
rm "$staging/headroom_program/README.md"  # describes how to unpack a bundle
find "$staging" -name __pycache__ -prune -exec rm -r {} +
mkdir -p "$out"
python3 -B "$repository/deploy/wheel/pack_wheel.py" "$repository" "$staging" "$out"
