"""The parts of a call, in order: the commands of each, its seconds, and its judges."""
import sys

import judge
import rank_parts
from kit import HERE, NEEDS_A_CARD, Kit, Training, library_folders  # noqa: F401
from runner import Part, Step


def card(kit):
    programs = [kit.program(name) for name in ('headroom-worker', 'test_cuda', 'benchmark_gpu_step',
                                              'benchmark_state_copies', kit.plugin.name)]
    describe = [kit.program('benchmark_device_passes'), '--describe']
    return [
        Step('the driver and the card', ['nvidia-smi'], judge.says(r'Driver Version: \S+', r'CUDA Version: \S+'),
             why_not='' if kit.has_card else NEEDS_A_CARD),
        Step('libraries', ['sh', '-c', 'status=0; for file; do echo "$file"; ldd "$file" || status=1; done; '
                           'ldd "$@" | grep "not found" && status=1; exit $status', 'sh', *programs]),
        Step('the plugin loads and has a device', describe, judge.figures(1)),
        Step('processors', ['sh', '-c', 'nproc; uname -srm; grep -m1 "model name" /proc/cpuinfo; free -m'],
             judge.says(r'model name.*'))]


def kernels(kit):
    # NCCL has its own part. Two tests inspect the plugin's file with tools of
    # the build machine.
    on_card = [kit.program('test_cuda'), '--gtest_filter=-Nccl*:CudaPlugin.NeedsTheLibraries*:CudaPlugin.ExportsIts*']
    steps = [Step('the kernels against the CPU', on_card, judge.gtest(),
                  why_not='' if kit.has_card else NEEDS_A_CARD)]
    if not kit.has_card:
        steps.append(Step("the kernels' text on the CPU", [kit.program('test_cuda_bodies')], judge.gtest()))
    return steps


OWN_TEST_DEVICE = (("^(TestDevice|DevicePrefetcher|DeviceFootprint)|the test device's$|^another device is under test$",
                    'it looks into the test device, and this is a card'),)


def training_environment(kit):
    # On the test device these tests install their own plugin.
    return {'HEADROOM_DEVICE_PLUGIN': str(kit.plugin)} if kit.has_card else {}


def without_plugin(kit, words):
    return words if kit.has_card else ['env', '-u', 'HEADROOM_DEVICE_PLUGIN', *words]


def device_training(kit):
    words = [kit.program('test_device_training'), '--gtest_filter=-*raph*:*Captured*:*Capture*']
    return [Step('training against the CPU', without_plugin(kit, words), judge.gtest(OWN_TEST_DEVICE),
                 training_environment(kit))]


def graphs(kit):
    words = [kit.program('test_device_training'), '--gtest_filter=*raph*:*Captured*:*Capture*']
    return [Step('captured training', without_plugin(kit, words), judge.gtest(OWN_TEST_DEVICE),
                 training_environment(kit))]


def passes(kit):
    words = [kit.program('benchmark_device_passes'), '--precision', 'bf16']
    words += ['--batch', '16,64'] if kit.has_card else ['--batch', '2,4', '--scale', '16', '--repeats', '2']
    return [Step('passes, pooling, optimizer, rendering, input', words, judge.figures(4 * 2 * 12 + 2 * 2 + 4))]


STEP_KEYS = ('batch', 'precision', 'tf32', 'cuda_graphs', 'resident', 'cudnn_benchmark', 'images_per_second', 'step_ms',
             'device_ms', 'predicted_over_measured')


def gpu_step(kit):
    program = kit.program('benchmark_gpu_step')
    if kit.has_card:
        cells = [f'batch={batch}{mode}' for batch in (16, 32, 64, 128) for mode in ('', ',graphs')]
        cells += [f'batch=64{mode}' for mode in (',host', ',graphs,host', ',benchmark', ',graphs,benchmark',
                                                 ',precision=fp32', ',precision=fp32,tf32')]
        words = [program, '--cfg', 'yolov5s', '--img', '640', '--steps', '15', '--warm-up', '6', '--threads', '4']
    else:
        cells = ['batch=2', 'batch=2,graphs', 'batch=2,host', 'batch=2,benchmark', 'batch=2,precision=fp32,tf32']
        words = [program, '--cfg', 'yolov5n', '--img', '64', '--steps', '2', '--warm-up', '2', '--precision', 'fp32']
    words += ['--windows', '1'] + [word for cell in cells for word in ('--cell', cell)]
    return [Step('a step in each setting', words, judge.figures(len(cells), STEP_KEYS))]


def traced_step(kit):
    steps = []
    for mode, more in (('eager', []), ('graphs', ['--cuda-graphs'])):
        file = kit.results / f'trace_{mode}.json'
        words = [kit.program('benchmark_gpu_step'), '--windows', '1', '--trace', file, *more]
        words += (['--cfg', 'yolov5s', '--img', '640', '--batch', '16', '--steps', '5', '--warm-up', '5'] if kit.has_card
                  else ['--cfg', 'yolov5n', '--img', '64', '--batch', '2', '--steps', '1', '--warm-up', '2',
                        '--precision', 'fp32'])
        steps.append(Step(f'one {mode} step', words, judge.trace(file, mode, kit.has_card)))
    return steps


def peer(kit, contenders=('eager',)):
    words = [kit.python, kit.program('gpu_step.py'), '--peer', kit.root / 'peer.py', '--program',
             kit.program('gpu_step.sh'), '--contenders', ','.join(contenders)]
    # A Python with torch has its own libraries, which the kit's must not
    # replace.
    environment = {'LD_LIBRARY_PATH': ':'.join(map(str, library_folders(kit.libtorch)))}
    if kit.has_card:
        words += ['--windows', '5', '--steps', '15', '--warmup', '8']
    else:
        words += ['--device', 'cpu', '--model', 'n', '--img', '64', '--batch', '2', '--dtype', 'fp32', '--windows', '1',
                  '--steps', '1', '--warmup', '1', '--threads', '1']
    why = ''
    if not kit.has_card and not kit.python_has_torch:
        why = 'no Python here has torch (HEADROOM_PYTHON names one)'
    elif not kit.has_card and not (kit.root / 'peer.py').exists():
        why = 'the kit was packed without a peer (pack --peer FILE)'
    return [Step('against PyTorch: ' + ', '.join(contenders), words, judge.peers, environment, why)]


def compiled_peer(kit):
    return peer(kit, ('compiled', 'graphed', 'compiled_graphs'))


def two_processes(kit):
    training = Training(kit, 'nccl')
    exact = ['--precision', 'fp64', '--noval', '--deterministic']
    two = [*exact, '--device', '0' if kit.has_card else '0,1', '--processes', '2', '--layout', 'data=2', '--backend',
           'nccl']
    two += ['--set', 'share_devices=true'] if kit.has_card else []
    reference = training.run_folder('one process')
    steps, more_steps = 6, 24 if kit.has_card else 20
    tests = Step('check, die, hang', [kit.program('test_cuda'), '--gtest_filter=Nccl*'], judge.gtest(),
                 why_not='' if kit.has_card else NEEDS_A_CARD)
    result = [tests, training.draw(), training.step('one process', steps, [*exact, '--device', '0'])]
    for stage in range(4):
        result.append(training.step(f'ZeRO {stage}', steps, [*two, '--zero', str(stage)], reference=reference))
    result.append(training.step('graphs', steps, [*two, '--cuda-graphs', '--bn-group', '4'],
                                also=judge.lost([])))
    result.append(training.step('killed', steps, [*two, '--inject', 'kill@rank=1,step=3,phase=backward'],
                                reference=reference, also=judge.lost_at_least([1])))
    stalled = training.run_folder('stalled 15 s')
    result.append(training.step('stalled 15 s', more_steps, two,
                                before=[sys.executable, HERE / 'stall.py', stalled, '1', '15', '--'],
                                reference=reference, also=judge.lost([1])))
    return result


MEMORY_KEYS = ('cfg', 'img', 'activations', 'measured_peak_bytes', 'predicted_over_measured', 'reserved_bytes',
               'simulated_over_reserved', 'context_bytes', 'driver_bytes')


def memory(kit):
    policies = ('keep', 'lean', 'recompute')
    if kit.has_card:
        models, sizes, more = ('n', 's', 'l'), (320, 640, 1280), ['--batch', '4', '--precision', 'bf16']
    else:
        models, sizes, more = ('n',), (64, 96), ['--batch', '2', '--precision', 'fp32']
    cells = [f'cfg=yolov5{model},img={size},activations={policy}'
             for model in models for size in sizes for policy in policies]
    words = [kit.program('benchmark_gpu_step'), '--steps', '2', '--warm-up', '2', '--windows', '1', *more]
    words += [word for cell in cells for word in ('--cell', cell)]
    return [Step('predicted over measured', words, judge.figures(len(cells), MEMORY_KEYS, judge.fit))]


def whole_training(kit):
    training = Training(kit, 'train')
    calm = ['--device', '0', '--precision', 'fp64', '--deterministic']
    points = 50
    faults = ';'.join(f'oom@rank=0,step={step},allocation={1 + 7 * step}' for step in range(points))
    reference = training.run_folder('calm')
    half = training.step('resumed', points // 2, [*calm, '--set', 'checkpoint_every_steps=5'], reference=reference)
    half.title = 'until half, with checkpoints'
    resumed = training.step('resumed', points, [], reference=reference, also=judge.has_checkpoint_and_validation)
    resumed.words = [kit.program('headroom'), 'train', '--resume', training.run_folder('resumed'), '--max-steps', points]
    first = training.step('own precision', 10, ['--device', '0'])
    return [training.draw(), first, training.step('calm', points, [*calm, '--noval']), half, resumed,
            training.step('out of memory at 50 points', points, [*calm, '--noval', '--inject', faults],
                          reference=reference,
                          also=judge.refused_allocations(points, 1 if kit.has_card else points))]


def sanitized(kit):
    steps = []
    for tool in ('memcheck', 'racecheck'):
        steps.append(Step(tool, ['compute-sanitizer', '--tool', tool, '--error-exitcode', '9',
                                 kit.program('test_cuda'), '--gtest_filter=Device*'], judge.gtest()))
    feed = [kit.program('test_device_training'), '--gtest_filter=OneDevice.MemoryIsCounted*', '--gtest_repeat=5']
    steps.append(Step('the device prefetcher', ['compute-sanitizer', '--error-exitcode', '9', *feed], judge.gtest(),
                      training_environment(kit)))
    return steps


# Name, title, seconds, function. The seconds add up to ten minutes.
PARTS = (('card', 'Card, driver, libraries, plugin', 20, card),
         ('kernels', 'Kernels against the CPU', 50, kernels),
         ('device_training', 'Training on the device', 70, device_training),
         ('graphs', 'Graphs', 30, graphs),
         ('passes', 'Passes in GB/s', 40, passes),
         ('gpu_step', 'A training step', 70, gpu_step),
         ('trace', 'Trace of a step', 40, traced_step),
         ('peer', 'PyTorch', 60, peer),
         ('two_processes', 'Two processes', 110, two_processes),
         ('memory', 'Memory', 50, memory),
         ('train', 'headroom train', 50, whole_training))
# A group of parts is run by one call: `run --parts NAME`.
GROUPS = {'old': PARTS, 'new': (PARTS[0], *rank_parts.PARTS), 'all': (PARTS[0], *rank_parts.PARTS, *PARTS[1:])}
OTHER_CALLS = {'sanitize': (('sanitize', 'Under compute-sanitizer', 580, sanitized),),
               'compile': (('compile', 'PyTorch compiled and with graphs', 580, compiled_peer),)}


def seconds_of(group):
    """The seconds that the parts of a group may take together."""
    return sum(row[2] for row in GROUPS[group])


def parts_of(kit, call='', only=(), group='old'):
    rows = OTHER_CALLS[call] if call else GROUPS['all' if only else group]
    return [Part(name, title, seconds, make(kit), is_required=name == 'card')
            for name, title, seconds, make in rows if not only or name in only or name == 'card']
