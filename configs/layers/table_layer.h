// TableLayer: one line of a model table with what is needed to understand it:
// its arguments, checked, and the scaling of the YOLOv5 family: repeats k > 1
// become max(round(k * depth_multiple), 1), channels c become ceil(c *
// width_multiple / m) * m with m = channel_multiple, except where c is already
// the head's width.
//
// Errors: Error with the table's file:line:column.
// Ownership: borrows what it is made from.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "configs/layers/layer_program.h"
#include "configs/layers/model_table.h"

namespace headroom::layers {

inline constexpr const char* kDetectModule = "Detect";

inline constexpr int kImageEdge = -1;  // the edge from the network's input

// Absolute layers that layer `index` reads; the first layer may read the
// images.
std::vector<int> edges_of(const ModelTable& table, size_t index);

// Error of a layer, with its place.
[[noreturn]] void fail_layer(const ModelTable& table, size_t index,
                             const std::string& what,
                             const std::string& remedy);

class TableLayer {
 public:
  // Largest values a table may ask for: ten times the largest published model,
  // so that a typing error is refused and not allocated.
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
  // `form`: what to write instead.
  void allow_arguments(size_t least, size_t most,
                       const std::string& form) const;
  bool has(size_t position) const;  // given, and not None
  // Argument `position`, or `otherwise` where it is not given.
  int64_t integer(size_t position, std::optional<int64_t> otherwise,
                  int64_t least, int64_t most) const;
  std::vector<int64_t> integers(size_t position,
                                const std::vector<int64_t>& otherwise,
                                int64_t least, int64_t most) const;
  // Lower-case word; empty where it is not given.
  std::string word(size_t position) const;
  bool truth(size_t position, bool otherwise, const std::string& form) const;

  int64_t channels() const;  // the first argument, scaled
  // A number of channels in another argument.
  int64_t channels_at(size_t position) const;
  int64_t repeats() const;
  void refuse_repeats() const;
  // Refuses a stride that no map of a layer may have.
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
