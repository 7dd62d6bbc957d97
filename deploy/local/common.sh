# shellcheck shell=bash disable=SC2034
# Functions of this folder's scripts; source it, do not run it.

repository="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
dependencies="$repository/.deps"
libtorch_version="2.11.0"

say() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; }
die() {
  say "error: $*"
  exit 1
}

# The folder that contains torch/: HEADROOM_LIBTORCH, else the downloaded one.
libtorch_root() {
  realpath -m "${HEADROOM_LIBTORCH:-$dependencies/libtorch}"
}

# Prints the version of the LibTorch in folder $1; nothing if there is none.
version_of_libtorch() {
  local header
  for header in "$1/torch/include/torch/headeronly/version.h" \
    "$1/include/torch/headeronly/version.h"; do
    if [[ -f $header ]]; then
      awk '/define TORCH_VERSION_(MAJOR|MINOR|PATCH) /{printf "%s%s", dot, $3; dot="."}' \
        "$header"
      return
    fi
  done
}

has_nvidia_driver() {
  [[ -e /proc/driver/nvidia/version ]] || command -v nvidia-smi >/dev/null
}

# CUDA 13's compiler: LibTorch's CUDA half was built with that version.
has_nvcc() {
  local nvcc
  nvcc="$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)"
  [[ -x $nvcc ]] && "$nvcc" --version | grep -q 'release 13\.'
}

# Compiling a file with tensors takes up to 2 GB.
build_jobs() {
  local cores memory_kb by_memory
  cores="$(nproc)"
  memory_kb="$(awk '/^MemAvailable:/{print $2}' /proc/meminfo)"
  by_memory=$((memory_kb / 2000000))
  ((by_memory >= 1)) || by_memory=1
  printf '%s\n' $((cores < by_memory ? cores : by_memory))
}
