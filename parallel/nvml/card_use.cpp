#include "parallel/nvml/card_use.h"

#include <algorithm>

#include "parallel/base/check.h"
#include "parallel/base/device_list.h"
#include "parallel/base/units.h"

namespace headroom::nvml {
namespace {

[[noreturn]] void refuse(const std::string& device, const std::string& what,
                         const std::string& remedy) {
  throw Error("device", "--device " + device + ": " + what, remedy);
}

std::string cards_text(const std::vector<Card>& cards) {
  std::string text;
  for (const Card& card : cards) {
    text += (text.empty() ? "" : ", ") + std::to_string(card.index) + " (" +
            card.name + ")";
  }
  return text;
}

}  // namespace

int64_t bytes_of_others(const Card& card, std::span<const int64_t> own_pids,
                        int64_t own_bytes) {
  int64_t own = 0;
  bool is_listed = false;
  for (const CardProcess& process : card.processes) {
    if (std::ranges::find(own_pids, process.pid) == own_pids.end()) continue;
    // A process whose bytes the driver does not tell is not told apart.
    if (!process.used_bytes) continue;
    own += *process.used_bytes;
    is_listed = true;
  }
  return std::max<int64_t>(0,
                           card.used_bytes() - (is_listed ? own : own_bytes));
}

std::vector<Card> cards_asked_for(const std::string& device, const Nvml& nvml) {
  const std::vector<Card> present = nvml.cards();
  std::vector<Card> asked;
  for (const int index : parse_device_list(device)) {
    const auto card = std::ranges::find_if(
        present, [&](const Card& one) { return one.index == index; });
    if (card == present.end()) {
      refuse(device,
             present.empty() ? nvml.reason()
                             : "there is no card " + std::to_string(index) +
                                   "; here is " + cards_text(present),
             present.empty() ? "use --device cpu" : "name one of these");
    }
    asked.push_back(*card);
  }
  return asked;
}

std::string card_text(const Card& card, int64_t others_bytes) {
  return "card " + std::to_string(card.index) + ": " + card.name + ", " +
         format_bytes(card.total_bytes) +
         (others_bytes > 0
              ? ", others use " + format_bytes(others_bytes) + " of it"
              : ", nobody else uses it");
}

}  // namespace headroom::nvml
