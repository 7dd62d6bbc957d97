// folded_block: convolution and batch norm of a block as one convolution, for
// the network as it is used:
//
//   weight * s, bias - mean * s   with s = scale / sqrt(variance + epsilon)
//
// Threads: pure.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>

namespace headroom::exporter {

struct FoldedBlock {
  at::Tensor weight, bias;  // float64
};

// `prefix`: of the block's tensors in `state`, "model.2.cv1.".
FoldedBlock folded_block(const std::map<std::string, at::Tensor>& state,
                         const std::string& prefix);

}  // namespace headroom::exporter
