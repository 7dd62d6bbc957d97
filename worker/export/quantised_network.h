// quantised_network: a network's body in integers of 8 bits, as ONNX's
// QuantizeLinear and DequantizeLinear around every operator: runtimes fuse the
// three into integer operators.
//
//   weights   int8, symmetric, a scale per output channel (largest / 127)
//   biases    int32, scale: that of the weights times that of the input
//   values    uint8, one scale and zero point each, from calibration; what only
//             moves numbers (MaxPool, Resize, Slice, shuffling) keeps those of
//             its input, images are bytes / 255
//   heads     the last convolutions' outputs stay float32, and so does decoding
//   squeeze and excitation   the means and the factors that follow from them
//             stay float32, their weights are int8
//
// What goes into an activation is cut off where that is 0: SiLU's below -8
// (within 0.003), Hardswish's below -3, ReLU's below 0.
#pragma once

#include <map>
#include <string>

#include "worker/export/onnx_network.h"
#include "worker/export/value_ranges.h"

namespace headroom::exporter {

// `ranges` of every value of `body` but its heads.
OnnxBody quantised(const OnnxBody& body,
                   const std::map<std::string, ValueRange>& ranges);

}  // namespace headroom::exporter
