"""Packs the kit: programs, tests and what they need, as one archive.

LibTorch, CUDA and the C library come from the machine with the card. The kit
contains the third-party libraries that the programs load. Libraries that only
unused parts of OpenCV need (X11, OpenGL, LAPACK) are replaced by small stand-ins,
whose functions end the program with a message if they are called.
"""
import pathlib
import re
import shutil
import subprocess
import tempfile

LIMIT_MIB = 40
NAME = 'headroom-gpu-tests'

PROGRAMS = ('bin/headroom', 'bin/headroom-worker', 'bin/headroom-shapes', 'bin/benchmark_gpu_step',
            'bin/benchmark_device_passes', 'bin/benchmark_conv_choices', 'bin/benchmark_state_copies',
            'bin/benchmark_loader', 'bin/libheadroom_cuda.so', 'bin/libheadroom_ghost_hold.so',
            'tests/communicator_costs', 'tests/nccl_calls', 'tests/test_cuda', 'tests/test_cuda_bodies', 'tests/test_device_training', 'tests/nccl_rank_process',
            'tests/libheadroom_testdevice.so')
# Built only with CUDA's compiler.
OF_CUDA = ('bin/libheadroom_cuda.so', 'bin/libheadroom_ghost_hold.so', 'tests/nccl_calls')
# The test device's stand-in for NCCL, in a separate folder so that a card never
# loads it.
NCCL_STAND_IN = 'tests/nccl_shim/libnccl.so.2'
OF_THE_MACHINE = re.compile(r'^(ld-linux.*|lib(c|m|dl|rt|pthread|resolv|util|anl))\.so')
OF_LIBTORCH = re.compile(r'^lib(torch|c10|gomp|cuda|cudart|cudnn|cublas|cufft|cufile|curand|cusolver|cusparse|cupti|'
                         r'nccl|nvidia|nvrtc|nvJitLink|nvshmem|nvToolsExt)')
REPLACED = re.compile(r'^lib(lapack|blas|gfortran|quadmath|X11|xcb|Xau|Xdmcp|bsd|md|GL|GLX|OpenGL|EGL|GLdispatch)\.so')

STAND_IN = '''#include <stdlib.h>
#include <unistd.h>
static void end(void) {
  static const char text[] = "this kit carries no NAME\\n";
  if (write(2, text, sizeof text - 1)) abort();
  abort();
}
'''


# A script for a caller that must not load the kit's libraries itself.
STEP_SCRIPT = '''#!/bin/sh
here="$(dirname "$(readlink -f "$0")")"
LD_LIBRARY_PATH="$here/../lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" exec "$here/benchmark_gpu_step" "$@"
'''


def place_of(library):
    """Where a library of this name comes from: 'machine', 'libtorch', 'stand-in' or 'kit'."""
    if OF_THE_MACHINE.match(library):
        return 'machine'
    if OF_LIBTORCH.match(library):
        return 'libtorch'
    return 'stand-in' if REPLACED.match(library) else 'kit'


def output_of(*words):
    return subprocess.run([str(word) for word in words], check=True, capture_output=True, text=True).stdout


def needed(file):
    return re.findall(r'\(NEEDED\).*\[(.+)\]', output_of('readelf', '-W', '-d', file))


def files_of_libraries(file):
    """The path of each library that the loader finds for `file`, by name."""
    return dict(re.findall(r'^\s*(\S+) => (/\S+)', output_of('ldd', file), re.MULTILINE))


def closure(files):
    """The libraries to pack, {name: path}, and the libraries to replace by stand-ins, {name: (path, {files that need it})}."""
    carried, replaced = {}, {}
    for program in files:
        found = files_of_libraries(program)
        todo = [program]
        while todo:
            user = todo.pop()
            for library in needed(user):
                place = place_of(library)
                if place in ('machine', 'libtorch'):
                    continue
                if library not in found:
                    raise SystemExit(f'error: {library}, which {user} needs, is not found')
                if place == 'stand-in':
                    replaced.setdefault(library, (found[library], set()))[1].add(str(user))
                elif library not in carried:
                    carried[library] = found[library]
                    todo.append(found[library])
    return carried, replaced


def symbols(file, *which):
    return {line.split()[-1].split('@')[0] for line in output_of('nm', '-D', *which, file).splitlines() if line.strip()}


def write_stand_in(into, library, path, users):
    wanted = set.union(*(symbols(user, '--undefined-only') for user in users)) & symbols(path, '--defined-only')
    text = STAND_IN.replace('NAME', library)
    text += ''.join(f'void {name}(void) {{ end(); }}\n' for name in sorted(wanted))
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / 'stand_in.c'
        source.write_text(text)
        output_of('cc', '-shared', '-fPIC', '-fno-builtin', '-w', f'-Wl,-soname,{library}', '-o', into / library,
                  source)


def archive(folder, out):
    """Makes a .tar.zst of `folder`; equal content gives equal bytes. The long window helps if programs share code."""
    tar = subprocess.Popen(['tar', '-C', folder.parent, '--sort=name', '--owner=0', '--group=0', '--numeric-owner',
                            '--mtime=@0', '-cf', '-', folder.name], stdout=subprocess.PIPE)
    subprocess.run(['zstd', '-q', '-f', '-12', '--long=27', '-T0', '-o', str(out)], stdin=tar.stdout, check=True)
    if tar.wait():
        raise SystemExit('error: tar failed')


def pack(args, say):
    here = pathlib.Path(__file__).resolve().parent
    repository = here.parents[2]
    build = args.build or repository / 'build'
    out = (args.out or build / f'{NAME}.tar.zst').resolve()
    without_plugin = args.without_card and not (build / 'bin/libheadroom_cuda.so').exists()
    programs = [one for one in PROGRAMS if not (without_plugin and one in OF_CUDA)]
    missing = [one for one in programs if not (build / one).exists()]
    if missing:
        raise SystemExit(f'error: there is no {build / missing[0]}: build where nvcc is (bash deploy/local/build.sh)')
    peer = args.peer or repository / '..' / 'shared' / 'peers' / 'torch_ddp.py'
    with tempfile.TemporaryDirectory() as staging:
        folder = pathlib.Path(staging) / NAME
        (folder / 'bin').mkdir(parents=True)
        (folder / 'lib').mkdir()
        carried, replaced = closure([build / one for one in programs])
        places = {one: folder / 'bin' for one in programs}
        if (build / NCCL_STAND_IN).exists():
            places[NCCL_STAND_IN] = folder / 'nccl_shim'
            places[NCCL_STAND_IN].mkdir()
        for one, place in places.items():
            to = place / pathlib.Path(one).name
            shutil.copy2(build / one, to)
            # Without this, the loader would search this machine's folders for LibTorch first.
            with tempfile.NamedTemporaryFile('w', suffix='.cmake') as script:
                script.write(f'file(RPATH_REMOVE FILE "{to}")\n')
                script.flush()
                output_of('cmake', '-P', script.name)
            output_of('strip', '--strip-unneeded', to)
        for library, path in carried.items():
            shutil.copy(path, folder / 'lib' / library)
            (folder / 'lib' / library).chmod(0o755)
        for library, (path, users) in replaced.items():
            write_stand_in(folder / 'lib', library, path, users)
        shutil.copy(here.parent / 'gpu_tests.sh', folder)
        shutil.copytree(here, folder / 'gpu_tests', ignore=shutil.ignore_patterns('__pycache__'))
        shutil.copy(repository / 'tests/benchmarks/gpu_step.py', folder / 'bin')
        (folder / 'bin/gpu_step.sh').write_text(STEP_SCRIPT)
        (folder / 'bin/gpu_step.sh').chmod(0o755)
        if peer.exists():
            shutil.copy(peer, folder / 'peer.py')
        else:
            say(f'warning: no {peer}: the part of the PyTorch peer will fail; give --peer FILE')
        unpacked = sum(file.stat().st_size for file in folder.rglob('*') if file.is_file())
        out.parent.mkdir(parents=True, exist_ok=True)
        archive(folder, out)
    size = out.stat().st_size
    if size > LIMIT_MIB << 20:
        out.unlink()
        raise SystemExit(f'error: the archive has {size} bytes, but may have {LIMIT_MIB << 20} ({LIMIT_MIB} MiB)')
    say(f'{out}: {size / 2**20:.1f} MiB of at most {LIMIT_MIB}, unpacked {unpacked / 2**20:.0f} MiB, '
        f'{len(carried)} libraries, {len(replaced)} stand-ins. There: tar -xf {out.name} && '
        f'bash {NAME}/gpu_tests.sh run')
