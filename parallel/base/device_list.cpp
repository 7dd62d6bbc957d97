#include "parallel/base/device_list.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"

namespace headroom {
namespace {

std::optional<int> index_of(const std::string& text) {
  const auto index = parse_whole(text, 0, std::numeric_limits<int>::max());
  if (!index) return std::nullopt;
  return static_cast<int>(*index);
}

}  // namespace

bool is_automatic_device(const std::string& device) {
  return device.empty() || device == kAutomaticDevice;
}

bool computes_on_cards(const std::string& device) {
  return device == kAllCards || !parse_device_list(device).empty();
}

std::vector<int> parse_device_list(const std::string& device) {
  if (is_automatic_device(device) || device == kCpuDevice ||
      device == kAllCards) {
    return {};
  }
  std::string list = device;
  if (list.starts_with("cuda")) list = list.substr(4);
  if (list.starts_with(":")) list = list.substr(1);
  if (device == "cuda") list.assign(1, '0');  // GCC 12 warns of = "0"
  std::vector<int> indices;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    const std::string word = list.substr(begin, end - begin);
    begin = end + 1;
    const auto index = index_of(word);
    if (!index) {
      throw Error("device",
                  "--device " + device + ": '" + word + "' is no card",
                  "write auto, cpu, all, or cards by number as in 0 or 0,1");
    }
    if (std::ranges::find(indices, *index) != indices.end()) {
      throw Error("device",
                  "--device " + device + ": card " + word + " is named twice",
                  "name it once");
    }
    indices.push_back(*index);
  }
  return indices;
}

int card_of_rank(const std::vector<int>& cards, int local_rank, int local_ranks,
                 bool may_share) {
  const auto count = static_cast<int>(cards.size());
  HEADROOM_CHECK(count > 0 && local_rank >= 0,
                 cat("process ", local_rank, " of ", local_ranks, " on ", count,
                     " cards"));
  if (local_ranks > count && !may_share) {
    throw Error(
        "device",
        cat(local_ranks, " processes on this machine and ",
            counted(count, "card"), ": two of them would take turns on one"),
        cat("name a card for each with --device, use --processes ", count,
            ", or allow it with --set share_devices=true"));
  }
  return cards[static_cast<size_t>(local_rank % count)];
}

std::string capability_text(int compute_capability) {
  return cat(compute_capability / 10, ".", compute_capability % 10);
}

}  // namespace headroom
