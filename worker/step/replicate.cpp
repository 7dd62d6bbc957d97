#include "worker/step/replicate.h"

#include <vector>

#include "parallel/base/check.h"
#include "parallel/collectives/gather.h"

namespace headroom::step {

void replicate(collectives::Communicator& communicator,
               model::LayerGraph& model) {
  if (communicator.size() == 1) return;
  for (const model::NamedTensor& entry : model.state()) {
    communicator.broadcast(entry.tensor->detach(), 0);
  }
}

void require_same_on_all_ranks(collectives::Communicator& communicator,
                               uint64_t digest, const std::string& what) {
  const std::string mine = std::to_string(digest);
  const std::vector<std::string> all =
      collectives::gather_bytes(communicator, mine);
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    throw Error("data",
                what + " of rank " + std::to_string(rank) +
                    " differ from those of rank 0 (digests " + all[rank] +
                    " and " + all[0] + ")",
                "put the same data set on every node", ExitCode::kData);
  }
}

}  // namespace headroom::step
