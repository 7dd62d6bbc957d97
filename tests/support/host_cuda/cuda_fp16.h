#include "tests/support/host_cuda/cuda_runtime.h"
