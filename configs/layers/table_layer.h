// TableLayer: one line of a model table, with checked arguments and the scaling
// of the YOLOv5 family: repeats k > 1 become max(round(k * depth_multiple), 1),
// channels c become ceil(min(c, max_channels) * width_multiple / m) * m with m
// = channel_multiple, except if c already equals the head's number of outputs
// per cell.
//
// Errors: Error with the table's file:line:column.
// Ownership: the constructor's arguments must outlive it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "configs/layers/layer_program.h"
#include "configs/layers/model_table.h"

namespace headroom::layers {

inline constexpr const char* kDetectModule = "Detect";

inline constexpr int kImageEdge = -1;  // the "layer" -1: the images

// The absolute numbers of the layers that layer `index` reads; the first layer
// may read the images.
std::vector<int> edges_of(const ModelTable& table, size_t index);

// Throws Error with the place of the layer.
[[noreturn]] void fail_layer(const ModelTable& table, size_t index,
                             const std::string& what,
                             const std::string& remedy);

class TableLayer {
 public:
  // The largest allowed values: ten times the largest published model, so that
  // a typing error is refused and not allocated.
  static constexpr int64_t kMaxChannels = 16384;
  static constexpr int64_t kMaxKernel = 31;
  static constexpr int64_t kMaxRepeats = 100;
  static constexpr int64_t kMaxStride = 1024;

  TableLayer(const ModelTable& table, size_t index,
             const std::vector<MapShape>& inputs, int64_t num_classes)
      : table_(table),
        index_(index),
        inputs_(inputs),
        num_classes_(num_classes) {}

  const ModelTable::Layer& layer() const { return table_.layers[index_]; }
  const ModelTable& table() const { return table_; }
  const std::vector<MapShape>& inputs() const { return inputs_; }
  int64_t num_classes() const { return num_classes_; }

  [[noreturn]] void fail(const std::string& what,
                         const std::string& remedy) const {
    fail_layer(table_, index_, what, remedy);
  }

  const MapShape& only_input() const;
  // `form` shows the correct arguments in the error message.
  void allow_arguments(size_t least, size_t most,
                       const std::string& form) const;
  // Whether argument `position` is given and not None.
  bool has(size_t position) const;
  // Argument `position`, or `otherwise` if that argument is not given.
  int64_t integer(size_t position, std::optional<int64_t> otherwise,
                  int64_t least, int64_t most) const;
  std::vector<int64_t> integers(size_t position,
                                const std::vector<int64_t>& otherwise,
                                int64_t least, int64_t most) const;
  // Argument `position` as a lower-case word; "" if it is not given.
  std::string word(size_t position) const;
  bool truth(size_t position, bool otherwise, const std::string& form) const;

  int64_t channels() const;  // the first argument, scaled
  // Argument `position`, scaled as a number of channels.
  int64_t channels_at(size_t position) const;
  int64_t repeats() const;
  void refuse_repeats() const;
  // Refuses a stride that is too large for any layer.
  void check_stride(int64_t stride) const;

 private:
  const ModelTable& table_;
  const size_t index_;
  const std::vector<MapShape>& inputs_;
  const int64_t num_classes_;
};

// Refuses a Detect layer whose arguments or levels are wrong.
void check_detect(const ModelTable& table, size_t index,
                  const std::vector<MapShape>& inputs, int64_t num_classes);

}  // namespace headroom::layers
