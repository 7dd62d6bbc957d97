#!/usr/bin/env bash
# Runs deploy/mpirun/train.sh with an mpirun of this test, which records its
# arguments.
set -euo pipefail
repository="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
folder="$(mktemp -d /tmp/headroom-mpirun-XXXXXX)"
trap 'rm -rf "$folder"' EXIT
cat >"$folder/mpirun" <<'MPIRUN'
#!/usr/bin/env bash
printf '%s\n' "$@" >"$WORDS"
MPIRUN
chmod 755 "$folder/mpirun"
export PATH="$folder:$PATH" WORDS="$folder/words"
fail() {
  echo "$*"
  cat "$folder/words"
  exit 1
}

NCCL_SOCKET_IFNAME=eth0 FI_PROVIDER=efa OFI_NCCL_PROTOCOL=RDMA LD_LIBRARY_PATH=/opt/amazon/lib \
  UNRELATED=1 bash "$repository/deploy/mpirun/train.sh" hosts /shared --cfg yolov5n
for name in NCCL_SOCKET_IFNAME FI_PROVIDER OFI_NCCL_PROTOCOL LD_LIBRARY_PATH; do
  grep -A1 -x -- -x "$folder/words" | grep -q -x "$name" || fail "$name does not reach the workers"
done
grep -q UNRELATED "$folder/words" && fail "a variable of this machine alone reaches the workers"
tail -n 2 "$folder/words" | tr '\n' ' ' | grep -q -- '--cfg yolov5n' || fail "flags are lost"

env -i PATH="$PATH" WORDS="$WORDS" bash "$repository/deploy/mpirun/train.sh" hosts /shared
grep -q -x -- -x "$folder/words" && fail "variables that are not set are passed on"
echo "mpirun passes on what NCCL and libfabric are told"
