// FlatBuffer: one buffer that holds many tensors, layer after layer of a model.
//
// So gradient buckets, optimizer, EMA, snapshot and checkpoint work on ranges
// of one tensor instead of hundreds of tensors. A layer is the unit that ZeRO
// splits and gathers; it can have its own storage, whose memory can be released
// while the tensors still exist.
//
// The entries' tensors become views, which keep the memory alive. Invariants:
//   1. slots have the order of the entries and do not overlap; nor do layers;
//   2. each slot begins at a multiple of 64 bytes;
//   3. a layer's size is a multiple of `layer_parts` x 64 bytes;
//   4. padding between slots is zero as long as only slots are written.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace headroom::data_parallel {

struct FlatBufferEntry {
  std::string name;
  at::Tensor* tensor = nullptr;  // dense, any memory format
  int64_t layer = 0;  // index of the entry's layer; must not decrease
};

// Returns `count` zeros of a type.
using MakeZeros = std::function<at::Tensor(int64_t count, at::ScalarType)>;

struct FlatBufferOptions {
  at::ScalarType scalar_type = at::kFloat;  // type of all entries
  c10::Device device = c10::kCPU;           // the device of the buffers
  bool with_gradients = false;
  // number of equal, aligned parts a layer can be cut into
  int layer_parts = 1;
  // True: each layer has its own storage, so that its memory can be released.
  bool values_apart = false;
  bool gradients_apart = false;
  // Allocate the values if values_apart is false, and the gradients if
  // gradients_apart is false; null means at::zeros.
  MakeZeros make_values = {};
  MakeZeros make_gradients = {};
};

class FlatBuffer {
 public:
  struct Slot {
    std::string name;
    int64_t offset = 0;  // first element in the buffer
    int64_t size = 0;    // elements, padding excluded
    int64_t layer = 0;   // index into layers()
  };
  struct Layer {
    int64_t number = 0;  // FlatBufferEntry::layer
    int64_t offset = 0;  // first element in the buffer
    int64_t size = 0;    // up to the end of the last slot
    int64_t padded_size = 0;
    int64_t first_slot = 0;  // slots [first_slot, last_slot)
    int64_t last_slot = 0;
  };

  // Replaces each entry's tensor by a view with the same sizes, strides and
  // values. If the buffer has gradients, the view is a leaf that requires a
  // gradient, and its .grad is a view of the gradient buffer, to which backward
  // adds in place. To freeze a parameter call requires_grad_(false) afterwards.
  // Without entries the size is 0. REQUIRES: the entries are CPU tensors of the
  // type in `options`, even if the buffers are on another device.
  FlatBuffer(std::vector<FlatBufferEntry> entries,
             const FlatBufferOptions& options);

  // A flat tensor of size() elements; undefined if layers have their own
  // storage.
  at::Tensor& values() { return values_; }
  const at::Tensor& values() const { return values_; }
  // A flat tensor of size() elements; undefined without gradients, or if layers
  // have their own storage for gradients.
  at::Tensor& gradients() { return gradients_; }
  const at::Tensor& gradients() const { return gradients_; }
  // The layer's values as a flat tensor of layers()[layer].padded_size
  // elements.
  const at::Tensor& layer_values(int64_t layer) const;
  const at::Tensor& layer_gradients(int64_t layer) const;

  int64_t size() const { return size_; }
  // The alignment of slots, in elements.
  int64_t alignment() const { return alignment_; }
  const std::vector<Slot>& slots() const { return slots_; }
  const std::vector<Layer>& layers() const { return layers_; }

  // The tensor of a slot; it is the model's own tensor.
  const at::Tensor& entry(int64_t slot) const;

  // Returns the slot's part of another flat buffer of size() elements (EMA,
  // momentum), as a view with the entry's sizes and strides.
  at::Tensor view(int64_t slot, const at::Tensor& flat) const;

  // REQUIRES: gradients() is defined.
  void zero_gradients();

 private:
  void lay_out(const std::vector<FlatBufferEntry>& entries, int layer_parts);

  int64_t alignment_;  // alignment of slots, in elements
  int64_t size_ = 0;
  std::vector<Slot> slots_;
  std::vector<Layer> layers_;
  std::vector<at::Tensor> entries_;
  at::Tensor values_;
  at::Tensor gradients_;
  std::vector<at::Tensor> layer_values_;
  std::vector<at::Tensor> layer_gradients_;
};

}  // namespace headroom::data_parallel
