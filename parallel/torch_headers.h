// The LibTorch headers that most files with tensors need, compiled once.
// Files still include what they use: this header only makes that cheap.
#pragma once

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/engine.h>
