#include "proto/handshake_watch.h"

#include <grpc/support/log.h>

#include <algorithm>
#include <mutex>
#include <shared_mutex>
#include <utility>
#include <vector>

#include "proto/channel.h"

namespace headroom::wire {
namespace {

struct Watches {
  std::shared_mutex mutex;
  std::vector<const HandshakeWatch*> all;
};

Watches& watches() {
  static auto* instance = new Watches;  // outlives gRPC's threads
  return *instance;
}

}  // namespace

HandshakeWatch::HandshakeWatch(OnFailure on_failure)
    : on_failure_(std::move(on_failure)) {
  quieten_grpc();
  // gRPC logs failed handshakes at debug level.
  gpr_set_log_verbosity(GPR_LOG_SEVERITY_DEBUG);
  std::lock_guard lock(watches().mutex);
  watches().all.push_back(this);
}

HandshakeWatch::~HandshakeWatch() {
  std::lock_guard lock(watches().mutex);
  std::erase(watches().all, this);
}

std::string handshake_failure(std::string_view grpc_line) {
  constexpr std::string_view kBegin = "Handshaking failed: ";
  if (!grpc_line.starts_with(kBegin)) return "";
  const auto says = [&](std::string_view words) {
    return grpc_line.find(words) != std::string_view::npos;
  };
  if (says("did not return a certificate")) return "no certificate";
  if (says("certificate verify failed")) return "foreign certificate";
  if (says("Handshake timed out")) return "silent connection";
  if (says("Ssl handshake failed")) return "no TLS";
  return "broken handshake";
}

void note_grpc_line(std::string_view line) {
  const std::string why = handshake_failure(line);
  if (why.empty()) return;
  std::shared_lock lock(watches().mutex);
  for (const HandshakeWatch* watch : watches().all) watch->on_failure_(why);
}

}  // namespace headroom::wire
