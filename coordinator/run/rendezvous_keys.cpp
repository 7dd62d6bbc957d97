#include "coordinator/run/rendezvous_keys.h"

namespace headroom::coordinator {

std::optional<std::string> RendezvousKeys::publish(const std::string& key,
                                                   const std::string& value) {
  if (key.empty() || key.size() > kMaxKeyLength) {
    return "a rendezvous key has 1 to " + std::to_string(kMaxKeyLength) +
           " characters, this one " + std::to_string(key.size());
  }
  const auto known = values_.find(key);
  const bool added = known == values_.end();
  if (added && values_.size() >= kMaxKeys) {
    return "this generation has " + std::to_string(values_.size()) +
           " rendezvous keys, the most there may be";
  }
  const size_t before = added ? 0 : known->first.size() + known->second.size();
  const size_t bytes = bytes_ - before + key.size() + value.size();
  if (bytes > kMaxBytes) {
    return "the rendezvous keys of this generation would take " +
           std::to_string(bytes) + " bytes, more than " +
           std::to_string(kMaxBytes);
  }
  bytes_ = bytes;
  values_[key] = value;
  return std::nullopt;
}

const std::string* RendezvousKeys::find(const std::string& key) const {
  const auto known = values_.find(key);
  return known == values_.end() ? nullptr : &known->second;
}

void RendezvousKeys::clear() {
  values_.clear();
  bytes_ = 0;
}

}  // namespace headroom::coordinator
