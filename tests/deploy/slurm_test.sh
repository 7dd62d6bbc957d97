#!/usr/bin/env bash
# Runs deploy/slurm/headroom.sbatch on a real Slurm of one node, started here.
#
#   slurm_test.sh HEADROOM FAKE_WORKER     exit 77: skipped, with the reason
#
# The worker only pretends to train: the test checks which process starts which,
# and that the job ends with the run's exit code.
set -euo pipefail
headroom="$1"
fake_worker="$2"
repository="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
skip() {
  echo "skipped: $*"
  exit 77
}
for program in slurmctld slurmd sbatch munged mungekey; do
  PATH="$PATH:/usr/sbin" command -v "$program" >/dev/null ||
    skip "$program is not installed (apt-get install slurm-wlm munge)"
done
[[ $(id -u) -eq 0 ]] || skip "Slurm's daemons are started as root"
export PATH="$PATH:/usr/sbin"

folder="$(mktemp -d /tmp/headroom-slurm-XXXXXX)"
chmod 755 "$folder"
daemons=()
end() {
  local pid
  for pid in "${daemons[@]}"; do kill "$pid" 2>/dev/null || true; done
  wait 2>/dev/null || true
  rm -rf "$folder"
}
trap end EXIT

# munge with a key and a socket of this test.
mkdir -m 700 "$folder/munge"
mkdir -m 755 "$folder/socket"
mungekey --create --keyfile="$folder/munge/key"
socket="$folder/socket/munge.socket"
munged --foreground --key-file="$folder/munge/key" --socket="$socket" \
  --pid-file="$folder/munge/pid" --log-file="$folder/munge/log" \
  --seed-file="$folder/munge/seed" --force >"$folder/munged.txt" 2>&1 &
daemons+=($!)

node="$(hostname -s)"
free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("", 0)); print(s.getsockname()[1])'; }
mkdir "$folder/state" "$folder/spool"
cat >"$folder/slurm.conf" <<CONF
ClusterName=test
SlurmctldHost=$node(127.0.0.1)
SlurmUser=root
SlurmctldPort=$(free_port)
SlurmdPort=$(free_port)
AuthType=auth/munge
AuthInfo=socket=$socket
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
ReturnToService=2
SlurmctldPidFile=$folder/ctld.pid
SlurmdPidFile=$folder/d.pid
SlurmdSpoolDir=$folder/spool
StateSaveLocation=$folder/state
SlurmctldLogFile=$folder/ctld.log
SlurmdLogFile=$folder/d.log
NodeName=$node NodeAddr=127.0.0.1 CPUs=$(nproc) State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
CONF
export SLURM_CONF="$folder/slurm.conf"
for ((i = 0; i < 100; ++i)); do [[ ! -S $socket ]] || break; sleep 0.1; done
slurmctld -D -f "$SLURM_CONF" >"$folder/ctld.txt" 2>&1 &
daemons+=($!)
slurmd -D -f "$SLURM_CONF" -N "$node" >"$folder/d.txt" 2>&1 &
daemons+=($!)
state=""
for ((i = 0; i < 300; ++i)); do
  state="$(sinfo -h -o %T 2>/dev/null || true)"
  [[ $state != idle ]] || break
  sleep 0.1
done
if [[ $state != idle ]]; then
  tail -n 5 "$folder"/*.log "$folder"/*.txt
  echo "Slurm's node is '$state', not idle"
  exit 1
fi

mkdir -p "$folder/bin" "$folder/job/images"
cp "$headroom" "$folder/bin/headroom"
cp "$fake_worker" "$folder/bin/headroom-worker"
printf 'train: images\nval: images\nnames: [a]\n' >"$folder/job/data.yaml"
cd "$folder/job"
export HEADROOM="$folder/bin/headroom"

# submit NAME EXPECTED_STATUS: waits for the job, whose status is the run's.
submit() {
  local name="$1" expected="$2" status=0
  timeout 120 sbatch --wait --nodes 1 --output "$name.txt" \
    "$repository/deploy/slurm/headroom.sbatch" 2 --data data.yaml \
    --cfg yolov5n --name "$name" >"$name.sbatch" 2>&1 || status=$?
  if [[ $status -ne $expected ]]; then
    cat "$name.sbatch" "$name.txt"
    echo "job $name ended with $status, not $expected"
    exit 1
  fi
}

submit done 0
grep -q 'rank 1 of 2' done.txt
grep -q 'all 12 steps done' done.txt
[[ -z $(ls -d .headroom-* 2>/dev/null) ]]

# A refusal of the workers is the job's exit code.
export FAKE_WORKER=refuse
submit refused 4
grep -q 'nothing is left' refused.txt

# The warning before the time limit drains the run.
export FAKE_WORKER=slow
timeout 120 sbatch --wait --nodes 1 --output drained.txt \
  "$repository/deploy/slurm/headroom.sbatch" 2 --data data.yaml \
  --cfg yolov5n --name drained >drained.sbatch 2>&1 &
waiting=$!
for ((i = 0; i < 300; ++i)); do
  ! grep -qs 'rank 1 of 2' drained.txt || break
  sleep 0.1
done
scancel --batch --signal=USR1 "$(awk '{print $4}' drained.sbatch)"
status=0
wait "$waiting" || status=$?
if [[ $status -ne 130 ]]; then
  cat drained.sbatch drained.txt
  echo "the drained job ended with $status, not 130"
  exit 1
fi
grep -q 'interrupted after step 3' drained.txt
echo "three jobs of a real Slurm ($(slurmctld -V)) ended as their runs did"
