// quantised_network: a network's body in integers of 8 bits. Every operator is
// surrounded by ONNX's QuantizeLinear and DequantizeLinear; runtimes fuse these
// three operators into one operator on integers.
//
//   weights   int8, symmetric, a scale per output channel (largest / 127)
//   biases    int32; the scale is the weights' scale times the input's scale
//   values    uint8, with a scale and a zero point each, from calibration. The
//             outputs of operators that only move numbers (MaxPool, Resize,
//             Slice, shuffle) have the scale and zero point of the input;
//             images are bytes / 255
//   heads     the last convolutions' outputs stay float32, and so does decoding
//   squeeze and excitation   the means and the factors that are computed from
//             them stay float32; the weights are int8
//
// The range of an operator's input is cut off where its output is 0
// (ExportedOperator::zero_below).
#pragma once

#include <map>
#include <string>

#include "worker/export/onnx_network.h"
#include "worker/export/value_ranges.h"

namespace headroom::exporter {

// `ranges` has the range of every value of `body` except its heads.
OnnxBody quantised(const OnnxBody& body,
                   const std::map<std::string, ValueRange>& ranges);

}  // namespace headroom::exporter
