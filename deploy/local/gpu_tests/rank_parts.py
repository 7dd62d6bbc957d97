"""Parts about several ranks that run on one card, most important first.

With ghost ranks one card runs the whole step of one rank of many. Two processes
that share the card fail, rejoin and are late. Small programs measure NCCL's
costs; a measured forecast is compared with the step that is then trained. All of
them together take at most seven minutes.
"""
import os
import sys

import judge
import rank_judge
from kit import HERE, NEEDS_A_CARD, Training
from runner import Step

GHOST_KEYS = ('cfg', 'batch', 'ghosts', 'cuda_graphs', 'images_per_second', 'ratio_to_one_rank', 'forecast_ratio',
              'step_ms', 'device_ms', 'sums', 'held_ms', 'exposed_ms', 'host_wait_ms', 'issue_us', 'launches',
              'host_reads')


def ghost_steps(kit):
    words = [kit.program('benchmark_gpu_step'), '--windows', '1', '--threads', '4' if kit.has_card else '1']
    modes = ('', ',graphs')
    if kit.has_card:
        models = [f'cfg=yolov5{model},batch={batch}' for model, batch in
                  (('s', 64), ('s', 16), ('n', 64), ('n', 16), ('x', 16))]
        counts, words = (1, 8, 512), [*words, '--img', '640', '--steps', '12', '--warm-up', '5']
    else:
        models = ['cfg=yolov5n,batch=2']
        counts, words = (1, 8, 64), [*words, '--img', '64', '--steps', '2', '--warm-up', '2', '--precision', 'fp32']
    cells = [f'{model}{mode},ghosts={ghosts}' for model in models for mode in modes for ghosts in counts]
    # Run last: once a card's profiler was used, it makes later steps slower.
    counted = [f'{models[0]}{mode},ghosts={ghosts},count' for mode in modes for ghosts in (1, 8)]
    words += [word for cell in [*cells, *counted] for word in ('--cell', cell)]
    return [Step('one rank of many', words, rank_judge.ghosts(len(cells) + len(counted), GHOST_KEYS))]


def ghost_traces(kit):
    steps = []
    for cfg, batch in (('yolov5s', '64'), ('yolov5x', '16')) if kit.has_card else (('yolov5n', '2'),):
        title = f'{cfg} x {batch}, 8 ranks'
        file = kit.results / f'trace_ghosts_{cfg}.json'
        words = [kit.program('benchmark_gpu_step'), '--cfg', cfg, '--batch', batch, '--cell', 'ghosts=8', '--windows', '1',
                 '--trace', file]
        words += (['--img', '640', '--steps', '5', '--warm-up', '5'] if kit.has_card
                  else ['--img', '64', '--steps', '1', '--warm-up', '2', '--precision', 'fp32'])
        steps.append(Step(title, words, rank_judge.ghost_trace(file, title, kit.has_card)))
    return steps


class TwoRanks(Training):
    """Two processes, on one card if there is a card, with one batch-norm group over both."""

    def __init__(self, kit, part):
        super().__init__(kit, part)
        self.exact = ['--precision', 'fp64', '--noval', '--deterministic']
        self.two = [*self.exact, '--device', '0' if kit.has_card else '0,1', '--processes', '2', '--layout', 'data=2',
                    '--backend', 'nccl', *(['--set', 'share_devices=true'] if kit.has_card else [])]

    def one_process(self, steps):
        return self.step('one process', steps, [*self.exact, '--device', '0'])

    def watched(self, name, steps, more, seconds, **judged):
        """A run under watch.py, in which no fault may cost more than `seconds`."""
        before = [sys.executable, HERE / 'watch.py', self.run_folder(name), '--']
        step = self.step(name, steps, more, before=before, reference=self.run_folder('one process'), **judged)
        step.judge = rank_judge.goes_on_within(seconds, step.judge)
        return step


def memory_refused(kit):
    training = TwoRanks(kit, 'memory_refused')
    steps = 6
    # A card's allocator can be made to fail only when it adds a segment, which
    # happens in the first step.
    at = 0 if kit.has_card else 3
    result = [training.draw(), training.one_process(steps)]
    for zero in (0, 1, 3):
        for phase in ('forward', 'backward'):
            more = [*training.two, '--zero', str(zero), '--inject', f'oom@rank=1,step={at},phase={phase}']
            result.append(training.watched(f'ZeRO {zero}, {phase}', steps, more, 5, also=judge.lost([])))
    return result


REJOINS = 12


def rejoins(kit):
    training = TwoRanks(kit, 'rejoin')
    result = [training.draw()]
    times = REJOINS if kit.has_card else 4
    for zero in ('0', '1'):
        name = f'ZeRO {zero}, {times} times'
        words = [sys.executable, HERE / 'rejoin.py', training.run_folder(name), str(times), '--',
                 *training.words(name, 1000000, [*training.two, '--zero', zero], epochs=100000)]
        # Each stream of the test device is a thread, which is never ended.
        result.append(Step(name, words, rank_judge.flat(times, most_threads=0 if kit.has_card else times)))
    return result


def device_error(kit):
    training = TwoRanks(kit, 'device_error')
    steps = 6
    result = [training.draw(), training.one_process(steps)]
    for phase in ('forward', 'collective'):
        more = [*training.two, '--inject', f'device_error@rank=1,step=3,phase={phase}']
        result.append(training.watched(phase, steps, more, 15, also=judge.lost_at_least([1])))
    return result


def communicators(kit):
    words = [kit.program('communicator_costs'), kit.results / 'communicators']
    words += [] if kit.has_card else ['--variant', 'as it is']
    return [Step('bytes of communicators', words, rank_judge.communicators)]


def nccl_calls(kit):
    return [Step('calls, graphs and their end', [kit.program('nccl_calls')], rank_judge.nccl_calls,
                 why_not='' if kit.has_card else NEEDS_A_CARD)]


def state_copies(kit):
    words = [kit.program('benchmark_state_copies'), '--zero', '0,1']
    words += (['--device', '0,0', '--cfg', 'yolov5x', '--batch', '8', '--steps', '8'] if kit.has_card else
              ['--device', '0,1', '--cfg', 'yolov5n', '--img', '64', '--batch', '4', '--precision', 'fp32', '--steps', '2'])
    return [Step('copies after a commit', words, judge.figures(2))]


def late_peer(kit):
    training = TwoRanks(kit, 'late_peer')
    steps = 60 if kit.has_card else 20
    calm, late = 'calm', 'late by 20 ms'
    slow = training.step(late, steps, training.two, reference=training.run_folder(calm), also=judge.lost([]),
                         before=[sys.executable, HERE / 'stall.py', training.run_folder(late), '1', '0.02/0.05', '--'])
    slow.judge = rank_judge.slower_than(training.run_folder(calm), training.run_folder(late), slow.judge)
    return [training.draw(), training.step(calm, steps, training.two), slow]


def conv_choices(kit):
    words = [kit.program('benchmark_conv_choices'), '--shapes', '8']
    words += ([] if kit.has_card else
              ['--cfg', 'yolov5n', '--img', '64', '--batch', '2', '--precision', 'fp32', '--repeats', '1'])
    return [Step('by heuristics over the best', words, judge.figures(2))]


def loader(kit):
    given = os.environ.get('HEADROOM_DATA')  # photographs of this machine; None without
    folder = kit.results / 'loader' / 'shapes'
    size, images = ('640', '512') if kit.has_card else ('128', '32')
    result = [] if given else [Step('JPEGs', [kit.program('headroom-shapes'), folder, '--train', images, '--val', '1',
                                              '--size', size])]
    threads = 16 if kit.has_card else 1
    words = [kit.program('benchmark_loader'), '--data', given or folder / 'data.yaml', '--img', size, '--threads',
             str(threads), '--samples', '3000' if kit.has_card else '32']
    result.append(Step('from files', [*words, '--cold', '--host-memory-mib', '1'], rank_judge.loader(threads)))
    result.append(Step('from memory', [*words, '--host-memory-mib', '4096'], rank_judge.loader(threads)))
    return result


def measured_forecast(kit):
    """`plan --measure` takes 30 s; the training after it must take as long as the plan then says."""
    folder = kit.results / 'forecast'
    environment = {'XDG_CACHE_HOME': str(folder / 'cache')}
    model = ['--cfg', 'yolov5s', '--img', '640', '--batch', '64'] if kit.has_card else [
        '--cfg', 'yolov5n', '--img', '64', '--batch', '4']
    # NVML, which finds the cards of --device for a plan, does not list the test device.
    planned = [kit.program('headroom'), 'plan', '--synthetic-input', *model,
               *(['--device', '0'] if kit.has_card else ['--processes', '1'])]
    kept = {}
    run = folder / 'exp'
    train = [kit.program('headroom'), 'train', '--synthetic-input', *model, '--device', '0', '--max-steps', '60',
             '--nosave', '--noval', '--noplots', '--project', folder, '--name', 'exp']
    # A CPU that other programs use is no measure.
    tolerance = 0.15 if kit.has_card else 2
    return [Step('measure', [*planned, '--measure'], judge.says(r'measured .* images/s', 'its speed was measured on'),
                 environment),
            Step('plan', [*planned, '--json'], rank_judge.forecast(kept), environment),
            Step('train', train, rank_judge.as_forecast(kept, run, tolerance), environment)]


# Name, title, seconds, function.
PARTS = (('ghosts', 'One rank of many', 90, ghost_steps),
         ('ghost_trace', 'Trace of a step of one rank of many', 25, ghost_traces),
         ('memory_refused', 'Memory refused to one of two', 60, memory_refused),
         ('rejoin', 'Killed and rejoined', 60, rejoins),
         ('communicators', "Communicators' bytes", 20, communicators),
         ('nccl_calls', "NCCL's calls", 10, nccl_calls),
         ('device_error', 'A device that fails', 20, device_error),
         ('state_copies', 'Copies of state', 15, state_copies),
         ('late_peer', 'A peer that is late', 20, late_peer),
         ('conv_choices', "cuDNN's choices", 20, conv_choices),
         ('loader', 'Samples from JPEGs', 20, loader),
         ('forecast', 'A measured forecast', 60, measured_forecast))
