// download: one file over HTTPS, by the program curl.
//
// curl verifies the server's certificate with the machine's authorities, or
// those of SSL_CERT_FILE or CURL_CA_BUNDLE, follows redirects to https://
// addresses alone, and uses the proxies of HTTPS_PROXY, ALL_PROXY and NO_PROXY.
// curl gets all its settings as arguments and does not read ~/.curlrc.
//
// Errors: Error with exit 2 if the server has no such file, or if its answer
// cannot be used; with exit 5 if the connection fails or breaks, the disk is
// full, curl is missing, or another process downloads the same file. After an
// exit 5 the bytes that have arrived stay, and the next call goes on there.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "deploy/cli/process/file_descriptor.h"

namespace headroom::fetch {

// What the server reports about the file that it sent.
struct Answer {
  std::string host;  // the server after all redirects
  int64_t bytes = 0;
  int64_t resumed_at = 0;     // bytes that an earlier call had received
  std::string etag;           // "" if the server sent none
  std::string last_modified;  // "" if the server sent none
};

// `total` is 0 until the server has reported it.
using OnBytes = std::function<void(int64_t done, int64_t total)>;

// A file for received bytes, locked, so that only one process writes to it.
// Hold it until the file has its final name: without the lock another process
// would write into a file that is being checked. Throws Error (exit 5) if the
// file is locked already, if it is a link, or if it cannot be made.
class PartialFile {
 public:
  explicit PartialFile(std::filesystem::path path);

  const std::filesystem::path& path() const { return path_; }
  int descriptor() const { return descriptor_.get(); }

 private:
  const std::filesystem::path path_;
  const cli::FileDescriptor descriptor_;
};

// Throws Error (exit 2) unless the address, of a file or of a folder, is
// https:// and names a server, without a user's name and password.
void require_address(const std::string& address);

// Downloads `address` into `file`, which then has as many bytes as the server
// announced. If the file exists, it has the first bytes from an earlier call,
// and FILE.etag has the ETag of that content. If the server still has this
// content, only the other bytes are downloaded; otherwise the file is replaced.
// During the call FILE.head has the headers of the answer.
//
// REQUIRES: require_address(address).
Answer download(const std::string& address, const PartialFile& file,
                const OnBytes& on_bytes);

// The SHA-256 of a file, as 64 hex digits, as sha256sum prints it.
std::string sha256_of(const std::filesystem::path& file);

}  // namespace headroom::fetch
