#include "parallel/planner/largest_batch.h"

#include <algorithm>
#include <limits>

#include "parallel/base/check.h"
#include "parallel/base/device_list.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "parallel/planner/bisection.h"
#include "parallel/planner/plan_search.h"
#include "parallel/planner/remedies.h"

namespace headroom::planner {
namespace {

constexpr int64_t kMostOfARank = 65536;

class BatchSearch {
 public:
  BatchSearch(const configs::RunConfig& config, int world_size,
              PlanSearch& search)
      : config_(config),
        world_size_(world_size),
        data_(config.layout ? config.layout->data_parallel_size : world_size),
        search_(search) {}

  BatchChoice run() const {
    const int64_t images =
        predict::label_bound(config_).statistics.num_images();
    if (images > 0 && images < data_) refuse_want_of_images(images);
    const int64_t most =
        std::min(kMostOfARank, images > 0 ? images / data_ : kMostOfARank);
    const int64_t fitting = largest_that_fits(most);
    BatchChoice choice = at_share(fitting);
    std::string bound;
    if (fitting == kMostOfARank) {
      bound = "larger ones are not tried";
    } else if (fitting == most && is_within(at_share(fitting + 1))) {
      bound = "the data set has no more than " + counted(images, "image");
      if (data_ > 1) {
        bound += cat(" for ", data_, " processes to share equally");
      }
    }
    if (!bound.empty()) choice.remark = "; " + bound;
    return choice;
  }

 private:
  // The smallest share of a rank: one image, or the rank's part of one
  // batch-norm group of the requested size.
  int64_t least_share() const {
    return std::max<int64_t>(1,
                             divided_up(config_.batch_norm_group_size, data_));
  }

  int64_t largest_that_fits(int64_t most) const {
    const int64_t least = least_share();
    if (const BatchChoice choice = at_share(least); !is_within(choice)) {
      refuse(choice, least);
    }
    return last_that_holds(
        least, std::max(most, least) + 1,
        [this](int64_t share) { return is_within(at_share(share)); });
  }

  bool is_within(const BatchChoice& choice) const {
    return choice.bytes <= config_.memory_limit;
  }

  BatchChoice at_share(int64_t share) const {
    configs::RunConfig trial = config_;
    trial.global_batch_size = share * data_;
    trial.micro_batch_size = trial.global_batch_size;
    trial.memory_limit = 0;  // the planner must not change policies to fit
    const PlanDecision decision = search_.best(trial, world_size_);
    // Without a limit on tensors, only the loader's memory refuses a plan. A
    // smaller batch may still fit.
    if (decision.exit_code == ExitCode::kNoPlan && !decision.plan &&
        share > least_share()) {
      return {trial.global_batch_size, std::numeric_limits<int64_t>::max(), ""};
    }
    if (!decision.plan) {
      throw Error("plan", decision.reason,
                  decision.exit_code == ExitCode::kNoPlan
                      ? remedy_of(trial, world_size_, search_.layers(), {})
                      : decision.remedy,
                  decision.exit_code);
    }
    return {trial.global_batch_size,
            fullest_rank_training_bytes(*decision.plan), ""};
  }

  bool fits_with(const configs::RunConfig& changed) const {
    return BatchSearch(changed, world_size_, search_).is_within_alone();
  }

  // Changes to the request, each of which alone suffices: a policy that keeps
  // less, smaller groups, a smaller image, or a larger limit.
  std::string what_fits(int64_t least_bytes) const {
    std::vector<std::string> all;
    configs::RunConfig changed = config_;
    for (const char* activations : {"lean", "recompute", "offload"}) {
      changed.activations = activations;
      if (!fits_with(changed)) continue;
      all.push_back("--activations " + changed.activations);
      break;
    }
    changed = config_;
    for (int64_t group = config_.batch_norm_group_size - 1; group >= 1;
         --group) {
      changed.batch_norm_group_size = group;
      if (!fits_with(changed)) continue;
      all.push_back(cat("--bn-group ", group));
      break;
    }
    changed = config_;
    const int64_t stride = layers::largest_stride(search_.layers());
    const int64_t larger = std::max(config_.image_height, config_.image_width);
    for (int64_t side = (larger - 1) / stride * stride;
         side >= std::max<int64_t>(64, larger / 2); side -= stride) {
      changed.image_height = std::min(config_.image_height, side);
      changed.image_width = std::min(config_.image_width, side);
      if (!fits_with(changed)) continue;
      all.push_back(cat("--img ", changed.image_height,
                        changed.image_width == changed.image_height
                            ? ""
                            : cat(" ", changed.image_width)));
      break;
    }
    constexpr int64_t kMebibyte = int64_t{1} << 20;
    // On cards the limit may be the card's own memory.
    if (!computes_on_cards(config_.device)) {
      all.push_back(
          cat("--memory-limit ", divided_up(least_bytes, kMebibyte), "MiB"));
    }
    if (all.empty()) return "use a smaller model, or more memory";
    return "use " + joined(all, ", or ");
  }

  bool is_within_alone() const { return is_within(at_share(least_share())); }

  [[noreturn]] void refuse_want_of_images(int64_t images) const {
    throw Error("plan",
                cat("--batch -1: ", data_,
                    " processes share out each batch, but the data set has ",
                    counted(images, "image")),
                cat("use --processes ", images, " or less"));
  }

  [[noreturn]] void refuse(const BatchChoice& least, int64_t share) const {
    const std::string what =
        share == 1 ? "one image a process needs "
                   : cat(counted(share, "image"), " a process, for --bn-group ",
                         config_.batch_norm_group_size, ", need ");
    throw Error("plan",
                "--batch -1: " + what + exact_bytes(least.bytes) +
                    ", but the memory limit of a process is " +
                    exact_bytes(config_.memory_limit),
                what_fits(least.bytes), ExitCode::kNoPlan);
  }

  const configs::RunConfig& config_;
  const int world_size_;
  const int64_t data_;  // number of data ranks
  PlanSearch& search_;
};

}  // namespace

BatchChoice largest_batch(const configs::RunConfig& config, int world_size,
                          const std::vector<layers::LayerCost>& layers) {
  HEADROOM_CHECK(config.memory_limit > 0 && !layers.empty(),
                 "a limit and the model's layers");
  PlanSearch search(layers);
  return BatchSearch(config, world_size, search).run();
}

}  // namespace headroom::planner
