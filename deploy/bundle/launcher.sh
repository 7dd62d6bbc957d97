#!/bin/sh
# Starts the program of its own name with the libraries beside it and with
# LibTorch. HEADROOM_LIBTORCH names the folder that contains torch/ 2.11.0; for
# a pip installation that is site-packages. A caller that searches for LibTorch
# (deploy/wheel) sets HEADROOM_PIP_LIBTORCH to the folder, or
# HEADROOM_NO_LIBTORCH to the message to print if there is none.
set -eu

name="$(basename "$0")"
here="$(cd "$(dirname "$(readlink -f "$0")")/.." && pwd)"
die() {
  echo "[libtorch] $*" >&2
  exit 2
}

# headroom needs LibTorch only for commands that start workers.
needs_libtorch() {
  [ "$name" = headroom ] || return 0
  for word in "$@"; do
    case "$word" in
      -h | --help) return 1 ;;
    esac
  done
  case "${1:-}" in
    train | val | agent | verify | tile | detect | export | prune | pack) return 0 ;;
    *) return 1 ;;
  esac
}

libraries="$here/lib"
root="${HEADROOM_LIBTORCH:-${HEADROOM_PIP_LIBTORCH:-}}"
if [ -n "$root" ]; then
  [ -f "$root/torch/lib/libtorch_cpu.so" ] ||
    die "HEADROOM_LIBTORCH=$root holds no torch/lib/libtorch_cpu.so: name the folder that holds torch/"
  header="$root/torch/include/torch/headeronly/version.h"
  if [ -f "$header" ]; then
    version=""
    while read -r define key value; do
      case "$define $key" in
        "#define TORCH_VERSION_MAJOR") version="$value" ;;
        "#define TORCH_VERSION_MINOR") version="$version.$value" ;;
      esac
    done <"$header"
    [ "$version" = 2.11 ] ||
      die "HEADROOM_LIBTORCH=$root is LibTorch $version, but 2.11 is needed: install torch==2.11.0"
  fi
  libraries="$libraries:$root/torch/lib"
  for folder in "$root"/nvidia/*/lib; do
    [ ! -d "$folder" ] || libraries="$libraries:$folder"
  done
elif needs_libtorch "$@"; then
  die "${HEADROOM_NO_LIBTORCH:-HEADROOM_LIBTORCH is not set: name the folder that holds torch/ 2.11.0}"
fi
unset HEADROOM_NO_LIBTORCH HEADROOM_PIP_LIBTORCH
# Programs of the user, such as ffmpeg, are started with the former path
# (parallel/base/environment.h).
export HEADROOM_FORMER_LIBRARY_PATH="${HEADROOM_FORMER_LIBRARY_PATH-${LD_LIBRARY_PATH-}}"
export LD_LIBRARY_PATH="$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
exec "$here/libexec/$name" "$@"
