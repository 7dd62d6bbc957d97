#!/usr/bin/env bash
# Builds the rooms without tensors under a sanitizer, `address` (with undefined
# behaviour) or `thread`, and runs their unit tests. Rooms with LibTorch are left
# out: its wheel is not instrumented, so ThreadSanitizer reports false races in OpenMP.
# REQUIRES: setup.sh has run. Needs some 30 minutes on two cores without ccache.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
cd "$repository"

case "${1:-}" in
  address) preset=asan ;;
  thread) preset=tsan ;;
  *) die "usage: sanitize.sh address|thread" ;;
esac
tests=(test_base test_plan test_planner test_predict test_configs test_proto
       test_write_ahead_log test_coordinator simulation_test test_page test_records)
LIBTORCH_ROOT="$(libtorch_root)"
export LIBTORCH_ROOT
# Optimized, and with unity files like the release preset, because this takes half of the time.
cmake --preset "$preset" -DCMAKE_BUILD_TYPE=Release -DHEADROOM_UNITY=ON -DHEADROOM_CUDA=OFF >&2
ninja -C "build-$preset" -j "$(build_jobs)" "${tests[@]}" >&2
pattern="$(IFS='|'; echo "${tests[*]}")"
ctest --test-dir "build-$preset" -j "$(nproc)" --timeout 1200 --output-on-failure -R "^($pattern)$"
