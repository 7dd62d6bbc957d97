#!/usr/bin/env bash
# Builds the release preset into build/; arguments are targets, none means all.
# REQUIRES: setup.sh has run.
#
#   --without-libtorch   while setup.sh still fetches it: of the targets only
#                        those that need none; the next call goes on from there
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
# CMake remembers the paths of libraries: forget them with the folder.
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
