#include "worker/control/rendezvous_client.h"

#include <algorithm>
#include <utility>

#include "parallel/base/check.h"
#include "parallel/base/utf8.h"

namespace headroom::control {

using std::chrono::milliseconds;
using SteadyClock = std::chrono::steady_clock;

RendezvousClient::RendezvousClient(wire::Coordinator::Stub& stub,
                                   wire::Stamp stamp, std::string address,
                                   Patience patience)
    : stub_(stub),
      stamp_(std::move(stamp)),
      address_(std::move(address)),
      patience_(std::move(patience)) {}

void RendezvousClient::set(const std::string& key, const std::string& value) {
  wire::PublishRequest request;
  *request.mutable_stamp() = stamp_;
  request.set_key(valid_utf8(key));
  request.set_value(value);
  wire::PublishResponse response;
  const grpc::Status status =
      patience_.call(kCallTimeout, [&](grpc::ClientContext& context) {
        return stub_.Publish(&context, request, &response);
      });
  if (!status.ok()) fail("publishing", key, status);
}

std::string RendezvousClient::get(const std::string& key,
                                  milliseconds timeout) {
  constexpr milliseconds kSlice{10000};
  const auto deadline = SteadyClock::now() + timeout;
  wire::LookupRequest request;
  *request.mutable_stamp() = stamp_;
  request.set_key(valid_utf8(key));
  for (;;) {
    const auto left = std::chrono::ceil<milliseconds>(
        std::max(deadline - SteadyClock::now(), SteadyClock::duration(0)));
    const milliseconds slice = std::min(left, kSlice);
    request.set_timeout_ms(slice.count());
    wire::LookupResponse response;
    const grpc::Status status =
        patience_.call(slice + kCallTimeout, [&](grpc::ClientContext& context) {
          return stub_.Lookup(&context, request, &response);
        });
    if (!status.ok()) fail("looking up", key, status);
    if (response.found()) return response.value();
    if (left <= slice) {
      throw CommunicationError("nobody published rendezvous key '" + key +
                               "' within " + std::to_string(timeout.count()) +
                               " ms");
    }
  }
}

void RendezvousClient::fail(const std::string& doing, const std::string& key,
                            const grpc::Status& status) const {
  throw CommunicationError(doing + " rendezvous key '" + key +
                           "' at the coordinator at " + address_ + ": " +
                           status.error_message());
}

}  // namespace headroom::control
