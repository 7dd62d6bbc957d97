#!/usr/bin/env python3
"""Tests the parts of deploy/local/gpu_tests that need no GPU: time limits, judges, summary, and the packed files."""
import importlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / 'deploy/local/gpu_tests'))
judge, pack, parts, rank_judge, rank_parts, rejoin, runner, stall, summary, watch = (
    importlib.import_module(name) for name in ('judge', 'pack', 'parts', 'rank_judge', 'rank_parts', 'rejoin', 'runner',
                                               'stall', 'summary', 'watch'))

SKIPPED = '''[==========] Running 3 tests from 1 test suite.
[ RUN      ] Nccl.OneRankDoesAll
nccl_test.cpp:25: Skipped
there is no CUDA device

[  SKIPPED ] Nccl.OneRankDoesAll (0 ms)
[       OK ] Nccl.Other (1 ms)
[==========] 3 tests from 1 test suite ran. (5 ms total)
[  PASSED  ] 2 tests.
[  SKIPPED ] 1 test, listed below:
[  SKIPPED ] Nccl.OneRankDoesAll
'''


def part(name, seconds, words, **more):
    return runner.Part(name, name, seconds, [runner.Step('step', words)], **more)


class Time(unittest.TestCase):
    def test_a_part_gets_what_earlier_ones_left_but_nothing_of_later_ones(self):
        self.assertEqual(runner.limit_of(60, [30, 10], 200), 160)
        self.assertEqual(runner.limit_of(60, [30, 10], 100), 60)
        self.assertEqual(runner.limit_of(60, [], 0), 0)

    def test_all_parts_together_take_less_than_ten_minutes(self):
        self.assertLessEqual(sum(row[2] for row in parts.PARTS), 590)
        for other in parts.OTHER_CALLS.values():
            self.assertLessEqual(sum(row[2] for row in other), 590)

    def test_the_parts_about_several_ranks_take_seven_minutes(self):
        self.assertLessEqual(sum(row[2] for row in rank_parts.PARTS), 420)

    def test_a_group_begins_with_what_all_others_need_and_has_each_part_once(self):
        for group in parts.GROUPS.values():
            names = [row[0] for row in group]
            self.assertEqual(names[0], 'card')
            self.assertEqual(len(names), len(set(names)))
        every = {row[0] for row in parts.GROUPS['all']}
        self.assertEqual(every, {row[0] for group in parts.GROUPS.values() for row in group})

    def test_a_part_that_hangs_ends_at_its_limit_with_all_its_processes(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            mark = folder / 'went_on'
            hanging = part('hanging', 1, ['sh', '-c', f'(sleep 3; touch {mark}) & sleep 60'])
            results = runner.run_parts([hanging, part('next', 1, ['echo', 'hello'])], folder, 2.5, lambda text: None)
            self.assertIn('was ended at its time limit', results[0].failures[0])
            self.assertLess(results[0].seconds, 2.5)
            self.assertEqual(results[1].state, 'passed')
            self.assertIn('hello', (folder / '02_next.txt').read_text())
            self.assertNotIn('hello', (folder / '01_hanging.txt').read_text())
            time.sleep(2)
            self.assertFalse(mark.exists())

    def test_a_runner_that_is_ended_leaves_no_process_behind(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            mark = root / 'went_on'
            for name in ('torch/lib/libtorch_cpu.so', 'bin/headroom'):
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).touch()
            shutil.copytree(ROOT / 'deploy/local/gpu_tests', root / 'gpu_tests')
            program = root / 'bin/benchmark_device_passes'  # the first part runs this program
            program.write_text(f'#!/bin/sh\ntouch {root}/began; sleep 2; touch {mark}\n')
            program.chmod(0o755)
            process = subprocess.Popen([sys.executable, '-B', str(root / 'gpu_tests'), 'run', '--without-card'],
                                       env={**os.environ, 'HEADROOM_LIBTORCH': folder}, stdout=subprocess.DEVNULL,
                                       stderr=subprocess.DEVNULL)
            deadline = time.monotonic() + 30
            while not (root / 'began').exists() and time.monotonic() < deadline:
                time.sleep(.01)
            process.terminate()
            self.assertEqual(process.wait(), 143)
            time.sleep(2.5)
            self.assertFalse(mark.exists())

    def test_nothing_runs_after_a_required_part_that_failed(self):
        with tempfile.TemporaryDirectory() as folder:
            results = runner.run_parts([part('card', 5, ['false'], is_required=True), part('next', 5, ['true'])],
                                       pathlib.Path(folder), 20, lambda text: None)
            self.assertEqual([result.state for result in results], ['failed', 'not run'])
            self.assertIn('card failed', results[1].failures[0])

    def test_a_program_that_is_missing_is_a_failure(self):
        with tempfile.TemporaryDirectory() as folder:
            results = runner.run_parts([part('one', 5, ['/nowhere/program'])], pathlib.Path(folder), 9, lambda text: None)
            self.assertIn('could not be started', results[0].failures[0])


class Stalls(unittest.TestCase):
    def test_the_worker_of_a_rank_is_found_below_the_program(self):
        sleeping = [sys.executable, '-c', 'import time; time.sleep(60)', '--worker-id']
        first, second = (subprocess.Popen([*sleeping, f'host-7-{rank}']) for rank in (0, 1))
        try:
            self.assertEqual(stall.worker_of(0, os.getpid()), first.pid)
            self.assertEqual(stall.worker_of(1, os.getpid()), second.pid)
            self.assertIsNone(stall.worker_of(2, os.getpid()))
            self.assertIsNone(stall.worker_of(1, first.pid))
        finally:
            for process in (first, second):
                process.kill()
                process.wait()


    def test_a_process_is_stopped_until_it_has_ended(self):
        sleeping = subprocess.Popen(['sleep', '60'])
        self.assertTrue(stall.stop_for(sleeping.pid, .01))
        sleeping.kill()
        sleeping.wait()
        self.assertFalse(stall.stop_for(sleeping.pid, .01))


class Watched(unittest.TestCase):
    def test_whole_new_lines_of_a_file_are_followed(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / 'lines'
            follower = watch.Follower(file)
            self.assertEqual(follower.lines(), [])
            file.write_text('one\ntw')
            self.assertEqual(follower.lines(), ['one'])
            file.write_text('one\ntwo\n')
            self.assertEqual(follower.lines(), ['two'])

    def test_the_time_from_a_fault_to_the_next_step_is_found(self):
        found = watch.times_without_a_step([1., 2., 6.], [(2.5, 'fault'), (7., 'loss_of_process')])
        self.assertEqual(found['longest_without_a_step_s'], 4.)
        self.assertEqual(found['faults'], [{'fault': 'fault', 'step_after_s': 3.5},
                                           {'fault': 'loss_of_process', 'step_after_s': None}])

    def test_what_a_process_holds_is_counted(self):
        held = rejoin.held_by(os.getpid())
        self.assertGreaterEqual(held['files'], 3)
        self.assertGreaterEqual(held['threads'], 1)
        with tempfile.TemporaryFile():
            self.assertEqual(rejoin.held_by(os.getpid())['files'], held['files'] + 1)


class RankJudges(unittest.TestCase):
    def test_time_that_is_in_both_is_found(self):
        some = rank_judge.union([(5, 7), (0, 3), (2, 4)])
        self.assertEqual(some, [(0, 4), (5, 7)])
        self.assertEqual(rank_judge.overlap(some, [(3, 6)]), 2)
        self.assertEqual(rank_judge.overlap(some, []), 0)

    def trace(self, compute_ends):
        def event(cat, name, ts, dur):
            return {'ph': 'X', 'cat': cat, 'name': name, 'ts': ts, 'dur': dur}
        return {'traceEvents': [
            event('cpu_op', 'ghost_ranks::issue', 0, 30), event('cpu_op', 'ghost_ranks::issue', 40, 50),
            event('kernel', 'conv', 0, compute_ends), event('kernel', '(anonymous namespace)::hold(unsigned long)', 50, 100),
            event('kernel', 'ncclDevKernel_AllReduce', 150, 50)]}

    def test_a_trace_says_how_much_of_the_exchanges_is_hidden(self):
        figures = rank_judge.exchange_figures(self.trace(170))
        self.assertEqual(figures['exchanges'], 2)
        self.assertAlmostEqual(figures['exchange_ms'], .15)
        self.assertAlmostEqual(figures['exposed_ms'], .03)
        self.assertAlmostEqual(figures['hidden_share'], .8)
        self.assertEqual(figures['issue_us'], 40)

    def test_exchanges_that_are_not_hidden_fail_on_a_card_alone(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / 'trace.json'
            for compute_ends, failures in ((200, 0), (100, 1)):
                file.write_text(json.dumps(self.trace(compute_ends)))
                on_card = rank_judge.ghost_trace(file, 's', True)(0, '{"cfg": "s"}')
                self.assertEqual(len(on_card.failures), failures, on_card.failures)
                self.assertEqual(rank_judge.ghost_trace(file, 's', False)(0, '{"cfg": "s"}').failures, [])
            file.write_text('{"traceEvents": []}')
            self.assertTrue(rank_judge.ghost_trace(file, 's', False)(0, '{"cfg": "s"}').failures)

    def test_a_ratio_far_from_the_forecast_is_noted(self):
        row = {'cfg': 'yolov5s', 'batch': 64, 'ghosts': 512, 'ratio_to_one_rank': .5, 'forecast_ratio': .97}
        self.assertIn('512 ranks: 0.50 of one rank, the forecast says 0.97',
                      rank_judge.ghosts(1, ())(0, json.dumps(row)).notes[0])
        near = {**row, 'forecast_ratio': .52}
        self.assertEqual(rank_judge.ghosts(1, ())(0, json.dumps(near)).notes, [])
        self.assertTrue(rank_judge.ghosts(2, ())(0, json.dumps(near)).failures)

    def test_a_fault_that_costs_too_long_is_a_failure(self):
        def judged(_code, _text):
            return runner.Verdict(figures=[{'run': 'x'}])
        def verdict(faults):
            watched = {'longest_without_a_step_s': 9, 'faults': faults}
            return rank_judge.goes_on_within(5, judged)(0, json.dumps(watched))
        good = verdict([{'fault': 'out_of_memory', 'step_after_s': 1.5}])
        self.assertEqual((good.failures, good.figures), ([], [{'run': 'x', 'slowest_after_fault_s': 1.5}]))
        self.assertTrue(verdict([{'fault': 'out_of_memory', 'step_after_s': 5.1}]).failures)
        self.assertTrue(verdict([{'fault': 'out_of_memory', 'step_after_s': None}]).failures)
        self.assertTrue(verdict([]).failures)
        self.assertTrue(rank_judge.goes_on_within(5, judged)(0, '').failures)

    def samples(self, files, megabytes):
        return '\n'.join(json.dumps({'rejoined': i, 'seconds': 2, 'files': count, 'threads': 9,
                                     'device_bytes': None if used is None else used << 20})
                         for i, (count, used) in enumerate(zip(files, megabytes)))

    def test_what_grows_with_each_rejoining_is_a_failure(self):
        check = rank_judge.flat(4)
        flat = check(0, self.samples([30, 32, 32, 40, 32], [900, 910, 912, 911, 913]))
        self.assertEqual(flat.failures, [])
        self.assertEqual(flat.figures[0]['device_MiB'], 1)
        self.assertEqual(len(check(0, self.samples([30, 32, 33, 34, 35], [900, 910, 920, 930, 940])).failures), 2)
        self.assertIsNone(check(0, self.samples([30, 32, 32, 32, 32], [None] * 5)).figures[0]['device_MiB'])
        self.assertTrue(check(0, self.samples([30, 32], [900, 900])).failures)

    def test_communicators_beyond_what_plans_reserve_are_noted(self):
        row = {'variant': 'as it is', 'world_bytes': 300 << 20, 'all_bytes': 600 << 20, 'plans_reserve': 256 << 20}
        verdict = rank_judge.communicators(0, json.dumps(row))
        self.assertEqual(verdict.figures[0]['world_bytes'], 300)
        self.assertIn('take 600 MiB of a rank, plans reserve 256', verdict.notes[0])

    def test_a_replay_that_no_abort_ends_is_a_failure(self):
        rows = [*[{'what': 'bytes', 'splits_share': True, 'most_blocks': blocks} for blocks in (0, 0, 8)],
                {'what': 'calls', 'blocking': True, 'call_us': 9}, {'what': 'calls', 'blocking': False, 'call_us': 40},
                {'what': 'captured', 'sums_are_right': True, 'replay_us': 20}]
        aborted = {'what': 'aborted', 'peer_was_waited_for': True, 'stream_is_free': True, 'free_after_s': .01}
        def failures(**changed):
            lines = [json.dumps(row) for row in [*rows, {**aborted, **changed}]]
            return rank_judge.nccl_calls(0, '\n'.join(lines)).failures
        self.assertEqual(failures(), [])
        self.assertTrue(failures(stream_is_free=False))
        self.assertTrue(failures(peer_was_waited_for=False))
        self.assertTrue(rank_judge.nccl_calls(1, '').failures)

    def test_samples_are_told_for_a_thread(self):
        figures = rank_judge.loader(16)(0, '{"samples_per_second": 1280.0}').figures
        self.assertEqual(figures[0]['samples_per_second_and_thread'], 80)

    def test_a_step_that_differs_from_its_forecast_fails(self):
        with tempfile.TemporaryDirectory() as folder:
            def failures(seconds, measured='on 2026-11-30 with yolov5s'):
                kept = {}
                plan = json.dumps({'forecast': {'step_seconds': 0.02, 'card_measured': measured}}, indent=1)
                found = rank_judge.forecast(kept)(0, 'a note\n' + plan + '\nkept in {folder}\n').failures
                lines = [json.dumps({'seconds': 9 if step < 10 else seconds}) for step in range(20)]
                (pathlib.Path(folder) / 'steps.jsonl').write_text('\n'.join(lines))
                return found + rank_judge.as_forecast(kept, folder, 0.15)(0, '').failures
            self.assertEqual(failures(0.021), [])
            self.assertIn('took 25 ms, but the forecast says 20', failures(0.025)[0])
            self.assertIn('does not rest on a measurement', failures(0.02, measured='')[0])
            self.assertTrue(rank_judge.forecast({})(1, '').failures)
            self.assertTrue(rank_judge.as_forecast({}, folder, 0.15)(0, '').failures)


class Judges(unittest.TestCase):
    def test_a_skipped_test_is_a_failure_though_the_program_ends_well(self):
        self.assertEqual(judge.gtest()(0, SKIPPED).failures,
                         ['Nccl.OneRankDoesAll was skipped: there is no CUDA device'])

    def test_a_skipped_test_that_cannot_apply_is_named_with_the_reason(self):
        verdict = judge.gtest([('^Nccl', 'it needs a card')])(0, SKIPPED)
        self.assertEqual((verdict.failures, verdict.skipped), ([], [('Nccl.OneRankDoesAll', 'it needs a card')]))

    def test_or_the_reason_that_it_gives_says_that_it_cannot_apply(self):
        verdict = judge.gtest([('no CUDA device$', 'it needs a card')])(0, SKIPPED)
        self.assertEqual((verdict.failures, verdict.skipped), ([], [('Nccl.OneRankDoesAll', 'it needs a card')]))

    def test_a_program_that_ran_no_test_or_ended_early_failed(self):
        self.assertTrue(judge.gtest()(0, '[==========] 0 tests from 0 test suites ran. (0 ms total)').failures)
        self.assertEqual(judge.gtest()(-11, '[ RUN      ] A.B').failures,
                         ['was ended by SIGSEGV', 'it did not run to its end'])

    def test_failed_tests_are_named(self):
        text = ('[  FAILED  ] A.B/0, where GetParam() = 1 (3 ms)\n[==========] 2 tests from 1 test suite ran.\n'
                '[  FAILED  ] 1 test, listed below:\n[  FAILED  ] A.B/0, where GetParam() = 1\n')
        self.assertEqual(judge.gtest()(1, text).failures, ['ended with 1', 'A.B/0 failed'])

    def test_figures_are_counted(self):
        self.assertEqual(judge.figures(2)(0, 'x\n{"a": 1}\n{"a": 2}').figures, [{'a': 1}, {'a': 2}])
        self.assertTrue(judge.figures(3)(0, '{"a": 1}\n{"a": 2}').failures)

    def test_bytes_below_those_measured_are_a_failure(self):
        row = {'cfg': 'yolov5n', 'img': 64, 'activations': 'keep'}
        self.assertEqual(judge.fit({**row, 'predicted_over_measured': 1.02}), [])
        for ratio in (.999, 1.06):
            self.assertTrue(judge.fit({**row, 'predicted_over_measured': ratio}))

    def test_other_losses_are_a_failure(self):
        run = [{'step': 0, 'loss': 1., 'grad_norm': 2.}, {'step': 1, 'loss': 3., 'grad_norm': 4.}]
        self.assertEqual(judge.same_losses(run, run[:1], 0), [])
        other = [run[0], {**run[1], 'loss': 3.001}]
        self.assertIn('step 1: loss', judge.same_losses(other, run, 1e-6)[0])
        self.assertTrue(judge.same_losses([{**run[0], 'loss': float('nan')}], run, 1e-6))

    def test_a_healthy_process_that_was_lost_is_a_failure(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / 'events.jsonl'
            file.write_text(json.dumps({'event': 'loss_of_process', 'rank': 0, 'reason': 'x'}) + '\n')
            self.assertTrue(judge.lost([1])(folder))
            self.assertEqual(judge.lost([0])(folder), [])
            self.assertTrue(judge.lost_at_least([1])(folder))

    def test_a_trace_gives_launches_and_the_idle_share(self):
        def event(cat, name, ts, dur):
            return {'ph': 'X', 'cat': cat, 'name': name, 'ts': ts, 'dur': dur}
        whole = judge.trace_figures({'traceEvents': [
            event('cpu_op', 'aten::add', 0, 1), event('cuda_runtime', 'cudaLaunchKernel', 0, 1),
            event('kernel', 'a', 10, 10), event('kernel', 'b', 15, 15), event('gpu_memcpy', 'c', 40, 10)]}, 'eager')
        self.assertEqual(whole[0], {'step': 'eager', 'operators': 1, 'kernels': 2, 'copies_and_fills': 1,
                                    'host_launches': 1, 'device_busy_ms': .03, 'device_span_ms': .04,
                                    'idle_share': .25})
        self.assertEqual([row['kernel'] for row in whole[1:]], ['b', 'a'])

    def test_output_that_a_judge_cannot_read_is_a_failure(self):
        with tempfile.TemporaryDirectory() as folder:
            step = runner.Step('step', ['echo', '{broken'], judge.figures(1))
            result = runner.run_parts([runner.Part('one', 'one', 5, [step])], pathlib.Path(folder), 9,
                                      lambda text: None)[0]
            self.assertIn('cannot be read', ' '.join(result.failures))


class Summary(unittest.TestCase):
    def test_it_begins_with_what_failed(self):
        good = runner.Result('a', 'A', 10, 1, figures=[{'x': 1.5}, {'x': None}])
        bad = runner.Result('b', 'B', 10, 1, 'failed', ['it broke'], [('a test', 'it needs a card')])
        text = summary.as_markdown([good, bad], {'device': 'none'})
        self.assertTrue(text.startswith('# GPU tests: failed\n- **b**: it broke\n'), text)
        self.assertIn('a test: it needs a card', text)
        self.assertIn('| 1.5 |', text)
        whole = summary.as_dict([good, bad], {})
        self.assertEqual(list(whole)[:2], ['verdict', 'failed'])
        self.assertEqual(whole['verdict'], 'failed')
        self.assertEqual(summary.as_dict([good], {})['verdict'], 'passed')


class Kit(unittest.TestCase):
    def kit(self, root, has_card):
        return parts.Kit(root, root, root, has_card)

    def test_what_pip_installs_beside_torch_is_found(self):
        with tempfile.TemporaryDirectory() as root:
            root = pathlib.Path(root)
            for package in ('nccl', 'cudnn', 'cu13'):
                (root / 'nvidia' / package / 'lib').mkdir(parents=True)
            path = self.kit(root, True).environment()['LD_LIBRARY_PATH'].split(':')
            for package in ('nccl', 'cudnn', 'cu13'):
                self.assertIn(str(root / 'nvidia' / package / 'lib'), path)

    def test_only_the_test_device_finds_the_stand_in_for_nccl(self):
        with tempfile.TemporaryDirectory() as root:
            root = pathlib.Path(root)
            own = root / 'nvidia/nccl/lib'
            own.mkdir(parents=True)
            path = self.kit(root, False).environment()['LD_LIBRARY_PATH'].split(':')
            self.assertLess(path.index(str(root / 'nccl_shim')), path.index(str(own)))
            self.assertNotIn(str(root / 'nccl_shim'), self.kit(root, True).environment()['LD_LIBRARY_PATH'])

    def test_a_python_with_torch_does_not_see_the_kits_libraries(self):
        root = pathlib.Path('/kit')
        path = parts.peer(self.kit(root, True))[0].environment['LD_LIBRARY_PATH']
        self.assertNotIn('/kit/lib', path.split(':'))

    def test_on_a_card_no_step_is_left_out(self):
        root = pathlib.Path('/kit')
        for call in ('', *parts.OTHER_CALLS):
            for part in parts.parts_of(self.kit(root, True), call, group='all'):
                self.assertTrue(part.steps)
                self.assertEqual([step.why_not for step in part.steps if step.why_not], [])

    def test_a_part_is_found_by_its_name_in_whatever_group(self):
        found = parts.parts_of(self.kit(pathlib.Path('/kit'), True), only=['ghosts', 'memory'])
        self.assertEqual([part.name for part in found], ['card', 'ghosts', 'memory'])

    def test_libraries_of_the_machine_and_of_libtorch_are_not_packed(self):
        for library, place in (('libc.so.6', 'machine'), ('libnccl.so.2', 'libtorch'), ('libcudart.so.13', 'libtorch'),
                               ('libtorch_cpu.so', 'libtorch'), ('libX11.so.6', 'stand-in'),
                               ('liblapack.so.3', 'stand-in'), ('libGLX.so.0', 'stand-in'),
                               ('libopencv_core.so.406', 'kit'), ('libmpi.so.40', 'kit')):
            self.assertEqual(pack.place_of(library), place, library)


if __name__ == '__main__':
    unittest.main()
