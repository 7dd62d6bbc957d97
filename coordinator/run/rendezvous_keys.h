// RendezvousKeys: the map through which the ranks of one generation find each
// other. Cleared when a generation begins, so a stale key is never read.
//
// Pure state; bounded, in all and for each member, because what is published
// stays for the generation.
#pragma once

#include <map>
#include <optional>
#include <string>

namespace headroom::coordinator {

class RendezvousKeys {
 public:
  static constexpr size_t kMaxKeys = 1 << 17;
  static constexpr size_t kMaxKeysOfMember = 1 << 12;
  static constexpr size_t kMaxBytes = size_t{64} << 20;
  static constexpr size_t kMaxKeyLength = 4096;

  static constexpr size_t kMaxBytesOfMember = size_t{16} << 20;

  // Overwrites. Nothing, or why it is refused, with both numbers. `member`: who
  // publishes it; "" for what a coordinator before this one has let in.
  std::optional<std::string> publish(const std::string& member,
                                     const std::string& key,
                                     const std::string& value);
  // Null if it is not there (yet).
  const std::string* find(const std::string& key) const;
  void clear();
  const std::map<std::string, std::string>& values() const { return values_; }

 private:
  struct Share {
    size_t keys = 0;
    size_t bytes = 0;
  };
  std::optional<std::string> excess_of(const std::string& whose,
                                       const Share& share, size_t max_keys,
                                       size_t max_bytes) const;

  std::map<std::string, std::string> values_;
  std::map<std::string, std::string> publishers_;  // who published each key
  std::map<std::string, Share> shares_;            // each publisher's share
  Share all_;
};

}  // namespace headroom::coordinator
