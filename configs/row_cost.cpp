#include "configs/row_cost.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "parallel/base/check.h"

namespace headroom {
namespace {

constexpr int kImage = -1;
constexpr double kLargest = 16384;  // of any number in a row

[[noreturn]] void fail(const ModelTable::Row& row, const std::string& what) {
  throw Error("model", to_string(row.place) + ": " + what,
              "correct the model file");
}

// One row while its cost is counted.
class Counter {
 public:
  Counter(const ModelTable& table, const ModelTable::Row& row,
          const std::vector<RowCost>& earlier)
      : table_(table), row_(row), earlier_(earlier) {
    cost_.module = row.module;
    const int here = static_cast<int>(earlier.size());
    for (const int from : row.from) {
      const int input = from < 0 ? here + from : from;
      const bool reads_image = here == 0 && input == kImage;
      if (!reads_image && (input < 0 || input >= here)) {
        fail(row, "input " + std::to_string(from) + " is not an earlier row");
      }
      cost_.inputs.push_back(input);
    }
    if (cost_.inputs.empty()) fail(row, "there is no input");
    cost_.stride = stride_of(cost_.inputs.front());
  }

  void count_conv() {
    const auto kernel = static_cast<int64_t>(number(1, 1));
    cost_.kernel = kernel;
    cost_.stride *= static_cast<int64_t>(number(2, 1));
    cost_.channels = scaled_channels();
    add_block(input_channels(), cost_.channels, kernel);
    keep(2 * cost_.channels);
  }

  void count_c3() {
    const int64_t c = scaled_channels();
    const int64_t h = c / 2;
    const int64_t n = scaled_repeats();
    cost_.repeats = n;
    cost_.shortcut = has_shortcut();
    add_block(input_channels(), h, 1);
    add_block(input_channels(), h, 1);
    add_block(2 * h, c, 1);
    for (int64_t i = 0; i < n; ++i) {
      add_block(h, h, 1);
      add_block(h, h, 3);
    }
    cost_.channels = c;
    keep(4 * h + 4 * n * h + 2 * c);
  }

  void count_sppf() {
    const int64_t h = input_channels() / 2;
    cost_.channels = scaled_channels();
    add_block(input_channels(), h, 1);
    add_block(4 * h, cost_.channels, 1);
    keep(8 * h + 2 * cost_.channels);
  }

  void count_upsample() {
    if (cost_.stride % 2 != 0) fail(row_, "an odd stride cannot be halved");
    cost_.stride /= 2;
    cost_.channels = input_channels();
    keep(cost_.channels);
  }

  void count_concat() {
    for (const int input : cost_.inputs) {
      if (stride_of(input) != cost_.stride) {
        fail(row_, "Concat joins maps of stride " +
                       std::to_string(cost_.stride) + " and " +
                       std::to_string(stride_of(input)));
      }
      cost_.channels += channels_of(input);
    }
    keep(cost_.channels);
  }

  void count_detect() {
    if (table_.anchors.size() != cost_.inputs.size()) {
      fail(row_, "Detect has " + std::to_string(cost_.inputs.size()) +
                     " levels but there are anchors for " +
                     std::to_string(table_.anchors.size()));
    }
    int64_t largest = 1;
    for (const int input : cost_.inputs) {
      cost_.stride = stride_of(input);
      largest = std::max(largest, cost_.stride);
      const int64_t outputs = head_channels();
      cost_.parameters += (channels_of(input) + 1) * outputs;
      cost_.parameter_tensors += 2;
      add_multiply_adds(channels_of(input) * outputs);
      keep(outputs);
      cost_.channels += outputs;
    }
    cost_.stride = largest;
  }

  RowCost result() const { return cost_; }

 private:
  int64_t stride_of(int input) const {
    return input == kImage ? 1 : earlier_[static_cast<size_t>(input)].stride;
  }
  int64_t channels_of(int input) const {
    return input == kImage ? table_.input_channels
                           : earlier_[static_cast<size_t>(input)].channels;
  }
  int64_t input_channels() const { return channels_of(cost_.inputs.front()); }
  int64_t head_channels() const {
    const size_t anchors =
        table_.anchors.empty() ? 0 : table_.anchors.front().size();
    return static_cast<int64_t>(anchors) * (5 + table_.num_classes);
  }
  double cells_area() const {
    return static_cast<double>(cost_.stride) *
           static_cast<double>(cost_.stride);
  }

  // A whole number; `otherwise` where the row does not give it.
  double number(size_t position, double otherwise) const {
    if (position >= row_.args.size()) {
      if (otherwise > 0) return otherwise;
      fail(row_,
           row_.module + " has no argument " + std::to_string(position + 1));
    }
    const auto* value = std::get_if<double>(&row_.args[position]);
    if (value == nullptr || !(*value >= 1 && *value <= kLargest) ||
        *value != std::floor(*value)) {
      fail(row_, "argument " + std::to_string(position + 1) + " of " +
                     row_.module + " is not a whole number of at least 1");
    }
    return *value;
  }

  bool has_shortcut() const {
    if (row_.args.size() < 2) return true;
    const auto* word = std::get_if<std::string>(&row_.args[1]);
    return word == nullptr || (*word != "False" && *word != "false");
  }

  int64_t scaled_channels() const {
    const double asked = number(0, 0);
    if (asked == static_cast<double>(head_channels())) {
      return static_cast<int64_t>(asked);
    }
    const auto multiple = static_cast<double>(table_.channel_multiple);
    return static_cast<int64_t>(
        std::ceil(asked * table_.width_multiple / multiple) * multiple);
  }

  int64_t scaled_repeats() const {
    if (row_.repeats <= 1) return 1;
    // nearbyint rounds halves to even, as Python does.
    return static_cast<int64_t>(
        std::max(std::nearbyint(row_.repeats * table_.depth_multiple), 1.0));
  }

  // A convolution with its batch norm, onto maps of the row's stride.
  void add_block(int64_t c_in, int64_t c_out, int64_t kernel) {
    cost_.parameters += kernel * kernel * c_in * c_out + 2 * c_out;
    cost_.parameter_tensors += 3;
    cost_.norm_channels += c_out;
    add_multiply_adds(kernel * kernel * c_in * c_out);
  }
  void add_multiply_adds(int64_t per_cell) {
    cost_.multiply_adds_per_pixel +=
        static_cast<double>(per_cell) / cells_area();
  }
  void keep(int64_t elements_per_cell) {
    cost_.kept_elements_per_pixel +=
        static_cast<double>(elements_per_cell) / cells_area();
  }

  const ModelTable& table_;
  const ModelTable::Row& row_;
  const std::vector<RowCost>& earlier_;
  RowCost cost_;
};

}  // namespace

std::vector<RowCost> row_costs(const ModelTable& table) {
  static const std::map<std::string, void (Counter::*)()> counts = {
      {"Conv", &Counter::count_conv},
      {"C3", &Counter::count_c3},
      {"SPPF", &Counter::count_sppf},
      {"nn.Upsample", &Counter::count_upsample},
      {"Concat", &Counter::count_concat},
      {"Detect", &Counter::count_detect},
  };
  std::vector<RowCost> costs;
  for (const ModelTable::Row& row : table.rows) {
    const auto count = counts.find(row.module);
    if (count == counts.end()) fail(row, "unknown module " + row.module);
    Counter counter(table, row, costs);
    (counter.*count->second)();
    costs.push_back(counter.result());
  }
  return costs;
}

int64_t largest_stride(const std::vector<RowCost>& rows) {
  int64_t largest = 1;
  for (const RowCost& row : rows) largest = std::max(largest, row.stride);
  return largest;
}

int64_t rounded_image_size(int64_t size, int64_t largest_stride) {
  const int64_t blocks = (size + largest_stride - 1) / largest_stride;
  return std::max<int64_t>(blocks, 2) * largest_stride;
}

}  // namespace headroom
