#include "worker/replicate.h"

#include <vector>

#include "parallel/base/check.h"
#include "worker/gather.h"

namespace headroom {

void replicate(Communicator& communicator, LayerGraph& model) {
  if (communicator.size() == 1) return;
  for (const NamedTensor& entry : model.state()) {
    communicator.broadcast(entry.tensor->detach(), 0);
  }
}

void require_same_on_all_ranks(Communicator& communicator, uint64_t digest,
                               const std::string& what) {
  const std::string mine = std::to_string(digest);
  const std::vector<std::string> all = gather_bytes(communicator, mine);
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    throw Error("data",
                what + " of rank " + std::to_string(rank) +
                    " differ from those of rank 0 (digests " + all[rank] +
                    " and " + all[0] + ")",
                "put the same data set on every node", ExitCode::kData);
  }
}

}  // namespace headroom
