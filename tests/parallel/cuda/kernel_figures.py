#!/usr/bin/env python3
"""Prints figures of the CUDA kernels as nvcc compiles them.

  kernel_figures.py [--source kernels/] [--architecture 90] [--check]

--source: a folder of kernels, or one of its files. To compare two versions,
give the folder of another checkout.

The script compiles the kernels for one architecture. It prints for each kernel
the registers, the shared bytes, and the number of blocks that fit on a
multiprocessor. From the machine code it finds the largest number of loads that
a thread starts before it uses the first of them, and prints this number and the
KiB of such loads on a multiprocessor. For the batch-norm passes that read whole
vectors, it also counts the instructions per element: of loads, norm, activation
and store, and in total. One more line counts the instructions of SiLU alone and
of its derivative alone.

The machine code is read with cuobjdump and nvdisasm, which are not in every
toolkit (pip install nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm). Without them
those columns are empty, and the script prints a line about this.

--check: exit code 1 if a bound of `BOUNDS` does not hold.
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
THREADS = 256  # threads of a block, for kernels that set no bound
# Limits of a multiprocessor: its registers and, by architecture, its threads
# and its shared memory in KiB.
REGISTERS = 65536
LIMITS = {75: (1024, 64), 80: (2048, 164), 86: (1536, 100), 89: (1536, 100),
          90: (2048, 228), 100: (2048, 228), 120: (1536, 100)}
ELEMENT_BYTES = {'double': 8, 'float': 4, '__nv_bfloat16': 2, '__half': 2}
ACTIVATIONS = ('silu', 'leaky', 'hardswish', 'mish')
SILU_INSTRUCTIONS = 14
# The speed of these kernels is limited by memory. On an H200 a multiprocessor gets
# 36 GB/s, so 18 KiB of loads in flight hide half a microsecond of latency.
STREAMING = ('squares_kernel', 'commit_kernel', 'scale_kernel')
FLIGHT_KIB = 18
BOUNDS = 'at least 4 blocks; for sums of values and SiLU in bf16 and float 4 ' \
    'loads of 16 bytes in flight, and at most %d instructions of a normalised ' \
    'and activated element; for %s at least %d KiB in flight' % (
        SILU_INSTRUCTIONS, ', '.join(STREAMING), FLIGHT_KIB)

SILU = """
#include "worker/kernels/element_math.h"
using namespace headroom;
__global__ void nothing(const float* from, float* to) {
  to[threadIdx.x] = from[threadIdx.x];
}
__global__ void silu(const float* from, float* to) {
  const layers::ActivationFunction kind = {layers::ActivationKind::kSilu};
  to[threadIdx.x] = kernels::activated(from[threadIdx.x], kind);
}
__global__ void derivative(const float* from, float* to) {
  const layers::ActivationFunction kind = {layers::ActivationKind::kSilu};
  to[threadIdx.x] = kernels::activation_derivative(from[threadIdx.x], kind);
}
"""


def tool(name):
    """The path of a tool; None if it is not installed."""
    beside = [os.path.join(sysconfig.get_path('purelib'), 'nvidia', part, 'bin')
              for part in ('cu13', 'cuda_cuobjdump', 'cuda_nvdisasm')]
    return shutil.which(name, path=os.pathsep.join(
        [os.environ.get('PATH', ''), '/usr/local/cuda/bin'] + beside))


def compiled(source, root, architecture, folder):
    """The object file, and the compiler's report on each kernel by name."""
    nvcc = tool('nvcc')
    if nvcc is None:
        sys.exit('kernel_figures.py: no nvcc')
    stem = os.path.basename(source)[:-len('.cu')]
    to = os.path.join(folder, stem + '.o')
    result = subprocess.run(
        [nvcc, '-std=c++20', '-O3', '-I', root, '-Xptxas', '-v', '-gencode',
         f'arch=compute_{architecture},code=sm_{architecture}', '--keep',
         '--keep-dir', folder, '-c', source, '-o', to],
        capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(result.stderr)
    with open(os.path.join(folder, stem + '.ptx')) as file:
        threads = dict(re.findall(r'\.entry (\w+)\([^)]*\)\s*\.maxntid (\d+)',
                                  file.read()))
    reports = {}
    for part in result.stderr.split("Compiling entry function '")[1:]:
        name = part[:part.index("'")]
        shared = re.search(r'(\d+) bytes smem', part)
        reports[name] = {
            'registers': int(re.search(r'Used (\d+) registers', part)[1]),
            'threads': int(threads.get(name, THREADS)),
            'shared': int(shared[1]) if shared else 0}
    return to, reports


def machine_code(binary):
    """Instructions of each kernel, by name; empty without the tools."""
    cuobjdump, nvdisasm = tool('cuobjdump'), tool('nvdisasm')
    if cuobjdump is None or nvdisasm is None:
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


def loops(instructions):
    """The instructions of each loop, from the first one to the jump back."""
    places = {int(at, 16): i for i, (at, _) in enumerate(instructions)}
    for i, (at, text) in enumerate(instructions):
        jump = re.search(r'\bBRA\b.*\b0x([0-9a-f]+)', text)
        if jump and int(jump[1], 16) < int(at, 16):
            yield [line for _, line in
                   instructions[places[int(jump[1], 16)]:i + 1]]


def pixel_loop(instructions):
    """The first loop that loads 16 bytes at a time."""
    return next((loop for loop in loops(instructions) if any(
        'LDG' in line and '.128' in line for line in loop)), [])


def in_flight(lines, kind=''):
    """The largest number of loads before the first of them is used, and their bytes."""
    best, pending, count, size = (0, 0), set(), 0, 0
    for line in lines:
        used = {int(r) for r in re.findall(r'\bR(\d+)', line)}
        load = re.search(r'\bLDG(\S*)\s+R(\d+), (.*)', line)
        if load and kind in load[1]:
            address = {int(r) for r in re.findall(r'\bR(\d+)', load[3])}
            wide = {'.128': 16, '.64': 8, '.U8': 1, '.U16': 2}
            own = next((w for k, w in wide.items() if k in load[1]), 4)
            if pending & address:
                pending, count, size = set(), 0, 0
            pending |= set(range(int(load[2]), int(load[2]) + max(1, own // 4)))
            count, size = count + 1, size + own
            best = max(best, (count, size), key=lambda pair: pair[1])
        elif pending & used:
            pending, count, size = set(), 0, 0
    return best


def most_in_flight(instructions):
    """The result of in_flight() for a kernel: its loops, and outside of loops only loads of 16 bytes."""
    lines = [line for _, line in instructions]
    # A loop that contains other loops is not counted, because its rounds differ.
    inner = [loop for loop in loops(instructions)
             if sum(bool(re.search(r'\bBRA\b', line)) for line in loop) < 12]
    return max([in_flight(loop) for loop in inner] + [in_flight(lines, '.128')],
               key=lambda pair: pair[1])


def straight(instructions):
    """The number of instructions that run if all jumps over rare parts (calls) are taken."""
    places = {int(at, 16): i for i, (at, _) in enumerate(instructions)}
    count, i = 0, 0
    while i < len(instructions):
        text = instructions[i][1]
        count += 1
        jump = re.match(r'@!?P\d BRA 0x([0-9a-f]+)', text)
        ahead = places[int(jump[1], 16)] if jump else i
        if ahead > i and any('CALL' in line for _, line in
                             instructions[i:ahead]):
            i = ahead
            continue
        if re.match('EXIT', text):
            break
        i += 1
    return count


def silu_instructions(root, architecture, folder):
    """The numbers of instructions of SiLU and of its derivative; None without the tools."""
    source = os.path.join(folder, 'silu.cu')
    with open(source, 'w') as file:
        file.write(SILU)
    code = machine_code(compiled(source, root, architecture, folder)[0])
    if not code:
        return None
    of = {name: straight(next(text for symbol, text in code.items()
                              if name in symbol))
          for name in ('nothing', 'silu', 'derivative')}
    return of['silu'] - of['nothing'], of['derivative'] - of['nothing']


class Kernel:
    """A kernel's name, element type and activation, read from its symbol. `is_pass`:
    it reads whole vectors of a map; `is_fallback`: it reads single elements."""

    def __init__(self, symbol):
        text = subprocess.run(['c++filt', symbol], capture_output=True,
                              text=True).stdout
        text = text.replace('(anonymous namespace)', 'own')
        found = re.search(r'own::(\w+)(?:<(.*)>)?\(', text)
        self.name = found[1] if found else symbol
        arguments = re.sub(r'BatchNormMap<.*', '', found[2] or '') \
            if found else ''
        which = re.search(r'\([^()]*(?:Pass|Rule)\)(\d)|\b(true|false)\b',
                          arguments)
        if which:
            self.name += ' ' + (which[1] or which[2])
        of_type = re.search(r'\b(double|float|__nv_bfloat16|__half)\b',
                            arguments)
        self.element = of_type[1] if of_type else ''
        vector = re.search(r', (\d+)\b', arguments)
        self.is_pass = vector is not None and vector[1] != '1' and \
            'BatchNormMap' in text
        self.is_fallback = vector is not None and vector[1] == '1'
        kind = re.search(r'KnownActivation<\(?[^,]*ActivationKind\)(\d)', text)
        self.activation = ACTIVATIONS[int(kind[1])] if kind else \
            'any' if self.is_pass else ''

    def __str__(self):
        return ' '.join([self.name, self.element, self.activation]).strip()


def figures_of(kernel, report, code, architecture):
    threads, shared = LIMITS[architecture]
    held = (report['registers'] + 7) // 8 * 8 * report['threads']
    figures = {'blocks': min(threads // report['threads'], REGISTERS // held,
                             shared * 1024 // (report['shared'] + 1024)),
               'loads': '', 'kib': '', 'instructions': ''}
    loop = pixel_loop(code) if kernel.is_pass else []
    loads, size = (in_flight(loop, '.128') if loop else
                   most_in_flight(code) if not kernel.is_pass else (0, 0))
    if loads:
        figures['loads'] = loads
        figures['kib'] = round(
            size * figures['blocks'] * report['threads'] / 1024, 1)
    if loop:
        two = 'gradient' in kernel.name or 'backward' in kernel.name
        elements = sum('.128' in line and 'LDG' in line for line in loop) \
            * 16 / ELEMENT_BYTES[kernel.element] / (2 if two else 1)
        figures['instructions'] = round(len(loop) / elements, 1)
    return figures


def is_within(kernel, figures):
    if figures['blocks'] < 4:
        return False
    if figures['loads'] == '' or kernel.element not in ('__nv_bfloat16',
                                                        'float'):
        return True
    if kernel.name.split()[0] in STREAMING:
        return figures['kib'] >= FLIGHT_KIB
    if kernel.activation != 'silu' and kernel.name != 'sum_values':
        return True
    return figures['loads'] >= 4 and (
        kernel.name != 'normalise' or
        figures['instructions'] <= SILU_INSTRUCTIONS)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--source', default=os.path.join(
        ROOT, 'parallel/cuda/kernels'))
    parser.add_argument('--architecture', type=int, default=90,
                        choices=sorted(LIMITS))
    parser.add_argument('--check', action='store_true')
    arguments = parser.parse_args()
    sources = [arguments.source]
    if os.path.isdir(arguments.source):
        sources = sorted(os.path.join(arguments.source, name)
                         for name in os.listdir(arguments.source)
                         if name.endswith('.cu'))
    if not sources:
        sys.exit(f'kernel_figures.py: {arguments.source}: no kernel is here')
    root = os.path.abspath(
        os.path.join(os.path.dirname(sources[0]), *['..'] * 3))
    if tool('cuobjdump') is None or tool('nvdisasm') is None:
        print('no cuobjdump and nvdisasm here: the machine code is not read')
    print(f'{"kernel":22}{"type":14}{"activation":11}{"registers":>9}'
          f'{"shared":>8}{"blocks":>7}{"loads":>7}{"KiB":>7}'
          f'{"instructions":>14}')
    broken, checked = [], 0
    with tempfile.TemporaryDirectory() as folder:
        for source in sources:
            binary, reports = compiled(source, root, arguments.architecture,
                                       folder)
            code = machine_code(binary)
            for symbol, report in sorted(reports.items()):
                kernel = Kernel(symbol)
                if kernel.is_fallback:
                    continue
                figures = figures_of(kernel, report, code.get(symbol, []),
                                     arguments.architecture)
                print(f'{kernel.name:22}{kernel.element:14}'
                      f'{kernel.activation:11}{report["registers"]:9}'
                      f'{report["shared"]:8}{figures["blocks"]:7}'
                      f'{figures["loads"]:7}{figures["kib"]:7}'
                      f'{figures["instructions"]:14}')
                checked += 1
                if not is_within(kernel, figures):
                    broken.append(str(kernel))
        silu = silu_instructions(root, arguments.architecture, folder)
    if silu:
        print('SiLU takes %d instructions, its derivative %d' % silu)
    if arguments.check and (broken or checked == 0):
        sys.exit(f'beyond the bounds ({BOUNDS}): {broken or "no kernel"}')


if __name__ == '__main__':
    main()
