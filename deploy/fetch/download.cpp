#include "deploy/fetch/download.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "deploy/cli/process/child_process.h"
#include "parallel/base/atomic_file.h"
#include "parallel/base/check.h"
#include "parallel/base/environment.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "parallel/base/utf8.h"

namespace headroom::fetch {
namespace {

namespace fs = std::filesystem;

constexpr const char* kAgain =
    "type the same command again: it goes on where this one ended";
constexpr const char* kElsewhere =
    "get the file elsewhere with --from https://HOST/FOLDER/";

// curl's exit codes (curl(1)) that are handled one by one. All others mean that
// the connection failed or broke.
enum CurlCode {
  kDone = 0,
  kMalformed = 3,      // the address has a wrong form
  kWrongProtocol = 1,  // an address or a redirect without https://
  kHttpError = 22,
  kWriteError = 23,
  kRangeError = 33,  // the server cannot continue at an offset
  kTooManyRedirects = 47,
  kUnknownCertificate = 60,
};

// "" if the variable is not set.
std::string value_of(const char* variable) {
  const char* const value = std::getenv(variable);
  return value == nullptr ? "" : value;
}

// The variable that names the file of trusted authorities.
const char* authorities_variable() {
  return value_of("CURL_CA_BUNDLE").empty() ? "SSL_CERT_FILE"
                                            : "CURL_CA_BUNDLE";
}

[[noreturn]] void refuse(const std::string& what, const std::string& remedy,
                         ExitCode exit_code = ExitCode::kRequest) {
  throw Error("fetch", what, remedy, exit_code);
}

// The headers of the last complete answer in curl's file of headers. Answers of
// redirects and proxies are before it in the file.
struct Head {
  int64_t status = 0;   // 0 if no answer is complete yet
  int64_t length = -1;  // bytes of the body; -1 if not stated
  int64_t whole = -1;   // of the file, if the body is a part; -1 if not stated
  std::string etag, last_modified;
};

Head read_head(const fs::path& file) {
  Head head, last;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty()) last = head;  // an empty line ends the headers
    const size_t colon = std::min(line.find(':'), line.size());
    std::string name = line.substr(0, colon);
    for (char& c : name) c = static_cast<char>(std::tolower(c));
    const size_t begin = line.find_first_not_of(": \t", colon);
    const std::string value =
        begin == std::string::npos ? "" : line.substr(begin);
    if (name.starts_with("http/")) {
      const size_t space = line.find(' ');
      head = {};
      head.status =
          space == std::string::npos
              ? 0
              : parse_whole(line.substr(space + 1, 3), 100, 999).value_or(0);
    } else if (name == "content-length") {
      head.length = parse_whole(value, 0).value_or(-1);
    } else if (name == "content-range") {  // for example "bytes 100-299/300"
      const size_t slash = std::min(value.find('/'), value.size() - 1);
      head.whole = parse_whole(value.substr(slash + 1), 0).value_or(-1);
    } else if (name == "etag") {
      head.etag = value;
    } else if (name == "last-modified") {
      head.last_modified = value;
    }
  }
  return last;
}

[[noreturn]] void fail_to_write(const fs::path& file, const std::string& why) {
  refuse(file.string() + " cannot be written (" + why + ")",
         "free some space, or see who may write into the folder; then " +
             std::string(kAgain),
         ExitCode::kResource);
}

// Creates the file if it does not exist, and locks it.
int open_part(const fs::path& file) {
  // Weights are no secret, so the umask decides who may read them. A link is
  // refused: it could lead to any file.
  const int made = ::open(
      file.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
  if (made >= 0) ::close(made);
  const int descriptor = open_locked(file, O_CREAT | O_NOFOLLOW);
  if (descriptor >= 0) return descriptor;
  if (errno != EWOULDBLOCK) fail_to_write(file, std::strerror(errno));
  refuse(file.string() + " is being written by another headroom fetch",
         "wait until it has ended", ExitCode::kResource);
}

std::string host_of(const std::string& address) {
  const size_t begin = address.find("://") + 3;
  return short_line(
      address.substr(begin, address.find_first_of("/?#", begin) - begin), 200);
}

class Transfer {
 public:
  Transfer(const std::string& address, const PartialFile& part,
           const OnBytes& on_bytes)
      : address_(address),
        file_(part.path()),
        etag_file_(file_.string() + ".etag"),
        head_file_(file_.string() + ".head"),
        on_bytes_(on_bytes),
        curl_(cli::find_program("curl")),
        part_(part.descriptor()) {
    if (curl_.empty()) {
      refuse("the program curl, which downloads, is not in PATH",
             "install it, or get " + address +
                 " another way and give its path to --weights",
             ExitCode::kResource);
    }
    std::getline(std::ifstream(etag_file_), etag_);
    if (etag_.empty() || size() == 0) begin_anew();
  }
  ~Transfer() {
    std::error_code ignored;
    fs::remove(head_file_, ignored);
  }
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  Answer run() {
    int code = run_curl();
    // For status 416 curl ends with success, as if the file were complete.
    if (begin_ > 0 && (code == kRangeError || head_.status == 416)) {
      begin_anew();  // the stored bytes do not belong to this file
      code = run_curl();
    }
    if (lacks_length()) {
      begin_anew();
      refuse(host_ +
                 " does not say how many bytes the file has, so a broken "
                 "transfer would look complete",
             kElsewhere);
    }
    if (code != kDone) refuse_code(code);
    // The server sent a part that was not asked for, or no file at all.
    if (head_.status != (begin_ > 0 ? 206 : 200)) {
      begin_anew();
      refuse_broken(cat("it sent HTTP ", head_.status));
    }
    if (begin_ > 0 && head_.whole != begin_ + head_.length) {
      // If only the end is missing, the next call continues from here.
      if (head_.whole < begin_ + head_.length) begin_anew();
      refuse_broken("it did not send the whole rest");
    }
    if (size() != total()) refuse_broken("the connection ended");
    if (::fsync(part_) != 0) fail_to_write(file_, std::strerror(errno));
    std::error_code ignored;
    fs::remove(etag_file_, ignored);
    return {.host = host_,
            .bytes = size(),
            .resumed_at = begin_,
            .etag = short_line(head_.etag, 200),
            .last_modified = short_line(head_.last_modified, 200)};
  }

 private:
  int64_t size() const { return ::lseek(part_, 0, SEEK_END); }
  // Without a length, a complete file looks like a broken transfer.
  bool lacks_length() const {
    return (head_.status == 200 || head_.status == 206) && head_.length < 0;
  }
  // Bytes of the whole file; 0 if the server has not stated them.
  int64_t total() const {
    if (head_.whole >= 0) return head_.whole;
    return head_.length < 0 ? 0 : begin_ + head_.length;
  }

  // Removes the file with the ETag first, because bytes without an ETag are
  // never continued.
  void begin_anew() {
    std::error_code ignored;
    fs::remove(etag_file_, ignored);
    etag_.clear();
    if (::ftruncate(part_, 0) != 0) fail_to_write(file_, std::strerror(errno));
  }

  // Runs curl to its end, and sets head_ and host_. Returns its exit code.
  int run_curl() {
    begin_ = size();
    head_ = {};
    std::error_code ignored;
    fs::remove(head_file_, ignored);
    cli::ChildOptions options;
    options.name = "curl";
    options.environment = users_environment();
    options.command = {
        curl_, "--disable", "--silent", "--show-error", "--fail", "--globoff",
        "--location", "--max-redirs", "10", "--proto", "=https",
        "--proto-redir", "=https", "--connect-timeout", "15",
        // Give up if the server sends nothing for a minute.
        "--speed-limit", "1", "--speed-time", "60", "--user-agent", "headroom",
        "--suppress-connect-headers", "--dump-header", head_file_, "--output",
        file_, "--write-out", "%{url_effective}\\n", "--url", address_};
    // Without this, curl ignores SSL_CERT_FILE where SSL_CERT_DIR is set; and
    // where --cacert is given, it ignores SSL_CERT_DIR.
    if (const std::string file = value_of(authorities_variable());
        !file.empty()) {
      options.command.insert(options.command.end(), {"--cacert", file});
      const std::string folder = value_of("SSL_CERT_DIR");
      if (!folder.empty() && value_of("CURL_CA_BUNDLE").empty()) {
        options.command.insert(options.command.end(), {"--capath", folder});
      }
    }
    if (begin_ > 0) {
      options.command.insert(options.command.end(),
                             {"--continue-at", std::to_string(begin_),
                              "--header", "If-Range: " + etag_});
    }
    cli::ChildProcess child(std::move(options));
    std::optional<int> code;
    while (!(code = child.wait(std::chrono::milliseconds(100)))) {
      note_progress();
      if (lacks_length()) code = child.terminate(std::chrono::seconds(1));
      if (code) break;
    }
    note_progress();
    host_ = host_of(address_);
    std::istringstream lines(child.last_words());
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("https://")) host_ = host_of(line);
      if (line.starts_with("curl: (")) {
        words_ = short_line(
            line.substr(std::min(line.find(')') + 2, line.size())), 300);
      }
    }
    return *code;
  }

  void note_progress() {
    head_ = read_head(head_file_);
    if (head_.status != 200 && head_.status != 206) return;
    if (etag_.empty() && !head_.etag.empty()) {
      write_whole_file(etag_file_, head_.etag);
      etag_ = head_.etag;
    }
    on_bytes_(size(), total());
  }

  [[noreturn]] void refuse_code(int code) {
    if (code == kWriteError) fail_to_write(file_, words_);
    if (code == kWrongProtocol) {
      refuse(address_ +
                 " leads to an address that is not https://, where the "
                 "file would come unencrypted: nothing was taken",
             kElsewhere);
    }
    if (code == kMalformed) {
      refuse(address_ + " is no address", kElsewhere);
    }
    if (code == kTooManyRedirects) {
      refuse(address_ + " redirects more than 10 times", kElsewhere);
    }
    if (code == kHttpError) {
      refuse(cat("HTTP ", head_.status, " of ", host_,
                 head_.status == 404 ? ": it has no file " : ": it refuses ",
                 address_),
             std::string("look whether the address opens in a browser, or ") +
                 kElsewhere,
             // 429: too many requests
             head_.status >= 500 || head_.status == 429 ? ExitCode::kResource
                                                        : ExitCode::kRequest);
    }
    if (code == kUnknownCertificate) {
      refuse(host_ + " cannot be reached: " + words_,
             cat("if you trust it, name a file with the certificate of its "
                 "authority: ",
                 authorities_variable(), "=FILE"),
             ExitCode::kResource);
    }
    if (head_.status != 0) refuse_broken(words_);
    refuse(host_ + " cannot be reached: " + words_, kAgain,
           ExitCode::kResource);
  }

  [[noreturn]] void refuse_broken(const std::string& why) {
    refuse("the transfer from " + host_ + " broke after " +
               exact_bytes(size()) + " of " + exact_bytes(total()) + " (" +
               why + ")",
           kAgain, ExitCode::kResource);
  }

  const std::string address_;
  const fs::path file_, etag_file_, head_file_;
  const OnBytes& on_bytes_;
  const std::string curl_;
  const int part_;
  std::string etag_;   // ETag of the stored bytes; "" if unknown
  int64_t begin_ = 0;  // stored bytes when curl was started
  Head head_;          // head of the newest answer
  std::string host_;   // the server of the newest answer
  std::string words_;  // curl's error message
};

}  // namespace

PartialFile::PartialFile(fs::path path)
    : path_(std::move(path)), descriptor_(open_part(path_)) {}

void require_address(const std::string& address) {
  if (!address.starts_with("https://")) {
    refuse(address + " is not https://, so the file would come unencrypted",
           kElsewhere);
  }
  const std::string host = host_of(address);
  if (host.empty()) refuse(address + " names no server", kElsewhere);
  if (const size_t at = host.rfind('@'); at != std::string::npos) {
    refuse("the address at " + host.substr(at + 1) +
               " has a user or a password, which would be shown and noted",
           "leave USER:PASSWORD@ out: " + std::string(kElsewhere));
  }
}

Answer download(const std::string& address, const PartialFile& file,
                const OnBytes& on_bytes) {
  return Transfer(address, file, on_bytes).run();
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
