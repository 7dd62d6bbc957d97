#!/usr/bin/env python3
"""What the compiler made of the kernels of batch norm and activation.

  kernel_figures.py [--source batch_norm_passes.cu] [--architecture 90] [--check]

(--source: that of another checkout, to compare.)

Compiles them with nvcc for one architecture and prints, for each pass over
whole vectors: registers, shared bytes, blocks of 256 threads that fit a
multiprocessor, and from the machine code of its loop over pixels the loads of
16 bytes that are in flight before the first is used, and the instructions of an
element: loads, norm, activation, store and all.

The machine code is read with cuobjdump and nvdisasm, which not every toolkit
has (pip install nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm): without them the
last two columns stay empty, and a line says so.

--check: exit code 1 where a bound of `BOUNDS` does not hold.
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__)))))
THREADS = 256
# Of a multiprocessor: registers, and by architecture threads and shared KiB.
REGISTERS = 65536
LIMITS = {75: (1024, 64), 80: (2048, 164), 86: (1536, 100), 89: (1536, 100),
          90: (2048, 228), 100: (2048, 228), 120: (1536, 100)}
ELEMENT_BYTES = {'double': 8, 'float': 4, '__nv_bfloat16': 2, '__half': 2}
SILU_INSTRUCTIONS = 14
BOUNDS = 'at least 4 blocks; for sums of values and SiLU in bf16 and float 4 ' \
    'loads in flight, and at most %d instructions of a normalised and ' \
    'activated element' % SILU_INSTRUCTIONS


def tool(name):
    """Its path; None where it is nowhere."""
    beside = [os.path.join(sysconfig.get_path('purelib'), 'nvidia', part, 'bin')
              for part in ('cu13', 'cuda_cuobjdump', 'cuda_nvdisasm')]
    return shutil.which(name, path=os.pathsep.join(
        [os.environ.get('PATH', ''), '/usr/local/cuda/bin'] + beside))


def compiled(source, architecture, to):
    """The compiler's report on each kernel, by name."""
    nvcc = tool('nvcc')
    if nvcc is None:
        sys.exit('kernel_figures.py: no nvcc')
    root = os.path.abspath(os.path.join(os.path.dirname(source), *['..'] * 3))
    result = subprocess.run(
        [nvcc, '-std=c++20', '-O3', '-I', root, '-Xptxas', '-v', '-gencode',
         f'arch=compute_{architecture},code=sm_{architecture}', '-c', source,
         '-o', to], capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(result.stderr)
    reports = {}
    for part in result.stderr.split("Compiling entry function '")[1:]:
        name = part[:part.index("'")]
        shared = re.search(r'(\d+) bytes smem', part)
        reports[name] = {
            'registers': int(re.search(r'Used (\d+) registers', part)[1]),
            'shared': int(shared[1]) if shared else 0}
    return reports


def machine_code(binary):
    """Instructions of each kernel, by name; empty without the tools."""
    cuobjdump, nvdisasm = tool('cuobjdump'), tool('nvdisasm')
    if cuobjdump is None or nvdisasm is None:
        print('no cuobjdump and nvdisasm here: the machine code is not read')
        return {}
    path = os.pathsep.join([os.path.dirname(nvdisasm), os.environ['PATH']])
    text = subprocess.run([cuobjdump, '-sass', binary], capture_output=True,
                          text=True, env=dict(os.environ, PATH=path),
                          check=True).stdout
    code = {}
    for function in re.split(r'\n\s*Function : ', text)[1:]:
        name = function.split('\n', 1)[0].strip()
        code[name] = re.findall(r'/\*([0-9a-f]{4,5})\*/\s+(.*?)\s*;', function)
    return code


def pixel_loop(instructions):
    """The first loop that loads 16 bytes at a time."""
    places = {int(at, 16): i for i, (at, _) in enumerate(instructions)}
    for i, (at, text) in enumerate(instructions):
        jump = re.search(r'\bBRA\b.*\b0x([0-9a-f]+)', text)
        if not jump or int(jump[1], 16) >= int(at, 16):
            continue
        loop = [line for _, line in instructions[places[int(jump[1], 16)]:i + 1]]
        if any('LDG' in line and '.128' in line for line in loop):
            return loop
    return []


def loads_in_flight(loop):
    loaded, count = set(), 0
    for line in loop:
        load = re.search(r'LDG\S*\.128\S*\s+R(\d+)', line)
        if load:
            loaded.update(range(int(load[1]), int(load[1]) + 4))
            count += 1
        elif loaded & {int(r) for r in re.findall(r'\bR(\d+)', line)}:
            break
    return count


def kernel_of(symbol):
    """(pass, element type, activation) of a kernel over vectors, or None."""
    name = subprocess.run(['c++filt', symbol], capture_output=True,
                          text=True).stdout
    found = re.search(r'::(\w+)<(?:\([^,]*Pass\)(\d), )?(\w+), (\d+)\b', name)
    if not found or found[4] == '1':
        return None
    kind = re.search(r'KnownActivation<\(?[^,]*ActivationKind\)(\d)', name)
    label = found[1] if found[2] is None else f'{found[1]} {found[2]}'
    return label, found[3], ('silu', 'leaky', 'hardswish', 'mish')[
        int(kind[1])] if kind else 'any'


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--source', default=os.path.join(
        ROOT, 'parallel/cuda/kernels/batch_norm_passes.cu'))
    parser.add_argument('--architecture', type=int, default=90,
                        choices=sorted(LIMITS))
    parser.add_argument('--check', action='store_true')
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        binary = os.path.join(folder, 'kernels.o')
        reports = compiled(arguments.source, arguments.architecture, binary)
        code = machine_code(binary)
    print(f'{"pass":20}{"type":15}{"activation":12}{"registers":>10}'
          f'{"shared":>8}{"blocks":>8}{"loads":>7}{"instructions":>14}')
    broken, checked = [], 0
    for symbol, report in sorted(reports.items()):
        kernel = kernel_of(symbol)
        if kernel is None:
            continue
        name, element, activation = kernel
        held = (report['registers'] + 7) // 8 * 8 * THREADS
        threads, shared = LIMITS[arguments.architecture]
        blocks = min(threads // THREADS, REGISTERS // held,
                     shared * 1024 // (report['shared'] + 1024))
        loop = pixel_loop(code.get(symbol, []))
        loads, instructions = '', ''
        if loop:
            loads = loads_in_flight(loop)
            both = 'gradient' in name or 'backward' in name
            elements = sum('.128' in line and 'LDG' in line for line in loop) \
                * 16 / ELEMENT_BYTES[element] / (2 if both else 1)
            instructions = round(len(loop) / elements, 1)
        print(f'{name:20}{element:15}{activation:12}'
              f'{report["registers"]:10}{report["shared"]:8}{blocks:8}'
              f'{loads:7}{instructions:14}')
        checked += 1
        bound = loop and element in ('__nv_bfloat16', 'float') and (
            activation == 'silu' or name == 'sum_values')
        if blocks < 4 or (bound and loads < 4) or (
                bound and name == 'normalise' and
                instructions > SILU_INSTRUCTIONS):
            broken.append(' '.join(kernel))
    if arguments.check and (broken or checked == 0):
        sys.exit(f'beyond the bounds ({BOUNDS}): {broken or "no kernel"}')


if __name__ == '__main__':
    main()
