#include "parallel/data_parallel/flat_buffer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <utility>

#include "parallel/base/check.h"
#include "parallel/base/memory_category.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"

namespace headroom::data_parallel {
namespace {

constexpr int64_t kAlignmentBytes = 64;

// Does not use as_strided: its views share one version counter, so autograd
// would treat an update of one entry as an update of all.
at::Tensor window(const at::Tensor& flat, int64_t offset,
                  const at::Tensor& like) {
  at::Tensor tensor = at::empty({0}, flat.options());
  tensor.set_(flat.storage(), flat.storage_offset() + offset, like.sizes(),
              like.strides());
  return tensor;
}

}  // namespace

void FlatBuffer::lay_out(const std::vector<FlatBufferEntry>& entries,
                         int layer_parts) {
  const int64_t layer_multiple = alignment_ * layer_parts;
  const auto close_layer = [&] {
    if (layers_.empty()) return;
    Layer& layer = layers_.back();
    layer.last_slot = static_cast<int64_t>(slots_.size());
    layer.size = slots_.back().offset + slots_.back().size - layer.offset;
    layer.padded_size = round_up(layer.size, layer_multiple);
    size_ = layer.offset + layer.padded_size;
  };
  for (const FlatBufferEntry& entry : entries) {
    if (layers_.empty() || entry.layer != layers_.back().number) {
      HEADROOM_CHECK(layers_.empty() || entry.layer > layers_.back().number,
                     cat(entry.name, " of layer ", entry.layer,
                         " comes after layer ", layers_.back().number));
      close_layer();
      layers_.push_back({.number = entry.layer,
                         .offset = size_,
                         .first_slot = static_cast<int64_t>(slots_.size())});
    }
    slots_.push_back({entry.name, size_, entry.tensor->numel(),
                      static_cast<int64_t>(layers_.size()) - 1});
    size_ = round_up(size_ + entry.tensor->numel(), alignment_);
  }
  close_layer();
}

FlatBuffer::FlatBuffer(std::vector<FlatBufferEntry> entries,
                       const FlatBufferOptions& options)
    : alignment_(kAlignmentBytes /
                 static_cast<int64_t>(c10::elementSize(options.scalar_type))) {
  at::NoGradGuard no_grad;
  lay_out(entries, options.layer_parts);
  const auto place =
      at::TensorOptions(options.device).dtype(options.scalar_type);
  // Allocates one storage, or one per layer.
  const auto provide = [&](bool apart, const MakeZeros& make, at::Tensor& whole,
                           std::vector<at::Tensor>& parts) {
    if (!apart) {
      whole =
          make ? make(size_, options.scalar_type) : at::zeros({size_}, place);
    }
    for (const Layer& layer : layers_) {
      parts.push_back(apart ? at::zeros({layer.padded_size}, place)
                            : whole.narrow(0, layer.offset, layer.padded_size));
    }
  };
  provide(options.values_apart, options.make_values, values_, layer_values_);
  if (options.with_gradients) {
    const MemoryCategoryScope scope(MemoryCategory::kGradients);
    provide(options.gradients_apart, options.make_gradients, gradients_,
            layer_gradients_);
  }
  for (size_t i = 0; i < entries.size(); ++i) {
    const at::Tensor given = *entries[i].tensor;
    HEADROOM_CHECK(given.is_cpu() && given.scalar_type() == options.scalar_type,
                   entries[i].name + " is not a CPU tensor of type " +
                       c10::toString(options.scalar_type));
    HEADROOM_CHECK(given.is_non_overlapping_and_dense(),
                   entries[i].name + " is not dense");
    const auto layer = static_cast<size_t>(slots_[i].layer);
    const int64_t offset = slots_[i].offset - layers_[layer].offset;
    at::Tensor tensor = window(layer_values_[layer], offset, given);
    tensor.copy_(given);
    if (options.with_gradients) {
      tensor.set_requires_grad(true);
      tensor.mutable_grad() = window(layer_gradients_[layer], offset, tensor);
    }
    *entries[i].tensor = tensor;
    entries_.push_back(std::move(tensor));
  }
}

const at::Tensor& FlatBuffer::layer_values(int64_t layer) const {
  return layer_values_.at(static_cast<size_t>(layer));
}

const at::Tensor& FlatBuffer::layer_gradients(int64_t layer) const {
  return layer_gradients_.at(static_cast<size_t>(layer));
}

const at::Tensor& FlatBuffer::entry(int64_t slot) const {
  return entries_.at(static_cast<size_t>(slot));
}

at::Tensor FlatBuffer::view(int64_t slot, const at::Tensor& flat) const {
  HEADROOM_CHECK(flat.dim() == 1 && flat.numel() == size(),
                 cat("a buffer of ", flat.numel(),
                     " elements seen through a flat buffer of ", size()));
  return window(flat, slots_.at(static_cast<size_t>(slot)).offset, entry(slot));
}

void FlatBuffer::zero_gradients() {
  HEADROOM_CHECK(gradients_.defined(), "a flat buffer without gradients");
  gradients_.zero_();
}

}  // namespace headroom::data_parallel
