#!/usr/bin/env bash
# From a bare Debian machine to a test result: sets up, builds, runs the unit
# and integration tests. --slow runs the slow ones too.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

selection=(-LE slow)
for argument in "$@"; do
  case "$argument" in
    --slow) selection=() ;;
    *) die "unknown argument $argument: the only one is --slow" ;;
  esac
done

# One test reads our event files with TensorBoard's own reader; it is skipped
# by name where that cannot be had.
provide_tensorboard() {
  local venv="$dependencies/venv"
  if [[ -f $venv/COMPLETE ]]; then return; fi
  rm -rf "$venv"
  mkdir -p "$dependencies"
  say "installing the tensorboard package into $venv for one test"
  if python3 -m venv "$venv" >&2 &&
    "$venv/bin/pip" install --quiet --no-cache-dir tensorboard==2.21.0 >&2; then
    touch "$venv/COMPLETE"
  else
    say "warning: tensorboard could not be installed: its test will be skipped"
    rm -rf "$venv"
  fi
}

bash "$repository/deploy/local/setup.sh"
provide_tensorboard
bash "$repository/deploy/local/build.sh"

cd "$repository"
say "running the tests"
status=0
ctest --test-dir build -j "$(nproc)" --no-tests=error --output-on-failure \
  "${selection[@]}" | tee build/ctest.log || status=$?
test_log=build/Testing/Temporary/LastTest.log
grep -hE '^parity file used: ' "$test_log" | sort -u || true
# GoogleTest says why, then which test.
awk '/: Skipped$/ {getline why}
     /^\[  SKIPPED \] .* \(/ {print "skipped: " $4 ": " why}' "$test_log" | sort -u
# ctest's own closing lines once more, so that they end the output.
sed -n '/tests passed/,$p' build/ctest.log
exit "$status"
