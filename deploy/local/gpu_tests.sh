#!/usr/bin/env bash
# The tests that need a GPU: `pack` runs here, `run` on a machine with a GPU
# that needs nothing else of this project (gpu_tests/__main__.py, or --help).
set -euo pipefail
exec python3 -B "$(dirname "${BASH_SOURCE[0]}")/gpu_tests" "$@"
