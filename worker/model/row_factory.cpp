#include "worker/model/row_factory.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <optional>
#include <utility>
#include <variant>

#include "parallel/base/check.h"
#include "worker/model/blocks.h"

namespace headroom {
namespace {

// Largest values a table may ask for: ten times the largest published model,
// so that a typing error is refused and not allocated.
constexpr int64_t kMaxChannels = 16384;
constexpr int64_t kMaxKernel = 31;
constexpr int64_t kMaxRepeats = 100;
constexpr int64_t kMaxStride = 1024;

// A row of the table with what it needs to be built; answers for its place.
class RowReader {
 public:
  RowReader(const ModelTable& table, std::size_t index,
            const std::vector<MapShape>& inputs, int64_t num_classes)
      : table_(table),
        index_(index),
        inputs_(inputs),
        num_classes_(num_classes) {}

  const ModelTable::Row& row() const { return table_.rows[index_]; }
  const ModelTable& table() const { return table_; }
  const std::vector<MapShape>& inputs() const { return inputs_; }
  int64_t num_classes() const { return num_classes_; }
  std::string prefix() const { return "model." + std::to_string(index_) + "."; }

  [[noreturn]] void fail(const std::string& what,
                         const std::string& remedy) const {
    fail_row(table_, index_, what, remedy);
  }

  const MapShape& only_input() const {
    if (inputs_.size() != 1)
      fail(row().module + " takes one input, not " +
               std::to_string(inputs_.size()),
           "join maps with a Concat row");
    return inputs_.front();
  }

  void allow_arguments(std::size_t least, std::size_t most,
                       const std::string& form) const {
    if (row().args.size() < least || row().args.size() > most)
      fail(row().module + " has " + std::to_string(row().args.size()) +
               " arguments",
           "write " + form);
  }

  // Argument `position`, or `otherwise` when it is not given.
  int64_t integer(std::size_t position, std::optional<int64_t> otherwise,
                  int64_t least, int64_t most) const {
    if (position >= row().args.size() && otherwise) return *otherwise;
    const auto* number = std::get_if<double>(&row().args.at(position));
    const std::string range =
        std::to_string(least) + " to " + std::to_string(most);
    if (number == nullptr || !(*number >= static_cast<double>(least)) ||
        !(*number <= static_cast<double>(most)) ||
        *number != std::floor(*number))
      fail("argument " + std::to_string(position + 1) + " of " + row().module +
               " is not a whole number from " + range,
           "correct it");
    return static_cast<int64_t>(*number);
  }

  // Lower-case word; empty when it is not given.
  std::string word(std::size_t position) const {
    if (position >= row().args.size()) return "";
    const auto* text = std::get_if<std::string>(&row().args[position]);
    if (text == nullptr)
      fail("argument " + std::to_string(position + 1) + " of " + row().module +
               " is not a word",
           "correct it");
    std::string lower = *text;
    std::transform(lower.begin(), lower.end(), lower.begin(),
                   [](unsigned char c) { return std::tolower(c); });
    return lower;
  }

  int64_t channels() const {
    const int64_t asked = integer(0, std::nullopt, 1, kMaxChannels);
    const auto num_anchors = static_cast<int64_t>(
        table_.anchors.empty() ? 0 : table_.anchors.front().size());
    if (asked == num_anchors * (5 + num_classes_)) return asked;
    const auto multiple = static_cast<double>(table_.channel_multiple);
    const double scaled = std::ceil(static_cast<double>(asked) *
                                    table_.width_multiple / multiple) *
                          multiple;
    if (!(scaled >= 1 && scaled <= kMaxChannels))
      fail(std::to_string(asked) + " channels times width_multiple " +
               std::to_string(table_.width_multiple) + " are outside 1 to " +
               std::to_string(kMaxChannels),
           "correct the row or width_multiple");
    return static_cast<int64_t>(scaled);
  }

  int64_t repeats() const {
    if (row().repeats <= 1) return 1;
    // nearbyint rounds halves to even, as Python does.
    const double scaled =
        std::max(std::nearbyint(row().repeats * table_.depth_multiple), 1.0);
    if (!(scaled <= kMaxRepeats))
      fail(std::to_string(row().repeats) + " repeats times depth_multiple " +
               std::to_string(table_.depth_multiple) + " are more than " +
               std::to_string(kMaxRepeats),
           "correct the row or depth_multiple");
    return static_cast<int64_t>(scaled);
  }

  void refuse_repeats() const {
    if (row().repeats != 1)
      fail(row().module + " is not repeated",
           "write 1 for the repeats, or as many rows");
  }

 private:
  const ModelTable& table_;
  std::size_t index_;
  const std::vector<MapShape>& inputs_;
  int64_t num_classes_;
};

BuiltRow build_conv(const RowReader& reader, ModelState& state) {
  reader.refuse_repeats();
  reader.allow_arguments(1, 4, "[channels, kernel, stride, padding]");
  const MapShape& input = reader.only_input();
  ConvShape shape;
  shape.c_in = input.channels;
  shape.c_out = reader.channels();
  shape.kernel = reader.integer(1, 1, 1, kMaxKernel);
  shape.stride = reader.integer(2, 1, 1, kMaxKernel);
  shape.padding = reader.integer(3, shape.kernel / 2, 0, kMaxKernel);
  // Every row must map a height of stride * n to exactly n, or strides could
  // not be known without images.
  if (shape.kernel - 2 * shape.padding < 1 ||
      shape.kernel - 2 * shape.padding > shape.stride)
    reader.fail("a kernel of " + std::to_string(shape.kernel) +
                    " with stride " + std::to_string(shape.stride) +
                    " and padding " + std::to_string(shape.padding) +
                    " does not divide the map by the stride",
                "use a padding of half the kernel");
  const int64_t stride = input.stride * shape.stride;
  if (stride > kMaxStride)
    reader.fail("a stride of " + std::to_string(stride) + " pixels",
                "at most " + std::to_string(kMaxStride) + " are supported");
  return {std::make_unique<Conv>(state, reader.prefix(), shape),
          {shape.c_out, stride}};
}

BuiltRow build_c3(const RowReader& reader, ModelState& state) {
  reader.allow_arguments(1, 2, "[channels] or [channels, False]");
  const MapShape& input = reader.only_input();
  const int64_t channels = reader.channels();
  const std::string shortcut = reader.word(1);
  if (shortcut != "" && shortcut != "true" && shortcut != "false")
    reader.fail("the shortcut of C3 is neither True nor False",
                "write [channels] or [channels, False]");
  return {std::make_unique<C3>(state, reader.prefix(), input.channels, channels,
                               reader.repeats(), shortcut != "false"),
          {channels, input.stride}};
}

BuiltRow build_sppf(const RowReader& reader, ModelState& state) {
  reader.refuse_repeats();
  reader.allow_arguments(1, 2, "[channels, window]");
  const MapShape& input = reader.only_input();
  const int64_t channels = reader.channels();
  const int64_t pool = reader.integer(1, 5, 1, kMaxKernel);
  if (pool % 2 == 0)
    reader.fail("a pooling window of " + std::to_string(pool) + " is even",
                "use an odd one, usually 5");
  return {std::make_unique<Sppf>(state, reader.prefix(), input.channels,
                                 channels, pool),
          {channels, input.stride}};
}

BuiltRow build_upsample(const RowReader& reader, ModelState&) {
  reader.refuse_repeats();
  const std::string form = "[None, 2, nearest]";
  reader.allow_arguments(3, 3, form);
  const MapShape& input = reader.only_input();
  const std::string size = reader.word(0);
  if ((size != "none" && size != "null" && size != "~") ||
      reader.integer(1, std::nullopt, 1, kMaxStride) != 2 ||
      reader.word(2) != "nearest")
    reader.fail("only nearest upsampling by 2 is supported", "write " + form);
  if (input.stride % 2 != 0)
    reader.fail("a map of stride " + std::to_string(input.stride) +
                    " cannot be upsampled by 2",
                "upsample maps of an even stride");
  return {std::make_unique<Upsample>(), {input.channels, input.stride / 2}};
}

BuiltRow build_concat(const RowReader& reader, ModelState&) {
  reader.refuse_repeats();
  reader.allow_arguments(1, 1, "[1]");
  if (reader.integer(0, std::nullopt, 0, 3) != 1)
    reader.fail("Concat joins along channels only", "write [1]");
  MapShape output{0, reader.inputs().front().stride};
  for (const MapShape& input : reader.inputs()) {
    if (input.stride != output.stride)
      reader.fail("Concat joins maps of stride " +
                      std::to_string(output.stride) + " and " +
                      std::to_string(input.stride),
                  "take maps of one stride");
    output.channels += input.channels;
  }
  return {std::make_unique<Concat>(), output};
}

BuiltRow build_detect(const RowReader& reader, ModelState& state) {
  reader.refuse_repeats();
  reader.allow_arguments(2, 2, "[nc, anchors]");
  if (reader.word(0) != "nc" || reader.word(1) != "anchors")
    reader.fail("Detect takes its classes and anchors from the table",
                "write [nc, anchors]");
  const auto& anchors = reader.table().anchors;
  if (anchors.size() != reader.inputs().size())
    reader.fail("Detect has " + std::to_string(reader.inputs().size()) +
                    " levels but there are anchors for " +
                    std::to_string(anchors.size()),
                "give one list of anchors per level");
  for (const auto& level : anchors)
    if (level.empty() || level.size() != anchors.front().size())
      reader.fail("levels have " + std::to_string(anchors.front().size()) +
                      " and " + std::to_string(level.size()) + " anchors",
                  "give every level equally many, at least one");
  auto detect = std::make_unique<Detect>(
      state, reader.prefix(), reader.inputs(), anchors, reader.num_classes());
  Detect* head = detect.get();
  return {std::move(detect), {}, head};
}

using Builder = BuiltRow (*)(const RowReader&, ModelState&);
const std::map<std::string, Builder>& builders() {
  static const std::map<std::string, Builder> kBuilders = {
      {"Conv", build_conv},     {"C3", build_c3},
      {"SPPF", build_sppf},     {"nn.Upsample", build_upsample},
      {"Concat", build_concat}, {"Detect", build_detect},
  };
  return kBuilders;
}

}  // namespace

BuiltRow build_row(const ModelTable& table, std::size_t index,
                   const std::vector<MapShape>& inputs, int64_t num_classes,
                   ModelState& state) {
  const std::string& module = table.rows[index].module;
  const auto builder = builders().find(module);
  if (builder == builders().end()) {
    std::string known;
    for (const auto& entry : builders())
      known += (known.empty() ? "" : ", ") + entry.first;
    fail_row(table, index, "unknown module " + module, "use one of " + known);
  }
  return builder->second(RowReader(table, index, inputs, num_classes), state);
}

void fail_row(const ModelTable& table, std::size_t index,
              const std::string& what, const std::string& remedy) {
  throw Error("model",
              to_string(table.rows[index].place) + ": row " +
                  std::to_string(index) + ": " + what,
              remedy);
}

}  // namespace headroom
