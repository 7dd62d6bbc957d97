#!/usr/bin/env bash
# Builds an image without a Docker daemon, as an archive for docker load, podman
# load and skopeo.
#
#   build_image.sh coordinator|cpu|cuda [OUT.tar]    default build/images/NAME.tar
#
# cpu and cuda are worker images without and with LibTorch's CUDA half.
# mmdebstrap needs no root if user name spaces are allowed.
#
# REQUIRES: build/ (deploy/local/build.sh), mmdebstrap, and a mirror of Debian
# 12 (HEADROOM_DEBIAN_MIRROR replaces mmdebstrap's default).
# HEADROOM_BUILD_FOLDER and HEADROOM_LIBTORCH name other folders.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../local/common.sh"

variant="${1:-}"
case "$variant" in
  coordinator) image=headroom-coordinator ;;
  cpu) image=headroom-worker ;;
  cuda) image=headroom-worker-cuda ;;
  *) die "usage: build_image.sh coordinator|cpu|cuda [OUT.tar]" ;;
esac
build="${HEADROOM_BUILD_FOLDER:-$repository/build}"
out="$(realpath -m "${2:-$build/images/$image.tar}")"
mirror=()
[[ -z ${HEADROOM_DEBIAN_MIRROR:-} ]] || mirror=("$HEADROOM_DEBIAN_MIRROR")
command -v mmdebstrap >/dev/null ||
  die "mmdebstrap is not installed: apt-get install mmdebstrap"

staging="$(mktemp -d)"
trap 'rm -rf "$staging"' EXIT
mkdir -p "$staging"/{torch,programs}/opt "$(dirname "$out")"

# The system without a package manager: the C and C++ libraries, busybox as
# shell and tools, getent, and certificate authorities for MLflow and webhooks.
# A worker also has fonts, for class names with letters other than ASCII, and
# Python for --mlflow.
packages=libc6,libc-bin,libgcc-s1,libstdc++6,busybox-static,ca-certificates
if [[ $variant != coordinator ]]; then packages+=,fontconfig-config,fonts-dejavu-core,python3; fi
# NCCL needs these to find InfiniBand and RoCE.
if [[ $variant == cuda ]]; then packages+=,libibverbs1,ibverbs-providers,librdmacm1; fi
cat >"$staging/finish" <<'FINISH'
#!/bin/sh
# Packages are only unpacked. This script does the necessary part of what their install scripts
# would do.
set -eu
cd "$1"
cat usr/share/ca-certificates/mozilla/*.crt >etc/ssl/certs/ca-certificates.crt
printf 'root:x:0:0::/:/bin/sh\nheadroom:x:10001:10001::/tmp:/bin/sh\n' >etc/passwd
printf 'root:x:0:\nheadroom:x:10001:\n' >etc/group
printf 'passwd: files\ngroup: files\nhosts: files dns\n' >etc/nsswitch.conf
mkdir -p proc sys run tmp opt runs data state certs
for tool in $(usr/bin/busybox --list); do
  [ -e "usr/bin/$tool" ] || [ -e "usr/sbin/$tool" ] || ln -s busybox "usr/bin/$tool"
done
# The programs contain their own OpenSSL, so only Python needs the system's. No program needs other
# character sets.
[ -e usr/bin/python3 ] || rm -rf usr/lib/x86_64-linux-gnu/libcrypto.so* usr/lib/x86_64-linux-gnu/libssl.so*
rm -rf etc/resolv.conf etc/hostname var/lib/apt var/cache var/log usr/share/ca-certificates usr/share/man usr/share/locale \
  usr/share/i18n usr/share/perl5 usr/share/debconf usr/share/bug usr/share/lintian \
  usr/lib/x86_64-linux-gnu/gconv usr/lib/x86_64-linux-gnu/perl-base \
  usr/bin/openssl usr/bin/c_rehash usr/bin/debconf* usr/bin/localedef usr/bin/perl* \
  usr/sbin/update-ca-certificates usr/lib/x86_64-linux-gnu/engines-3 \
  usr/lib/x86_64-linux-gnu/ossl-modules
find usr/share/doc -type f ! -name copyright -delete
FINISH
chmod +x "$staging/finish"
mmdebstrap --quiet --variant=extract --include="$packages" \
  --hook-dir=/usr/share/mmdebstrap/hooks/merged-usr --extract-hook="$staging/finish \"\$1\"" \
  --format=tar bookworm "$staging/system.tar" "${mirror[@]}" ||
  die "mmdebstrap could not make the system's folder: see above"
layers=("$staging/system.tar")

HEADROOM_BUILD_FOLDER="$build" bash "$repository/deploy/bundle/bundle.sh" \
  "$staging/headroom.tar.gz" >&2
tar -C "$staging/programs/opt" -xzf "$staging/headroom.tar.gz"
programs="$staging/programs/opt/headroom"
if [[ $variant == coordinator ]]; then
  # No LibTorch and no tensors: only control traffic.
  find "$programs" -mindepth 1 -maxdepth 1 ! -name lib ! -name libexec ! -name licenses \
    -exec rm -r {} +
  find "$programs/libexec" -type f ! -name headroom -delete
else
  libtorch="$(libtorch_root)"
  torch="$staging/torch/opt/libtorch/torch"
  mkdir -p "$torch/lib" "$torch/include/torch/headeronly"
  cp "$libtorch/torch/include/torch/headeronly/version.h" "$torch/include/torch/headeronly/"
  if [[ $variant == cuda ]]; then
    [[ -f $libtorch/torch/lib/libtorch_cuda.so ]] ||
      die "$libtorch has no CUDA half: name one that has, by HEADROOM_LIBTORCH"
    # Only libraries, without Python's part and those for profilers and other
    # programs.
    (cd "$libtorch" && find torch/lib nvidia -path '*/lib/*.so*' \
      ! -name 'libtorch_python*' ! -name 'libshm*' \
      ! -name 'libcusolverMg*' ! -name '*.alt.so*' ! -name 'libnvperf*' ! -name 'libpcsampling*' \
      ! -name 'libnvblas*' ! -name 'libcufftw*' -print0 |
      tar --null -T - -cf -) | tar -C "$staging/torch/opt/libtorch" -xf -
  else
    cp "$libtorch"/torch/lib/{libtorch_cpu.so,libc10.so,libgomp.so.1} "$torch/lib/"
    # A LibTorch with a CUDA half needs some of NVIDIA's libraries even without
    # a GPU.
    readelf -Wd "$torch"/lib/*.so | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | sort -u |
      while read -r library; do
        (cd "$libtorch" && find nvidia -name "$library" -exec cp -L --parents {} "$staging/torch/opt/libtorch" \; 2>/dev/null) || true
      done
    rm -f "$programs/libexec/libheadroom_cuda.so"
  fi
  tar -C "$staging/torch" --sort=name --owner=0 --group=0 --mtime=@0 -cf "$staging/torch.tar" opt
  layers+=("$staging/torch.tar")
fi
tar -C "$staging/programs" --sort=name --owner=0 --group=0 --mtime=@0 \
  -cf "$staging/programs.tar" opt
layers+=("$staging/programs.tar")
python3 -B "$repository/deploy/docker/pack_image.py" "$variant" \
  "$image:$("$build/bin/headroom" --version | awk '{print $2}')" "$out" "${layers[@]}"
