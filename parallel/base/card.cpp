#include "parallel/base/card.h"

namespace headroom {

std::string to_string(const Card& card) {
  std::string ids = card.uuid;
  if (!card.bus_address.empty()) {
    ids += (ids.empty() ? "" : ", ") + card.bus_address;
  }
  const std::string name = card.name.empty() ? "a card" : card.name;
  return ids.empty() ? name : name + " (" + ids + ")";
}

}  // namespace headroom
