#include "coordinator/run/rendezvous_keys.h"
#include "parallel/base/text.h"

namespace headroom::coordinator {

std::optional<std::string> RendezvousKeys::publish(const std::string& member,
                                                   const std::string& key,
                                                   const std::string& value) {
  if (key.empty() || key.size() > kMaxKeyLength) {
    return cat("a rendezvous key has 1 to ", kMaxKeyLength,
               " characters, this one ", key.size());
  }
  Share all = all_;
  Share before;  // the previous publisher's other keys, and their bytes
  const auto known = values_.find(key);
  const bool is_known = known != values_.end();
  const std::string publisher = is_known ? publishers_[key] : member;
  if (is_known) {
    const size_t bytes = known->first.size() + known->second.size();
    before = {shares_[publisher].keys - 1, shares_[publisher].bytes - bytes};
    all = {all.keys - 1, all.bytes - bytes};
  }
  Share own = is_known && publisher == member ? before : shares_[member];
  for (Share* share : {&own, &all}) {
    ++share->keys;
    share->bytes += key.size() + value.size();
  }
  if (!member.empty()) {
    auto why =
        excess_of("worker " + member, own, kMaxKeysOfMember, kMaxBytesOfMember);
    if (why) return why;
  }
  if (auto why = excess_of("this generation", all, kMaxKeys, kMaxBytes)) {
    return why;
  }
  if (is_known) shares_[publisher] = before;
  shares_[member] = own;
  all_ = all;
  publishers_[key] = member;
  values_[key] = value;
  return std::nullopt;
}

std::optional<std::string> RendezvousKeys::excess_of(const std::string& whose,
                                                     const Share& share,
                                                     size_t max_keys,
                                                     size_t max_bytes) const {
  if (share.keys > max_keys) {
    return cat(whose, " would have ", share.keys,
               " rendezvous keys, more than ", max_keys);
  }
  if (share.bytes > max_bytes) {
    return cat("the rendezvous keys of ", whose, " would take ", share.bytes,
               " bytes, more than ", max_bytes);
  }
  return std::nullopt;
}

const std::string* RendezvousKeys::find(const std::string& key) const {
  const auto known = values_.find(key);
  return known == values_.end() ? nullptr : &known->second;
}

void RendezvousKeys::clear() {
  values_.clear();
  publishers_.clear();
  shares_.clear();
  all_ = {};
}

}  // namespace headroom::coordinator
