// quantised_network: a network's body in integers of 8 bits, as ONNX's
// QuantizeLinear and DequantizeLinear around every operator: runtimes fuse the
// three into integer operators.
//
//   weights   int8, symmetric, a scale per output channel (largest / 127)
//   biases    int32, scale: that of the weights times that of the input
//   values    uint8, one scale and zero point each, from calibration; MaxPool
//             and Resize keep those of their input, images are bytes / 255
//   heads     the last convolutions' outputs stay float32, and so does decoding
//
// What goes into SiLU is cut off below -8, where it is 0 within 0.003.
//
// Threads: pure.
#pragma once

#include <map>
#include <string>

#include "worker/export/onnx_network.h"
#include "worker/export/value_ranges.h"

namespace headroom {

// `ranges` of every value of `body` but its heads.
OnnxBody quantised(const OnnxBody& body,
                   const std::map<std::string, ValueRange>& ranges);

}  // namespace headroom
