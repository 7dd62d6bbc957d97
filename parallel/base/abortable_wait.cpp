#include "parallel/base/abortable_wait.h"

#include <mutex>
#include <set>
#include <utility>

namespace headroom {
namespace {

std::mutex mutex;

std::set<const AbortableWait*>& waits() {
  static auto* const all = new std::set<const AbortableWait*>;
  return *all;
}

}  // namespace

AbortableWait::AbortableWait(std::function<void()> abort)
    : abort_(std::move(abort)) {
  const std::lock_guard lock(mutex);
  waits().insert(this);
}

AbortableWait::~AbortableWait() {
  const std::lock_guard lock(mutex);
  waits().erase(this);
}

void AbortableWait::abort_all() {
  const std::lock_guard lock(mutex);
  for (const AbortableWait* wait : waits()) wait->abort_();
}

}  // namespace headroom
