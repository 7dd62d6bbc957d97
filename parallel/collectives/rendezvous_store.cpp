#include "parallel/collectives/rendezvous_store.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

namespace headroom::collectives {
namespace {

[[noreturn]] void fail_not_offered(const char* operation) {
  C10_THROW_ERROR(NotImplementedError,
                  std::string("the rendezvous map offers no ") + operation);
}

}  // namespace

RendezvousStore::RendezvousStore(std::shared_ptr<KeyValueStore> store,
                                 std::string prefix,
                                 std::chrono::milliseconds timeout)
    : c10d::Store(timeout),
      store_(std::move(store)),
      prefix_(std::move(prefix)) {}

c10::intrusive_ptr<c10d::Store> RendezvousStore::clone() {
  return c10::make_intrusive<RendezvousStore>(store_, prefix_, getTimeout());
}

void RendezvousStore::set(const std::string& key,
                          const std::vector<uint8_t>& value) {
  store_->set(prefix_ + "/" + key, std::string(value.begin(), value.end()));
}

std::vector<uint8_t> RendezvousStore::get(const std::string& key) {
  const std::string value = store_->get(prefix_ + "/" + key, getTimeout());
  return std::vector<uint8_t>(value.begin(), value.end());
}

void RendezvousStore::wait(const std::vector<std::string>& keys) {
  wait(keys, getTimeout());
}

// Gloo's own time limits are five minutes; ours is the communicator's.
void RendezvousStore::wait(const std::vector<std::string>& keys,
                           const std::chrono::milliseconds& timeout) {
  for (const std::string& key : keys) {
    store_->get(prefix_ + "/" + key, std::min(timeout, getTimeout()));
  }
}

int64_t RendezvousStore::add(const std::string&, int64_t) {
  fail_not_offered("add");
}
bool RendezvousStore::deleteKey(const std::string&) {
  fail_not_offered("deleteKey");
}
bool RendezvousStore::check(const std::vector<std::string>&) {
  fail_not_offered("check");
}
int64_t RendezvousStore::getNumKeys() { fail_not_offered("getNumKeys"); }

}  // namespace headroom::collectives
