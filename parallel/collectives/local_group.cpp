#include "parallel/collectives/local_group.h"

#include "parallel/base/check.h"

namespace headroom::local {

using Clock = std::chrono::steady_clock;

std::shared_ptr<Operation> Group::join(
    const std::string& key, const std::string& name, int rank,
    std::set<int> expected, Part part,
    std::function<void(std::vector<Part>&)> perform) {
  std::lock_guard<std::mutex> lock(mutex_);
  throw_if_failed(name, rank);
  std::shared_ptr<Operation>& slot = operations_[key];
  if (!slot) {
    slot = std::make_shared<Operation>();
    slot->name = name;
    slot->expected = std::move(expected);
    slot->perform = std::move(perform);
  }
  const std::shared_ptr<Operation> operation = slot;
  if (operation->name != name) {
    fail("rank " + std::to_string(rank) + " called " + name +
         " where another rank called " + operation->name);
    throw_if_failed(name, rank);
  }
  operation->parts.emplace(rank, std::move(part));
  if (operation->parts.size() == operation->expected.size()) {
    operations_.erase(key);
    perform_now(*operation, rank);
  }
  return operation;
}

void Group::wait(const std::shared_ptr<Operation>& operation, int rank) {
  std::unique_lock<std::mutex> lock(mutex_);
  const Clock::time_point deadline = Clock::now() + timeout_;
  while (!operation->done) {
    for (const int other : operation->expected) {
      if (gone_.count(other) > 0 && operation->parts.count(other) == 0) {
        fail("rank " + std::to_string(other) + " is gone");
      }
    }
    throw_if_failed(operation->name, rank);
    if (changed_.wait_until(lock, deadline) == std::cv_status::timeout &&
        !operation->done) {
      fail("no answer for " + std::to_string(timeout_.count()) + " ms in " +
           operation->name);
    }
  }
}

void Group::leave(int rank) {
  std::lock_guard<std::mutex> lock(mutex_);
  gone_.insert(rank);
  changed_.notify_all();
}

std::shared_ptr<Group> Group::child(int64_t number, int color, int size) {
  std::lock_guard<std::mutex> lock(mutex_);
  std::shared_ptr<Group>& group = children_[{number, color}];
  if (!group) group = std::make_shared<Group>(size, timeout_);
  return group;
}

void Group::perform_now(Operation& operation, int rank) {
  std::vector<Part> parts;
  for (auto& [part_rank, part] : operation.parts) {
    parts.push_back(std::move(part));
  }
  try {
    operation.perform(parts);
  } catch (const std::exception& error) {
    fail(operation.name + " failed on rank " + std::to_string(rank) + ": " +
         error.what());
    throw;
  }
  operation.done = true;
  changed_.notify_all();
}

// Operations are dropped with their tensors: from now on nobody writes to them.
void Group::fail(const std::string& reason) {
  if (failure_.empty()) failure_ = reason;
  operations_.clear();
  changed_.notify_all();
}

void Group::throw_if_failed(const std::string& name, int rank) const {
  if (failure_.empty()) return;
  throw CommunicationError("rank " + std::to_string(rank) + " of " +
                           std::to_string(size_) + ", " + name + ": " +
                           failure_);
}

}  // namespace headroom::local
