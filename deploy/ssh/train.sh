#!/usr/bin/env bash
# headroom train on machines that are reached by ssh, without MPI, a scheduler
# or a shared folder. README.md says what happens when.
#
#   bash deploy/ssh/train.sh [OPTIONS] HOSTFILE FOLDER [flags of headroom train]
#
#   --programs DIR    the programs are in DIR on every machine: none are copied
#   --copy-data DIR   copies this folder to the same path on every machine first
#   --port N          the coordinator listens at this port (default 29500)
#
# FOLDER is an absolute path, used on every machine for programs, certificates
# and runs. The results come to runs/train/NAME here. --resume runs/train/NAME
# goes on with such a run.
set -euo pipefail
repository="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
say() { printf 'train.sh: %s\n' "$*" >&2; }
die() {
  say "error: $*"
  exit 2
}

programs="" data_folder="" port=29500
while [[ ${1:-} == --* ]]; do
  case "$1" in
    --programs) programs="${2:-}" ;;
    --copy-data) data_folder="${2:-}" ;;
    --port) port="${2:-}" ;;
    *) die "$1 is no option of this script: write flags of headroom train after FOLDER" ;;
  esac
  [[ -n ${2:-} ]] || die "$1 needs a value"
  shift 2
done
[[ $# -ge 2 ]] || die "usage: $0 [--programs DIR] [--copy-data DIR] [--port N] HOSTFILE FOLDER [flags of headroom train]"
hostfile="$1" folder="${2%/}"
shift 2
[[ -r $hostfile ]] || die "there is no host file $hostfile"
[[ $folder == /* && $folder != *[[:space:]]* ]] || die "FOLDER is '$folder': name an absolute path without spaces"
hosts=() addresses=()
while read -r host address _ || [[ -n $host ]]; do
  [[ -n $host && $host != \#* ]] || continue
  [[ $host != -* ]] || die "$hostfile: '$host' is no name of a machine"
  hosts+=("$host") addresses+=("${address:-${host#*@}}")
done <"$hostfile"
((${#hosts[@]} > 0)) || die "$hostfile names no machine"
command -v rsync >/dev/null || die "rsync is missing on this machine: install the package rsync"

# Flags that the script must know, and the rest.
name="" resume="" data="" processes="" flags=()
while (($#)); do
  value="" count=1
  if [[ $1 == *=* ]]; then
    value="${1#*=}"
  elif [[ -n ${2:-} && $2 != --* ]]; then
    value="$2" count=2
  fi
  kept=yes
  case "${1%%=*}" in
    --project | --exist-ok | --coordinator | --rendezvous | --certs | --token-file | --insecure-network)
      die "${1%%=*} is given by this script: leave it out"
      ;;
    --name) name="$value" kept="" ;;
    --resume) resume="${value%/}" kept="" ;;
    --data) data="$value" ;;
    --processes) processes="$value" ;;
  esac
  [[ ${1%%=*} != --resume || -n $resume ]] || die "--resume: name the run's folder here, for example runs/train/exp"
  [[ -z $kept ]] || flags+=("${@:1:count}")
  shift "$count"
done
if [[ -n $resume ]]; then
  name="$(basename "$resume")"
else
  base="${name:=exp}" number=1
  while [[ -e runs/train/$name ]]; do name="$base$((++number))"; done
fi
[[ $name =~ ^[A-Za-z0-9_][A-Za-z0-9._-]*$ ]] || die "--name '$name': use letters, digits, dots and dashes"
# The run has one name, here and there.
here="runs/train/$name" run="$folder/runs/$name"
certs="$folder/certs-$name" pid_file="$folder/.train-$name.pid"

scratch="$(mktemp -d)"
ssh_options=(-o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=15)
export RSYNC_RSH="ssh ${ssh_options[*]}"
# on K SCRIPT: runs a line of bash on machine K.
on() { ssh -n "${ssh_options[@]}" "${hosts[$1]}" "$(printf '%q ' bash -c "$2")"; }
# everywhere WHAT COMMAND...: for all machines K at once, COMMAND... K. Ends the
# script if any fails, with a line for each that does.
everywhere() {
  local k pids=() failed=""
  for k in "${!hosts[@]}"; do
    "${@:2}" "$k" >"$scratch/out-$k" 2>"$scratch/err-$k" &
    pids+=($!)
  done
  for k in "${!hosts[@]}"; do
    wait "${pids[k]}" && continue
    failed=yes
    say "error: machine $((k + 1)) (${hosts[k]}) $1: $(tail -n 1 "$scratch/err-$k")"
  done
  [[ -z $failed ]] || exit 2
}
run_line() { on "$2" "$1"; }
copy_folder() { rsync -a "${@:3:$#-3}" "$1/" "${hosts[${!#}]}:$2/"; }
newest_step='s|.*/step-\([0-9]*\)/MANIFEST.json$|\1|'
steps_here() { find "$here/checkpoints" -name MANIFEST.json 2>/dev/null | sed "$newest_step" | sort -n | tail -n 1; }
# Sets steps[K], the steps of the newest whole checkpoint on machine K, and
# newest, the machine that has most.
find_newest() {
  local k
  newest=0 steps=()
  for k in "${!hosts[@]}"; do
    steps[k]="$(on "$k" "find $run/checkpoints -name MANIFEST.json" 2>/dev/null | sed "$newest_step" | sort -n | tail -n 1)" || true
    : "${steps[k]:=0}"
    ((steps[k] <= steps[newest])) || newest=$k
  done
}
has_certs=""
clean_up() {
  local k
  for k in "${!hosts[@]}"; do
    [[ -z $has_certs ]] || on "$k" "rm -rf $certs $pid_file" 2>/dev/null || true
  done
  rm -rf "$scratch"
}
trap clean_up EXIT

everywhere "does not answer" run_line "mkdir -p $folder/runs && rm -f $pid_file"
everywhere "has no rsync" run_line "command -v rsync >/dev/null || { echo install the package rsync >&2; exit 1; }"
if [[ -z $resume ]]; then
  everywhere "is refused" run_line "[ ! -e $run ] || { echo $run is there already: give another --name, or --resume $here >&2; exit 1; }"
else
  find_newest
  own="$(steps_here || true)"
  ((steps[newest] > 0 || ${own:-0} > 0)) || die "neither a machine nor $here has a checkpoint of the run"
  # Rank 0 reads the newest state: its machine comes first.
  hosts=("${hosts[newest]}" "${hosts[@]:0:newest}" "${hosts[@]:newest+1}")
  addresses=("${addresses[newest]}" "${addresses[@]:0:newest}" "${addresses[@]:newest+1}")
  if ((${own:-0} > steps[newest])); then
    say "the newest state, after $own steps, is here: it is copied to ${hosts[0]}"
    rsync -a "$here/" "${hosts[0]}:$run/"
  fi
  on 0 "rm -f $run/.elsewhere"
fi

if [[ -z $programs ]]; then
  build="${HEADROOM_BUILD_FOLDER:-$repository/build}"
  [[ -x $build/bin/headroom && -x $build/bin/headroom-worker ]] || die "there are no programs in $build/bin: bash deploy/local/build.sh"
  bash "$repository/deploy/bundle/bundle.sh" "$scratch/bundle.tar.gz" 2>"$scratch/err" || die "$(tail -n 1 "$scratch/err")"
  tar -xzf "$scratch/bundle.tar.gz" -C "$scratch"
  everywhere "did not get the programs" copy_folder "$scratch/headroom" "$folder/programs" --delete
  programs="$folder/programs/bin"
fi
exports=""
for variable in $(compgen -e | grep -E '^(NCCL_|FI_|OFI_NCCL_|HEADROOM_LIBTORCH$|LD_LIBRARY_PATH$)'); do
  exports+="export $variable=$(printf %q "${!variable}"); "
done
everywhere "cannot start headroom" run_line "$exports $programs/headroom --version && $programs/headroom-worker --help >/dev/null"
for k in "${!hosts[@]}"; do
  cmp -s "$scratch/out-0" "$scratch/out-$k" || die "machine $((k + 1)) (${hosts[k]}) has $(<"$scratch/out-$k"), and ${hosts[0]} has $(<"$scratch/out-0"): install one version"
done
if [[ -n $data_folder ]]; then
  [[ -d $data_folder && $data_folder == /* ]] || die "--copy-data $data_folder: name a folder by its absolute path"
  everywhere "did not get the data" run_line "mkdir -p $(printf %q "$data_folder")"
  everywhere "did not get the data" copy_folder "${data_folder%/}" "${data_folder%/}"
fi
[[ -z $data ]] || everywhere "lacks the data" run_line "cd $folder && [ -e $(printf %q "$data") ] || { echo there is no $(printf %q "$data"): copy it there, or give --copy-data >&2; exit 1; }"

# Certificates for this start alone.
"${HEADROOM:-$repository/build/bin/headroom}" coordinator --init-certs "$scratch/certs" --cert-names "${addresses[0]}" >/dev/null
has_certs=yes
everywhere "did not get the certificates" copy_folder "$scratch/certs" "$certs" --delete --chmod=D0700,F0600 --exclude=ca.key --exclude='server.*'
rsync -a --chmod=F0600 "$scratch"/certs/server.* "${hosts[0]}:$certs/"

# A machine without the run's folder must know how many workers it starts.
others=()
if [[ -n $resume && -z $processes ]]; then
  total="$(on 0 "sed -n 's/^processes: *//p' $run/run.yaml")"
  ((total % ${#hosts[@]} == 0)) || die "the run has $total processes, and there are ${#hosts[@]} machines: give --processes N, the number for each machine"
  others=(--processes $((total / ${#hosts[@]})))
fi
place=(--project "$folder/runs" --name "$name")
[[ -z $resume ]] || place=(--resume "$run")

# The first Ctrl-C ends the run at a committed step, a second one at once.
interrupts=0
interrupt() {
  local k
  ((++interrupts))
  for k in "${!hosts[@]}"; do
    ((interrupts == 1 && k > 0)) || on "$k" "kill -INT \$(cat $pid_file)" 2>/dev/null || true
  done
}
trap interrupt INT TERM
pids=()
for k in "${!hosts[@]}"; do
  words=("$programs/headroom" train --certs "$certs" "${place[@]}" "${flags[@]}")
  ((k == 0)) || words+=("${others[@]}")
  line="cd $folder && echo \$\$ >$pid_file && $exports MASTER_ADDR=${addresses[0]} MASTER_PORT=$port NODE_RANK=$k WORLD_SIZE=${#hosts[@]} exec $(printf '%q ' "${words[@]}")"
  # In a session of its own, as the terminal's Ctrl-C is for this script.
  start=(setsid ssh -n "${ssh_options[@]}" "${hosts[k]}" "$(printf '%q ' bash -c "$line")")
  if ((k == 0)); then
    "${start[@]}" &
  else
    "${start[@]}" > >(
      trap '' INT
      exec sed -u "s|^|[${hosts[k]}] |"
    ) 2>&1 &
  fi
  pids+=($!)
done
# A machine that refuses the run ends it; the run outlives one that is lost.
codes=() left=${#hosts[@]} refused=""
while ((left > 0)); do
  sleep 0.2 || true # Ctrl-C ends it, too
  for k in "${!pids[@]}"; do
    ! kill -0 "${pids[k]}" 2>/dev/null || continue
    codes[k]=0
    wait "${pids[k]}" || codes[k]=$?
    unset "pids[k]"
    ((--left)) || true
    ((codes[k] != 2 || k == 0 || interrupts > 0)) || {
      refused="machine $((k + 1)) (${hosts[k]}) refused the run, see above"
      interrupt
    }
  done
done
trap '' INT TERM
code=${codes[0]}
# ssh's own code: the first machine, or the connection to it, is lost.
((code != 255)) || code=5
[[ -z $refused ]] || {
  say "error: $refused"
  code=2
}

# Brings what each machine has, the newest last.
find_newest
if ((steps[newest] > 0)); then
  mkdir -p "$here"
  for k in "${!hosts[@]}" "$newest"; do
    ((steps[k] == 0)) || rsync -a "${hosts[k]}:$run/" "$here/" ||
      say "error: the results on ${hosts[k]} were not brought: rsync -a ${hosts[k]}:$run/ $here/"
  done
  say "results in $here: the state after ${steps[newest]} steps, from ${hosts[newest]}"
  ((code == 0 || code == 2)) || say "go on with: bash $0 $hostfile $folder --resume $here"
fi
exit "$code"
