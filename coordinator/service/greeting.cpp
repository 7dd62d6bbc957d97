#include "coordinator/service/greeting.h"

#include <cstdint>

namespace headroom::coordinator {
namespace {

constexpr std::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
// A frame's header: its length (3 bytes), type, flags and stream (4 bytes).
constexpr size_t kHeader = 9;
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
  frame[2] = 6;  // one setting: its number and its value
  frame[3] = static_cast<char>(kSettings);
  frame += {'\0',
            kMaxConcurrentStreams,
            '\0',
            '\0',
            static_cast<char>(kMostCalls >> 8),
            static_cast<char>(kMostCalls & 0xff)};
  return frame;
}

Greeting read_greeting(std::string_view bytes) {
  const std::string_view begin = bytes.substr(0, kPreface.size());
  if (!kPreface.starts_with(begin)) return Greeting::kNoClient;
  bytes.remove_prefix(begin.size());
  for (bool is_first = true; bytes.size() >= kHeader; is_first = false) {
    const size_t length = size_t{byte_at(bytes, 0)} << 16 |
                          size_t{byte_at(bytes, 1)} << 8 | byte_at(bytes, 2);
    const bool is_settings = byte_at(bytes, 3) == kSettings;
    const bool is_ack = (byte_at(bytes, 4) & kAck) != 0;
    if (length > kMostFrame || (is_first && (!is_settings || is_ack))) {
      return Greeting::kNoClient;
    }
    if (is_settings && is_ack) return Greeting::kAcknowledged;
    if (bytes.size() - kHeader < length) break;
    bytes.remove_prefix(kHeader + length);
  }
  return Greeting::kIncomplete;
}

}  // namespace headroom::coordinator
