// ChannelSecurity: how control traffic proves who speaks: mutual TLS and a join
// token; on loopback a token is enough, against other users of the machine.
//
// Errors: Error (exit 2) naming the file that is missing or empty, or that
// others may read.
#pragma once

#include <string>

namespace headroom::wire {

// PEM texts; "" without TLS.
struct ChannelSecurity {
  std::string ca;           // the authority that signs certificates
  std::string certificate;  // this side's
  std::string key;
  std::string token;  // what everybody must know; "" for nothing

  bool is_encrypted() const { return !ca.empty(); }
};

// The variable in which a run passes its token to its own processes. Another
// user's process cannot read it.
inline constexpr const char* kTokenVariable = "HEADROOM_JOIN_TOKEN";

// A new one: 64 random hexadecimal digits.
std::string draw_token();

// The side whose certificates are meant.
enum class ChannelSide { kServer, kClient };

// Reads --certs and --token-file, either of which may be "". A folder of
// certificates may have a token too, which --token-file replaces; where neither
// gives one, the environment may.
ChannelSecurity read_channel_security(const std::string& certs,
                                      const std::string& token_file,
                                      ChannelSide side);

// A coordinator of one machine listens on a Unix socket, whose address is
// written "unix:/FOLDER/NAME". The folder has mode 0700: the system lets in
// this user's processes alone, so neither TLS nor a token is needed there.
inline constexpr const char* kUnixPrefix = "unix:";
bool is_unix_socket(const std::string& address);
// The folder of such an address; "" for any other.
std::string unix_folder_of(const std::string& address);

// localhost, 127.0.0.0/8 or ::1; names that merely resolve there are not.
bool is_loopback(const std::string& host);

// The rule for whoever speaks to a coordinator or listens for others, whatever
// the command: beyond loopback there must be TLS and a token, or
// --insecure-network. Throws Error (exit 2) that names the address (HOST:PORT),
// what is missing and what to do.
void require_protected(const std::string& address,
                       const ChannelSecurity& security, bool insecure_network);

// What this process's channels use from now on: an identity is a process's.
// Threads: any; before that, neither TLS nor a token.
void set_channel_security(const ChannelSecurity& security);
ChannelSecurity channel_security();

// OpenSSL would free what it holds when the process exits, under the hands of
// gRPC's threads, which nobody ends. REQUIRES: nothing has used OpenSSL yet.
void keep_openssl_to_the_end();

// Compares in a time that does not depend on where they differ.
bool equal_secrets(const std::string& given, const std::string& known);

}  // namespace headroom::wire
