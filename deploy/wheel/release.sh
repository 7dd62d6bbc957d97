#!/usr/bin/env bash
# Makes the files of a release: wheel, source archive, list of third-party
# libraries (SBOM), notes, and checksums of all of them.
#
#   release.sh [FOLDER]   default build/release, which is emptied first; says what
#                         to upload, and where
#
# REQUIRES: build/ (deploy/local/build.sh) of what is committed.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../local/common.sh"

out="$(realpath -m "${1:-$repository/build/release}")"
[[ ! -e $out || -f $out/SHA256SUMS || -z $(ls -A "$out") ]] ||
  die "$out is no release: name a folder that is new, empty, or an earlier release"
[[ -z $(git -C "$repository" status --porcelain --untracked-files=no) ]] ||
  die "there are changes that are not committed: commit them, and build again"
rm -rf "$out"
mkdir -p "$out"
wheel="$(bash "$repository/deploy/wheel/wheel.sh" "$out")"
version="$(basename "$wheel" | cut -d- -f2)"
name="headroom-$version"
commit="$(git -C "$repository" rev-parse HEAD)"
git -C "$repository" archive --format=tar --prefix="$name/" HEAD |
  gzip -9n >"$out/$name-source.tar.gz"
python3 -B "$repository/deploy/wheel/sbom.py" "$wheel" >"$out/$name-sbom.json"

requirements="$(unzip -p "$wheel" headroom_program/VERSION | tail -n +2 | sed 's/^/- /')"
last="$(git -C "$repository" describe --tags --abbrev=0 "$commit^" 2>/dev/null || true)"
{
  printf '# Headroom %s\n\nCommit %s.\n\n' "$version" "$commit"
  printf '    pip install headroom-train==%s\n\nor, from the file:\n\n' "$version"
  printf '    pip install torch==%s %s\n\n' "$libtorch_version" "$(basename "$wheel")"
  printf 'What the wheel asks for and has:\n\n%s\n' "$requirements"
  if [[ -n $last ]]; then
    printf '\nChanges since %s:\n\n' "$last"
    git -C "$repository" log --no-merges --format='- %s' "$last..$commit"
  fi
} >"$out/NOTES.md"
sums="$(cd "$out" && sha256sum -- *)"
printf '%s\n' "$sums" >"$out/SHA256SUMS"
say "$out: $(find "$out" -type f -printf '%f ' | tr -s ' ')"
say "upload the wheel to the package index, as the project headroom-train (the name headroom is another's): python3 -m twine upload $wheel"
say "upload all $(find "$out" -type f | wc -l) files to the release of the tag v$version, with NOTES.md as its text"
