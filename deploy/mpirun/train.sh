#!/usr/bin/env bash
# headroom train on every machine of a host file.
#
#   bash deploy/mpirun/train.sh HOSTFILE SHARED_FOLDER [flags of headroom train]
#
# SHARED_FOLDER is seen by all machines under the same path, as the programs
# and the data set are.
set -euo pipefail
repository="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
if [[ $# -lt 2 ]]; then
  echo "usage: $0 HOSTFILE SHARED_FOLDER [flags of headroom train]" >&2
  exit 2
fi
hosts="$1"
shared="$2"
shift 2
root_option=()
if [[ $(id -u) -eq 0 ]]; then root_option=(--allow-run-as-root); fi
exec mpirun -N 1 --hostfile "$hosts" --bind-to none "${root_option[@]}" \
  "$repository/build/bin/headroom" train --rendezvous "$shared" \
  --insecure-network "$@"
