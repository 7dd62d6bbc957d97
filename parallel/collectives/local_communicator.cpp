#include "parallel/base/text.h"
#include "parallel/collectives/backend.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/maximum.h>

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

#include "parallel/base/check.h"
#include "parallel/collectives/backend_parts.h"

namespace headroom::collectives {
namespace {

// The state shared by ranks that are threads of one process. Any thread may
// call its functions.

// One rank's tensors in an operation; both are flat.
struct LocalPart {
  at::Tensor output;
  at::Tensor input;
};

// An operation that some ranks may not have joined yet.
struct LocalOperation {
  std::string name;
  std::set<int> expected;  // the ranks that take part
  // Called once, with all parts in rank order.
  std::function<void(std::vector<LocalPart>&)> perform;
  std::map<int, LocalPart> parts;
  bool done = false;
};

class LocalGroup {
 public:
  LocalGroup(int size, std::chrono::milliseconds timeout)
      : size_(size), timeout_(timeout) {}

  int size() const { return size_; }

  // Joins the operation under `key`; the last rank of `expected` to join
  // performs it. Throws CommunicationError.
  std::shared_ptr<LocalOperation> join(
      const std::string& key, const std::string& name, int rank,
      std::set<int> expected, LocalPart part,
      std::function<void(std::vector<LocalPart>&)> perform);

  // Waits until `operation` is performed. Throws CommunicationError if an
  // expected rank has left without joining, or after the timeout; the group is
  // then unusable for all ranks.
  void wait(const std::shared_ptr<LocalOperation>& operation, int rank);

  // Marks the rank as lost: operations that wait for it fail.
  void leave(int rank);

  // The group of the ranks that passed `color` to the split with this number.
  std::shared_ptr<LocalGroup> child(int64_t number, int color, int size);

 private:
  // The caller of these functions holds mutex_.
  void perform_now(LocalOperation& operation, int rank);
  void fail(const std::string& reason);
  void throw_if_failed(const std::string& name, int rank) const;

  const int size_;
  const std::chrono::milliseconds timeout_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  std::map<std::string, std::shared_ptr<LocalOperation>> operations_;
  std::set<int> gone_;
  std::map<std::pair<int64_t, int>, std::shared_ptr<LocalGroup>> children_;
  std::string failure_;
};

using Clock = std::chrono::steady_clock;

std::shared_ptr<LocalOperation> LocalGroup::join(
    const std::string& key, const std::string& name, int rank,
    std::set<int> expected, LocalPart part,
    std::function<void(std::vector<LocalPart>&)> perform) {
  std::lock_guard<std::mutex> lock(mutex_);
  throw_if_failed(name, rank);
  std::shared_ptr<LocalOperation>& slot = operations_[key];
  if (!slot) {
    slot = std::make_shared<LocalOperation>();
    slot->name = name;
    slot->expected = std::move(expected);
    slot->perform = std::move(perform);
  }
  const std::shared_ptr<LocalOperation> operation = slot;
  if (operation->name != name) {
    fail(cat("rank ", rank, " called ", name, " where another rank called ",
             operation->name));
    throw_if_failed(name, rank);
  }
  operation->parts.emplace(rank, std::move(part));
  if (operation->parts.size() == operation->expected.size()) {
    operations_.erase(key);
    perform_now(*operation, rank);
  }
  return operation;
}

void LocalGroup::wait(const std::shared_ptr<LocalOperation>& operation,
                      int rank) {
  std::unique_lock<std::mutex> lock(mutex_);
  const Clock::time_point deadline = Clock::now() + timeout_;
  while (!operation->done) {
    for (const int other : operation->expected) {
      if (gone_.count(other) > 0 && operation->parts.count(other) == 0) {
        fail(cat("rank ", other, " is gone"));
      }
    }
    throw_if_failed(operation->name, rank);
    if (changed_.wait_until(lock, deadline) == std::cv_status::timeout &&
        !operation->done) {
      fail(cat("no answer for ", timeout_.count(), " ms in ", operation->name));
    }
  }
}

void LocalGroup::leave(int rank) {
  std::lock_guard<std::mutex> lock(mutex_);
  gone_.insert(rank);
  changed_.notify_all();
}

std::shared_ptr<LocalGroup> LocalGroup::child(int64_t number, int color,
                                              int size) {
  std::lock_guard<std::mutex> lock(mutex_);
  std::shared_ptr<LocalGroup>& group = children_[{number, color}];
  if (!group) group = std::make_shared<LocalGroup>(size, timeout_);
  return group;
}

void LocalGroup::perform_now(LocalOperation& operation, int rank) {
  std::vector<LocalPart> parts;
  for (auto& [part_rank, part] : operation.parts) {
    parts.push_back(std::move(part));
  }
  try {
    operation.perform(parts);
  } catch (const std::exception& error) {
    fail(cat(operation.name, " failed on rank ", rank, ": ", error.what()));
    throw;
  }
  operation.done = true;
  changed_.notify_all();
}

// Drops all operations with their tensors, so that none of them writes to a
// tensor later.
void LocalGroup::fail(const std::string& reason) {
  if (failure_.empty()) failure_ = reason;
  operations_.clear();
  changed_.notify_all();
}

void LocalGroup::throw_if_failed(const std::string& name, int rank) const {
  if (failure_.empty()) return;
  throw CommunicationError(
      cat("rank ", rank, " of ", size_, ", ", name, ": ", failure_));
}

class LocalWork final : public Work {
 public:
  LocalWork(std::shared_ptr<LocalGroup> group,
            std::shared_ptr<LocalOperation> operation, int rank)
      : group_(std::move(group)),
        operation_(std::move(operation)),
        rank_(rank) {}

  void wait() override { group_->wait(operation_, rank_); }

 private:
  std::shared_ptr<LocalGroup> group_;
  std::shared_ptr<LocalOperation> operation_;
  const int rank_;
};

void check_same_form(const std::vector<LocalPart>& parts) {
  for (const LocalPart& part : parts) {
    const LocalPart& first = parts.front();
    HEADROOM_CHECK(part.input.scalar_type() == first.input.scalar_type() &&
                       part.input.numel() == first.input.numel(),
                   cat("ranks brought ", first.input.numel(), " and ",
                       part.input.numel(), " elements, or different types"));
  }
}

// A copy of a flat tensor outside the counted tensor memory: the scratch of a
// collective must not count for the rank whose thread performs it.
class Scratch {
 public:
  explicit Scratch(const at::Tensor& flat)
      : memory_(flat.nbytes()),
        values_(at::from_blob(memory_.data(), flat.sizes(), flat.options())) {
    values_.copy_(flat);
  }
  at::Tensor& values() { return values_; }

 private:
  std::vector<char> memory_;
  at::Tensor values_;
};

Scratch sum_in_rank_order(const std::vector<LocalPart>& parts) {
  Scratch sum(parts.front().input);
  for (size_t i = 1; i < parts.size(); ++i) sum.values().add_(parts[i].input);
  return sum;
}

void perform_sum(std::vector<LocalPart>& parts) {
  check_same_form(parts);
  Scratch sum = sum_in_rank_order(parts);
  for (LocalPart& part : parts) part.output.copy_(sum.values());
}

void perform_max(std::vector<LocalPart>& parts) {
  check_same_form(parts);
  Scratch maximum(parts.front().input);
  for (const LocalPart& part : parts) {
    at::maximum_out(maximum.values(), maximum.values(), part.input);
  }
  for (LocalPart& part : parts) part.output.copy_(maximum.values());
}

void perform_gather(std::vector<LocalPart>& parts) {
  check_same_form(parts);
  const int64_t count = parts.front().input.numel();
  for (LocalPart& part : parts) {
    for (size_t i = 0; i < parts.size(); ++i) {
      part.output.narrow(0, static_cast<int64_t>(i) * count, count)
          .copy_(parts[i].input);
    }
  }
}

void perform_scatter(std::vector<LocalPart>& parts) {
  check_same_form(parts);
  Scratch sum = sum_in_rank_order(parts);
  for (size_t i = 0; i < parts.size(); ++i) {
    const int64_t count = parts[i].output.numel();
    parts[i].output.copy_(
        sum.values().narrow(0, static_cast<int64_t>(i) * count, count));
  }
}

class LocalCommunicator final : public Communicator {
 public:
  LocalCommunicator(std::shared_ptr<LocalGroup> group, int rank)
      : group_(std::move(group)), rank_(rank) {
    for (int i = 0; i < group_->size(); ++i) everyone_.insert(i);
  }
  ~LocalCommunicator() override { group_->leave(rank_); }

  int rank() const override { return rank_; }
  int size() const override { return group_->size(); }

  std::unique_ptr<Work> all_reduce_async(const at::Tensor& tensor,
                                         ReduceOp op) override {
    const at::Tensor flat = flat_view(tensor);
    return collective(
        op == ReduceOp::kSum ? "all_reduce sum" : "all_reduce max",
        {flat, flat}, op == ReduceOp::kSum ? perform_sum : perform_max);
  }

  void all_gather(const at::Tensor& output, const at::Tensor& input) override {
    const LocalPart part{flat_view(output), flat_view(input)};
    check_multiple(part.output, part.input, size());
    collective("all_gather", part, perform_gather)->wait();
  }

  void reduce_scatter(const at::Tensor& output,
                      const at::Tensor& input) override {
    const LocalPart part{flat_view(output), flat_view(input)};
    check_multiple(part.input, part.output, size());
    collective("reduce_scatter", part, perform_scatter)->wait();
  }

  void broadcast(const at::Tensor& tensor, int root) override {
    const at::Tensor flat = flat_view(tensor);
    check_rank(root, size());
    collective(cat("broadcast from ", root), {flat, flat},
               [root](std::vector<LocalPart>& parts) {
                 check_same_form(parts);
                 for (LocalPart& part : parts) {
                   part.output.copy_(parts[root].input);
                 }
               })
        ->wait();
  }

  std::unique_ptr<Work> send_async(const at::Tensor& tensor, int to) override {
    return exchange(tensor, rank_, to, sent_[to]++);
  }
  std::unique_ptr<Work> recv_async(const at::Tensor& tensor,
                                   int from) override {
    return exchange(tensor, from, rank_, received_[from]++);
  }

  void barrier() override {
    collective("barrier", {}, [](std::vector<LocalPart>&) {})->wait();
  }

  std::unique_ptr<Communicator> split(int color, int key) override {
    const SplitMembers members = split_members(*this, color, key);
    return std::make_unique<LocalCommunicator>(
        group_->child(num_splits_++, color,
                      static_cast<int>(members.ranks.size())),
        members.rank);
  }

 private:
  std::unique_ptr<Work> collective(
      const std::string& name, LocalPart part,
      std::function<void(std::vector<LocalPart>&)> perform) {
    const std::string key = cat("collective ", num_collectives_++);
    return std::make_unique<LocalWork>(
        group_,
        group_->join(key, name, rank_, everyone_, std::move(part),
                     std::move(perform)),
        rank_);
  }

  std::unique_ptr<Work> exchange(const at::Tensor& tensor, int from, int to,
                                 int64_t number) {
    check_rank(from, size());
    check_rank(to, size());
    HEADROOM_CHECK(from != to,
                   cat("rank ", from, " cannot exchange with itself"));
    const at::Tensor flat = message_view(tensor);
    const std::string name = cat("message from ", from, " to ", to);
    // The two tensors in `parts` are ordered by rank.
    const size_t source = from < to ? 0 : 1;
    return std::make_unique<LocalWork>(
        group_,
        group_->join(cat(name, ", number ", number), name, rank_, {from, to},
                     {flat, flat},
                     [source](std::vector<LocalPart>& parts) {
                       check_same_form(parts);
                       parts[1 - source].output.copy_(parts[source].input);
                     }),
        rank_);
  }

  std::shared_ptr<LocalGroup> group_;
  const int rank_;
  std::set<int> everyone_;
  int64_t num_collectives_ = 0;
  int64_t num_splits_ = 0;
  std::map<int, int64_t> sent_;
  std::map<int, int64_t> received_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_local_communicators(
    int size, std::chrono::milliseconds timeout) {
  HEADROOM_CHECK(size > 0, cat("a group of ", size, " ranks"));
  const auto group = std::make_shared<LocalGroup>(size, timeout);
  std::vector<std::unique_ptr<Communicator>> communicators;
  for (int rank = 0; rank < size; ++rank) {
    communicators.push_back(std::make_unique<LocalCommunicator>(group, rank));
  }
  return communicators;
}

}  // namespace headroom::collectives
