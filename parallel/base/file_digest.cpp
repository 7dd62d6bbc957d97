#include "parallel/base/file_digest.h"

#include <xxhash.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

#include "parallel/base/check.h"

namespace headroom {

StreamDigest::StreamDigest()
    : state_(XXH3_createState(),
             [](XXH3_state_t* state) { XXH3_freeState(state); }) {
  HEADROOM_CHECK(state_ != nullptr, "no memory for a digest");
  XXH3_128bits_reset(state_.get());
}

void StreamDigest::add(const void* data, std::size_t num_bytes) {
  XXH3_128bits_update(state_.get(), data, num_bytes);
}

std::string StreamDigest::hex() const {
  // The canonical form reads the same on every machine.
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state_.get()));
  std::string hex;
  for (const unsigned char byte : canonical.digest) {
    constexpr char kDigits[] = "0123456789abcdef";
    hex += kDigits[byte >> 4];
    hex += kDigits[byte & 15];
  }
  return hex;
}

std::string file_digest(const std::filesystem::path& path) {
  const auto fail = [&path] {
    throw Error(
        "file",
        path.string() + " cannot be read (" + std::strerror(errno) + ")",
        "check the path and its permissions");
  };
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(
      std::fopen(path.c_str(), "rb"), &std::fclose);
  if (!file) fail();
  StreamDigest digest;
  std::vector<unsigned char> buffer(1 << 20);
  while (true) {
    const std::size_t size =
        std::fread(buffer.data(), 1, buffer.size(), file.get());
    if (size == 0) break;
    digest.add(buffer.data(), size);
  }
  if (std::ferror(file.get())) fail();
  return digest.hex();
}

}  // namespace headroom
