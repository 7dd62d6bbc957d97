#!/usr/bin/env python3
"""Compares the forecast of a step with real runs of 1, 2 and 4 processes.

Each process is on a simulated machine: a network name space with a cable to a
switch. The kernel limits the rate of each port of the switch (tc). Each process
is bound to its own core of this machine.

    forecast.py [--rates 100 400 1600] [--processes 1 2 4] [--img 160]

The forecast needs the rate of a single process. It is measured without a
network, before and after each run: the same number of processes train at the
same time on the same cores, each one as a run of its own. The link's rate and
delay are those that the run itself measured (plan.json). Needs root and
iproute2. Prints a table with the predicted time, the measured time and the
error, and one JSON line for each run.
"""
import argparse
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Nodes:
    """Network name spaces. Each one has a cable to the same switch."""

    def __init__(self, number, megabits):
        self.holders = [self.hold() for _ in range(number + 1)]
        self.switch = self.holders[0]
        self.run(self.switch, 'ip link add bridge0 type bridge && ip link set bridge0 up')
        for node in range(number):
            pid = self.holders[node + 1].inner
            port = f'port{node}'
            self.run(self.switch, f'ip link add {port} type veth peer name eth0 netns {pid} && '
                     f'ip link set {port} master bridge0 up && '
                     # The first limit is on traffic to the node, which leaves the switch by this port.
                     f'tc qdisc replace dev {port} root tbf rate {megabits}mbit burst 64kb limit 4mb')
            self.run(self.holders[node + 1], f'hostname node-{node} && ip addr add {self.address(node)}/24 dev eth0 && '
                     'ip link set eth0 up && ip link set lo up && '
                     f'tc qdisc replace dev eth0 root tbf rate {megabits}mbit burst 64kb limit 4mb')

    @staticmethod
    def hold():
        # Each machine also has process numbers of its own: otherwise ranks of several machines would share memory.
        holder = subprocess.Popen(['unshare', '--net', '--uts', '--pid', '--fork', '--kill-child=KILL', '--mount-proc',
                                   'sh', '-c', 'echo ready; exec sleep 3600'], stdout=subprocess.PIPE)
        holder.stdout.readline()
        children = pathlib.Path(f'/proc/{holder.pid}/task/{holder.pid}/children').read_text().split()
        holder.inner = int(children[0])
        return holder

    @staticmethod
    def address(node):
        return f'10.78.0.{node + 1}'

    @staticmethod
    def inside(holder):
        return ['nsenter', '--target', str(holder.inner), '--net', '--uts', '--pid', '--mount']

    def run(self, holder, script):
        # The script runs outside of the machine, because the process numbers in it are valid only there.
        subprocess.run(['nsenter', '--target', str(holder.inner), '--net', '--uts', 'sh', '-c', script], check=True)

    def on(self, node):
        return self.inside(self.holders[node + 1])

    def close(self):
        for holder in self.holders:
            holder.kill()
            holder.wait()


def cores_of(process, processes):
    cores = sorted(os.sched_getaffinity(0))
    return str(cores[process * len(cores) // processes])


def model_flags(args, batch):
    return ['--synthetic-input', '--cfg', args.cfg, '--img', str(args.img), '--batch', str(batch),
            '--threads', '1', '--max-steps', str(args.steps), '--device', 'cpu', '--set', 'checkpoint_every_steps=100000']


def step_seconds(folder, args):
    lines = (folder / 'steps.jsonl').read_text().splitlines()[args.warmup:]
    return statistics.median(json.loads(line)['seconds'] for line in lines)


def rate_alone(args, processes):
    """Images per second of one process while the other processes train too."""
    with tempfile.TemporaryDirectory() as folder:
        runs = [subprocess.Popen(['taskset', '-c', cores_of(k, processes), str(args.headroom), 'train',
                                  *model_flags(args, args.batch), '--project', f'{folder}/{k}'],
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                for k in range(processes)]
        for run in runs:
            assert run.wait() == 0, 'a run of one process failed'
        seconds = [step_seconds(pathlib.Path(folder) / str(k) / 'exp', args) for k in range(processes)]
    return args.batch / statistics.mean(seconds)


def step_together(args, processes, megabits):
    """The median step of a run over a network, and the network that it measured."""
    nodes = Nodes(processes, megabits)
    with tempfile.TemporaryDirectory() as folder:
        try:
            address = f'{nodes.address(0)}:29611'
            started = [subprocess.Popen(nodes.on(0) + [str(args.headroom), 'coordinator',
                                                       *model_flags(args, args.batch * processes), '--project', folder,
                                                       '--listen', address, '--expected-workers', str(processes),
                                                       '--insecure-network'],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)]
            time.sleep(1)
            started += [subprocess.Popen(['taskset', '-c', cores_of(k, processes)] + nodes.on(k) +
                                         [str(args.headroom), 'agent', '--coordinator', address, '--insecure-network'],
                                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                        for k in range(processes)]
            said = started[0].communicate()[1].decode()
            assert started[0].returncode == 0, said
            for agent in started[1:]:
                agent.wait()
            run = pathlib.Path(folder) / 'exp'
            return step_seconds(run, args), json.loads((run / 'plan.json').read_text()).get('network')
        finally:
            for process in started:
                if process.poll() is None:
                    process.send_signal(signal.SIGKILL)
            nodes.close()


def forecast(args, processes, rate, network):
    command = [str(args.headroom), 'plan', *model_flags(args, args.batch * processes), '--processes', str(processes),
               '--images-per-second', str(rate), '--json']
    if network:
        command += ['--machines', str(processes), '--network',
                    f'{network["slowest_bytes_per_second"] * 8 / 1e9},{max(1e-6, network["latency_seconds"] * 1e3)}']
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)['forecast']


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--headroom', type=pathlib.Path, default=ROOT / 'build' / 'bin' / 'headroom')
    parser.add_argument('--cfg', default='yolov5n')
    parser.add_argument('--processes', type=int, nargs='+', default=[1, 2, 4])
    parser.add_argument('--rates', type=int, nargs='+', default=[100, 400, 1600], help='Mbit/s of a port')
    for flag, value in (('img', 160), ('batch', 16), ('steps', 40), ('warmup', 10)):
        parser.add_argument(f'--{flag}', type=int, default=value)
    args = parser.parse_args()
    print('| processes | link | predicted step | measured step | error | efficiency: predicted, measured |')
    print('|---|---|---|---|---|---|')
    for processes in args.processes:
        for megabits in [0] if processes == 1 else args.rates:
            before = rate_alone(args, processes)
            if processes == 1:
                # The rate is predicted from one run, and measured in another run.
                rate = before
                measured, network = args.batch / rate_alone(args, 1), None
            else:
                measured, network = step_together(args, processes, megabits)
                # Other programs may have used the machine meanwhile.
                rate = (before + rate_alone(args, processes)) / 2
            predicted = forecast(args, processes, rate, network)
            seconds = predicted['step_seconds']
            alone = args.batch / rate
            print(f'| {processes} | {f"{megabits} Mbit/s" if network else "none"} | {1e3 * seconds:.0f} ms | '
                  f'{1e3 * measured:.0f} ms | {100 * (seconds / measured - 1):+.0f} % | '
                  f'{100 * predicted["efficiency"]:.0f} %, {100 * alone / measured:.0f} % |', flush=True)
            print(json.dumps({'processes': processes, 'megabits': megabits, 'measured_seconds': measured,
                              'network': network, 'forecast': predicted}), file=sys.stderr, flush=True)


if __name__ == '__main__':
    main()
