#!/usr/bin/env python3
"""Images per second of a training step on a GPU against plain PyTorch, in one run.

The programs share the card and take turns, window by window: this trainer
(bin/benchmark_gpu_step, also with graphs), and PyTorch tuned by hand
(channels-last, autocast, fused SGD, foreach clip and average, cuDNN's search).
PyTorch runs eager, through torch.compile, and both of these with CUDA graphs.
All have the same network, loss, labels and batch, and the batch is on the card.
The result is the ratio of the medians. Also printed are the share that each
program reaches of the card's rate of matrix products, and this trainer's
predicted peak divided by its measured peak.

    gpu_step.py --peer PEER.py [--python PYTHON] [--model s] [--img 640]
                [--batch 64] [--dtype bf16] [--windows 7] [--device cuda]
                [--contenders eager,compiled,graphed,compiled_graphs]

PYTHON has torch 2.x; PEER.py has Detector and detection_loss. --device cpu tries
the script out where there is no GPU. Exits with 1 if a program fails.
"""
import argparse
import importlib.util
import json
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
CONTENDERS = ('eager', 'compiled', 'graphed', 'compiled_graphs')


def peer_module(path):
    spec = importlib.util.spec_from_file_location('peer', path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def tuned_step(args, peer, torch):
    """The step of a careful PyTorch user, as a function without arguments."""
    device = torch.device(args.device)
    dtype = {'fp32': None, 'bf16': torch.bfloat16, 'fp16': torch.float16}[args.dtype]
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = args.tf32
    torch.manual_seed(0)
    layout = torch.channels_last
    model = peer.Detector(args.model, args.classes).to(device, memory_format=layout).train()
    average = peer.Detector(args.model, args.classes).to(device).requires_grad_(False)
    average.load_state_dict(model.state_dict())
    decayed, others = [], []
    for module in model.modules():
        if isinstance(module, torch.nn.Conv2d):
            decayed.append(module.weight)
            others.extend([] if module.bias is None else [module.bias])
        elif isinstance(module, torch.nn.BatchNorm2d):
            others.extend([module.weight, module.bias])
    optimizer = torch.optim.SGD([{'params': decayed, 'weight_decay': 5e-4}, {'params': others}],
                                lr=.01, momentum=.937, nesterov=True, fused=device.type == 'cuda')
    scaler = torch.amp.GradScaler(device.type, enabled=args.dtype == 'fp16')
    both = [(mine, theirs) for mine, theirs in
            zip(average.state_dict().values(), model.state_dict().values()) if mine.is_floating_point()]
    mine, theirs = [list(side) for side in zip(*both)]
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(args.batch, 3, args.img, args.img, generator=generator)
    images = images.to(device).contiguous(memory_format=layout)
    count = args.batch * args.boxes
    labels = torch.cat((torch.arange(args.batch).repeat_interleave(args.boxes)[:, None].float(),
                        torch.randint(args.classes, (count, 1), generator=generator).float(),
                        torch.rand(count, 2, generator=generator),
                        torch.rand(count, 2, generator=generator) * .3 + .02), 1).to(device)

    def cast():  # a captured graph must not read the cast weights from a cache
        return torch.autocast(device.type, dtype or torch.bfloat16, enabled=dtype is not None,
                              cache_enabled=args.contender != 'graphed')

    forward = model
    if args.contender == 'compiled':
        forward = torch.compile(model)
    elif args.contender == 'compiled_graphs':
        forward = torch.compile(model, mode='reduce-overhead')
    elif args.contender == 'graphed':
        with cast():
            forward = torch.cuda.make_graphed_callables(model, (images,))

    def step():
        with cast():
            outputs = forward(images)
        loss = peer.detection_loss(outputs, labels, args.classes, args.img)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 10., foreach=True)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        with torch.no_grad():
            torch._foreach_lerp_(mine, theirs, 1e-4)
        return loss

    return step


def contend(args):
    """Runs in a child process: measures one window for each line of standard input."""
    import torch
    torch.set_num_threads(args.threads)
    step = tuned_step(args, peer_module(args.peer), torch)
    wait = torch.cuda.synchronize if args.device == 'cuda' else lambda: None
    for _ in range(args.warmup):
        step()
    for _ in sys.stdin:
        wait()
        start = time.perf_counter()
        for _ in range(args.steps):
            loss = step()
        wait()
        seconds = time.perf_counter() - start
        peak = torch.cuda.max_memory_allocated() if args.device == 'cuda' else 0
        print(json.dumps({'loss': loss.item(), 'images_per_second': args.steps * args.batch / seconds,
                          'measured_peak_bytes': peak}), flush=True)


def product_rate(args):
    """Runs in a child process: prints the card's operations per second in products of 8,192 x 8,192 matrices."""
    import torch
    dtype = {'fp32': torch.float32, 'bf16': torch.bfloat16, 'fp16': torch.float16}[args.dtype]
    size, wait = (8192, torch.cuda.synchronize) if args.device == 'cuda' else (1024, lambda: None)
    torch.set_num_threads(args.threads)
    torch.backends.cuda.matmul.allow_tf32 = args.tf32
    a = torch.randn(size, size, device=args.device).to(dtype)
    best = 0.
    for _ in range(20):
        wait()
        start = time.perf_counter()
        a @ a
        wait()
        best = max(best, 2 * size ** 3 / (time.perf_counter() - start))
    print(best)


class Contender:
    def __init__(self, name, command):
        self.name, self.rates, self.last = name, [], {}
        self.process = subprocess.Popen([str(word) for word in command], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    def window(self):
        self.process.stdin.write('window\n')
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f'{self.name} ended with {self.process.wait()} before its window')
        self.last = json.loads(line)
        self.rates.append(self.last['images_per_second'])

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def compare(args, words):
    ours = [args.program, '--wait', '--device', '0' if args.device == 'cuda' else 'cpu', '--cfg',
            'yolov5' + args.model, '--img', args.img, '--batch', args.batch, '--precision', args.dtype,
            '--steps', args.steps, '--warm-up', args.warmup, '--threads', args.threads]
    ours += ['--tf32'] if args.tf32 else []
    ours += ['--cudnn-benchmark'] if args.cudnn_benchmark else []
    child = [args.python, __file__, *words]
    rate = float(subprocess.run([*child, '--contender', 'products'], check=True, capture_output=True, text=True).stdout)
    contenders = [Contender('headroom', ours)]
    if args.device == 'cuda':
        contenders.append(Contender('headroom_graphs', [*ours, '--cuda-graphs']))
    contenders += [Contender(name, [*child, '--contender', name]) for name in args.contenders.split(',')]
    for window in range(args.windows):
        for contender in contenders[window % len(contenders):] + contenders[:window % len(contenders)]:
            contender.window()
        print(f'# window {window + 1}: ' + ', '.join(f'{one.name} {one.rates[-1]:.1f}' for one in contenders),
              file=sys.stderr, flush=True)
    for contender in contenders:
        contender.end()
    medians = {one.name: statistics.median(one.rates) for one in contenders}
    mine = contenders[0].last
    print(json.dumps({
        'model': args.model, 'img': args.img, 'batch': args.batch, 'dtype': args.dtype,
        'images_per_second': medians,
        'over': {name: medians['headroom'] / medians[name] for name in args.contenders.split(',')},
        'share_of_products': {name: value * mine['flops_per_image'] / rate for name, value in medians.items()},
        'predicted_over_measured_peak': mine['predicted_peak_bytes'] / mine['measured_peak_bytes'],
        'measured_peak_bytes': {one.name: one.last['measured_peak_bytes'] for one in contenders}}))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--peer', type=pathlib.Path, required=True)
    parser.add_argument('--python', default=sys.executable)
    parser.add_argument('--program', type=pathlib.Path, default=ROOT / 'build' / 'bin' / 'benchmark_gpu_step')
    parser.add_argument('--model', default='s')
    parser.add_argument('--device', default='cuda', choices=('cpu', 'cuda'))
    parser.add_argument('--dtype', default='bf16', choices=('fp32', 'bf16', 'fp16'))
    for flag, value in (('img', 640), ('batch', 64), ('steps', 20), ('warmup', 10), ('windows', 7), ('threads', 8),
                        ('classes', 80), ('boxes', 12)):
        parser.add_argument(f'--{flag}', type=int, default=value)
    parser.add_argument('--contenders', default='eager,compiled')
    parser.add_argument('--tf32', action='store_true')
    parser.add_argument('--cudnn-benchmark', action='store_true')
    parser.add_argument('--contender', choices=(*CONTENDERS, 'products'), help=argparse.SUPPRESS)
    args = parser.parse_args()
    for name in args.contenders.split(','):
        if name not in CONTENDERS:
            parser.error(f'--contenders has no {name}: there are {", ".join(CONTENDERS)}')
    if args.contender == 'products':
        product_rate(args)
    elif args.contender:
        contend(args)
    else:
        compare(args, sys.argv[1:])


if __name__ == '__main__':
    main()
