#!/usr/bin/env bash
# Runs deploy/slurm/headroom.sbatch as Slurm does, with srun, scancel and
# scontrol of this test: two tasks on this machine train for real, get the
# signal that the time limit is near, and the job is queued again and resumes.
#
#   slurm_script_test.sh HEADROOM
set -euo pipefail
headroom="$(realpath "$1")"
repository="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
script="$repository/deploy/slurm/headroom.sbatch"
folder="$(mktemp -d /tmp/headroom-sbatch-XXXXXX)"
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/bin"
cd "$folder"
fail() {
  echo "$*"
  cat "$folder"/*.txt
  exit 1
}

# This srun starts one task for each "node", all on this machine. It ends with the
# highest exit code of the tasks.
cat >bin/srun <<'SRUN'
#!/usr/bin/env bash
echo "$*" >>"$FAKE_SLURM/srun.words"
while [[ $1 == -* ]]; do shift; done
: >"$FAKE_SLURM/tasks"
pids=()
for ((i = 0; i < SLURM_JOB_NUM_NODES; ++i)); do
  SLURM_PROCID=$i SLURM_NODEID=$i SLURM_LOCALID=0 SLURM_STEP_ID=0 \
    SLURM_NTASKS=$SLURM_JOB_NUM_NODES \
    SLURM_STEP_TASKS_PER_NODE="1(x$SLURM_JOB_NUM_NODES)" "$@" &
  pids+=($!)
  echo $! >>"$FAKE_SLURM/tasks"
done
highest=0
for pid in "${pids[@]}"; do
  code=0
  wait "$pid" || code=$?
  ((code <= highest)) || highest=$code
done
exit "$highest"
SRUN
cat >bin/scancel <<'SCANCEL'
#!/usr/bin/env bash
[[ "$*" == "--signal=TERM 4711.0" ]] || exit 1
xargs kill -TERM <"$FAKE_SLURM/tasks"
SCANCEL
cat >bin/scontrol <<'SCONTROL'
#!/usr/bin/env bash
[[ "$*" == "requeue 4711" ]] || exit 1
touch "$FAKE_SLURM/requeued"
SCONTROL
chmod 755 bin/*
export PATH="$folder/bin:$PATH" FAKE_SLURM="$folder" HEADROOM="$headroom"
export SLURM_JOB_ID=4711 SLURM_SUBMIT_DIR="$folder" SLURM_JOB_NUM_NODES=2
flags=(--cfg yolov5n --synthetic-input --img 64 --batch 4 --threads 1
  --noval --noplots --max-steps 30)
log=runs/train/job-4711/steps.jsonl

# steps_reach N: waits until N steps are committed.
steps_reach() {
  local i
  for ((i = 0; i < 1200; ++i)); do
    (($(wc -l 2>/dev/null <$log || echo 0) < $1)) || return 0
    sleep 0.1
  done
  fail "no step $1"
}
# ends NAME CODE: the job in the background must end with this code.
ends() {
  local code=0
  wait "$job" || code=$?
  ((code == $2)) || fail "the job $1 ended with $code, not $2"
}

# The job was started before and killed. The address file of that start must not be used.
mkdir -p .headroom-4711
echo stale >.headroom-4711/rendezvous-of-the-killed
bash "$script" 1 "${flags[@]}" >first.txt 2>&1 &
job=$!
steps_reach 3
begin=$EPOCHREALTIME
kill -USR1 "$job"
ends first 130
echo "drained $(awk "BEGIN { printf \"%.1f\", $EPOCHREALTIME - $begin }") s after the signal, at step $(wc -l <$log)"
[[ -e requeued ]] || fail "the job was not queued again"
grep -q 'is queued again and resumes runs/train/job-4711' first.txt ||
  fail "nobody said that the job is queued again"
(($(wc -l <$log) < 30)) || fail "the run had ended before it was drained"

rm requeued
SLURM_RESTART_COUNT=1 bash "$script" 1 "${flags[@]}" >second.txt 2>&1 &
job=$!
ends second 0
[[ ! -e requeued ]] || fail "a job that is done was queued again"
python3 - "$log" <<'PYTHON' || fail "steps are missing, or there twice"
import json
import sys

steps = [json.loads(line)["step"] for line in open(sys.argv[1])]
assert steps == list(range(30)), steps
PYTHON
[[ $(find runs/train -mindepth 1 -maxdepth 1 | wc -l) -eq 1 ]] ||
  fail "there is a second run"

# The signal arrives before the first step. The job is not queued again, since this
# could repeat forever. The step requests the node's GPUs and has a worker for each.
export SLURM_JOB_NUM_NODES=1 SLURM_GPUS_ON_NODE=2
cat >bin/idle <<'IDLE'
#!/usr/bin/env bash
trap 'exit 130' TERM
for ((i = 0; i < 300; ++i)); do sleep 0.1; done
IDLE
chmod 755 bin/idle
: >srun.words
HEADROOM=idle bash "$script" auto --name idle >idle.txt 2>&1 &
job=$!
for ((i = 0; i < 100; ++i)); do
  [[ ! -s srun.words ]] || break
  sleep 0.1
done
sleep 0.5
kill -USR1 "$job"
ends idle 130
[[ ! -e requeued ]] || fail "a job without a step was queued again"
grep -q 'no step was trained since the job began' idle.txt ||
  fail "nobody said why the job is not queued again"
grep -q -- '--gres=gpu:2 idle train .*--device all --processes 2 --name idle --exist-ok' srun.words ||
  fail "the step's words are $(cat srun.words)"
grep -q -- '--export=ALL' srun.words || fail "NCCL's variables do not reach the workers"

# The device of the tasks: the GPUs that the job requested, the CPU if it
# requested none, and a device given by flags.
cat >bin/done <<'DONE'
#!/usr/bin/env bash
exit 0
DONE
chmod 755 bin/done
# told NAME GPUS WORDS...: checks the arguments of the step's srun.
told() {
  local name="$1" gpus="$2"
  shift 2
  : >srun.words
  SLURM_GPUS_ON_NODE="$gpus" HEADROOM=done bash "$script" auto "$@" >"$name.txt" 2>&1 ||
    fail "the job $name ended with $?"
  cat srun.words
}
[[ "$(told gpus 8 --name gpus)" == *" --device all --processes 8 "* ]] ||
  fail "a job with GPUs: $(cat srun.words)"
[[ "$(told cpus "" --name cpus)" == *" --device cpu --processes 1 "* ]] ||
  fail "a job without GPUs: $(cat srun.words)"
for words in "--device 0,1" --device=cpu; do
  # shellcheck disable=SC2086
  said="$(told own 8 --name own --exist-ok $words)"
  [[ $said == *"$words"* && $said != *"--device all"* ]] ||
    fail "a --device of its own: $said"
done
[[ "$(told again 8 --resume runs/train/job-4711)" != *--device* ]] ||
  fail "a resumed run keeps its device: $(cat srun.words)"
# The job requested cards and the node has none: one line of error, no run on the CPU.
if SLURM_GPUS_ON_NODE=2 bash "$script" auto --name absent "${flags[@]}" >absent.txt 2>&1; then
  fail "a node without cards trained a job that asked for GPUs"
fi
grep -q -- '--device all asks for cards, and .* has none' absent.txt ||
  fail "nobody said that the cards are missing"

# The run ends because its spot machines are taken away, without a signal of Slurm.
cat >bin/left <<'LEFT'
#!/usr/bin/env bash
mkdir -p runs/train/left
echo '{"step": 0}' >runs/train/left/steps.jsonl
echo '{"event": "drain", "reason": "the run ends: spot notice: taken away"}' >runs/train/left/events.jsonl
exit 130
LEFT
chmod 755 bin/left
HEADROOM=left bash "$script" 1 --name=left >left.txt 2>&1 &
job=$!
ends left 130
[[ -e requeued ]] || fail "a run that its spot machine left was not queued again"
rm requeued
HEADROOM=left bash "$script" 1 --name=left >again.txt 2>&1 &
job=$!
ends again 2
grep -q 'runs/train/left is there already' again.txt ||
  fail "a name that is taken was not refused"
[[ -z $(ls -d .headroom-* 2>/dev/null) ]] || fail "the job's folder is left"
echo "the job was drained, queued again, and trained 30 steps, each once"
