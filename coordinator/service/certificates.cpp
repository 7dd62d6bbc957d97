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

#include "parallel/base/check.h"

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

Key make_key() {
  Key key(EVP_EC_gen("P-256"));
  require(key != nullptr, "make a key");
  return key;
}

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

struct Subject {
  std::string name;
  std::string usage;      // the key's use, beyond signatures
  std::string alternate;  // names; "" for none
  bool is_ca = false;
};

// Signs with `issuer_key` in the name of `issuer`, or of the certificate itself
// where issuer is null.
Certificate make_certificate(const Subject& subject, EVP_PKEY* key,
                             X509* issuer, EVP_PKEY* issuer_key) {
  Certificate made(X509_new());
  require(made != nullptr, "make a certificate");
  X509* const x509 = made.get();
  std::array<unsigned char, 16> serial{};
  require(RAND_bytes(serial.data(), serial.size()) == 1, "draw a number");
  serial[0] &= 0x7f;  // positive
  BIGNUM* const number = BN_bin2bn(serial.data(), serial.size(), nullptr);
  BN_to_ASN1_INTEGER(number, X509_get_serialNumber(x509));
  BN_free(number);
  X509_set_version(x509, X509_VERSION_3);
  // A node whose clock is days behind accepts it, too.
  X509_gmtime_adj(X509_getm_notBefore(x509), -kDaysBefore * kDay);
  X509_gmtime_adj(X509_getm_notAfter(x509),
                  (subject.is_ca ? kCaDays : kLeafDays) * kDay);
  X509_set_pubkey(x509, key);
  X509_NAME_add_entry_by_txt(
      X509_get_subject_name(x509), "CN", MBSTRING_UTF8,
      reinterpret_cast<const unsigned char*>(subject.name.c_str()), -1, -1, 0);
  X509* const signer = issuer == nullptr ? x509 : issuer;
  X509_set_issuer_name(x509, X509_get_subject_name(signer));
  add_extension(x509, signer, NID_subject_key_identifier, "hash");
  if (subject.is_ca) {
    add_extension(x509, signer, NID_basic_constraints,
                  "critical,CA:TRUE,pathlen:0");
    add_extension(x509, signer, NID_key_usage, "critical,keyCertSign,cRLSign");
  } else {
    add_extension(x509, signer, NID_authority_key_identifier, "keyid:always");
    add_extension(x509, signer, NID_basic_constraints, "critical,CA:FALSE");
    add_extension(x509, signer, NID_key_usage, "critical,digitalSignature");
    add_extension(x509, signer, NID_ext_key_usage, subject.usage);
    add_extension(x509, signer, NID_subject_alt_name, subject.alternate);
  }
  require(
      X509_sign(x509, issuer == nullptr ? key : issuer_key, EVP_sha256()) > 0,
      "sign a certificate");
  return made;
}

std::string text_of(BIO* buffer) {
  char* bytes = nullptr;
  const long size = BIO_get_mem_data(buffer, &bytes);
  return {bytes, static_cast<size_t>(size)};
}

std::string pem(X509* certificate) {
  const Buffer buffer(BIO_new(BIO_s_mem()));
  require(PEM_write_bio_X509(buffer.get(), certificate) == 1,
          "write a certificate");
  return text_of(buffer.get());
}

std::string pem(EVP_PKEY* key) {
  const Buffer buffer(BIO_new(BIO_s_mem()));
  require(PEM_write_bio_PrivateKey(buffer.get(), key, nullptr, nullptr, 0,
                                   nullptr, nullptr) == 1,
          "write a key");
  return text_of(buffer.get());
}

bool is_address(const std::string& name) {
  std::array<unsigned char, sizeof(in6_addr)> ignored{};
  return inet_pton(AF_INET, name.c_str(), ignored.data()) == 1 ||
         inet_pton(AF_INET6, name.c_str(), ignored.data()) == 1;
}

// OpenSSL reads the text as a list, which must have one name only.
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

std::string make_token() {
  std::array<unsigned char, 32> bytes{};
  require(RAND_bytes(bytes.data(), bytes.size()) == 1, "draw a token");
  std::string text;
  for (const unsigned char byte : bytes) {
    constexpr const char* kDigits = "0123456789abcdef";
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text + "\n";
}

// Refuses to replace a file: its key may be in use.
void write_file(const fs::path& file, mode_t mode, const std::string& text) {
  const int descriptor =
      ::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  // Independent of the umask.
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

// Only its owner may write into it or exchange the files.
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
    return;  // what it cannot hold, write_file says
  }
  throw Error("certificates", folder.string() + " can be written by others",
              "chmod 700 " + folder.string() + ", or name a new folder");
}

}  // namespace

void make_certificates(const fs::path& folder,
                       const std::vector<std::string>& names) {
  const std::string server_names = alternate_names(names);
  const Key ca_key = make_key();
  const Key server_key = make_key();
  const Key client_key = make_key();
  const Certificate ca = make_certificate(
      {.name = "headroom CA", .usage = "", .alternate = "", .is_ca = true},
      ca_key.get(), nullptr, nullptr);
  const Certificate server =
      make_certificate({.name = "headroom coordinator",
                        .usage = "serverAuth",
                        .alternate = server_names},
                       server_key.get(), ca.get(), ca_key.get());
  const Certificate client =
      make_certificate({.name = "headroom client",
                        .usage = "clientAuth",
                        .alternate = "DNS:client.headroom"},
                       client_key.get(), ca.get(), ca_key.get());
  make_private_folder(folder);
  write_file(folder / "ca.key", kSecret, pem(ca_key.get()));
  write_file(folder / "ca.pem", kPublic, pem(ca.get()));
  write_file(folder / "server.key", kSecret, pem(server_key.get()));
  write_file(folder / "server.pem", kPublic, pem(server.get()));
  write_file(folder / "client.key", kSecret, pem(client_key.get()));
  write_file(folder / "client.pem", kPublic, pem(client.get()));
  write_file(folder / "token", kSecret, make_token());
}

}  // namespace headroom::coordinator
