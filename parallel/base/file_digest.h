// file_digest: XXH3-128 of a whole file, or of bytes on their way to one, as 32
// lower-case hex digits.
//
// safetensors has no checksum of its own; manifests keep this one beside each
// file, and a file whose digest differs is refused.
//
// Errors: Error naming the file when it cannot be read.
// Threads: any, but for StreamDigest.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>

struct XXH3_state_s;

namespace headroom {

// Of bytes that come one after the other. Threads: one at a time.
class StreamDigest {
 public:
  StreamDigest();

  void add(const void* data, std::size_t num_bytes);
  std::string hex() const;

 private:
  std::unique_ptr<XXH3_state_s, void (*)(XXH3_state_s*)> state_;
};

std::string file_digest(const std::filesystem::path& path);

}  // namespace headroom
