#include "coordinator/service/member_words.h"

#include <algorithm>

#include "parallel/base/utf8.h"

namespace headroom::coordinator {

Answer limit_words(wire::EventRecord& event) {
  constexpr size_t kMaxDetail = 1 << 20;
  event.reason = short_line(event.reason, kMaxMessage);
  if (event.detail_json.size() <= kMaxDetail) return std::nullopt;
  return Refusal{RefusalKind::kMessageTooLong,
                 "an event's detail has " +
                     std::to_string(event.detail_json.size()) +
                     " bytes, more than " + std::to_string(kMaxDetail)};
}

std::string end_of_last_words(std::string_view last_words) {
  constexpr size_t kMost = 64 << 10;
  return printable(last_words.substr(last_words.size() -
                                     std::min(last_words.size(), kMost)));
}

}  // namespace headroom::coordinator
