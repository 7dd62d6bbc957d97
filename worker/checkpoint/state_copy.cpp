#include "worker/checkpoint/state_copy.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "parallel/base/check.h"

namespace headroom::checkpoint {
namespace {

// So short that nobody who waits for one on a thread of lowest priority waits
// long.
constexpr int64_t kPieceBytes = 512 << 10;

}  // namespace

StateCopy::StateCopy(const HostStateSnapshot& from,
                     const HostStateSnapshot& to) {
  HEADROOM_CHECK(from.parts.size() == to.parts.size(), "states differ");
  for (size_t part = 0; part < from.parts.size(); ++part) {
    const at::Tensor& source = from.parts[part].values;
    const int64_t step =
        kPieceBytes / static_cast<int64_t>(source.element_size());
    for (int64_t begin = 0; begin < source.numel(); begin += step) {
      const int64_t size = std::min(step, source.numel() - begin);
      pieces_.push_back({source.narrow(0, begin, size),
                         to.parts[part].values.narrow(0, begin, size)});
    }
  }
}

bool StateCopy::advance() {
  const size_t index = next_.fetch_add(1);
  if (index >= pieces_.size()) return false;
  const at::NoGradGuard no_grad;
  pieces_[index].to.copy_(pieces_[index].from);
  ++num_copied_;
  num_copied_.notify_all();
  return true;
}

void StateCopy::finish() {
  while (advance()) {
  }
  for (size_t copied = num_copied_; copied != pieces_.size();
       copied = num_copied_) {
    num_copied_.wait(copied);
  }
}

}  // namespace headroom::checkpoint
