# shellcheck shell=bash disable=SC2154
# Collects the files that bundle.sh and deploy/wheel/wheel.sh pack; sourced
# after common.sh.
#
#   collect_programs FOLDER    the built programs, their launchers, third-party
#                              libraries and VERSION. REQUIRES: $build

# Libraries that are not packed: the machine has the C and C++ libraries, and LibTorch's
# installation has those of CUDA.
of_the_machine='^(ld-linux.*|lib(c|m|dl|rt|pthread|resolv|util|anl|stdc\+\+|gcc_s))[.]so'
of_libtorch='^lib(torch|c10|gomp|cuda|cudart|cudnn|cublas|cufft|cufile|curand|cusolver|cusparse|cupti|nccl|nvidia|nvrtc|nvJitLink|nvshmem|nvToolsExt)'
# Not packed either: a machine without these does not load the plugin.
of_a_plugin='^lib(mpi|gdal)[.]so'
# Refused: a program that needs these was linked wrongly.
never='^lib(X|xcb|GL|EGL|lapack|blas|gfortran|quadmath|mpi|open-)'

# Prints "NAME PATH" for each library that the files need; PATH is "not" if it
# is missing.
needed_by() {
  local file
  for file in "$@"; do ldd "$file" | awk '$2 == "=>" {print $1, $3}'; done |
    sort -u
}

# Packages that are compiled into headroom-worker (headroom_find_archives), or
# that consist of headers.
compiled_in=(libopencv-core-dev libopencv-imgproc-dev libfontconfig-dev libexpat1-dev
  nlohmann-json3-dev)

# The package that file $1 belongs to; "" if Debian's lists do not contain it.
package_of() {
  local path="$1"
  { dpkg-query -S "$path" || dpkg-query -S "${path#/usr}"; } 2>/dev/null |
    sed -n '1s/[:,].*//p'
}

# Records "LIBRARY PACKAGE VERSION" of a third-party library, and its licence.
note_library() {
  local folder="$1" library="$2" package="$3" version=""
  if [[ -n $package ]]; then
    version="$(dpkg-query -W -f '${Version}\n' "$package" | head -1)"
    cp "/usr/share/doc/$package/copyright" "$folder/licenses/$package.txt"
  fi
  printf '%s\t%s\t%s\n' "$library" "${package:--}" "${version:--}" >>"$folder/LIBRARIES"
}

copy_libraries() {
  local folder="$1" library path package
  mkdir -p "$folder/lib" "$folder/licenses"
  # The programs in the build folder, because their RPATH still finds LibTorch.
  needed_by "$build"/bin/headroom "$build"/bin/headroom-worker |
    while read -r library path; do
      if [[ $library =~ $of_the_machine || $library =~ $of_libtorch ]]; then
        continue
      fi
      [[ $path == /* ]] || die "$library, which the programs need, is not found"
      [[ ! $library =~ $never ]] ||
        die "the programs need $library, which is not to travel: link what asks for it as an archive (headroom_find_archives)"
      cp -L "$path" "$folder/lib/$library"
      chmod 644 "$folder/lib/$library"
      note_library "$folder" "$library" "$(package_of "$(realpath "$path")")"
    done
  for package in "${compiled_in[@]}"; do
    note_library "$folder" "(compiled in)" "$package"
  done
}

# Checks that every library comes from the folder, from LibTorch or from the
# machine.
check_complete() {
  local folder="$1" library path file
  LD_LIBRARY_PATH="$folder/lib:$(libtorch_root)/torch/lib" \
    needed_by "$folder"/libexec/headroom "$folder"/libexec/headroom-worker |
    while read -r library path; do
      if [[ $library =~ $of_the_machine || $library =~ $of_libtorch ||
        $path == "$folder"/* ]]; then
        continue
      fi
      die "$library would come from '$path' and not from the package"
    done
  for file in "$folder"/libexec/*.so; do
    readelf -W -d "$file" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' |
      while read -r library; do
        if [[ $library =~ $of_the_machine || $library =~ $of_libtorch ||
          $library =~ $of_a_plugin || -f $folder/lib/$library ]]; then
          continue
        fi
        die "$(basename "$file") needs $library, which is not in the package"
      done
  done
}

write_version() {
  local folder="$1" plugin has
  {
    "$build/bin/headroom" --version
    echo "LibTorch $libtorch_version"
    python3 -B "$repository/deploy/bundle/symbol_versions.py" highest "$folder"
    for plugin in cuda mpi maps; do
      has=no
      [[ ! -f $folder/libexec/libheadroom_$plugin.so ]] || has=yes
      echo "plugin $plugin: $has"
    done
  } >"$folder/VERSION"
}

collect_programs() {
  local folder="$1" program
  for program in headroom headroom-worker; do
    [[ -x $build/bin/$program ]] ||
      die "there is no $build/bin/$program: build first (bash deploy/local/build.sh)"
  done
  cmake --install "$build" --component bundle --prefix "$folder" >/dev/null
  strip --strip-unneeded "$folder"/libexec/*
  copy_libraries "$folder"
  python3 -B "$repository/deploy/bundle/symbol_versions.py" lower "$folder" >&2
  check_complete "$folder"
  write_version "$folder"
}
