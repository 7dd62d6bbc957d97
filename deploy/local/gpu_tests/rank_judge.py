"""Judges of the parts about several ranks (rank_parts.py)."""
import json
import pathlib
import statistics

import judge
from runner import Verdict

MIB = 2**20


def length_of(intervals):
    return sum(end - begin for begin, end in intervals)


def union(intervals):
    """The intervals merged, so that they do not overlap, in order."""
    merged = []
    for begin, end in sorted(intervals):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((begin, end))
    return merged


def overlap(some, others):
    """The total time that is in both lists; each list must come from union()."""
    found = 0.
    place = 0
    for begin, end in some:
        while place < len(others) and others[place][1] <= begin:
            place += 1
        at = place
        while at < len(others) and others[at][0] < end:
            found += min(end, others[at][1]) - max(begin, others[at][0])
            at += 1
    return found


def is_exchange(name):
    """Whether the kernel is one of NCCL's, or the kernel that stands for exchanges with ghost ranks."""
    return 'nccl' in name.lower() or 'hold(' in name


def exchange_figures(trace):
    """A step's time in exchanges, the part of it that overlaps computing, and the host's time to issue one."""
    events = [event for event in trace['traceEvents'] if event.get('ph') == 'X']
    kernels = [event for event in events if event.get('cat') == 'kernel']
    intervals = {True: [], False: []}
    for event in kernels:
        intervals[is_exchange(event['name'])].append((event['ts'], event['ts'] + event['dur']))
    exchange, compute = union(intervals[True]), union(intervals[False])
    whole = length_of(exchange)
    exposed = whole - overlap(exchange, compute)
    issues = [event['dur'] for event in events if event['name'] == 'ghost_ranks::issue']
    return {'exchanges': len(issues), 'exchange_ms': whole / 1e3, 'exposed_ms': exposed / 1e3,
            'hidden_share': 1 - exposed / whole if whole else None, 'compute_ms': length_of(compute) / 1e3,
            'issue_us': statistics.median(issues) if issues else None}


def ghost_trace(file, title, on_card):
    """On a card computing must hide more than 90 % of the exchanges' time; the rest and the host's calls must be short."""
    def check(code, text):
        verdict = judge.figures(1)(code, text)
        row = {'step': title, **exchange_figures(json.loads(pathlib.Path(file).read_text()))}
        verdict.figures = [row]
        if not row['exchanges']:
            verdict.failures.append('the trace has no exchange of ghosts')
        if not on_card:
            return verdict
        if row['hidden_share'] is None:
            verdict.failures.append('the trace has no kernel that exchanges')
            return verdict
        for is_bad, what in ((row['hidden_share'] <= .9, f"{row['hidden_share']:.0%} of the exchanges are hidden, "
                              'more than 90 % are to be'),
                             (row['exposed_ms'] >= .5, f"the tail has {row['exposed_ms']:.2f} ms, less than 0.5 are "
                              'to be'),
                             (row['issue_us'] >= 60, f"an issue takes the host {row['issue_us']:.0f} us, less than 60 "
                              'are to be')):
            if is_bad:
                verdict.failures.append(what)
        return verdict
    return check


def ghosts(cells, keys, most_apart=.05):
    """Steps of one rank of many. Adds a note if the forecast of the same plan differs by more than `most_apart`."""
    def check(code, text):
        verdict = judge.figures(cells, keys)(code, text)
        for row in judge.lines_of_json(text):
            ratio, forecast = row.get('ratio_to_one_rank'), row.get('forecast_ratio')
            if ratio is not None and forecast is not None and abs(ratio - forecast) > most_apart:
                graphs = ', graphs' if row.get('cuda_graphs') else ''
                verdict.notes.append(f"{row['cfg']} x {row['batch']}{graphs}, {row['ghosts']} ranks: {ratio:.2f} of one "
                                     f'rank, the forecast says {forecast:.2f}')
        return verdict
    return check


def goes_on_within(seconds, judged):
    """A run under watch.py: no fault may cost more than `seconds`; then `judged` applies."""
    def check(code, text):
        verdict = judged(code, text)
        watched = [row for row in judge.lines_of_json(text) if 'longest_without_a_step_s' in row]
        if not watched:
            verdict.failures.append('nobody watched its steps')
            return verdict
        slowest = 0.
        for fault in watched[-1]['faults']:
            after = fault['step_after_s']
            if after is None:
                verdict.failures.append(f"no step followed the {fault['fault']}")
            else:
                slowest = max(slowest, after)
        if not watched[-1]['faults']:
            verdict.failures.append('its events name no fault')
        if slowest > seconds:
            verdict.failures.append(f'{slowest:.1f} s went by between a fault and the next step, at most {seconds} may')
        for row in verdict.figures:
            row['slowest_after_fault_s'] = slowest
        return verdict
    return check


def growth(values):
    """The growth since the first rejoining; single peaks at the end are ignored."""
    return min(values[-3:]) - values[1]


def flat(times, most_mib=8, most_threads=0):
    """rejoin.py's samples: a survivor's files and threads must not grow, and the card's bytes only a little."""
    most = {'files': 0, 'threads': most_threads}
    def check(code, text):
        rows = [row for row in judge.lines_of_json(text) if 'rejoined' in row]
        verdict = Verdict(judge.ended(code))
        if len(rows) != times + 1:
            verdict.failures.append(f'{len(rows)} samples were taken, {times + 1} are wanted')
            return verdict
        grown = {key: growth([row[key] for row in rows]) for key in ('files', 'threads')}
        verdict.failures += [f'{count} {key} more after {times} times' for key, count in grown.items() if count > most[key]]
        figure = {'rejoined': times, 'slowest_s': max(row['seconds'] for row in rows[1:]), **grown, 'device_MiB': None}
        bytes_used = [row['device_bytes'] for row in rows]
        if None not in bytes_used:
            figure['device_MiB'] = growth(bytes_used) / MIB
            if figure['device_MiB'] > most_mib:
                verdict.failures.append(f"the card holds {figure['device_MiB']:.1f} MiB more after {times} times, at "
                                        f'most {most_mib} may be')
        verdict.figures.append(figure)
        return verdict
    return check


def communicators(code, text):
    """communicator_costs: adds a note, not a failure, if a rank's communicators need more than plans reserve."""
    verdict = judge.figures(1)(code, text)
    for row in judge.lines_of_json(text):
        if row['variant'] == 'as it is' and row['all_bytes'] > row['plans_reserve']:
            verdict.notes.append(f"communicators take {row['all_bytes'] / MIB:.0f} MiB of a rank, plans reserve "
                                 f"{row['plans_reserve'] / MIB:.0f}")
    verdict.figures = [{key: (round(value / MIB, 1) if key.endswith('_bytes') or key == 'plans_reserve' else value)
                        for key, value in row.items()} for row in verdict.figures]
    return verdict


def nccl_calls(code, text):
    verdict = judge.figures(7)(code, text)
    rows = {row['what']: row for row in verdict.figures}
    if not rows.get('captured', {}).get('sums_are_right'):
        verdict.failures.append('what was captured does not sum rightly')
    aborted = rows.get('aborted', {})
    if not aborted.get('peer_was_waited_for'):
        verdict.failures.append('the replay did not wait for its peer: nothing was aborted')
    elif not aborted.get('stream_is_free'):
        verdict.failures.append('a replay that waits for a lost peer is not ended by an abort')
    return verdict


def loader(threads):
    """Samples per second and thread of benchmark_loader."""
    def check(code, text):
        verdict = judge.figures(1)(code, text)
        verdict.figures = [{**row, 'threads': threads, 'samples_per_second_and_thread':
                            row['samples_per_second'] / threads} for row in verdict.figures]
        return verdict
    return check


def step_seconds(folder):
    """The median step of a run."""
    return statistics.median(step['seconds'] for step in judge.steps_of(folder))


def slower_than(reference, folder, judged):
    """Judges a run; the figures have its step time and that of the run without faults."""
    def check(code, text):
        verdict = judged(code, text)
        for row in verdict.figures:
            row['step_s'], row['calm_step_s'] = step_seconds(folder), step_seconds(reference)
        return verdict
    return check


def forecast(kept):
    """Keeps the seconds of a step that `headroom plan --json` forecasts; they must rest on a measurement."""
    def judge_plan(code, text):
        verdict = Verdict(judge.ended(code))
        begin = text.find('{')
        if code or begin < 0:
            return Verdict(verdict.failures or ['it printed no plan'])
        plan, _ = json.JSONDecoder().raw_decode(text[begin:])
        found = plan.get('forecast') or {}
        kept['seconds'] = found.get('step_seconds')
        if not found.get('card_measured'):
            verdict.failures.append('its forecast does not rest on a measurement')
        return verdict
    return judge_plan


def as_forecast(kept, folder, tolerance, warm_up=10):
    """The median step of a run, its first ones left out, must differ from the forecast by at most this share of it."""
    def judge_run(code, _text):
        verdict = Verdict(judge.ended(code))
        seconds = [] if code else [step['seconds'] for step in judge.steps_of(folder)[warm_up:]]
        if not seconds or not kept.get('seconds'):
            verdict.failures.append('there is no forecast, or no step to compare with it')
            return verdict
        median, planned = statistics.median(seconds), kept['seconds']
        verdict.figures.append({'forecast_ms': round(1e3 * planned, 3), 'step_ms': round(1e3 * median, 3),
                                'step_over_forecast': round(median / planned, 3)})
        if not abs(median / planned - 1) <= tolerance:
            verdict.failures.append(f'a step took {1e3 * median:.3g} ms, but the forecast says {1e3 * planned:.3g}')
        return verdict
    return judge_run
