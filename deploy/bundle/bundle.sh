#!/usr/bin/env bash
# Packs the built programs with their third-party libraries (but not LibTorch,
# CUDA, or the C and C++ libraries) into a folder that runs wherever it is
# unpacked.
#
#   bundle.sh [OUT.tar.gz [LIMIT_MIB]]   default build/headroom-bundle.tar.gz, 40
#
# REQUIRES: build/ (deploy/local/build.sh); HEADROOM_BUILD_FOLDER names another.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../local/common.sh"
source "$repository/deploy/bundle/collect.sh"

build="${HEADROOM_BUILD_FOLDER:-$repository/build}"
out="$(realpath -m "${1:-$build/headroom-bundle.tar.gz}")"
limit_mib="${2:-40}"
name="headroom"

staging="$(mktemp -d)"
trap 'rm -rf "$staging"' EXIT
folder="$staging/$name"
collect_programs "$folder"

tar -C "$staging" --sort=name --owner=0 --group=0 --numeric-owner -cf - "$name" |
  gzip -6n >"$staging/bundle.tar.gz"
bytes="$(stat -c %s "$staging/bundle.tar.gz")"
limit=$((limit_mib * 1024 * 1024))
((bytes <= limit)) ||
  die "the bundle has $bytes bytes, but may have $limit ($limit_mib MiB)"
mkdir -p "$(dirname "$out")"
mv "$staging/bundle.tar.gz" "$out"
say "$out: $((bytes / 1024)) KiB of at most $((limit / 1024)), unpacked $(du -sk "$folder" | cut -f1) KiB"
