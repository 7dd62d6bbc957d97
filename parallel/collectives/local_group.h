// The place where ranks that are threads meet: internal to local_communicator.
//
// Threads: all methods from any thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace headroom::local {

// What one rank brings to an operation; flat tensors.
struct Part {
  at::Tensor output;
  at::Tensor input;
};

// One operation that some ranks have joined and others perhaps not yet.
struct Operation {
  std::string name;
  std::set<int> expected;  // the ranks that take part
  // Called once, with all parts in rank order.
  std::function<void(std::vector<Part>&)> perform;
  std::map<int, Part> parts;
  bool done = false;
};

class Group {
 public:
  Group(int size, std::chrono::milliseconds timeout)
      : size_(size), timeout_(timeout) {}

  int size() const { return size_; }

  // Joins the operation under `key`; the last of `expected` performs it.
  // Throws CommunicationError.
  std::shared_ptr<Operation> join(
      const std::string& key, const std::string& name, int rank,
      std::set<int> expected, Part part,
      std::function<void(std::vector<Part>&)> perform);

  // Until it is performed. Throws CommunicationError when a rank that it needs
  // has left, or after the timeout; the group has then failed for all.
  void wait(const std::shared_ptr<Operation>& operation, int rank);

  // The rank is gone: operations that wait for it fail.
  void leave(int rank);

  // The group of the ranks that gave `color` in split number `number`.
  std::shared_ptr<Group> child(int64_t number, int color, int size);

 private:
  // These need mutex_.
  void perform_now(Operation& operation, int rank);
  void fail(const std::string& reason);
  void throw_if_failed(const std::string& name, int rank) const;

  const int size_;
  const std::chrono::milliseconds timeout_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  std::map<std::string, std::shared_ptr<Operation>> operations_;
  std::set<int> gone_;
  std::map<std::pair<int64_t, int>, std::shared_ptr<Group>> children_;
  std::string failure_;
};

}  // namespace headroom::local
