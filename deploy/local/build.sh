#!/usr/bin/env bash
# Builds the release preset into build/. Arguments are targets; without any, all
# targets are built. REQUIRES: setup.sh has run.
#
#   --without-libtorch   while setup.sh still downloads LibTorch: builds only the
#                        targets that do not need it; the next call continues
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
cd "$repository"

LIBTORCH_ROOT="$(libtorch_root)"
export LIBTORCH_ROOT
configure=(cmake --preset release -DHEADROOM_WITHOUT_LIBTORCH=OFF -DHEADROOM_TESTS=ON)
if [[ ${1:-} == --without-libtorch ]]; then
  configure=(cmake --preset release -DHEADROOM_WITHOUT_LIBTORCH=ON)
  shift
fi
# CMake caches the paths of libraries, so drop its cache if the folder has changed.
if [[ -f build/CMakeCache.txt ]] &&
  ! grep -qxF "LIBTORCH_ROOT:PATH=$LIBTORCH_ROOT" build/CMakeCache.txt; then
  configure+=(--fresh)
fi
jobs="$(build_jobs)"
say "configuring and building into $repository/build with $jobs jobs"
started=$SECONDS
"${configure[@]}" >&2
export NINJA_STATUS="[%p of %t steps, %e s] "
cmake --build build -j "$jobs" ${1:+--target "$@"} >&2
say "built after $((SECONDS - started)) s"
