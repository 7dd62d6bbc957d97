// The bytes of HTTP/2 frames and of calls, for clients that no library would
// be: they send what a gRPC client never sends.
#pragma once

#include <cstdint>
#include <string>

namespace headroom::coordinator::http2 {

inline constexpr const char* kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
inline constexpr int kEndStream = 1, kEndHeaders = 4;

inline std::string frame(int type, int flags, uint32_t stream,
                         const std::string& payload) {
  std::string bytes;
  for (const int shift : {16, 8, 0}) {
    bytes += static_cast<char>(payload.size() >> shift);
  }
  bytes += static_cast<char>(type);
  bytes += static_cast<char>(flags);
  for (const int shift : {24, 16, 8, 0}) {
    bytes += static_cast<char>(stream >> shift);
  }
  return bytes + payload;
}

inline std::string settings() { return frame(4, 0, 0, ""); }
inline std::string settings_ack() { return frame(4, 1, 0, ""); }

// A text of at most 126 bytes in a header, not compressed.
inline std::string text(const std::string& value) {
  return static_cast<char>(value.size()) + value;
}

inline std::string header(const std::string& name, const std::string& value) {
  return std::string(1, '\0') + text(name) + text(value);
}

inline std::string headers_of_call(const std::string& path) {
  return "\x83\x86\x04" + text(path) + "\x01" + text("a") + "\x0f\x10" +
         text("application/grpc") + header("te", "trailers");
}

constexpr const char* kGetStatus = "/headroom.wire.Coordinator/GetStatus";

// Begins a call that has no token. If `ends` is set, the call ends there and
// has no message.
inline std::string call_frame(uint32_t stream, bool ends,
                              const std::string& path = kGetStatus) {
  return frame(1, kEndHeaders | (ends ? kEndStream : 0), stream,
               headers_of_call(path));
}

// As call_frame(), with nearly as many bytes of headers as gRPC accepts.
inline std::string long_call_frame(uint32_t stream) {
  std::string headers = headers_of_call(kGetStatus);
  for (int i = 0; i < 28; ++i) headers += header("h", std::string(90, 'v'));
  return frame(1, kEndHeaders, stream, headers);
}

// A message of a call, of at most 16 kB.
inline std::string message_frame(uint32_t stream, const std::string& message,
                                 bool ends) {
  const auto size = message.size();
  return frame(0, ends ? kEndStream : 0, stream,
               std::string(3, '\0') + static_cast<char>(size >> 8) +
                   static_cast<char>(size) + message);
}

// The message of GetStatus, which is empty, and the end of the call.
inline std::string empty_message(uint32_t stream) {
  return message_frame(stream, "", /*ends=*/true);
}

inline std::string reset(uint32_t stream) {
  return frame(3, 0, stream, std::string("\0\0\0\x08", 4));
}

}  // namespace headroom::coordinator::http2
