#!/usr/bin/env bash
# The tests that need a GPU: `pack` here, `run` on a machine that has one and
# nothing else of ours (gpu_tests/__main__.py, or --help).
set -euo pipefail
exec python3 -B "$(dirname "${BASH_SOURCE[0]}")/gpu_tests" "$@"
