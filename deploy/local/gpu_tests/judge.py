"""Judges: check what programs printed and the files of their runs. They only read files."""
import json
import pathlib
import re

from runner import Verdict, how_it_ended


def ended(code):
    return [] if code == 0 else [how_it_ended(code)]


def says(*patterns):
    """The program must succeed and its output match every pattern; the first match of each becomes a note."""
    def judge(code, text):
        verdict = Verdict(ended(code))
        for pattern in patterns:
            found = re.search(pattern, text, re.MULTILINE)
            if found:
                verdict.notes.append(found.group(0).strip())
            else:
                verdict.failures.append(f'its output has no "{pattern}"')
        return verdict
    return judge


def gtest(allowed_skips=()):
    """Judges a program of GoogleTest.

    A skipped test is a failure, unless a pair (pattern, why) allows the skip: `pattern`
    matches the test's name or the reason that the test prints.
    """
    def judge(code, text):
        verdict = Verdict(ended(code))
        ran = re.search(r'^\[=+\] (\d+) tests? from .* ran', text, re.MULTILINE)
        if not ran:
            verdict.failures.append('it did not run to its end')
        elif int(ran.group(1)) == 0:
            verdict.failures.append('it ran no test')
        skips = {}
        for why, name in re.findall(r'Skipped\n(.*)\n+(?:.*\n)*?\[  SKIPPED \] (\S+) \(', text):
            skips[name] = why
        for name in dict.fromkeys(re.findall(r'^\[  SKIPPED \] (\S+?),? *(?:\(.*)?$', text, re.MULTILINE)):
            if name.isdigit():
                continue
            own_reason = skips.get(name, '')
            reason = next((why for pattern, why in allowed_skips
                           if re.search(pattern, name) or re.search(pattern, own_reason)), None)
            if reason:
                verdict.skipped.append((name, reason))
            else:
                verdict.failures.append(f'{name} was skipped: {own_reason or "it does not say why"}')
        verdict.failures += [f'{name} failed'
                             for name in dict.fromkeys(re.findall(r'^\[  FAILED  \] (\S+?),? ', text, re.MULTILINE))
                             if not name.isdigit()]
        if ran:
            verdict.notes.append(f'{ran.group(1)} tests ran, {len(set(verdict.skipped))} cannot apply')
        return verdict
    return judge


def lines_of_json(text):
    found = []
    for line in text.splitlines():
        if line.startswith('{'):
            found.append(json.loads(line))
    return found


def figures(at_least, keys=(), check=None):
    """A benchmark must print `at_least` lines of JSON. The summary shows their `keys`; `check` returns failures."""
    def judge(code, text):
        rows = lines_of_json(text)
        verdict = Verdict(ended(code))
        if len(rows) < at_least:
            verdict.failures.append(f'{len(rows)} lines of figures, but {at_least} are wanted')
        for row in rows:
            verdict.figures.append({key: row.get(key) for key in keys} if keys else row)
            verdict.failures += check(row) if check else []
        return verdict
    return judge


def fit(row, most=1.05):
    """Predicted bytes must be at least the measured bytes, and at most `most` times the measured bytes."""
    ratio = row['predicted_over_measured']
    if 1 <= ratio <= most:
        return []
    return [f"{row['cfg']} {row['img']} px {row['activations']}: predicted / measured is {ratio:.4f}, "
            f'not in 1 to {most}']


def steps_of(run_folder):
    lines = (pathlib.Path(run_folder) / 'steps.jsonl').read_text().splitlines()
    return [json.loads(line) for line in lines]


def events_of(run_folder, kind):
    lines = (pathlib.Path(run_folder) / 'events.jsonl').read_text().splitlines()
    return [event for event in map(json.loads, lines) if event['event'] == kind]


def same_losses(steps, reference, tolerance):
    """The first difference of two runs in the steps that both have; empty if their losses are equal."""
    for mine, other in zip(steps, reference):
        for key in ('loss', 'grad_norm'):
            difference = abs(mine[key] - other[key]) / max(abs(other[key]), 1e-30)
            if not difference <= tolerance:
                return [f"step {mine['step']}: {key} {mine[key]:.12g}, but {other[key]:.12g} in the other run"]
    return []


def run(folder, steps, reference=None, tolerance=1e-6, also=None):
    """A `headroom train` must commit `steps` steps, with the losses of the reference run if there is one."""
    def judge(code, _text):
        verdict = Verdict(ended(code))
        found = steps_of(folder)
        if [step['step'] for step in found] != list(range(steps)):
            verdict.failures.append(f'{len(found)} steps are in its log, but {steps} were to be done, each once')
        if reference:
            verdict.failures += same_losses(found, steps_of(reference), tolerance)
        measured = [rank['measured_peak_bytes'] for step in found for rank in step.get('memory', ())]
        verdict.figures.append({'run': pathlib.Path(folder).parent.parent.parent.name, 'steps': len(found),
                                'last_loss': found[-1]['loss'] if found else None,
                                'generations': found[-1]['generation'] if found else None,
                                'attempts': sum(step['attempt'] for step in found),
                                'peak_MiB': round(max(measured) / 2**20, 1) if measured else None})
        if also:
            verdict.failures += also(folder)
        return verdict
    return judge


def has_checkpoint_and_validation(folder):
    folder = pathlib.Path(folder)
    failures = []
    if not list((folder / 'checkpoints').glob('step-*')):
        failures.append('it left no checkpoint')
    summary = json.loads((folder / 'summary.json').read_text())
    if summary.get('map50') is None:
        failures.append('its summary has no map50: it was not validated')
    return failures


def lost(ranks):
    """No other ranks may have been lost: a healthy rank that waits for a lost peer must survive."""
    def check(folder):
        gone = sorted({event['rank'] for event in events_of(folder, 'loss_of_process')})
        return [] if set(gone) <= set(ranks) else [f'processes of ranks {gone} were lost, at most {sorted(ranks)} may']
    return check


def lost_at_least(ranks):
    def check(folder):
        gone = {event['rank'] for event in events_of(folder, 'loss_of_process')}
        return lost(ranks)(folder) + [f'rank {rank} was to be killed, and was not' for rank in ranks if rank not in gone]
    return check


def refused_allocations(asked, at_least):
    """At least `at_least` of the `asked` faults must fire, and the others must be reported as not reached."""
    def check(folder):
        faults = [event['reason'] for event in events_of(folder, 'fault')]
        fired = [reason for reason in faults if 'not reached' not in reason]
        failures = [] if len(faults) == asked else [f'{len(faults)} faults are in its events, {asked} were asked for']
        if len(fired) < at_least:
            failures.append(f'{len(fired)} allocations were refused, at least {at_least} were to be')
        return failures
    return check


def trace_figures(trace, mode):
    """Figures from the profiler's trace of one step: calls, time of each kernel, share of time without a kernel."""
    events = [event for event in trace['traceEvents'] if event.get('ph') == 'X']
    on_device = [event for event in events if event.get('cat') in ('kernel', 'gpu_memcpy', 'gpu_memset')]
    kernels = [event for event in on_device if event['cat'] == 'kernel']
    calls = [event for event in events if event.get('cat') == 'cuda_runtime' or event.get('cat') == 'cuda_driver']
    operators = [event for event in events if event.get('cat') == 'cpu_op']
    busy, end = 0., float('-inf')
    for event in sorted(on_device, key=lambda one: one['ts']):
        busy += max(0., event['ts'] + event['dur'] - max(end, event['ts']))
        end = max(end, event['ts'] + event['dur'])
    span = end - min(event['ts'] for event in on_device) if on_device else 0.
    whole = {'step': mode, 'operators': len(operators), 'kernels': len(kernels),
             'copies_and_fills': len(on_device) - len(kernels),
             'host_launches': sum('Launch' in event['name'] for event in calls), 'device_busy_ms': busy / 1e3,
             'device_span_ms': span / 1e3, 'idle_share': 1 - busy / span if span else None}
    by_name = {}
    for event in kernels or operators:
        count, total = by_name.get(event['name'], (0, 0.))
        by_name[event['name']] = (count + 1, total + event['dur'])
    longest = sorted(by_name.items(), key=lambda one: -one[1][1])[:12]
    return [whole] + [{'step': mode, ('kernel' if kernels else 'operator'): name[:90], 'calls': count,
                       'ms': total / 1e3} for name, (count, total) in longest]


def trace(file, mode, on_card):
    def judge(code, text):
        verdict = figures(1, ('cfg', 'batch', 'images_per_second'))(code, text)
        rows = trace_figures(json.loads(pathlib.Path(file).read_text()), mode)
        verdict.figures += rows
        if on_card and not rows[0]['kernels']:
            verdict.failures.append('the trace has no kernel: the profiler saw nothing of the device')
        if not on_card and not rows[0]['operators']:
            verdict.failures.append('the trace has no operator')
        return verdict
    return judge


def peers(code, text):
    verdict = Verdict(ended(code))
    for row in lines_of_json(text):
        verdict.figures += [{'program': name, 'batch': row['batch'], 'dtype': row['dtype'], 'images_per_second': rate,
                             'share_of_products': row['share_of_products'][name]}
                            for name, rate in row['images_per_second'].items()]
    if not verdict.figures:
        verdict.failures.append('it gave no figures')
    return verdict
