#!/usr/bin/env bash
# Packs the built programs with their third-party libraries, but not LibTorch,
# CUDA or the C library, into a folder that runs wherever it is unpacked.
#
#   bundle.sh [OUT.tar.gz [LIMIT_MIB]]   default build/headroom-bundle.tar.gz, 40
#
# REQUIRES: build/ (deploy/local/build.sh); HEADROOM_BUILD_FOLDER names another.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../local/common.sh"

build="${HEADROOM_BUILD_FOLDER:-$repository/build}"
out="$(realpath -m "${1:-$build/headroom-bundle.tar.gz}")"
limit_mib="${2:-40}"
name="headroom"

# The machine's own: the C library, and with LibTorch whatever is CUDA's.
of_the_machine='^(ld-linux.*|lib(c|m|dl|rt|pthread|resolv|util|anl))[.]so'
of_libtorch='^lib(torch|c10|gomp|cuda|cudart|cudnn|cublas|cufft|cufile|curand|cusolver|cusparse|cupti|nccl|nvidia|nvrtc|nvJitLink|nvshmem|nvToolsExt)'

# "NAME PATH" of each library that the files need; PATH is "not" if missing.
needed_by() {
  local file
  for file in "$@"; do ldd "$file" | awk '$2 == "=>" {print $1, $3}'; done |
    sort -u
}

copy_libraries() {
  local library path
  mkdir -p "$folder/lib"
  # The built programs, which still know where LibTorch is.
  needed_by "$build"/bin/headroom "$build"/bin/headroom-worker |
    while read -r library path; do
      if [[ $library =~ $of_the_machine || $library =~ $of_libtorch ]]; then
        continue
      fi
      [[ $path == /* ]] || die "$library, which the programs need, is not found"
      cp -L "$path" "$folder/lib/$library"
      chmod 644 "$folder/lib/$library"
    done
}

# Every library must come from the bundle, or be LibTorch's or the machine's.
check_complete() {
  local library path
  LD_LIBRARY_PATH="$folder/lib:$(libtorch_root)/torch/lib" \
    needed_by "$folder"/libexec/* |
    while read -r library path; do
      if [[ $library =~ $of_the_machine || $library =~ $of_libtorch ||
        $path == "$folder"/* ]]; then
        continue
      fi
      die "$library would come from '$path' and not from the bundle"
    done
}

write_version() {
  local glibc plugin=no
  glibc="$(objdump -T "$folder"/libexec/* "$folder"/lib/* |
    grep -o 'GLIBC_[0-9.]*' | sort -Vu | tail -1)"
  [[ ! -f $folder/libexec/libheadroom_cuda.so ]] || plugin=yes
  {
    "$build/bin/headroom" --version
    echo "LibTorch $libtorch_version"
    echo "C library ${glibc/_/ } or newer"
    echo "CUDA plugin: $plugin"
  } >"$folder/VERSION"
}

for program in headroom headroom-worker; do
  [[ -x $build/bin/$program ]] ||
    die "there is no $build/bin/$program: build first (bash deploy/local/build.sh)"
done
staging="$(mktemp -d)"
trap 'rm -rf "$staging"' EXIT
folder="$staging/$name"
cmake --install "$build" --component bundle --prefix "$folder" >/dev/null
strip --strip-unneeded "$folder"/libexec/*
copy_libraries
check_complete
write_version

tar -C "$staging" --sort=name --owner=0 --group=0 --numeric-owner -cf - "$name" |
  gzip -6n >"$staging/bundle.tar.gz"
bytes="$(stat -c %s "$staging/bundle.tar.gz")"
limit=$((limit_mib * 1024 * 1024))
((bytes <= limit)) ||
  die "the bundle has $bytes bytes, but may have $limit ($limit_mib MiB)"
mkdir -p "$(dirname "$out")"
mv "$staging/bundle.tar.gz" "$out"
say "$out: $((bytes / 1024)) KiB of at most $((limit / 1024)), unpacked $(du -sk "$folder" | cut -f1) KiB"
