// blocks: what YOLOv5's backbone and neck are made of.
//
//   Conv        convolution, batch norm, SiLU as one operation (conv_block.h)
//   Bottleneck  x + cv2(cv1(x)), or cv2(cv1(x)) without the shortcut
//   C3          cv3(concat(m(cv1(x)), cv2(x))), m a chain of bottlenecks
//   Sppf        cv2(concat(y, p(y), p(p(y)), p(p(p(y))))), y = cv1(x)
//   Upsample    nearest neighbour, by 2
//   Concat      along channels
//
// Maps are channels-last throughout: pooling, upsampling and concatenation run
// on the [N, H, W, C] view, where channels are contiguous. `prefix` is the
// block's name in the state, "model.4.m.0.cv1.".
//
// Everything between convolutions is cheap to make again from what it was made
// from, and says so (StepContext::derived).
//
// Where ranks hold some rows of the image each, convolutions and pooling fetch
// the rows they need around theirs (StepContext::halo); the rest is local.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "worker/model/model_state.h"
#include "worker/model/row.h"

namespace headroom {

struct ConvShape {
  int64_t c_in = 0, c_out = 0;
  int64_t kernel = 1, stride = 1, padding = 0;
};

class Conv final : public MapRow {
 public:
  Conv(ModelState& state, const std::string& prefix, const ConvShape& shape);
  at::Tensor apply(const at::Tensor& x, const StepContext& context) override;
  RowInside inside() const override { return RowInside::kOneConvolution; }

 private:
  ConvShape shape_;
  at::Tensor weight_;
  at::Tensor compute_weight_;  // as NamedTensor::compute
  at::Tensor norm_weight_, norm_bias_;
  at::Tensor running_mean_, running_var_, num_batches_tracked_;
  int64_t sums_offset_ = 0;
};

class Bottleneck final : public MapRow {
 public:
  Bottleneck(ModelState& state, const std::string& prefix, int64_t channels,
             bool shortcut);
  at::Tensor apply(const at::Tensor& x, const StepContext& context) override;

 private:
  Conv cv1_, cv2_;
  bool shortcut_;
};

class C3 final : public MapRow {
 public:
  C3(ModelState& state, const std::string& prefix, int64_t c_in, int64_t c_out,
     int64_t repeats, bool shortcut);
  at::Tensor apply(const at::Tensor& x, const StepContext& context) override;

 private:
  Conv cv1_, cv2_, cv3_;
  std::vector<std::unique_ptr<Bottleneck>> bottlenecks_;
};

class Sppf final : public MapRow {
 public:
  // `pool` is odd: the window of each of the three poolings.
  Sppf(ModelState& state, const std::string& prefix, int64_t c_in,
       int64_t c_out, int64_t pool);
  at::Tensor apply(const at::Tensor& x, const StepContext& context) override;

 private:
  Conv cv1_, cv2_;
  int64_t pool_;
};

class Upsample final : public MapRow {
 public:
  at::Tensor apply(const at::Tensor& x, const StepContext& context) override;
  RowInside inside() const override { return RowInside::kNothing; }
};

class Concat final : public Row {
 public:
  std::vector<at::Tensor> forward(const std::vector<at::Tensor>& inputs,
                                  const StepContext& context) override;
  RowInside inside() const override { return RowInside::kNothing; }
};

}  // namespace headroom
