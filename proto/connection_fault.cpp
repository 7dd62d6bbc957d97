#include "proto/connection_fault.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string_view>

namespace headroom::wire {
namespace {

template <auto kFree>
struct FreedBy {
  template <typename T>
  void operator()(T* pointer) const {
    kFree(pointer);
  }
};
using Context = std::unique_ptr<SSL_CTX, FreedBy<SSL_CTX_free>>;
using Session = std::unique_ptr<SSL, FreedBy<SSL_free>>;
using Pem = std::unique_ptr<BIO, FreedBy<BIO_free_all>>;
using X509Certificate = std::unique_ptr<X509, FreedBy<X509_free>>;
using PrivateKey = std::unique_ptr<EVP_PKEY, FreedBy<EVP_PKEY_free>>;
using AddressList = std::unique_ptr<addrinfo, FreedBy<freeaddrinfo>>;

Pem reading(const std::string& text) {
  return Pem(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

class Socket {
 public:
  Socket(const std::string& host, const std::string& port,
         std::chrono::milliseconds timeout) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* first = nullptr;
    const int failure = getaddrinfo(host.c_str(), port.c_str(), &hints, &first);
    if (failure != 0) {
      error_ = gai_strerror(failure);
      return;
    }
    const AddressList found(first);
    const timeval limit{.tv_sec = timeout.count() / 1000,
                        .tv_usec = timeout.count() % 1000 * 1000};
    for (const addrinfo* next = first; next != nullptr; next = next->ai_next) {
      handle_ = socket(next->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
      setsockopt(handle_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
      setsockopt(handle_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
      if (handle_ >= 0 &&
          connect(handle_, next->ai_addr, next->ai_addrlen) == 0) {
        error_.clear();
        return;
      }
      error_ = std::strerror(errno == EINPROGRESS ? ETIMEDOUT : errno);
      if (handle_ >= 0) close(handle_);
      handle_ = -1;
    }
  }
  ~Socket() {
    if (handle_ >= 0) close(handle_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  // The system's error message; "" if connected.
  const std::string& error() const { return error_; }
  void send_all(std::string_view bytes) const {
    (void)!send(handle_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  // Returns "" if the peer has closed the connection or sends nothing in time.
  std::string receive() const {
    std::array<char, 16384> bytes{};
    const ssize_t count = recv(handle_, bytes.data(), bytes.size(), 0);
    return {bytes.data(), static_cast<size_t>(count > 0 ? count : 0)};
  }

 private:
  int handle_ = -1;
  std::string error_;
};

Context client_context(const ChannelSecurity& security) {
  Context context(SSL_CTX_new(TLS_client_method()));
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  const Pem roots = reading(security.ca);
  while (const X509Certificate root{
      PEM_read_bio_X509(roots.get(), nullptr, nullptr, nullptr)}) {
    X509_STORE_add_cert(SSL_CTX_get_cert_store(context.get()), root.get());
  }
  const X509Certificate own(PEM_read_bio_X509(
      reading(security.certificate).get(), nullptr, nullptr, nullptr));
  const PrivateKey key(PEM_read_bio_PrivateKey(reading(security.key).get(),
                                               nullptr, nullptr, nullptr));
  if (own) SSL_CTX_use_certificate(context.get(), own.get());
  if (key) SSL_CTX_use_PrivateKey(context.get(), key.get());
  return context;
}

// Exchanges pending TLS data with the peer. Returns false if nothing arrives.
bool exchange(SSL* session, const Socket& peer) {
  std::array<char, 16384> bytes{};
  for (int count = 0; (count = BIO_read(SSL_get_wbio(session), bytes.data(),
                                        bytes.size())) > 0;) {
    peer.send_all({bytes.data(), static_cast<size_t>(count)});
  }
  const std::string answer = peer.receive();
  if (answer.empty()) return false;
  BIO_write(SSL_get_rbio(session), answer.data(),
            static_cast<int>(answer.size()));
  return true;
}

// The newest OpenSSL error, for example "certificate expired".
std::string newest_error() {
  const unsigned long error = ERR_peek_last_error();
  const char* const words = ERR_reason_error_string(error);
  return words == nullptr ? "it hung up" : words;
}

// States when this side's certificate expired or becomes valid; "" if it is
// valid now.
std::string own_certificate_fault(const ChannelSecurity& security) {
  const X509Certificate own(PEM_read_bio_X509(
      reading(security.certificate).get(), nullptr, nullptr, nullptr));
  if (!own) return "";
  const auto said = [](const ASN1_TIME* time) {
    const Pem text(BIO_new(BIO_s_mem()));
    ASN1_TIME_print(text.get(), time);
    std::array<char, 64> words{};
    const int count = BIO_read(text.get(), words.data(), words.size());
    return std::string(words.data(), static_cast<size_t>(std::max(0, count)));
  };
  const ASN1_TIME* const end = X509_get0_notAfter(own.get());
  const ASN1_TIME* const begin = X509_get0_notBefore(own.get());
  if (X509_cmp_current_time(end) < 0) return "has expired on " + said(end);
  if (X509_cmp_current_time(begin) > 0) return "begins on " + said(begin);
  return "";
}

std::optional<ConnectionFault> tls_fault(const std::string& whom,
                                         const std::string& host,
                                         const ChannelSecurity& security,
                                         const Socket& peer) {
  const Context context = client_context(security);
  const Session session(SSL_new(context.get()));
  SSL* const ssl = session.get();
  SSL_set_bio(ssl, BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
  constexpr std::string_view kHttp2 = "\x02h2";
  SSL_set_alpn_protos(ssl,
                      reinterpret_cast<const unsigned char*>(kHttp2.data()),
                      kHttp2.size());
  if (X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host.c_str()) != 1) {
    SSL_set1_host(ssl, host.c_str());
    SSL_set_tlsext_host_name(ssl, host.c_str());
  }
  ERR_clear_error();
  int done = 0;
  while ((done = SSL_connect(ssl)) != 1) {
    if (SSL_get_error(ssl, done) != SSL_ERROR_WANT_READ) break;
    if (!exchange(ssl, peer)) break;
  }
  const long verified = SSL_get_verify_result(ssl);
  if (verified != X509_V_OK) {
    return ConnectionFault{
        whom + " shows a certificate that is not accepted here: " +
            X509_verify_cert_error_string(verified),
        "give the --certs with which that coordinator was started, or make new "
        "ones with headroom coordinator --init-certs NEW_DIR --cert-names "
        "HOST"};
  }
  // The server verifies our certificate only after its own part of the
  // handshake; then it sends the first data.
  char byte = 0;
  int read = 0;
  while (done == 1 && (read = SSL_read(ssl, &byte, 1)) != 1) {
    if (SSL_get_error(ssl, read) != SSL_ERROR_WANT_READ) break;
    if (!exchange(ssl, peer)) break;
  }
  if (read == 1) return std::nullopt;
  // A connection that breaks without a TLS error may succeed the next time.
  const bool is_told = ERR_peek_last_error() != 0;
  if (done != 1 && SSL_get0_peer_certificate(ssl) == nullptr) {
    return ConnectionFault{whom + " speaks no TLS (" + newest_error() + ")",
                           "start it with --certs too, or leave --certs out",
                           is_told};
  }
  const std::string own = own_certificate_fault(security);
  return ConnectionFault{
      whom + " refuses the certificate of this side" +
          (own.empty() ? ": " + newest_error() : ", which " + own),
      "give the --certs with which that coordinator was started, or make new "
      "ones with headroom coordinator --init-certs NEW_DIR --cert-names HOST",
      is_told};
}

// Checks whether the server accepts plain text: an HTTP/2 server answers the
// client preface with a SETTINGS frame.
std::optional<ConnectionFault> plain_fault(const std::string& whom,
                                           const Socket& peer) {
  constexpr std::string_view kGreeting(
      "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", 33);
  peer.send_all(kGreeting);
  const std::string answer = peer.receive();
  constexpr size_t kFrameType = 3;
  const bool is_settings =
      answer.size() > kFrameType && answer[0] == 0 && answer[kFrameType] == 4;
  if (is_settings) return std::nullopt;
  return ConnectionFault{
      whom + " hangs up on connections without TLS, or is no coordinator",
      "give the --certs with which it was started", !answer.empty()};
}

ConnectionFault nobody_answers(const std::string& address,
                               const std::string& why) {
  return {"no coordinator answers at " + address + ": " + why,
          "it ends with its run; headroom train prints its address when it "
          "starts",
          false};
}

std::optional<ConnectionFault> unix_fault(const std::string& address) {
  const std::string path = address.substr(std::string_view(kUnixPrefix).size());
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  path.copy(name.sun_path, sizeof(name.sun_path) - 1);
  const int handle = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool stands =
      connect(handle, reinterpret_cast<sockaddr*>(&name), sizeof(name)) == 0;
  const int why = errno;
  if (handle >= 0) close(handle);
  if (stands) return std::nullopt;
  return nobody_answers(address, std::strerror(why));
}

}  // namespace

std::optional<ConnectionFault> connection_fault(
    const std::string& address, const ChannelSecurity& security,
    std::chrono::milliseconds timeout) {
  if (is_unix_socket(address)) return unix_fault(address);
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) return std::nullopt;
  std::string host = address.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
  }
  const Socket peer(host, address.substr(colon + 1), timeout);
  if (!peer.error().empty()) {
    return nobody_answers(address, peer.error());
  }
  const std::string whom = "the coordinator at " + address;
  return security.is_encrypted() ? tls_fault(whom, host, security, peer)
                                 : plain_fault(whom, peer);
}

}  // namespace headroom::wire
