#include "parallel/collectives/local_communicator.h"

#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/from_blob.h>
#include <ATen/ops/maximum.h>

#include "parallel/base/check.h"
#include "parallel/collectives/flat_view.h"
#include "parallel/collectives/local_group.h"
#include "parallel/collectives/operand_checks.h"
#include "parallel/collectives/split_members.h"

namespace headroom::collectives {
namespace {

using local::Group;
using local::Operation;
using local::Part;

class LocalWork final : public Work {
 public:
  LocalWork(std::shared_ptr<Group> group, std::shared_ptr<Operation> operation,
            int rank)
      : group_(std::move(group)),
        operation_(std::move(operation)),
        rank_(rank) {}

  void wait() override { group_->wait(operation_, rank_); }

 private:
  std::shared_ptr<Group> group_;
  std::shared_ptr<Operation> operation_;
  const int rank_;
};

void check_same_form(const std::vector<Part>& parts) {
  for (const Part& part : parts) {
    const Part& first = parts.front();
    HEADROOM_CHECK(part.input.scalar_type() == first.input.scalar_type() &&
                       part.input.numel() == first.input.numel(),
                   "ranks brought " + std::to_string(first.input.numel()) +
                       " and " + std::to_string(part.input.numel()) +
                       " elements, or different types");
  }
}

// A copy of a flat tensor in memory that is nobody's tensor memory: what a
// collective needs inside must not count for, or fail, the rank whose thread
// happens to perform it.
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

Scratch sum_in_rank_order(const std::vector<Part>& parts) {
  Scratch sum(parts.front().input);
  for (size_t i = 1; i < parts.size(); ++i) sum.values().add_(parts[i].input);
  return sum;
}

void perform_sum(std::vector<Part>& parts) {
  check_same_form(parts);
  Scratch sum = sum_in_rank_order(parts);
  for (Part& part : parts) part.output.copy_(sum.values());
}

void perform_max(std::vector<Part>& parts) {
  check_same_form(parts);
  Scratch maximum(parts.front().input);
  for (const Part& part : parts) {
    at::maximum_out(maximum.values(), maximum.values(), part.input);
  }
  for (Part& part : parts) part.output.copy_(maximum.values());
}

void perform_gather(std::vector<Part>& parts) {
  check_same_form(parts);
  const int64_t count = parts.front().input.numel();
  for (Part& part : parts) {
    for (size_t i = 0; i < parts.size(); ++i) {
      part.output.narrow(0, static_cast<int64_t>(i) * count, count)
          .copy_(parts[i].input);
    }
  }
}

void perform_scatter(std::vector<Part>& parts) {
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
  LocalCommunicator(std::shared_ptr<Group> group, int rank)
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
    const Part part{flat_view(output), flat_view(input)};
    check_multiple(part.output, part.input, size());
    collective("all_gather", part, perform_gather)->wait();
  }

  void reduce_scatter(const at::Tensor& output,
                      const at::Tensor& input) override {
    const Part part{flat_view(output), flat_view(input)};
    check_multiple(part.input, part.output, size());
    collective("reduce_scatter", part, perform_scatter)->wait();
  }

  void broadcast(const at::Tensor& tensor, int root) override {
    const at::Tensor flat = flat_view(tensor);
    check_rank(root, size());
    collective("broadcast from " + std::to_string(root), {flat, flat},
               [root](std::vector<Part>& parts) {
                 check_same_form(parts);
                 for (Part& part : parts) {
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
    collective("barrier", {}, [](std::vector<Part>&) {})->wait();
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
      const std::string& name, Part part,
      std::function<void(std::vector<Part>&)> perform) {
    const std::string key = "collective " + std::to_string(num_collectives_++);
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
    HEADROOM_CHECK(from != to, "rank " + std::to_string(from) +
                                   " cannot exchange with itself");
    const at::Tensor flat = message_view(tensor);
    const std::string name =
        "message from " + std::to_string(from) + " to " + std::to_string(to);
    // Parts come in rank order.
    const size_t source = from < to ? 0 : 1;
    return std::make_unique<LocalWork>(
        group_,
        group_->join(name + ", number " + std::to_string(number), name, rank_,
                     {from, to}, {flat, flat},
                     [source](std::vector<Part>& parts) {
                       check_same_form(parts);
                       parts[1 - source].output.copy_(parts[source].input);
                     }),
        rank_);
  }

  std::shared_ptr<Group> group_;
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
  HEADROOM_CHECK(size > 0, "a group of " + std::to_string(size) + " ranks");
  const auto group = std::make_shared<Group>(size, timeout);
  std::vector<std::unique_ptr<Communicator>> communicators;
  for (int rank = 0; rank < size; ++rank) {
    communicators.push_back(std::make_unique<LocalCommunicator>(group, rank));
  }
  return communicators;
}

}  // namespace headroom::collectives
