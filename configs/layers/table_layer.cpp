#include "configs/layers/table_layer.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <variant>

#include "parallel/base/check.h"
#include "parallel/base/text.h"

namespace headroom::layers {

std::vector<int> edges_of(const ModelTable& table, size_t index) {
  const int here = static_cast<int>(index);
  std::vector<int> edges;
  for (const int from : table.layers[index].from) {
    const int layer = from < 0 ? here + from : from;
    const bool reads_images = here == 0 && layer == kImageEdge;
    if (!reads_images && (layer < 0 || layer >= here))
      fail_layer(table, index, cat("input ", from, " is not an earlier layer"),
                 cat("use -1 to -", std::max(here, 1),
                     here > 0 ? cat(", or 0 to ", here - 1) : ""));
    edges.push_back(layer);
  }
  if (edges.empty())
    fail_layer(table, index, "there is no input",
               "write -1 for the layer before");
  return edges;
}

void fail_layer(const ModelTable& table, size_t index, const std::string& what,
                const std::string& remedy) {
  throw Error("model",
              cat(yaml::to_string(table.layers[index].place), ": layer ", index,
                  ": ", what),
              remedy);
}

const MapShape& TableLayer::only_input() const {
  if (inputs_.size() != 1)
    fail(cat(layer().module, " takes one input, not ", inputs_.size()),
         "join maps with a Concat layer");
  return inputs_.front();
}

void TableLayer::allow_arguments(size_t least, size_t most,
                                 const std::string& form) const {
  if (layer().args.size() < least || layer().args.size() > most)
    fail(cat(layer().module, " has ", layer().args.size(), " arguments"),
         "write " + form);
}

bool TableLayer::has(size_t position) const {
  if (position >= layer().args.size()) return false;
  const auto* text = std::get_if<std::string>(&layer().args[position]);
  return text == nullptr || (*text != "None" && *text != "null");
}

int64_t TableLayer::integer(size_t position, std::optional<int64_t> otherwise,
                            int64_t least, int64_t most) const {
  if (otherwise && !has(position)) return *otherwise;
  const auto* number = std::get_if<double>(&layer().args.at(position));
  const std::string range = cat(least, " to ", most);
  if (number == nullptr || !(*number >= static_cast<double>(least)) ||
      !(*number <= static_cast<double>(most)) || *number != std::floor(*number))
    fail(cat("argument ", position + 1, " of ", layer().module,
             " is not a whole number from ", range),
         "correct it");
  return static_cast<int64_t>(*number);
}

std::vector<int64_t> TableLayer::integers(size_t position,
                                          const std::vector<int64_t>& otherwise,
                                          int64_t least, int64_t most) const {
  if (!has(position)) return otherwise;
  const auto* list = std::get_if<std::vector<double>>(&layer().args[position]);
  std::vector<int64_t> result;
  if (list != nullptr) {
    for (const double number : *list) {
      if (!(number >= static_cast<double>(least)) ||
          !(number <= static_cast<double>(most)) ||
          number != std::floor(number)) {
        result.clear();
        break;
      }
      result.push_back(static_cast<int64_t>(number));
    }
  }
  if (result.empty())
    fail(cat("argument ", position + 1, " of ", layer().module,
             " is not a list of whole numbers from ", least, " to ", most),
         "correct it");
  return result;
}

std::string TableLayer::word(size_t position) const {
  if (position >= layer().args.size()) return "";
  const auto* text = std::get_if<std::string>(&layer().args[position]);
  if (text == nullptr)
    fail(cat("argument ", position + 1, " of ", layer().module,
             " is not a word"),
         "correct it");
  std::string lower = *text;
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return lower;
}

bool TableLayer::truth(size_t position, bool otherwise,
                       const std::string& form) const {
  const std::string text = word(position);
  if (text.empty()) return otherwise;
  if (text != "true" && text != "false")
    fail(cat("argument ", position + 1, " of ", layer().module,
             " is neither True nor False"),
         "write " + form);
  return text == "true";
}

int64_t TableLayer::channels() const {
  const int64_t asked = integer(0, std::nullopt, 1, kMaxChannels);
  const auto num_anchors = static_cast<int64_t>(
      table_.anchors.empty() ? 0 : table_.anchors.front().size());
  if (asked == num_anchors * (5 + num_classes_)) return asked;
  return channels_at(0);
}

int64_t TableLayer::channels_at(size_t position) const {
  const int64_t asked = integer(position, std::nullopt, 1, kMaxChannels);
  const auto multiple = static_cast<double>(table_.channel_multiple);
  const int64_t limited =
      std::min<int64_t>(asked, table_.max_channels.value_or(asked));
  const double scaled = std::ceil(static_cast<double>(limited) *
                                  table_.width_multiple / multiple) *
                        multiple;
  if (!(scaled >= 1 && scaled <= static_cast<double>(kMaxChannels)))
    fail(cat(asked, " channels times width_multiple ", table_.width_multiple,
             " are outside 1 to ", kMaxChannels),
         "correct the layer or width_multiple");
  return static_cast<int64_t>(scaled);
}

int64_t TableLayer::repeats() const {
  if (layer().repeats <= 1) return 1;
  // nearbyint rounds halves to even, as Python does.
  const double scaled =
      std::max(std::nearbyint(layer().repeats * table_.depth_multiple), 1.0);
  if (!(scaled <= static_cast<double>(kMaxRepeats)))
    fail(cat(layer().repeats, " repeats times depth_multiple ",
             table_.depth_multiple, " are more than ", kMaxRepeats),
         "correct the layer or depth_multiple");
  return static_cast<int64_t>(scaled);
}

void TableLayer::refuse_repeats() const {
  if (layer().repeats != 1)
    fail(layer().module + " is not repeated",
         "write 1 for the repeats, or as many layers");
}

void TableLayer::check_stride(int64_t stride) const {
  if (stride > kMaxStride)
    fail(cat("a stride of ", stride, " pixels"),
         cat("at most ", kMaxStride, " are supported"));
}

void check_detect(const ModelTable& table, size_t index,
                  const std::vector<MapShape>& inputs, int64_t num_classes) {
  const TableLayer layer(table, index, inputs, num_classes);
  if (!layer.layer().name.empty()) return;  // written by with_branches()
  layer.refuse_repeats();
  if (table.anchors.empty()) {
    layer.allow_arguments(1, 1, "[nc], or give anchors");
    if (layer.word(0) != "nc")
      layer.fail("Detect takes its classes from the table", "write [nc]");
    return;
  }
  layer.allow_arguments(2, 2, "[nc, anchors]");
  if (layer.word(0) != "nc" || layer.word(1) != "anchors")
    layer.fail("Detect takes its classes and anchors from the table",
               "write [nc, anchors]");
  const auto& anchors = table.anchors;
  if (anchors.size() != inputs.size())
    layer.fail(cat("Detect has ", inputs.size(),
                   " levels but there are anchors for ", anchors.size()),
               "give one list of anchors per level");
  for (const auto& level : anchors)
    if (level.empty() || level.size() != anchors.front().size())
      layer.fail(cat("levels have ", anchors.front().size(), " and ",
                     level.size(), " anchors"),
                 "give every level equally many, at least one");
}

}  // namespace headroom::layers
