#include "coordinator/service/greeting.h"

namespace headroom::coordinator {
namespace {

constexpr std::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
// A frame's header: its length (3 bytes), type, flags and stream (4 bytes).
constexpr size_t kHeader = 9;
constexpr unsigned char kHeaders = 1;
constexpr unsigned char kSettings = 4;
constexpr unsigned char kAck = 1;
// The longest frame that a client may send before the server allows longer
// frames.
constexpr size_t kMostFrame = 16 << 10;

unsigned char byte_at(std::string_view bytes, size_t at) {
  return static_cast<unsigned char>(bytes[at]);
}

}  // namespace

std::string settings_frame() {
  constexpr char kMaxConcurrentStreams = 3;
  std::string frame(kHeader, '\0');
  frame[2] = 6;  // payload of one setting: its number and its value
  frame[3] = static_cast<char>(kSettings);
  frame += {'\0',
            kMaxConcurrentStreams,
            '\0',
            '\0',
            static_cast<char>(kMostCalls >> 8),
            static_cast<char>(kMostCalls & 0xff)};
  return frame;
}

ReadGreeting read_greeting(std::string_view bytes, std::string_view token) {
  const std::string_view begin = bytes.substr(0, kPreface.size());
  if (!kPreface.starts_with(begin)) return {Greeting::kNoClient};
  bytes.remove_prefix(begin.size());
  bool has_acknowledged = false;
  ReadGreeting call;  // filled in once the header of the first call is read
  for (bool is_first = true; bytes.size() >= kHeader; is_first = false) {
    const size_t length = size_t{byte_at(bytes, 0)} << 16 |
                          size_t{byte_at(bytes, 1)} << 8 | byte_at(bytes, 2);
    const unsigned char type = byte_at(bytes, 3);
    const bool is_ack = type == kSettings && (byte_at(bytes, 4) & kAck) != 0;
    if (length > kMostFrame || (is_first && (type != kSettings || is_ack))) {
      return {Greeting::kNoClient};
    }
    has_acknowledged = has_acknowledged || is_ack;
    if (bytes.size() - kHeader < length) break;
    if (type == kHeaders && call.greeting == Greeting::kIncomplete) {
      const bool has_token =
          bytes.substr(kHeader, length).find(token) != std::string_view::npos;
      call.greeting = has_token ? Greeting::kWelcome : Greeting::kWrongToken;
      for (size_t i = 5; i < kHeader; ++i) {
        call.stream = call.stream << 8 | byte_at(bytes, i);
      }
    }
    bytes.remove_prefix(kHeader + length);
  }
  if (!has_acknowledged) return {};
  return token.empty() ? ReadGreeting{Greeting::kWelcome} : call;
}

std::string refusal_frame(uint32_t stream, const std::string& message) {
  constexpr char kEndOfStreamAndHeaders = 5;
  const auto text = [](const std::string& value) {
    return static_cast<char>(value.size()) + value;
  };
  // The headers are not compressed. The numbers are from HTTP/2's static table:
  // status 200, and the name content-type.
  const std::string payload = "\x88\x0f\x10" + text("application/grpc") + '\0' +
                              text("grpc-status") + text("16") + '\0' +
                              text("grpc-message") + text(message);
  std::string frame(kHeader, '\0');
  frame[1] = static_cast<char>(payload.size() >> 8);
  frame[2] = static_cast<char>(payload.size() & 0xff);
  frame[3] = static_cast<char>(kHeaders);
  frame[4] = kEndOfStreamAndHeaders;
  for (size_t i = 0; i < 4; ++i) {
    frame[5 + i] = static_cast<char>(stream >> (24 - 8 * i) & 0xff);
  }
  return frame + payload;
}

}  // namespace headroom::coordinator
