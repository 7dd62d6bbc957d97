// Where OpenSSL finds the certificate authorities that this machine trusts.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

namespace headroom::notify {

// The machine's file of authorities; "" leaves the choice to OpenSSL, which
// reads the variable SSL_CERT_FILE. A bundled program may run on another
// distribution than it was built on, where OpenSSL's default path may not
// exist.
inline std::string machine_authorities() {
  if (std::getenv("SSL_CERT_FILE") != nullptr) return "";
  for (const char* file :
       {"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
        "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"}) {
    std::error_code error;
    if (std::filesystem::exists(file, error)) return file;
  }
  return "";
}

}  // namespace headroom::notify
