"""The values that every part gets: the unpacked kit, and runs of `headroom train`.

A kit has the paths of itself and of LibTorch, and whether there is a card.
Without a card the same parts run on the test device, with smaller sizes, which
tests the scripts and judges; the summary lists the steps that need a card.
"""
import dataclasses
import os
import pathlib
import sys

import judge
from runner import Step

HERE = pathlib.Path(__file__).resolve().parent


@dataclasses.dataclass
class Kit:
    root: pathlib.Path  # the unpacked archive
    libtorch: pathlib.Path  # the folder that contains torch/
    results: pathlib.Path
    has_card: bool
    python: str = sys.executable  # runs the PyTorch peer
    python_has_torch: bool = False

    def program(self, name):
        return self.root / 'bin' / name

    @property
    def plugin(self):
        return self.program('libheadroom_cuda.so' if self.has_card else 'libheadroom_testdevice.so')

    def environment(self):
        """The variables for all commands: the paths of libraries, and the device."""
        # A card uses the NCCL beside LibTorch; the test device has a stand-in
        # with the same name.
        stand_in = [] if self.has_card else [self.root / 'nccl_shim']
        folders = [*stand_in, self.root / 'lib', *library_folders(self.libtorch)]
        before = os.environ.get('LD_LIBRARY_PATH')
        found = {'LD_LIBRARY_PATH': ':'.join([str(folder) for folder in folders] + ([before] if before else [])),
                 'CUDA_DEVICE_ORDER': 'PCI_BUS_ID'}
        if not self.has_card:
            found['HEADROOM_DEVICE_PLUGIN'] = str(self.plugin)
        return found


def library_folders(libtorch):
    """The folders of LibTorch's libraries, and of NVIDIA's, which pip puts beside torch/: cuDNN, NCCL, cu13 and others."""
    return [libtorch / 'torch' / 'lib', *sorted((libtorch / 'nvidia').glob('*/lib'))]


NEEDS_A_CARD = 'it needs a card'


class Training:
    """Runs of `headroom train` below one folder of the results."""

    def __init__(self, kit, part):
        self.kit = kit
        self.folder = kit.results / part
        self.data = self.folder / 'shapes' / 'data.yaml'

    def draw(self):
        return Step('a data set', [self.kit.program('headroom-shapes'), self.data.parent, '--train', '48', '--val', '12',
                                   '--size', '128'])

    def run_folder(self, name):
        return self.folder / name / 'runs' / 'train' / 'exp'

    def words(self, name, steps, more, epochs=40):
        return [self.kit.program('headroom'), 'train', '--data', self.data, '--cfg', 'yolov5n', '--img', '96', '--batch',
                '8', '--epochs', epochs, '--threads', '1', '--workers', '1', '--project',
                self.run_folder(name).parent, '--max-steps', steps, *more]

    def step(self, name, steps, more, before=(), **judged):
        words = [*before, *self.words(name, steps, more)]
        return Step(name, words, judge.run(self.run_folder(name), steps, **judged))
