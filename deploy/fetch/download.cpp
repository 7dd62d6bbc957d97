#include "deploy/fetch/download.h"

#include <fcntl.h>
#include <httplib.h>
#include <openssl/evp.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <sstream>
#include <string_view>

#include "deploy/notify/addressees.h"
#include "deploy/notify/authorities.h"
#include "parallel/base/atomic_file.h"
#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "parallel/base/utf8.h"

namespace headroom::fetch {
namespace {

namespace fs = std::filesystem;
using notify::WebAddress;

constexpr int kMostRedirects = 10;
constexpr int kConnectSeconds = 15;
constexpr int kSilenceSeconds = 60;
constexpr const char* kAgain =
    "type the same command again: it goes on where this one ended";

[[noreturn]] void refuse(const std::string& what, const std::string& remedy,
                         ExitCode exit_code = ExitCode::kRequest) {
  throw Error("fetch", what, remedy, exit_code);
}

std::string variable(std::string name) {
  const char* value = std::getenv(name.c_str());
  for (char& c : name) c = static_cast<char>(std::tolower(c));
  if (value == nullptr) value = std::getenv(name.c_str());
  return value == nullptr ? "" : value;
}

// Whether NO_PROXY names `host`: a name, a domain with or without a dot before
// it, or "*".
bool needs_no_proxy(const std::string& host) {
  std::istringstream names(variable("NO_PROXY"));
  for (std::string name; std::getline(names, name, ',');) {
    std::erase(name, ' ');
    if (name == "*") return true;
    if (name.starts_with('.')) name.erase(0, 1);
    if (!name.empty() && (host == name || host.ends_with("." + name))) {
      return true;
    }
  }
  return false;
}

void use_proxy(httplib::Client& client, const std::string& host) {
  std::string proxy = variable("HTTPS_PROXY");
  if (proxy.empty()) proxy = variable("ALL_PROXY");
  if (proxy.empty() || needs_no_proxy(host)) return;
  if (proxy.find("://") == std::string::npos) proxy = "http://" + proxy;
  const size_t begin = proxy.find("://") + 3, at = proxy.rfind('@');
  std::string user;
  if (at != std::string::npos) {
    user = proxy.substr(begin, at - begin);
    proxy.erase(begin, at + 1 - begin);
  }
  const WebAddress address = notify::parse_web_address("HTTPS_PROXY", proxy);
  if (address.is_encrypted) {
    refuse("HTTPS_PROXY: a proxy that is itself reached over HTTPS is not "
           "supported",
           "write http://HOST:PORT");
  }
  client.set_proxy(address.host, address.port);
  if (user.empty()) return;
  const size_t colon = std::min(user.find(':'), user.size());
  client.set_proxy_basic_auth(user.substr(0, colon),
                              colon < user.size() ? user.substr(colon + 1) : "");
}

WebAddress encrypted_address(const std::string& what, const std::string& text) {
  WebAddress address = notify::parse_web_address(what, text);
  if (address.is_encrypted) return address;
  refuse(what + " leads to " + address.shown() +
             ", where the file would come unencrypted: nothing was taken",
         "get it where HTTPS leads to it, with --from https://HOST/FOLDER/");
}

// The file that receives the bytes; locked, so that one process writes it.
class Part {
 public:
  explicit Part(const fs::path& file)
      : file_(file), etag_file_(file.string() + ".etag") {
    descriptor_ = open_locked(file, O_CREAT | O_CLOEXEC);
    if (descriptor_ < 0 && errno == EWOULDBLOCK) {
      refuse(file.string() + " is being written by another headroom fetch",
             "wait until it has ended", ExitCode::kResource);
    }
    if (descriptor_ < 0) fail();
    size_ = ::lseek(descriptor_, 0, SEEK_END);
    std::ifstream in(etag_file_, std::ios::binary);
    etag_.assign(std::istreambuf_iterator<char>(in), {});
    if (etag_.empty()) size_ = 0;  // nothing tells whether it is the same file
  }
  ~Part() { ::close(descriptor_); }
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;

  int64_t size() const { return size_; }
  const std::string& etag() const { return etag_; }

  // Begins anew, with a content of this ETag.
  void begin(const std::string& etag) {
    etag_ = etag;
    size_ = 0;
    if (::ftruncate(descriptor_, 0) != 0) fail();
    write_whole_file(etag_file_, etag);
  }

  void append(const char* data, size_t count) {
    while (count > 0) {
      const ssize_t written = ::pwrite(descriptor_, data, count, size_);
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) fail();
      data += written;
      count -= static_cast<size_t>(written);
      size_ += written;
    }
  }

  void finish() {
    if (::fsync(descriptor_) != 0) fail();
    std::error_code ignored;
    fs::remove(etag_file_, ignored);
  }

 private:
  [[noreturn]] void fail() const {
    refuse(file_.string() + " cannot be written (" + std::strerror(errno) + ")",
           "free some space, or see who may write into the folder; then " +
               std::string(kAgain),
           ExitCode::kResource);
  }

  const fs::path file_, etag_file_;
  int descriptor_ = -1;
  int64_t size_ = 0;
  std::string etag_;
};

// "bytes 100-199/200" -> 100 and 200; nullopt if it is no such text.
struct Range {
  int64_t begin = 0, total = 0;
};
std::optional<Range> range_of(const std::string& text) {
  constexpr std::string_view kUnit = "bytes ";
  const size_t dash = text.find('-'), slash = text.find('/');
  if (!text.starts_with(kUnit) || dash == std::string::npos ||
      slash == std::string::npos) {
    return std::nullopt;
  }
  const auto begin =
      parse_whole(text.substr(kUnit.size(), dash - kUnit.size()), 0);
  const auto total = parse_whole(text.substr(slash + 1), 0);
  if (!begin || !total) return std::nullopt;
  return Range{*begin, *total};
}

std::string why(httplib::Error error, const std::string& host) {
  switch (error) {
    case httplib::Error::SSLServerVerification:
      return "the certificate of " + host +
             " is not valid for this name and this machine's list of "
             "authorities";
    case httplib::Error::SSLLoadingCerts:
      return "the list of certificate authorities (SSL_CERT_FILE) cannot be "
             "read";
    case httplib::Error::SSLConnection:
      return "there is no TLS connection to " + host;
    case httplib::Error::ConnectionTimeout:
      return cat(host, " does not answer within ", kConnectSeconds, " s");
    default:
      return "there is no connection to " + host;
  }
}

// One request. `status` is 200 or 206 when the file is complete; a redirect's
// target is in `location`.
struct Reply {
  int status = 0;
  std::string location;
  Answer answer;
};

Reply ask(const WebAddress& address, Part& part, const OnBytes& on_bytes) {
  httplib::Client client(address.shown());
  client.set_connection_timeout(kConnectSeconds);
  client.set_read_timeout(kSilenceSeconds);
  client.set_url_encode(false);  // the address is encoded already
  client.set_decompress(false);
  if (const std::string file = notify::machine_authorities(); !file.empty()) {
    client.set_ca_cert_path(file);
  }
  use_proxy(client, address.host);
  httplib::Headers headers = {{"Accept-Encoding", "identity"},
                              {"User-Agent", "headroom"}};
  if (part.size() > 0) {
    headers.emplace("Range", cat("bytes=", part.size(), "-"));
    headers.emplace("If-Range", part.etag());
  }
  Reply reply;
  Answer& answer = reply.answer;
  answer.host = address.host;
  // An Error that is thrown in httplib's calls would skip its clean-up.
  std::optional<Error> fault;
  const auto guarded = [&fault](const std::function<void()>& work) {
    try {
      work();
    } catch (const Error& error) {
      fault = error;
    }
    return !fault;
  };
  const auto take_head = [&](const httplib::Response& head) {
    const auto header = [&head](const char* name) {
      return short_line(head.get_header_value(name), 200);
    };
    reply.status = head.status;
    reply.location = head.get_header_value("Location");
    answer.etag = header("ETag");
    answer.last_modified = header("Last-Modified");
    if (head.status == 206) {
      const auto range = range_of(head.get_header_value("Content-Range"));
      if (!range || range->begin != part.size() || range->total < part.size()) {
        refuse(address.host + " sent another part of the file than was asked "
                              "for (Content-Range: " +
                   header("Content-Range") + ")",
               "try again later, or get the file elsewhere with --from");
      }
      answer.bytes = range->total;
      answer.resumed_at = part.size();
    } else if (head.status == 200) {
      const auto length = parse_whole(head.get_header_value("Content-Length"), 0);
      if (!length) {
        refuse(address.host + " does not say how many bytes the file has, so "
                              "a broken transfer would look complete",
               "get the file elsewhere with --from");
      }
      answer.bytes = *length;
      part.begin(head.get_header_value("ETag"));
    }
  };
  const httplib::Result result = client.Get(
      address.path.starts_with('/') ? address.path : "/" + address.path,
      headers,
      [&](const httplib::Response& head) {
        return guarded([&] { take_head(head); }) &&
               (reply.status == 200 || reply.status == 206);
      },
      [&](const char* data, size_t count) {
        return guarded([&] {
          part.append(data, count);
          on_bytes(part.size(), answer.bytes);
        });
      });
  if (fault) throw Error(*fault);
  if (reply.status == 0) {
    refuse(why(result.error(), address.host), kAgain, ExitCode::kResource);
  }
  const bool is_file = reply.status == 200 || reply.status == 206;
  if (is_file && part.size() != answer.bytes) {
    refuse("the connection to " + address.host + " broke after " +
               exact_bytes(part.size()) + " of " + exact_bytes(answer.bytes),
           kAgain, ExitCode::kResource);
  }
  return reply;
}

}  // namespace

Answer download(const std::string& address, const fs::path& file,
                const OnBytes& on_bytes) {
  Part part(file);
  WebAddress from = encrypted_address("the address", address);
  for (int redirects = 0; redirects <= kMostRedirects;) {
    const Reply reply = ask(from, part, on_bytes);
    if (reply.status == 200 || reply.status == 206) {
      part.finish();
      return reply.answer;
    }
    if (reply.status == 416) {  // what is there is no beginning of the file
      part.begin("");
      ++redirects;
      continue;
    }
    const std::string code = cat("HTTP ", reply.status, " of ", from.host);
    if (reply.status >= 300 && reply.status < 400 && !reply.location.empty()) {
      ++redirects;
      const std::string& to = reply.location;
      from = encrypted_address(
          "the redirect of " + from.host,
          to.starts_with('/') ? from.shown() + to : to);
      continue;
    }
    refuse(code + (reply.status == 404 ? ": it has no file " : ": it refuses ") +
               from.shown() + from.path.substr(0, from.path.find('?')),
           "look whether the address opens in a browser, or get the file "
           "elsewhere with --from https://HOST/FOLDER/",
           reply.status >= 500 ? ExitCode::kResource : ExitCode::kRequest);
  }
  refuse(cat("the address redirects more than ", kMostRedirects, " times"),
         "get the file elsewhere with --from https://HOST/FOLDER/");
}

std::string sha256_of(const fs::path& file) {
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> digest(
      EVP_MD_CTX_new(), EVP_MD_CTX_free);
  std::ifstream in(file, std::ios::binary);
  std::array<char, 1 << 16> buffer;
  EVP_DigestInit_ex(digest.get(), EVP_sha256(), nullptr);
  while (in.read(buffer.data(), buffer.size()) || in.gcount() > 0) {
    EVP_DigestUpdate(digest.get(), buffer.data(),
                     static_cast<size_t>(in.gcount()));
  }
  if (!in.eof()) {
    refuse(file.string() + " cannot be read", "see who may read it",
           ExitCode::kResource);
  }
  std::array<unsigned char, EVP_MAX_MD_SIZE> bytes{};
  unsigned int count = 0;
  EVP_DigestFinal_ex(digest.get(), bytes.data(), &count);
  std::string hex;
  for (unsigned int i = 0; i < count; ++i) {
    constexpr const char* kDigits = "0123456789abcdef";
    hex += kDigits[bytes[i] >> 4];
    hex += kDigits[bytes[i] & 15];
  }
  return hex;
}

}  // namespace headroom::fetch
