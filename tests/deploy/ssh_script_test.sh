#!/usr/bin/env bash
# Runs deploy/ssh/train.sh on two machines made of name spaces, which share no
# folder, behind an ssh of this test: refusals, a run, the loss of each machine,
# and what is resumed after it. Exit code 77: this machine lacks root or rsync.
#
#   ssh_script_test.sh BUILD_FOLDER LIBTORCH
set -euo pipefail
build="$(realpath "$1")" libtorch="$(realpath "$2")"
repository="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
script="$repository/deploy/ssh/train.sh"
skip() {
  echo "skipped: $*"
  exit 77
}
command -v rsync >/dev/null || skip "rsync is not installed"
[[ $EUID -eq 0 ]] || skip "name spaces are made by root"
unshare --net --uts --pid --mount --fork ip link add end0 type veth peer name end1 2>/dev/null ||
  skip "no veth pair in a name space here"

test="$(mktemp -d /tmp/headroom-ssh-XXXXXX)"
declare -A holders
stop_machine() {
  [[ -n ${holders[$1]:-} ]] || return 0
  kill -KILL "${holders[$1]}" 2>/dev/null || true
  wait "${holders[$1]}" 2>/dev/null || true
  unset "holders[$1]"
}
trap 'stop_machine a; stop_machine b; rm -rf "$test"' EXIT
fail() {
  echo "FAILED: $*"
  tail -n 30 "$test"/*.txt
  exit 1
}

# The same path is a folder of its own on each machine.
folder="$test/machine"
mkdir -p "$test/bin" "$test/work" "$folder" "$test/disk-a" "$test/disk-b"
start_machine() {
  local pid
  unshare --net --uts --pid --mount --fork --kill-child=KILL --mount-proc \
    sh -c "hostname machine-$1; mount --bind $test/disk-$1 $folder; ip link set lo up; exec sleep 3600" &
  holders[$1]=$!
  for _ in {1..100}; do
    pid="$(pgrep -P "${holders[$1]}" -x sleep || true)"
    [[ -z $pid ]] || break
    sleep 0.05
  done
  echo "$pid" >"$test/$1.pid"
}
connect_machines() {
  # With a machine its end of the cable goes, and with that the other end: the
  # address stays, as on a machine with a switch.
  nsenter --target "$(<"$test/a.pid")" --net ip addr replace 10.78.0.1/32 dev lo
  nsenter --target "$(<"$test/b.pid")" --net ip addr replace 10.78.0.2/32 dev lo
  ip link add tie0 netns "$(<"$test/a.pid")" type veth peer name tie0 netns "$(<"$test/b.pid")"
  nsenter --target "$(<"$test/a.pid")" --net sh -c "ip addr add 10.78.0.1/24 dev tie0; ip link set tie0 up"
  nsenter --target "$(<"$test/b.pid")" --net sh -c "ip addr add 10.78.0.2/24 dev tie0; ip link set tie0 up"
}
cat >"$test/bin/ssh" <<'SSH'
#!/usr/bin/env bash
while [[ $1 == -* ]]; do
  [[ $1 != -o ]] || shift
  shift
done
host="$1"
shift
pid="$(cat "$FAKE_SSH/$host.pid" 2>/dev/null)"
lost() {
  echo "ssh: connect to host $host port 22: No route to host" >&2
  exit 255
}
# A machine that is lost may stay as a process that nobody has waited for.
lives() { [[ $(ps -o stat= -p "$pid") == [!Z]* ]]; }
lives || lost
code=0
env --default-signal=INT -i PATH=/usr/bin:/bin HOME=/root nsenter --target "$pid" --net --uts --pid \
  --mount --wdns=/ sh -c "$*" || code=$?
# The processes of a machine that is lost end before the machine itself.
for _ in {1..20}; do
  lives || lost
  ((code == 137)) || break
  sleep 0.1
done
exit "$code"
SSH
chmod 755 "$test/bin/ssh"
export PATH="$test/bin:$PATH" FAKE_SSH="$test" HEADROOM="$build/bin/headroom" HEADROOM_BUILD_FOLDER="$build"
printf '# the machines\na 10.78.0.1\nb 10.78.0.2\n' >"$test/hosts"
printf 'a 10.78.0.1\nghost\n' >"$test/ghost"
cd "$test/work"
start_machine a
start_machine b
connect_machines

model=(--cfg yolov5n --synthetic-input --img 64 --batch 4 --threads 1 --noval --noplots --device cpu)
here=(--programs "$build/bin")
# train NAME WORDS...: the script in the background, its output in NAME.txt. It
# has a process group of its own, in which SIGINT is not ignored.
train() {
  set -m
  bash "$script" "${@:2}" >"$test/$1.txt" 2>&1 </dev/null &
  job=$!
  set +m
}
# As a terminal does: every process of the group gets the signal.
press_ctrl_c() { kill -INT -- "-$job"; }
ends() {
  local code=0
  wait "$job" || code=$?
  ((code == $2)) || fail "$1 ended with $code, not $2"
}
told() { grep -qF -- "$2" "$test/$1.txt" || fail "$1 did not say: $2"; }
steps_reach() {
  for _ in {1..1200}; do
    (($(wc -l 2>/dev/null <"$1/steps.jsonl" || echo 0) < $2)) || return 0
    sleep 0.1
  done
  fail "no step $2 in $1"
}
every_step_once() {
  python3 - "$1" "$2" <<'PYTHON' || fail "$1: steps are missing, or there twice"
import json
import sys

steps = [json.loads(line)["step"] for line in open(sys.argv[1] + "/steps.jsonl")]
assert steps == list(range(int(sys.argv[2]))), steps
PYTHON
}

# --- what is refused, before anything is started
refused() {
  train "$1" "${@:3}"
  ends "$1" 2
  told "$1" "$2"
  [[ -z $(find "$test"/disk-? -name 'certs-*') ]] || fail "$1 left certificates"
}
refused ghost "error: machine 2 (ghost) does not answer: ssh: connect to host ghost port 22: No route to host" \
  "${here[@]}" "$test/ghost" "$folder" "${model[@]}"
refused data "error: machine 1 (a) lacks the data: there is no nowhere.yaml" \
  "${here[@]}" "$test/hosts" "$folder" --cfg yolov5n --data nowhere.yaml
told data "error: machine 2 (b) lacks the data"
refused programs "error: machine 2 (b) cannot start headroom" \
  --programs /no/programs "$test/hosts" "$folder" "${model[@]}"
refused libtorch "error: machine 2 (b) cannot start headroom: [libtorch] HEADROOM_LIBTORCH is not set" \
  "$test/hosts" "$folder" "${model[@]}"
for machine in a b; do
  mkdir "$test/disk-$machine/other"
  printf '#!/bin/sh\necho "headroom of %s"\n' "$machine" >"$test/disk-$machine/other/headroom"
  printf '#!/bin/sh\n' >"$test/disk-$machine/other/headroom-worker"
  chmod 755 "$test/disk-$machine"/other/*
done
refused version "error: machine 2 (b) has headroom of b, and a has headroom of a: install one version" \
  --programs "$folder/other" "$test/hosts" "$folder" "${model[@]}"
refused flag "error: --certs is given by this script" "$test/hosts" "$folder" --certs certs
refused folder "name an absolute path" "$test/hosts" relative
refused resume "name the run's folder here" "$test/hosts" "$folder" --resume

# --- a run with copied programs
HEADROOM_LIBTORCH="$libtorch" train first "$test/hosts" "$folder" "${model[@]}" --max-steps 6
for _ in {1..600}; do
  [[ ! -e $test/disk-a/certs-exp/server.key || ! -e $test/disk-b/certs-exp/token ]] || break
  sleep 0.1
done
[[ $(stat -c %a "$test/disk-b/certs-exp") == 700 ]] || fail "certificates are open to others"
[[ -z $(find "$test"/disk-?/certs-exp -type f -not -perm 600) ]] || fail "a key is open to others"
[[ ! -e $test/disk-b/certs-exp/server.key ]] || fail "b has the server's key"
[[ -z $(find "$test"/disk-? -name ca.key) ]] || fail "the authority's key was copied"
ends first 0
told first "results in runs/train/exp: the state after 6 steps, from a"
every_step_once runs/train/exp 6
[[ -f runs/train/exp/weights/last.safetensors && -f runs/train/exp/events.jsonl ]] || fail "files of the run are missing"
[[ -z $(find "$test"/disk-? -name 'certs-*') ]] || fail "certificates are left"
mv runs/train/exp kept
refused again "is there already: give another --name, or --resume" \
  "${here[@]}" "$test/hosts" "$folder" "${model[@]}"
mv kept runs/train/exp

# --- b is lost, the run goes on, and Ctrl-C ends it
train loss "${here[@]}" "$test/hosts" "$folder" "${model[@]}" --name loss --max-steps 100000
steps_reach "$test/disk-a/runs/loss" 3
stop_machine b
for _ in {1..600}; do
  ! grep -qs '"generation": *2' "$test/disk-a/runs/loss/steps.jsonl" || break
  sleep 0.1
done
grep -q '"generation": *2' "$test/disk-a/runs/loss/steps.jsonl" || fail "the run did not go on without b"
press_ctrl_c
ends loss 130
told loss "go on with: bash $script $test/hosts $folder --resume runs/train/loss"
done_steps="$(wc -l <runs/train/loss/steps.jsonl)"
every_step_once runs/train/loss "$done_steps"

# --- both machines go on
start_machine b
connect_machines
train resumed "${here[@]}" "$test/hosts" "$folder" --resume runs/train/loss --max-steps $((done_steps + 3))
ends resumed 0
every_step_once runs/train/loss $((done_steps + 3))
tail -n 1 runs/train/loss/steps.jsonl | grep -q '"rank": *1' || fail "b had no part in the resumed run"

# --- the first machine is lost: b saves, and goes on as the first
train first_lost "${here[@]}" "$test/hosts" "$folder" "${model[@]}" --name lost --max-steps 100000
steps_reach "$test/disk-a/runs/lost" 3
stop_machine a
ends first_lost 5
told first_lost "from b"
start_machine a
connect_machines
train turned "${here[@]}" "$test/hosts" "$folder" --resume runs/train/lost --processes 1 --max-steps 100
kept="$(find "$test/disk-b/runs/lost/checkpoints" -name MANIFEST.json | sed 's|.*step-\([0-9]*\)/.*|\1|' | sort -n | tail -n 1)"
steps_reach "$test/disk-b/runs/lost" 2
press_ctrl_c
ends turned 130
told turned "from b"
(($(find runs/train/lost/checkpoints -name MANIFEST.json | sed 's|.*step-\([0-9]*\)/.*|\1|' | sort -n | tail -n 1) >= kept)) ||
  fail "steps were lost"
echo "two machines without a shared folder trained, lost each other and went on"
