#!/usr/bin/env bash
# Prepares a Debian 12 machine for building Headroom: system packages and
# LibTorch. A second run changes nothing and needs no network.
#
#   setup.sh packages         only the system packages
#   setup.sh libtorch         only LibTorch
#   HEADROOM_LIBTORCH=/path   use this LibTorch (the folder that contains torch/)
#                             instead of downloading one into .deps/
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

as_root() {
  if [[ $(id -u) -eq 0 ]]; then
    env DEBIAN_FRONTEND=noninteractive "$@"
  elif command -v sudo >/dev/null; then
    sudo env DEBIAN_FRONTEND=noninteractive "$@"
  else
    die "not root and no sudo: as root, run: apt-get install ${missing[*]}"
  fi
}

# $1 is the name of a list beside this script.
install_packages() {
  local wanted present list="$repository/deploy/local/$1"
  mapfile -t wanted <"$list"
  command -v dpkg-query >/dev/null ||
    die "this is not Debian: install the counterparts of $list by hand"
  present="$(dpkg-query -W -f '${Package} ${db:Status-Abbrev}\n' "${wanted[@]}" 2>/dev/null |
    awk '$2 == "ii" {print $1}' || true)"
  mapfile -t missing < <(comm -23 <(printf '%s\n' "${wanted[@]}" | sort) \
    <(printf '%s\n' "$present" | sort))
  if [[ ${#missing[@]} -eq 0 ]]; then
    say "packages: all ${#wanted[@]} of $1 are installed"
    return
  fi
  say "packages: installing ${#missing[@]} of ${#wanted[@]}: ${missing[*]}"
  # One line per package, which shows the progress.
  as_root apt-get -q update >&2
  as_root apt-get -q -y --no-install-recommends install "${missing[@]}" >&2
}

# Downloads the wheels with pip, checked by their hashes.
fetch_wheels() {
  local python=python3 list="$1" into="$2" minor platforms=()
  shift 2
  for minor in {17..28}; do platforms+=(--platform "manylinux_2_${minor}_x86_64"); done
  "$python" -m pip --version >/dev/null 2>&1 || python=/usr/bin/python3
  # The temporary copy goes beside the result, because /tmp is often small.
  TMPDIR="$into" "$python" -m pip download --quiet --no-cache-dir -d "$into" \
    --only-binary=:all: --python-version 311 --implementation cp --abi cp311 \
    --platform manylinux2014_x86_64 "${platforms[@]}" -r "$list" "$@" >&2
}

# While this script runs, prints every 10 s how many of $2 MB are in folder $1. Prints whole lines,
# because train.sh compiles at the same time.
report_size() {
  local megabytes filled bar left begin=$SECONDS
  while sleep 10 && kill -0 "$$" 2>/dev/null; do
    megabytes="$(du -sm "$1" 2>/dev/null | cut -f1 || true)"  # files vanish
    megabytes="${megabytes:-0}"
    filled=$((megabytes < $2 ? 20 * megabytes / $2 : 20))
    printf -v bar '%*s' "$filled" ''
    printf -v bar '%-20s' "${bar// /#}"
    left=""
    if ((megabytes >= SECONDS - begin && megabytes < $2)); then
      left=", $((megabytes / (SECONDS - begin))) MB/s, about $(((SECONDS - begin) * ($2 - megabytes) / megabytes)) s left"
    fi
    say "LibTorch: [${bar// /.}] $megabytes of about $2 MB$left"
  done
}

check_free_disk() {
  local needed_mb="$1" free_mb
  free_mb="$(df -Pm "$dependencies" | awk 'NR == 2 {print $4}')"
  ((free_mb >= needed_mb)) ||
    die "$dependencies: LibTorch needs $needed_mb MB of disk but $free_mb MB are free: free some, or set HEADROOM_LIBTORCH=/path"
}

unpack_libtorch() {
  local kind="$1" wheels="$2" into="$3" wheel
  for wheel in "$wheels"/*.whl; do
    case "$kind:$(basename "$wheel")" in
      cpu:torch-*)
        unzip -q -o "$wheel" 'torch/include/*' torch/lib/libtorch_cpu.so \
          torch/lib/libc10.so torch/lib/libgomp.so.1 -d "$into"
        ;;
      link:torch-*)
        unzip -q -o "$wheel" 'torch/include/*' torch/lib/libtorch_cpu.so \
          torch/lib/libc10.so torch/lib/libgomp.so.1 \
          torch/lib/libtorch_cuda.so torch/lib/libc10_cuda.so \
          torch/lib/libtorch_nvshmem.so -d "$into"
        ;;
      cuda:torch-*)
        unzip -q -o "$wheel" 'torch/include/*' 'torch/lib/*' -d "$into"
        ;;
      *:nvidia_*) unzip -q -o "$wheel" -d "$into" ;;
    esac
  done
}

# The requirements of LibTorch's CUDA half, from the wheel's metadata.
cuda_requirements() {
  unzip -p "$1"/torch-*.whl '*.dist-info/METADATA' |
    sed -n -E 's/^Requires-Dist: ((nvidia-|cuda-toolkit)[^;]*).*/\1/p'
}

fetch_libtorch() {
  local kind="$1" root="$dependencies/libtorch" wheels="$dependencies/wheels"
  local partial="$dependencies/libtorch.partial" started=$SECONDS megabytes reporter
  mkdir -p "$dependencies"
  rm -rf "$root" "$partial" "$wheels"
  if [[ $kind == cuda ]]; then
    megabytes=2700
    check_free_disk 9000
    say "LibTorch: fetching torch $libtorch_version with its CUDA libraries (about $megabytes MB)"
  elif [[ $kind == link ]]; then
    megabytes=775
    check_free_disk 3000
    say "LibTorch: nvcc but no NVIDIA driver here; fetching torch $libtorch_version for its CPU part and what the CUDA plugin links to ($megabytes MB)"
  else
    megabytes=544
    check_free_disk 1600
    say "LibTorch: no NVIDIA driver here; fetching torch $libtorch_version for its CPU part ($megabytes MB)"
  fi
  mkdir -p "$wheels" "$partial"
  report_size "$wheels" "$megabytes" &
  reporter=$!
  disown "$reporter"  # no message when it ends
  fetch_wheels "$repository/deploy/local/libtorch.txt" "$wheels" --no-deps --require-hashes
  if [[ $kind == link ]]; then
    fetch_wheels "$repository/deploy/local/cuda_link.txt" "$wheels" --no-deps --require-hashes
  fi
  if [[ $kind == cuda ]]; then
    cuda_requirements "$wheels" >"$wheels/cuda.txt"
    fetch_wheels "$wheels/cuda.txt" "$wheels"
  fi
  kill "$reporter" || true
  say "LibTorch: unpacking into $root"
  unpack_libtorch "$kind" "$wheels" "$partial"
  rm -rf "$wheels"
  mv "$partial" "$root"
  printf '%s %s\n' "$libtorch_version" "$kind" >"$root/COMPLETE"
  say "LibTorch: ready after $((SECONDS - started)) s"
}

provide_libtorch() {
  local kind=cpu serves found
  if [[ -n ${HEADROOM_LIBTORCH:-} ]]; then
    found="$(version_of_libtorch "$HEADROOM_LIBTORCH")"
    [[ -n $found ]] || die "HEADROOM_LIBTORCH=$HEADROOM_LIBTORCH holds no torch/include/torch/headeronly/version.h: name the folder that holds torch/, or unset it"
    [[ $found == "$libtorch_version" ]] || die "HEADROOM_LIBTORCH=$HEADROOM_LIBTORCH is version $found but $libtorch_version is needed: name another folder, or unset it"
    say "LibTorch: $found in $HEADROOM_LIBTORCH, as HEADROOM_LIBTORCH says"
    return
  fi
  if has_nvidia_driver; then
    kind=cuda
  elif has_nvcc; then
    kind="link"
  fi
  # Each variant contains the one before it and can replace it.
  case $kind in
    cpu) serves="cpu|link|cuda" ;;
    link) serves="link|cuda" ;;
    cuda) serves="cuda" ;;
  esac
  if ! grep -qsE "^$libtorch_version ($serves)\$" "$dependencies/libtorch/COMPLETE"; then
    fetch_libtorch "$kind"
  fi
  found="$(version_of_libtorch "$dependencies/libtorch")"
  [[ $found == "$libtorch_version" ]] || die "$dependencies/libtorch is version ${found:-unknown} but $libtorch_version is needed: delete that folder and run this again"
  say "LibTorch: $(cat "$dependencies/libtorch/COMPLETE") in $dependencies/libtorch"
}

part="${1:-all}"
[[ $part =~ ^(all|packages|libtorch)$ ]] ||
  die "unknown argument $part: packages, libtorch, or none for both"
if [[ $part != libtorch ]]; then
  install_packages packages.txt
  # Only `headroom detect` needs these packages, for videos and maps, and
  # deploy/ssh needs rsync. The subshell keeps a failure from ending this script.
  (install_packages optional_packages.txt) ||
    say "optional packages are missing: headroom detect will read no videos and know no maps, and deploy/ssh needs rsync"
fi
if [[ $part != packages ]]; then
  provide_libtorch
fi
