#include "parallel/nvml/card_use.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "parallel/base/check.h"
#include "parallel/base/units.h"

namespace headroom {
namespace {

[[noreturn]] void refuse(const std::string& device, const std::string& what,
                         const std::string& remedy) {
  throw Error("device", "--device " + device + ": " + what, remedy);
}

std::optional<int> index_of(const std::string& text) {
  int index = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, index);
  if (error != std::errc() || stop != end || index < 0) return std::nullopt;
  return index;
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
  std::string list = device;
  if (list.starts_with("cuda")) list = list.substr(4);
  if (list.starts_with(":")) list = list.substr(1);
  if (list.empty() && device == "cuda") list = "0";
  std::vector<Card> asked;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    const std::string word = list.substr(begin, end - begin);
    begin = end + 1;
    const auto index = index_of(word);
    if (!index) {
      refuse(device, "'" + word + "' is no card",
             "write cpu, or cards by number as in 0 or 0,1");
    }
    const auto same = [&](const Card& card) { return card.index == *index; };
    if (std::ranges::any_of(asked, same)) {
      refuse(device, "card " + word + " is named twice", "name it once");
    }
    const auto card = std::ranges::find_if(present, same);
    if (card == present.end()) {
      refuse(device,
             present.empty() ? nvml.reason()
                             : "there is no card " + word + "; here is " +
                                   cards_text(present),
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

}  // namespace headroom
