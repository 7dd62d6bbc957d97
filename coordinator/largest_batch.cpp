#include "coordinator/largest_batch.h"

#include <algorithm>

#include "coordinator/plan_memory.h"
#include "coordinator/planner.h"
#include "parallel/base/check.h"
#include "parallel/base/units.h"
#include "parallel/plan/layout.h"

namespace headroom {
namespace {

constexpr int64_t kUsualGroup = 16;
constexpr int64_t kMostUsualGroups = 4096;  // of a rank

std::string count_images(int64_t count) {
  return std::to_string(count) + (count == 1 ? " image" : " images");
}

class Search {
 public:
  Search(const RunConfig& config, int world_size,
         const std::vector<RowCost>& rows)
      : config_(config), world_size_(world_size), rows_(rows) {
    const ParallelLayout layout = parse_layout(config.layout);
    data_ = config.layout.empty() ? world_size : layout.data_parallel_size;
  }

  BatchChoice run() const {
    const int64_t images = label_bound(config_).statistics.num_images();
    if (images == 0) return largest_of_any();
    if (images < data_) refuse_want_of_images(images);
    const int64_t most_of_a_rank = images / data_;
    BatchChoice choice = largest(most_of_a_rank);
    const int64_t more = larger_share(choice.global_batch_size / data_);
    if (more > most_of_a_rank && is_within(at_share(more))) {
      choice.remark = "; the data set has no more than " + count_images(images);
    }
    return choice;
  }

 private:
  BatchChoice largest_of_any() const {
    constexpr int64_t kMostOfARank = kUsualGroup * kMostUsualGroups;
    BatchChoice choice = largest(kMostOfARank);
    if (choice.global_batch_size / data_ == kMostOfARank) {
      choice.remark = "; larger ones are not tried";
    }
    return choice;
  }

  // The next larger one that is tried.
  static int64_t larger_share(int64_t share) {
    return share < kUsualGroup ? 2 * share : share + kUsualGroup;
  }

  BatchChoice largest(int64_t most_of_a_rank) const {
    int64_t fits = 0;
    int64_t too_large =
        std::min(kMostUsualGroups, most_of_a_rank / kUsualGroup) + 1;
    while (fits + 1 < too_large) {
      const int64_t middle = fits + (too_large - fits) / 2;
      (is_within(at_share(kUsualGroup * middle)) ? fits : too_large) = middle;
    }
    if (fits > 0) return at_share(kUsualGroup * fits);
    for (const int64_t share : {8, 4, 2, 1}) {
      if (share > most_of_a_rank) continue;
      const BatchChoice choice = at_share(share);
      if (is_within(choice)) return choice;
      if (share == 1) refuse(choice);
    }
    HEADROOM_CHECK(false, "a share of one image was tried");
  }

  bool is_within(const BatchChoice& choice) const {
    return choice.bytes <= config_.memory_limit;
  }

  BatchChoice at_share(int64_t share) const {
    RunConfig trial = config_;
    trial.global_batch_size = share * data_;
    trial.micro_batch_size = share;
    trial.memory_limit = 0;  // nothing gives way
    const Plan plan = plan_or_throw(trial, world_size_, rows_);
    return {trial.global_batch_size, fullest_rank_training_bytes(plan), ""};
  }

  // "--activations recompute, or " where one image fits with it.
  std::string leaner_that_fits() const {
    RunConfig leaner = config_;
    for (const char* activations : {"lean", "recompute"}) {
      leaner.activations = activations;
      if (Search(leaner, world_size_, rows_).is_within_alone()) {
        return std::string("--activations ") + activations + ", or ";
      }
    }
    return "";
  }

  bool is_within_alone() const { return is_within(at_share(1)); }

  [[noreturn]] void refuse_want_of_images(int64_t images) const {
    throw Error("plan",
                "--batch -1: " + std::to_string(data_) +
                    " processes share out each batch, but the data set has " +
                    count_images(images),
                "use --processes " + std::to_string(images) + " or less");
  }

  [[noreturn]] void refuse(const BatchChoice& one_image) const {
    throw Error("plan",
                "--batch -1: one image a process needs " +
                    exact_bytes(one_image.bytes) + ", but --memory-limit is " +
                    exact_bytes(config_.memory_limit),
                "use " + leaner_that_fits() + "a smaller --img or model",
                ExitCode::kNoPlan);
  }

  const RunConfig& config_;
  const int world_size_;
  const std::vector<RowCost>& rows_;
  int64_t data_ = 1;
};

}  // namespace

BatchChoice largest_batch(const RunConfig& config, int world_size,
                          const std::vector<RowCost>& rows) {
  HEADROOM_CHECK(config.memory_limit > 0 && !rows.empty(),
                 "a limit and the model's rows");
  return Search(config, world_size, rows).run();
}

}  // namespace headroom
