// Row: one line of the model table, ready to run.
//
// A row is handed its inputs and a context and returns its outputs; it never
// looks at other rows, ranks or files. All but the detection head take maps
// [N, C, H, W] in channels-last memory and return one; N may be 0.
//
// Ownership: owns its tensors, which stay at their addresses.
// Threads: one thread at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "worker/model/step_context.h"

namespace headroom {

// What is known of a map before there are images.
struct MapShape {
  int64_t channels = 0;
  int64_t stride = 1;  // image pixels per cell
};

// What lies between a row's inputs and its output: what running it again would
// save.
enum class RowInside { kNothing, kOneConvolution, kSeveralMaps };

class Row {
 public:
  Row() = default;
  virtual ~Row() = default;
  Row(const Row&) = delete;
  Row& operator=(const Row&) = delete;

  virtual std::vector<at::Tensor> forward(const std::vector<at::Tensor>& inputs,
                                          const StepContext& context) = 0;
  virtual RowInside inside() const { return RowInside::kSeveralMaps; }
};

// A row from one map to one map.
class MapRow : public Row {
 public:
  virtual at::Tensor apply(const at::Tensor& x, const StepContext& context) = 0;

  std::vector<at::Tensor> forward(const std::vector<at::Tensor>& inputs,
                                  const StepContext& context) final;
};

}  // namespace headroom
