#include "coordinator/service/caller_rules.h"

#include <algorithm>

#include "parallel/base/text.h"
#include "parallel/base/utf8.h"

namespace headroom::coordinator {

Answer limit_words(wire::EventRecord& event) {
  constexpr size_t kMaxDetail = 1 << 20;
  event.reason = short_line(event.reason, kMaxMessage);
  if (event.detail_json.size() <= kMaxDetail) return std::nullopt;
  return Refusal{RefusalKind::kMessageTooLong,
                 cat("an event's detail has ", event.detail_json.size(),
                     " bytes, more than ", kMaxDetail)};
}

std::string end_of_last_words(std::string_view last_words) {
  constexpr size_t kMost = 64 << 10;
  return printable(last_words.substr(last_words.size() -
                                     std::min(last_words.size(), kMost)));
}

Answer check_length(const google::protobuf::Message& message, size_t most) {
  const size_t bytes = message.ByteSizeLong();
  if (bytes <= most) return std::nullopt;
  return Refusal{RefusalKind::kMessageTooLong,
                 cat("the message has ", bytes, " bytes, more than ", most)};
}

namespace {

Answer check_agent(const Caller& caller, const std::string& node_id) {
  if (caller.is_agent(node_id)) return std::nullopt;
  return Refusal{RefusalKind::kForeignName,
                 "only the agent of node " + node_id + " speaks for it"};
}

Answer check_name(const Caller& caller, const std::string& worker_id) {
  if (caller.is_worker(worker_id)) return std::nullopt;
  return Refusal{RefusalKind::kForeignName,
                 "only worker " + worker_id + " speaks for itself"};
}

}  // namespace

Answer CallerRules::check_run(const wire::Stamp& stamp, bool may_wait) const {
  return refuse_for(
      RefusalKind::kStale,
      stamp_error(stamp.generation(), stamp.run_digest(),
                  state_.generation().number, run_digest_, may_wait));
}

Answer CallerRules::check(const Caller& caller,
                          const wire::ReportExitRequest& request) const {
  if (Answer refusal = check_run(request.stamp(), true)) return refusal;
  const Member* member = state_.membership().find(request.worker_id());
  const bool is_its_own =
      caller.is_agent(request.node_id()) &&
      (member == nullptr || member->node_id == request.node_id());
  if (is_its_own) return std::nullopt;
  return Refusal{
      RefusalKind::kForeignName,
      "only its own agent says how worker " + request.worker_id() + " ended"};
}

Answer CallerRules::check_worker(const wire::Stamp& stamp, const Caller& caller,
                                 const std::string& worker_id,
                                 bool may_wait) const {
  const bool takes_part = state_.generation().find(worker_id) != nullptr;
  if (Answer refusal = check_run(stamp, may_wait && !takes_part)) {
    return refusal;
  }
  if (Answer refusal = check_name(caller, worker_id)) return refusal;
  if (takes_part || may_wait) return std::nullopt;
  return Refusal{RefusalKind::kNotAsAgreed,
                 cat("worker ", worker_id, " is no member of generation ",
                     state_.generation().number)};
}

Answer CallerRules::check(const Caller& caller,
                          const wire::HeartbeatRequest& request) const {
  if (Answer refusal = check_run(request.stamp(), true)) return refusal;
  if (!request.worker_id().empty()) {
    if (request.beats().empty()) return check_name(caller, request.worker_id());
    return Refusal{RefusalKind::kForeignName,
                   "only an agent speaks for others, and not as worker " +
                       request.worker_id()};
  }
  if (Answer refusal = check_agent(caller, request.node_id())) return refusal;
  constexpr int kMostBeats = 4096;
  if (request.beats_size() > kMostBeats) {
    return Refusal{RefusalKind::kNotAsAgreed,
                   cat("a heartbeat with ", request.beats_size(),
                       " beats is refused: no node has more than ", kMostBeats,
                       " workers")};
  }
  for (const wire::WorkerBeat& beat : request.beats()) {
    const Member* member = state_.membership().find(beat.worker_id());
    if (member == nullptr || member->node_id == request.node_id()) continue;
    return Refusal{RefusalKind::kForeignName,
                   "only the agent of node " + member->node_id +
                       " speaks for worker " + beat.worker_id()};
  }
  return std::nullopt;
}

Answer CallerRules::check(const Caller& caller,
                          const wire::DrainRequest& request) const {
  if (request.node_id().empty()) return std::nullopt;
  return check_agent(caller, request.node_id());
}

}  // namespace headroom::coordinator
