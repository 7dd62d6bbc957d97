#!/usr/bin/env python3
"""A detector whose head has no anchors, trained with plain PyTorch DDP.

What a user would write with eager PyTorch: the network of YOLOv5u or YOLOv8, an
assignment with dense tensors (labels x places), SGD, an average of the weights,
and synthetic input. ddp_ratio.py compares Headroom with it. One JSON line with
images_per_second per window.

    place_peer.py --model yolov8n --img 160 --batch 16 --processes 2
                  [--threads 1] [--steps 20] [--channels-last] [--device cpu]
                  [--dtype fp32] [--windows 3]

--batch is per process. Needs torch 2.x for Python.
"""
import argparse
import json
import math
import os
import resource
import socket
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn

DEPTH = 1 / 3
WIDTHS = {'n': .25, 's': .5}
STRIDES = (8, 16, 32)
BINS = 16  # of a distance
LAST_BIN = BINS - 1 - .01  # of a label's distance
CHOSEN = 10  # places of a label
GAINS = {'box': 7.5, 'cls': .5, 'dfl': 1.5}
EPSILON = 1e-7


class Conv(nn.Sequential):
    def __init__(self, c_in, c_out, k=1, s=1, p=None):
        super().__init__(nn.Conv2d(c_in, c_out, k, s, k // 2 if p is None else p, bias=False),
                         nn.BatchNorm2d(c_out, eps=1e-3, momentum=.03), nn.SiLU(inplace=True))


class Bottleneck(nn.Module):
    def __init__(self, c, first_kernel, adds):
        super().__init__()
        self.layers = nn.Sequential(Conv(c, c, first_kernel), Conv(c, c, 3))
        self.adds = adds

    def forward(self, x):
        return x + self.layers(x) if self.adds else self.layers(x)


class C3(nn.Module):
    def __init__(self, c_in, c_out, n, adds):
        super().__init__()
        h = c_out // 2
        self.left, self.right, self.out = Conv(c_in, h), Conv(c_in, h), Conv(2 * h, c_out)
        self.chain = nn.Sequential(*[Bottleneck(h, 1, adds) for _ in range(n)])

    def forward(self, x):
        return self.out(torch.cat((self.chain(self.left(x)), self.right(x)), 1))


class C2f(nn.Module):
    def __init__(self, c_in, c_out, n, adds):
        super().__init__()
        h = c_out // 2
        self.first, self.out = Conv(c_in, 2 * h), Conv((2 + n) * h, c_out)
        self.chain = nn.ModuleList(Bottleneck(h, 3, adds) for _ in range(n))

    def forward(self, x):
        maps = list(self.first(x).chunk(2, 1))
        for block in self.chain:
            maps.append(block(maps[-1]))
        return self.out(torch.cat(maps, 1))


class Sppf(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.first, self.out, self.pool = Conv(c, c // 2), Conv(2 * c, c), nn.MaxPool2d(5, 1, 2)

    def forward(self, x):
        maps = [self.first(x)]
        for _ in range(3):
            maps.append(self.pool(maps[-1]))
        return self.out(torch.cat(maps, 1))


class Head(nn.Module):
    def __init__(self, channels, classes):
        super().__init__()
        box = max(16, channels[0] // 4, 4 * BINS)
        wide = max(channels[0], min(classes, 100))

        def branch(c_in, c, c_out):
            return nn.Sequential(Conv(c_in, c, 3), Conv(c, c, 3), nn.Conv2d(c, c_out, 1))

        self.boxes = nn.ModuleList(branch(c, box, 4 * BINS) for c in channels)
        self.classes = nn.ModuleList(branch(c, wide, classes) for c in channels)
        self.distances = nn.Parameter(torch.arange(BINS, dtype=torch.float32), requires_grad=False)
        for level, stride in enumerate(STRIDES):
            nn.init.constant_(self.boxes[level][-1].bias, 2.)
            nn.init.constant_(self.classes[level][-1].bias, math.log(5 / classes / (640 / stride) ** 2))

    def forward(self, maps):
        return [torch.cat((box(x), cls(x)), 1) for box, cls, x in zip(self.boxes, self.classes, maps)]


class Detector(nn.Module):
    """`name`: yolov5nu, yolov5su, yolov8n or yolov8s."""

    def __init__(self, name, classes):
        super().__init__()
        self.is_v8 = name.startswith('yolov8')
        width = WIDTHS[name.removeprefix('yolov8').removeprefix('yolov5').removesuffix('u')]
        c = [math.ceil(v * width / 8) * 8 for v in (64, 128, 256, 512, 1024)]

        def block(c_in, c_out, repeats, adds=True):
            return (C2f if self.is_v8 else C3)(c_in, c_out, max(round(repeats * DEPTH), 1), adds)

        first = Conv(3, c[0], 3, 2) if self.is_v8 else Conv(3, c[0], 6, 2, 2)
        self.s4 = nn.Sequential(first, Conv(c[0], c[1], 3, 2), block(c[1], c[1], 3))
        self.s8 = nn.Sequential(Conv(c[1], c[2], 3, 2), block(c[2], c[2], 6))
        self.s16 = nn.Sequential(Conv(c[2], c[3], 3, 2), block(c[3], c[3], 6 if self.is_v8 else 9))
        self.s32 = nn.Sequential(Conv(c[3], c[4], 3, 2), block(c[4], c[4], 3), Sppf(c[4]))
        # YOLOv5 halves the channels before it enlarges a map, and YOLOv8 does not.
        self.side5, self.side4 = ((nn.Identity(), nn.Identity()) if self.is_v8 else
                                  (Conv(c[4], c[3]), Conv(c[3], c[2])))
        t5, t4 = (c[4], c[3]) if self.is_v8 else (c[3], c[2])
        self.mix4 = block(t5 + c[3], c[3], 3, False)
        self.mix3 = block(t4 + c[2], c[2], 3, False)
        self.down3, self.out4 = Conv(c[2], c[2], 3, 2), block(c[2] + t4, c[3], 3, False)
        self.down4, self.out5 = Conv(c[3], c[3], 3, 2), block(c[3] + t5, c[4], 3, False)
        self.head = Head(c[2:], classes)

    def forward(self, x):
        x3 = self.s8(self.s4(x))
        x4 = self.s16(x3)
        t5 = self.side5(self.s32(x4))
        t4 = self.side4(self.mix4(torch.cat((F.interpolate(t5, scale_factor=2.), x4), 1)))
        y3 = self.mix3(torch.cat((F.interpolate(t4, scale_factor=2.), x3), 1))
        y4 = self.out4(torch.cat((self.down3(y3), t4), 1))
        y5 = self.out5(torch.cat((self.down4(y4), t5), 1))
        return self.head((y3, y4, y5))


def complete_iou(p, q):
    """Of corner boxes, in the last dimension."""
    px1, py1, px2, py2 = p.unbind(-1)
    qx1, qy1, qx2, qy2 = q.unbind(-1)
    pw, ph, qw, qh = px2 - px1, py2 - py1 + EPSILON, qx2 - qx1, qy2 - qy1 + EPSILON
    inter = ((torch.minimum(px2, qx2) - torch.maximum(px1, qx1)).clamp(0) *
             (torch.minimum(py2, qy2) - torch.maximum(py1, qy1)).clamp(0))
    iou = inter / (pw * ph + qw * qh - inter + EPSILON)
    diagonal = ((torch.maximum(px2, qx2) - torch.minimum(px1, qx1)) ** 2 +
                (torch.maximum(py2, qy2) - torch.minimum(py1, qy1)) ** 2 + EPSILON)
    centre = ((qx1 + qx2 - px1 - px2) ** 2 + (qy1 + qy2 - py1 - py2) ** 2) / 4
    v = 4 / math.pi ** 2 * (torch.atan(qw / qh) - torch.atan(pw / ph)) ** 2
    with torch.no_grad():
        alpha = v / (v - iou + 1 + EPSILON)
    return iou - centre / diagonal - alpha * v


@torch.no_grad()
def assign(scores, boxes, points, labels, classes, is_label):
    """The owner of each place (a label's index) and the place's weight, 0 without one.

    scores [B, N, classes], boxes [B, N, 4], points [N, 2], labels [B, M, 4] with
    classes [B, M]; boxes are corners in pixels.
    """
    missing = (STRIDES[1] - (labels[..., 2:] - labels[..., :2])).clamp(0) / 2
    low, high = (labels[..., :2] - missing)[:, :, None], (labels[..., 2:] + missing)[:, :, None]
    is_candidate = (torch.cat((points - low, high - points), -1).amin(-1) > 1e-9) & is_label[..., None]
    overlap = complete_iou(boxes[:, None], labels[:, :, None]).clamp(0) * is_candidate
    of_class = scores.transpose(1, 2).gather(1, classes[..., None].expand(-1, -1, len(points)))
    metric = of_class ** .5 * overlap ** 6
    best, places = metric.topk(min(CHOSEN, len(points)), -1)
    chosen = torch.zeros_like(metric).scatter_(2, places, (best > 0).to(metric.dtype))
    by_overlap = torch.zeros_like(metric).scatter_(1, overlap.argmax(1, keepdim=True), 1.)
    chosen = torch.where(chosen.sum(1, keepdim=True) > 1, by_overlap, chosen)
    metric, overlap = metric * chosen, overlap * chosen
    weights = metric * (overlap.amax(-1) / (metric.amax(-1) + 1e-9))[..., None]
    return chosen.argmax(1), weights.sum(1)


def detection_loss(outputs, distances, labels, num_classes):
    """labels [M, 6]: image, class, centre x, y, width, height (0..1). Returns the loss and its three items."""
    batch, device, dtype = outputs[0].shape[0], labels.device, labels.dtype
    points, strides = [], []
    for output, stride in zip(outputs, STRIDES):
        rows, columns = output.shape[2:]
        y, x = torch.meshgrid(torch.arange(rows, device=device, dtype=dtype) + .5,
                              torch.arange(columns, device=device, dtype=dtype) + .5, indexing='ij')
        points.append(torch.stack((x, y), -1).view(-1, 2))
        strides.append(torch.full((rows * columns, 1), stride, device=device, dtype=dtype))
    points, strides = torch.cat(points), torch.cat(strides)
    maps = torch.cat([output.flatten(2) for output in outputs], 2).to(dtype).transpose(1, 2)
    bins, logits = maps.split((4 * BINS, num_classes), 2)
    sides = bins.reshape(batch, -1, 4, BINS).softmax(-1) @ distances.to(dtype)
    boxes = torch.cat((points - sides[..., :2], points + sides[..., 2:]), -1)

    size = torch.tensor(outputs[0].shape[:1:-1], device=device, dtype=dtype).repeat(2) * STRIDES[0]
    image = labels[:, 0].long()
    counts = torch.bincount(image, minlength=batch)
    most = max(int(counts.max()), 1)
    padded = torch.zeros(batch, most, 5, device=device, dtype=dtype)
    order = image.argsort(stable=True)
    place = torch.arange(len(image), device=device) - (counts.cumsum(0) - counts)[image[order]]
    centre, half = labels[:, 2:4], labels[:, 4:6] / 2
    padded[image[order], place] = torch.cat(
        (labels[:, 1:2], torch.cat((centre - half, centre + half), 1) * size), 1)[order]
    is_label = torch.arange(most, device=device) < counts[:, None]
    label_classes, label_boxes = padded[..., 0].long(), padded[..., 1:]

    owner, weight = assign(logits.detach().sigmoid(), boxes.detach() * strides, points * strides, label_boxes,
                           label_classes, is_label)
    total = weight.sum().clamp(min=1)
    target = torch.zeros_like(logits).scatter_(2, label_classes.gather(1, owner)[..., None], weight[..., None])
    cls = F.binary_cross_entropy_with_logits(logits, target, reduction='sum') / total
    box = dfl = bins.sum() * 0
    owned = weight > 0
    if owned.any():
        weight = weight[owned]
        target_box = (label_boxes.gather(1, owner[..., None].expand(-1, -1, 4)) / strides)[owned]
        box = (weight * (1 - complete_iou(boxes[owned], target_box))).sum() / total
        at = points.expand(batch, -1, -1)[owned]
        distance = torch.cat((at - target_box[:, :2], target_box[:, 2:] - at), 1).clamp(0, LAST_BIN)
        lower = distance.long()
        share = distance - lower
        log_p = bins[owned].view(-1, 4, BINS).log_softmax(-1)
        entropy = -(log_p.gather(2, lower[..., None])[..., 0] * (1 - share) +
                    log_p.gather(2, lower[..., None] + 1)[..., 0] * share)
        dfl = (weight * entropy.mean(1)).sum() / total
    items = torch.stack((GAINS['box'] * box, GAINS['cls'] * cls, GAINS['dfl'] * dfl))
    return items.sum() * batch, items.detach()


def parameter_groups(model):
    groups = {'weights': [], 'norms': [], 'biases': []}
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            groups['norms'].append(module.weight)
            groups['biases'].append(module.bias)
        elif isinstance(module, nn.Conv2d):
            groups['weights'].append(module.weight)
            if module.bias is not None:
                groups['biases'].append(module.bias)
    return [{'params': groups['weights'], 'weight_decay': 5e-4}, {'params': groups['norms']},
            {'params': groups['biases']}]


def synthetic_labels(args, generator):
    count = args.batch * args.boxes
    return torch.cat((torch.arange(args.batch).repeat_interleave(args.boxes)[:, None].float(),
                      torch.randint(args.classes, (count, 1), generator=generator).float(),
                      torch.rand(count, 2, generator=generator),
                      torch.rand(count, 2, generator=generator) * .3 + .02), 1)


def train(rank, args, port):
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    cuda = args.device == 'cuda'
    device = torch.device('cuda', rank % torch.cuda.device_count()) if cuda else torch.device('cpu')
    dist.init_process_group('nccl' if cuda else 'gloo', init_method=f'tcp://127.0.0.1:{port}', rank=rank,
                            world_size=args.processes)
    layout = torch.channels_last if args.channels_last else torch.contiguous_format
    model = Detector(args.model, args.classes).to(device, memory_format=layout).train()
    average = Detector(args.model, args.classes).to(device).requires_grad_(False)
    average.load_state_dict(model.state_dict())
    optimizer = torch.optim.SGD(parameter_groups(model), lr=.01, momentum=.937, nesterov=True)
    net = model
    if args.processes > 1 and not args.no_sync:
        net = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    generator = torch.Generator().manual_seed(rank)
    images = torch.rand(args.batch, 3, args.img, args.img, generator=generator).to(device)
    images = images.contiguous(memory_format=layout)
    labels = synthetic_labels(args, generator).to(device)
    is_mixed = args.dtype == 'bf16'

    def step():
        with torch.autocast(device.type, torch.bfloat16, enabled=is_mixed):
            outputs = net(images)
        loss, _ = detection_loss(outputs, model.head.distances, labels, args.classes)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 10.)
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            for mine, theirs in zip(average.state_dict().values(), model.state_dict().values()):
                if mine.dtype.is_floating_point:
                    mine.lerp_(theirs, 1e-4)
        return loss

    for _ in range(args.warmup):
        loss = step()
    for _ in range(args.windows):
        dist.barrier()
        start = time.perf_counter()
        for _ in range(args.steps):
            loss = step()
        if cuda:
            torch.cuda.synchronize()
        dist.barrier()
        seconds = time.perf_counter() - start
        if rank == 0:
            print(json.dumps({'peer': 'place_peer', 'torch': torch.__version__, **vars(args), 'loss': loss.item(),
                              'seconds': seconds,
                              'images_per_second': args.steps * args.batch * args.processes / seconds,
                              'peak_rss_bytes': resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}),
                  flush=True)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--model', default='yolov8n',
                        choices=[name for size in WIDTHS for name in (f'yolov5{size}u', f'yolov8{size}')])
    for flag, value in (('img', 160), ('batch', 16), ('processes', 2), ('threads', 1), ('steps', 20), ('warmup', 5),
                        ('windows', 3), ('classes', 80), ('boxes', 8)):
        parser.add_argument(f'--{flag}', type=int, default=value)
    parser.add_argument('--device', default='cpu', choices=('cpu', 'cuda'))
    parser.add_argument('--dtype', default='fp32', choices=('fp32', 'bf16'))
    parser.add_argument('--channels-last', action='store_true')
    parser.add_argument('--no-sync', action='store_true', help='without the sum of gradients: the upper bound')
    args = parser.parse_args()
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        port = s.getsockname()[1]
    os.environ.setdefault('OMP_NUM_THREADS', str(args.threads))
    if args.processes > 1:
        mp.spawn(train, (args, port), args.processes)
    else:
        train(0, args, port)


if __name__ == '__main__':
    main()
