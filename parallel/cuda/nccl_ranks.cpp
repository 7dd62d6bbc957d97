#include "parallel/cuda/nccl_ranks.h"

#include <ATen/ops/from_blob.h>
#include <dlfcn.h>

#include "parallel/base/check.h"
#include "parallel/collectives/gather.h"
#include "parallel/collectives/local_communication_error.h"
#include "parallel/cuda/nccl_advice.h"
#include "parallel/cuda/nccl_limits.h"

namespace headroom::cuda {
namespace {

void require_usable_library() {
  int loaded = 0;
  if (ncclGetVersion(&loaded) != ncclSuccess) return;
  Dl_info info{};
  const bool is_found =
      dladdr(reinterpret_cast<const void*>(&ncclGetVersion), &info) != 0 &&
      info.dli_fname != nullptr;
  const std::string why = nccl_version_refusal(
      NCCL_VERSION_CODE, loaded, is_found ? info.dli_fname : "libnccl.so.2");
  if (why.empty()) return;
  throw Error("nccl", why,
              "take that folder out of LD_LIBRARY_PATH, or build with its "
              "nccl.h");
}

ncclUniqueId make_id() {
  ncclUniqueId id = {};
  const ncclResult_t made = ncclGetUniqueId(&id);
  if (made == ncclSuccess) return id;
  const std::string text = ncclGetLastError(nullptr);
  const std::string advice = nccl_advice(text);
  throw LocalCommunicationError("NCCL cannot listen for its ranks: " + text +
                                (advice.empty() ? "" : "; " + advice));
}

}  // namespace

NcclRanks::NcclRanks(const NcclConnection::Place& place) : place_(place) {
  require_usable_library();
}

std::shared_ptr<NcclConnection> NcclRanks::connection(
    collectives::Communicator& host, int channels) {
  std::vector<int64_t> members;
  for (const auto& rank : collectives::tell_all(
           host, std::array<int64_t, 1>{int64_t{place_.rank}})) {
    members.push_back(rank[0]);
  }
  std::shared_ptr<NcclConnection>& known = connections_[members];
  if (known == nullptr) known = connect(host, channels);
  return known;
}

std::shared_ptr<NcclConnection> NcclRanks::connect(
    collectives::Communicator& host, int channels) {
  const int rank = host.rank(), size = host.size();
  std::vector<ncclUniqueId> ids(static_cast<size_t>(roots_of(size)));
  for (size_t root = 0; root < ids.size(); ++root) {
    const int listener = first_rank_of_root(static_cast<int>(root), size);
    if (rank == listener) ids[root] = make_id();
    host.broadcast(at::from_blob(ids[root].internal,
                                 {sizeof(ids[root].internal)}, at::kByte),
                   listener);
  }
  NcclConnection::Place place = place_;
  place.rank = rank;
  place.size = size;
  place.channels = channels;
  return std::make_shared<NcclConnection>(
      place, [&](ncclConfig_t* config, ncclComm_t* made) {
        return ncclCommInitRankScalable(
            made, size, rank, static_cast<int>(ids.size()), ids.data(), config);
      });
}

std::shared_ptr<NcclConnection> NcclRanks::messages(
    collectives::Communicator& host, int from, int to) const {
  const bool is_sender = host.rank() == from;
  ncclUniqueId id = is_sender ? make_id() : ncclUniqueId{};
  const at::Tensor bytes =
      at::from_blob(id.internal, {sizeof(id.internal)}, at::kByte);
  is_sender ? host.send(bytes, to) : host.recv(bytes, from);
  NcclConnection::Place place = place_;
  place.rank = is_sender ? kSender : kReceiver;
  place.size = 2;
  place.channels = kMessageChannels;
  place.has_own_stream = true;
  return std::make_shared<NcclConnection>(
      place, [&](ncclConfig_t* config, ncclComm_t* made) {
        return ncclCommInitRankScalable(made, place.size, place.rank, 1, &id,
                                        config);
      });
}

}  // namespace headroom::cuda
