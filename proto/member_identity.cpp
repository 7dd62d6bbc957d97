#include "proto/member_identity.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <array>

#include "parallel/base/check.h"

namespace headroom::wire {
namespace {

constexpr size_t kSecretBytes = 32;

std::string hexadecimal(const std::array<unsigned char, kSecretBytes>& bytes) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : bytes) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

}  // namespace

std::string new_member_secret() {
  std::array<unsigned char, kSecretBytes> bytes{};
  if (RAND_bytes(bytes.data(), bytes.size()) != 1) {
    throw Error("security", "OpenSSL could not draw a secret",
                "see that the system has entropy", ExitCode::kResource);
  }
  return hexadecimal(bytes);
}

std::string secret_of_worker(const std::string& agent_secret,
                             const std::string& worker_id) {
  std::array<unsigned char, kSecretBytes> digest{};
  unsigned int size = digest.size();
  const unsigned char* const made = HMAC(
      EVP_sha256(), agent_secret.data(), static_cast<int>(agent_secret.size()),
      reinterpret_cast<const unsigned char*>(worker_id.data()),
      worker_id.size(), digest.data(), &size);
  HEADROOM_CHECK(made != nullptr, "HMAC-SHA256");
  return hexadecimal(digest);
}

}  // namespace headroom::wire
