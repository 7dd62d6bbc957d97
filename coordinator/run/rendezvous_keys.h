// RendezvousKeys: the map through which the ranks of one generation find each
// other. Cleared when a generation begins, so a stale key is never read.
//
// Pure state; bounded, because what is published stays for the generation.
#pragma once

#include <map>
#include <optional>
#include <string>

namespace headroom::coordinator {

class RendezvousKeys {
 public:
  static constexpr size_t kMaxKeys = 1 << 20;
  static constexpr size_t kMaxBytes = size_t{64} << 20;
  static constexpr size_t kMaxKeyLength = 4096;

  // Overwrites. Nothing, or why it is refused, with both numbers.
  std::optional<std::string> publish(const std::string& key,
                                     const std::string& value);
  // Null if it is not there (yet).
  const std::string* find(const std::string& key) const;
  void clear();
  const std::map<std::string, std::string>& values() const { return values_; }

 private:
  std::map<std::string, std::string> values_;
  size_t bytes_ = 0;
};

}  // namespace headroom::coordinator
