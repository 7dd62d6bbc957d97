#include "coordinator/service/certificates.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <system_error>
#include <utility>

#include "parallel/base/check.h"
#include "proto/channel_security.h"

namespace headroom::coordinator {
namespace {

namespace fs = std::filesystem;

template <auto kFree>
struct Freed {
  template <typename T>
  void operator()(T* pointer) const {
    kFree(pointer);
  }
};
using Key = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY_free>>;
using Certificate = std::unique_ptr<X509, Freed<X509_free>>;
using Buffer = std::unique_ptr<BIO, Freed<BIO_free_all>>;
using Extension = std::unique_ptr<X509_EXTENSION, Freed<X509_EXTENSION_free>>;

constexpr long kDay = 24 * 60 * 60;
constexpr long kDaysBefore = 7;
constexpr long kCaDays = 3650;
constexpr long kLeafDays = 730;
constexpr mode_t kSecret = 0600;
constexpr mode_t kPublic = 0644;

void require(bool worked, const char* what) {
  if (worked) return;
  throw Error("certificates", std::string("OpenSSL could not ") + what,
              "see that the system has entropy and memory",
              ExitCode::kResource);
}

struct Identity {
  Key key;
  Certificate certificate;
};

void add_extension(X509* certificate, X509* issuer, int kind,
                   const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const Extension extension(
      X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str()));
  require(extension != nullptr &&
              X509_add_ext(certificate, extension.get(), -1) == 1,
          "write an extension");
}

// Makes a key and a certificate for `name` that is valid for `days`. `issuer`
// signs the certificate; if `issuer` is null, the certificate is self-signed.
Identity make_identity(
    const std::string& name, long days, const Identity* issuer,
    const std::vector<std::pair<int, std::string>>& extensions) {
  Identity made{Key(EVP_EC_gen("P-256")), Certificate(X509_new())};
  require(made.key != nullptr && made.certificate != nullptr,
          "make a certificate");
  X509* const x509 = made.certificate.get();
  const Identity& signer = issuer == nullptr ? made : *issuer;
  uint64_t serial = 0;
  require(RAND_bytes(reinterpret_cast<unsigned char*>(&serial),
                     sizeof(serial)) == 1,
          "draw a number");
  ASN1_INTEGER_set_uint64(X509_get_serialNumber(x509), serial);
  X509_set_version(x509, X509_VERSION_3);
  // The validity starts in the past, so that a node whose clock is days behind
  // accepts the certificate.
  X509_gmtime_adj(X509_getm_notBefore(x509), -kDaysBefore * kDay);
  X509_gmtime_adj(X509_getm_notAfter(x509), days * kDay);
  X509_set_pubkey(x509, made.key.get());
  X509_NAME_add_entry_by_txt(
      X509_get_subject_name(x509), "CN", MBSTRING_UTF8,
      reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
  X509_set_issuer_name(x509, X509_get_subject_name(signer.certificate.get()));
  add_extension(x509, x509, NID_subject_key_identifier, "hash");
  for (const auto& [kind, value] : extensions) {
    add_extension(x509, signer.certificate.get(), kind, value);
  }
  require(X509_sign(x509, signer.key.get(), EVP_sha256()) > 0,
          "sign a certificate");
  return made;
}

// Makes the server's or the client's certificate; `usage` is its extended key
// usage.
Identity make_leaf(const std::string& name, const Identity& ca,
                   const std::string& usage, const std::string& names) {
  return make_identity(name, kLeafDays, &ca,
                       {{NID_authority_key_identifier, "keyid:always"},
                        {NID_basic_constraints, "critical,CA:FALSE"},
                        {NID_key_usage, "critical,digitalSignature"},
                        {NID_ext_key_usage, usage},
                        {NID_subject_alt_name, names}});
}

std::string pem_of(const auto& write) {
  const Buffer buffer(BIO_new(BIO_s_mem()));
  require(write(buffer.get()) == 1, "write a certificate or key");
  char* bytes = nullptr;
  const long size = BIO_get_mem_data(buffer.get(), &bytes);
  return {bytes, static_cast<size_t>(size)};
}

bool is_address(const std::string& name) {
  std::array<unsigned char, sizeof(in6_addr)> ignored{};
  return inet_pton(AF_INET, name.c_str(), ignored.data()) == 1 ||
         inet_pton(AF_INET6, name.c_str(), ignored.data()) == 1;
}

// A name with a comma is refused, because OpenSSL would read the comma as the
// start of another entry.
bool is_host_name(const std::string& name) {
  constexpr size_t kMaxHostName = 253;
  return !name.empty() && name.size() <= kMaxHostName &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '-' || c == '.' || c == '_';
         });
}

std::string alternate_names(std::vector<std::string> names) {
  for (const char* local : {"localhost", "127.0.0.1", "::1"}) {
    names.emplace_back(local);
  }
  std::string text;
  for (const std::string& name : names) {
    const bool address = is_address(name);
    if (!address && !is_host_name(name)) {
      throw Error("certificates", "'" + name + "' is no host name or address",
                  "give names as --cert-names node-1,10.0.0.5");
    }
    const std::string entry = (address ? "IP:" : "DNS:") + name;
    if (("," + text + ",").find("," + entry + ",") != std::string::npos) {
      continue;
    }
    text += (text.empty() ? "" : ",") + entry;
  }
  return text;
}

// Does not replace an existing file, because the key in it may be in use.
void write_file(const fs::path& file, mode_t mode, const std::string& text) {
  const int descriptor =
      ::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  // fchmod makes the mode independent of the umask.
  const bool written = descriptor >= 0 && ::fchmod(descriptor, mode) == 0 &&
                       ::write(descriptor, text.data(), text.size()) ==
                           static_cast<ssize_t>(text.size());
  const int why = errno;
  if (descriptor >= 0) ::close(descriptor);
  if (written) return;
  throw Error("certificates",
              file.string() + " cannot be written: " + std::strerror(why),
              "name a new folder");
}

void write_identity(const fs::path& folder, const std::string& name,
                    const Identity& made) {
  write_file(folder / (name + ".key"), kSecret, pem_of([&](BIO* out) {
               return PEM_write_bio_PrivateKey(out, made.key.get(), nullptr,
                                               nullptr, 0, nullptr, nullptr);
             }));
  write_file(folder / (name + ".pem"), kPublic, pem_of([&](BIO* out) {
               return PEM_write_bio_X509(out, made.certificate.get());
             }));
}

// Makes a folder that only its owner can write.
void make_private_folder(const fs::path& folder) {
  std::error_code error;
  if (folder.has_parent_path()) {
    fs::create_directories(folder.parent_path(), error);
  }
  constexpr mode_t kPrivate = 0700;
  const bool is_new = ::mkdir(folder.c_str(), kPrivate) == 0;
  if (is_new) ::chmod(folder.c_str(), kPrivate);
  struct stat about {};
  if (::stat(folder.c_str(), &about) != 0 ||
      (about.st_mode & (S_IWGRP | S_IWOTH)) == 0) {
    return;  // other problems are reported when a file is written
  }
  throw Error("certificates", folder.string() + " can be written by others",
              "chmod 700 " + folder.string() + ", or name a new folder");
}

}  // namespace

void make_certificates(const fs::path& folder,
                       const std::vector<std::string>& names) {
  const std::string server_names = alternate_names(names);
  const Identity ca =
      make_identity("headroom CA", kCaDays, nullptr,
                    {{NID_basic_constraints, "critical,CA:TRUE,pathlen:0"},
                     {NID_key_usage, "critical,keyCertSign,cRLSign"}});
  const Identity server =
      make_leaf("headroom coordinator", ca, "serverAuth", server_names);
  const Identity client =
      make_leaf("headroom client", ca, "clientAuth", "DNS:client.headroom");
  make_private_folder(folder);
  write_identity(folder, "ca", ca);
  write_identity(folder, "server", server);
  write_identity(folder, "client", client);
  write_file(folder / "token", kSecret, wire::draw_token() + "\n");
}

}  // namespace headroom::coordinator
