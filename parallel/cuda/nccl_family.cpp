#include "parallel/cuda/nccl_family.h"

#include <algorithm>
#include <vector>

#include "parallel/base/check.h"

namespace headroom::cuda {
namespace {

struct Families {
  std::mutex mutex;
  std::vector<std::weak_ptr<NcclFamily>> all;  // guarded
};

Families& families() {
  static auto* const known = new Families;
  return *known;
}

}  // namespace

std::shared_ptr<NcclFamily> NcclFamily::make() {
  std::shared_ptr<NcclFamily> made(new NcclFamily);
  const std::lock_guard lock(families().mutex);
  std::erase_if(families().all,
                [](const auto& family) { return family.expired(); });
  families().all.push_back(made);
  return made;
}

void NcclFamily::fail(const std::string& reason, bool is_full) {
  const std::lock_guard lock(mutex_);
  if (has_failed_) return;
  reason_ = reason;
  is_full_ = is_full;
  has_failed_ = true;
}

void NcclFamily::throw_failure(int rank, int size) const {
  const std::lock_guard lock(mutex_);
  const std::string who =
      "rank " + std::to_string(rank) + " of " + std::to_string(size) + ", ";
  if (!is_full_) throw CommunicationError(who + reason_);
  throw Error("memory",
              who + "the device has no memory for NCCL's buffers: " + reason_,
              "use a smaller --batch or --img, or fewer processes on a device",
              ExitCode::kResource);
}

void NcclFamily::abort_all(const std::string& reason) {
  const std::lock_guard lock(families().mutex);
  for (const auto& known : families().all) {
    if (const auto family = known.lock()) family->fail(reason);
  }
}

}  // namespace headroom::cuda
