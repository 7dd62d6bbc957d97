// ChannelSecurity: authentication of control traffic, by mutual TLS and a join
// token. On loopback, a token without TLS keeps out other users of the machine.
//
// Errors: Error (exit 2) naming a file that is missing, empty, or readable by
// other users.
#pragma once

#include <string>

namespace headroom::wire {

// The certificates and the key are PEM texts; they are "" without TLS.
struct ChannelSecurity {
  std::string ca;           // the authority that signs certificates
  std::string certificate;  // this side's certificate
  std::string key;
  std::string token;  // shared secret of the run; "" if none is required

  bool is_encrypted() const { return !ca.empty(); }
};

// Environment variable in which a run passes its token to its own processes.
// Processes of other users cannot read it.
inline constexpr const char* kTokenVariable = "HEADROOM_JOIN_TOKEN";

// Draws a new token: 64 random hexadecimal digits.
std::string draw_token();

// Selects the server's or the client's certificate files.
enum class ChannelSide { kServer, kClient };

// Reads --certs and --token-file; either may be "". The token comes from
// --token-file, else from the folder of certificates, else from the environment
// (kTokenVariable).
ChannelSecurity read_channel_security(const std::string& certs,
                                      const std::string& token_file,
                                      ChannelSide side);

// The prefix of a Unix socket's address, "unix:/FOLDER/NAME", where a
// coordinator of one machine listens. The folder has mode 0700, so only this
// user's processes can enter, without TLS or a token.
inline constexpr const char* kUnixPrefix = "unix:";
bool is_unix_socket(const std::string& address);
// The folder of a Unix socket's address; "" for other addresses.
std::string unix_folder_of(const std::string& address);

// True for localhost, 127.0.0.0/8 and ::1; other names are not resolved.
bool is_loopback(const std::string& host);

// Checks an address that a command connects to or listens on: beyond loopback,
// TLS and a token are required, unless --insecure-network is given. Throws
// Error (exit 2) that names the address (HOST:PORT), the missing part and the
// remedy.
void require_protected(const std::string& address,
                       const ChannelSecurity& security, bool insecure_network);

// Sets the security of all channels that this process opens from now on; the
// default is none. Threads: any.
void set_channel_security(const ChannelSecurity& security);
ChannelSecurity channel_security();

// Keeps OpenSSL from freeing its state when the process exits, because gRPC's
// threads still use it then. REQUIRES: OpenSSL has not been used yet.
void keep_openssl_to_the_end();

// Compares in constant time: timing does not show where the secrets differ.
bool equal_secrets(const std::string& given, const std::string& known);

}  // namespace headroom::wire
