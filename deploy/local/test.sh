#!/usr/bin/env bash
# From a bare Debian machine to a test result: sets up, builds, runs the unit
# and integration tests. --slow also runs the slow ones.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

selection=(-LE slow)
for argument in "$@"; do
  case "$argument" in
    --slow) selection=() ;;
    *) die "unknown argument $argument: the only one is --slow" ;;
  esac
done

# A few tests check our output with other programs: TensorBoard, onnxruntime,
# the Kubernetes schemas, notebooks. If these cannot be installed, the tests are
# skipped by name.
provide_python_packages() {
  local venv="$dependencies/venv" list="$repository/tests/python_packages.txt"
  if cmp -s "$list" "$venv/COMPLETE"; then return; fi
  rm -rf "$venv"
  mkdir -p "$dependencies"
  say "installing $(tr '\n' ' ' <"$list")into $venv for a few tests"
  if python3 -m venv "$venv" >&2 &&
    "$venv/bin/pip" install --quiet --no-cache-dir -r "$list" >&2; then
    cp "$list" "$venv/COMPLETE"
  else
    say "warning: they could not be installed: their tests will be skipped"
    rm -rf "$venv"
  fi
}

bash "$repository/deploy/local/setup.sh"
provide_python_packages
bash "$repository/deploy/local/build.sh"

# In the release preset, all files of a folder are compiled together, which hides missing includes.
# So each commit compiles one more folder file by file.
build_a_room_alone() {
  local rooms room objects
  mapfile -t rooms < <(cd "$repository" &&
    git ls-files '*CMakeLists.txt' ':!tests' |
    xargs -r sed -n -E 's/^headroom_library\((headroom_[a-z_]+).*/\1/p' | sort)
  ((${#rooms[@]} > 0)) || return 0
  room="${rooms[$(($(git -C "$repository" rev-list --count HEAD) % ${#rooms[@]}))]}"
  say "compiling $room file by file"
  LIBTORCH_ROOT="$(libtorch_root)" cmake -S "$repository" --preset dev -DHEADROOM_TESTS=OFF >/dev/null
  # Compile only the objects of this room, not the libraries that the room needs.
  mapfile -t objects < <(ninja -C "$repository/build-dev" -t targets all |
    sed -n "s|^\(.*/$room\.dir/.*\.o\): .*|\1|p")
  ((${#objects[@]} > 0)) || die "there is nothing to compile of $room"
  ninja -C "$repository/build-dev" -j "$(build_jobs)" "${objects[@]}" >&2
}
if [[ -d $repository/.git ]]; then build_a_room_alone; fi

cd "$repository"
say "running the tests"
status=0
# Twice the number of cores: integration tests count as two and mostly wait.
ctest --test-dir build -j "$((2 * $(nproc)))" --no-tests=error --output-on-failure \
  "${selection[@]}" | tee build/ctest.log || status=$?
test_log=build/Testing/Temporary/LastTest.log
grep -hE '^parity file used: ' "$test_log" | sort -u || true
# GoogleTest prints the reason first, then the test.
awk '/: Skipped$/ {getline why}
     /^\[  SKIPPED \] .* \(/ {print "skipped: " $4 ": " why}' "$test_log" | sort -u
# Repeat ctest's final lines, so that they end the output.
sed -n '/tests passed/,$p' build/ctest.log
exit "$status"
