// RendezvousKeys: the key-value map through which the ranks of one generation
// find each other. It is cleared when a generation begins.
//
// Pure state. The size is limited, in total and for each member, because values
// stay until the generation ends.
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

  // Replaces the value if the key exists. Returns why the key is refused, with
  // the exceeded limit, or nullopt. `member` publishes the key; "" for a key
  // that a previous coordinator accepted.
  std::optional<std::string> publish(const std::string& member,
                                     const std::string& key,
                                     const std::string& value);
  // Returns nullptr if the key is not published yet.
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
  std::map<std::string, std::string> publishers_;  // the publisher of each key
  std::map<std::string, Share> shares_;  // keys and bytes of each publisher
  Share all_;
};

}  // namespace headroom::coordinator
