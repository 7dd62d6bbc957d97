#!/usr/bin/env bash
# The tests that need a GPU, on a machine that has one and nothing else of ours.
#
#   gpu_tests.sh pack             here, after a build: fills build/gpu_tests
#   gpu_tests.sh run [--sanitize] there, in the copied folder; HEADROOM_LIBTORCH
#                                 names the folder that holds torch/ 2.11.0
#
# --sanitize runs the kernels' tests under compute-sanitizer as well.
set -euo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
say() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; }
die() {
  say "error: $*"
  exit 1
}

pack() {
  local repository="$here/../.." into file library
  repository="$(cd "$repository" && pwd)"
  into="$repository/build/gpu_tests"
  [[ -f $repository/build/bin/libheadroom_cuda.so ]] ||
    die "there is no build/bin/libheadroom_cuda.so: build where nvcc is (bash deploy/local/build.sh)"
  rm -rf "$into"
  mkdir -p "$into"
  cp "$repository"/build/tests/{test_cuda,nccl_rank_process,test_device_training} \
    "$repository"/build/bin/{libheadroom_cuda.so,benchmark_gpu_step} \
    "$repository/tests/benchmarks/gpu_step.py" "$here/gpu_tests.sh" "$into"
  # Third-party libraries; LibTorch, CUDA and the C library are the machine's.
  for file in "$into"/{test_cuda,test_device_training,benchmark_gpu_step,libheadroom_cuda.so}; do
    ldd "$file" | awk '/=> \// {print $3}' |
      grep -Ev '/lib(torch[^/]*|c10[^/]*|cu[^/]*|nccl|nv[^/]*|gomp[^/]*|c|m|dl|rt|pthread|gcc_s|stdc[+][+])[.]so' ||
      true
  done | sort -u | while read -r library; do cp -L "$library" "$into"; done
  say "packed $(du -sh "$into" | cut -f1) into $into: copy it and run gpu_tests.sh run there"
}

run() {
  local root="${HEADROOM_LIBTORCH:-}" status=0
  [[ -f $root/torch/lib/libtorch_cuda.so ]] ||
    die "HEADROOM_LIBTORCH='$root' holds no torch/lib/libtorch_cuda.so: name the folder that holds torch/"
  export LD_LIBRARY_PATH="$here:$root/torch/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
  "$here/test_cuda" || status=$?
  # The tests of training on the test device, on the card.
  HEADROOM_DEVICE_PLUGIN="$here/libheadroom_cuda.so" \
    "$here/test_device_training" || status=$?
  if [[ ${1:-} == --sanitize ]]; then
    compute-sanitizer --error-exitcode 9 "$here/test_cuda" \
      --gtest_filter='*DeviceBatchNorm*:DeviceOptimizer*:DeviceRender*' || status=$?
  fi
  return "$status"
}

case "${1:-}" in
  pack) pack ;;
  run) run "${2:-}" ;;
  *) die "say pack or run" ;;
esac
