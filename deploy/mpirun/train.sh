#!/usr/bin/env bash
# headroom train on every machine of a host file.
#
#   bash deploy/mpirun/train.sh HOSTFILE SHARED_FOLDER [flags of headroom train]
#
# SHARED_FOLDER must have the same path on all machines, and so must the
# programs and the data set. The variables of NCCL and libfabric, and
# LD_LIBRARY_PATH, are passed to all machines.
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
variables=()
while read -r name; do variables+=(-x "$name"); done < <(
  compgen -e | grep -E '^(NCCL_|FI_|OFI_NCCL_|HEADROOM_|LD_LIBRARY_PATH$)' || true
)
exec mpirun -N 1 --hostfile "$hosts" --bind-to none "${root_option[@]}" "${variables[@]}" \
  "$repository/build/bin/headroom" train --rendezvous "$shared" \
  --insecure-network "$@"
