// download: one file over HTTPS, which may be asked for in parts.
//
// The server's certificate is verified with the machine's authorities, or those
// of SSL_CERT_FILE. Redirects are followed to https:// addresses alone. The
// proxies are those of HTTPS_PROXY (or ALL_PROXY) and NO_PROXY, in upper or
// lower case, and are reached over plain HTTP, as usual.
//
// Errors: Error with exit 2 if the server has no such file or the answer cannot
// be trusted; with exit 5 if the connection fails or breaks, the disk is full,
// or another process downloads the same file. After an exit 5 the bytes that
// have arrived stay, and the next call goes on there.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

namespace headroom::fetch {

// What the server said about the file that it sent.
struct Answer {
  std::string host;  // that sent the file, after all redirects
  int64_t bytes = 0;
  int64_t resumed_at = 0;     // bytes that an earlier call had received
  std::string etag;           // "" if it sent none
  std::string last_modified;  // "" if it sent none
};

using OnBytes = std::function<void(int64_t done, int64_t total)>;

// Downloads `address` into `file`, which is complete when the function returns,
// with as many bytes as the server announced. A file that is there already is
// the beginning that an earlier call received: it is completed if the server
// still has the same content by its ETag, which FILE.etag holds; otherwise it
// is replaced.
Answer download(const std::string& address, const std::filesystem::path& file,
                const OnBytes& on_bytes);

// The SHA-256 of a file, as 64 hex digits, as sha256sum prints it.
std::string sha256_of(const std::filesystem::path& file);

}  // namespace headroom::fetch
