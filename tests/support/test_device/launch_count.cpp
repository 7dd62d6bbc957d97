#include "tests/support/test_device/launch_count.h"

#include <mutex>
#include <utility>

namespace headroom {
namespace {

struct Launches {
  std::mutex mutex;
  std::map<std::string, int64_t> by_name;  // guarded by mutex
};

Launches& launches() {
  static auto* const all = new Launches;
  return *all;
}

}  // namespace

void count_launch(const std::string& name, int64_t count) {
  Launches& all = launches();
  const std::lock_guard lock(all.mutex);
  all.by_name[name] += count;
}

std::map<std::string, int64_t> take_launches() {
  Launches& all = launches();
  const std::lock_guard lock(all.mutex);
  return std::exchange(all.by_name, {});
}

}  // namespace headroom
