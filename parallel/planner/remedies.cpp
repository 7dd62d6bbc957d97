#include "parallel/planner/remedies.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <functional>
#include <map>
#include <tuple>
#include <utility>

#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "parallel/plan/batch_norm_groups.h"
#include "parallel/plan/layout.h"
#include "parallel/planner/bisection.h"
#include "parallel/planner/model_layers.h"
#include "parallel/planner/plan_time.h"

namespace headroom::planner {
namespace {

using configs::RunConfig;

constexpr int64_t kMebibyte = int64_t{1} << 20;
constexpr int64_t kMostMebibytes = int64_t{1} << 24;  // 16 TiB
constexpr int64_t kLeastImage = 64;                   // smallest --img

// The flags that change only the use of memory. Combined as bits, they form
// sets.
enum MemoryFlag : unsigned {
  kActivations = 1,
  kMicroBatch = 2,
  kZero = 4,
  kLayout = 8
};
constexpr unsigned kAllMemoryFlags = 15;

// A request that fits, and the time of its steps.
struct Fit {
  RunConfig config;
  int world_size = 1;
  plan::Plan plan;
  double seconds = 0;
};

bool shrinks_groups(const Remedy& remedy) {
  return planner::shrinks_groups(remedy.config, remedy.plan);
}

bool changes_training(const Remedy& remedy) {
  return remedy.kind == RemedyKind::kImage ||
         remedy.kind == RemedyKind::kBatch ||
         remedy.kind == RemedyKind::kModel ||
         remedy.kind == RemedyKind::kGroups;
}

bool needs_more_hardware(const Remedy& remedy) {
  return remedy.kind == RemedyKind::kProcesses ||
         remedy.kind == RemedyKind::kMemoryLimit ||
         remedy.kind == RemedyKind::kHostMemoryLimit;
}

int bytes_of(configs::Precision precision) {
  switch (precision) {
    case configs::Precision::kFp64:
      return 8;
    case configs::Precision::kBf16:
    case configs::Precision::kFp16:
      return 2;
    case configs::Precision::kFp32:
    case configs::Precision::kAuto:  // means float32 here
      return 4;
  }
  return 4;
}

// A model that is not the run's, and the search of plans for it.
struct OtherModel {
  OtherModel(const RunConfig& config, const CardSpeed& card)
      : layers(model_layers(config)), search({layers, card}) {}
  const std::vector<layers::LayerCost> layers;
  PlanSearch search;
};

class RemedySearch {
 public:
  RemedySearch(const RunConfig& config, int world_size, PlanSearch& search,
               const RemedyScope& scope)
      : config_(config),
        world_size_(world_size),
        search_(search),
        scope_(scope),
        stride_(layers::largest_stride(search.layers())) {}

  std::vector<Remedy> run() {
    change_memory_flags();
    shorter_numbers();
    more_processes();
    larger_limits();
    smaller_image();
    smaller_batch();
    smaller_model();
    smaller_groups();
    drop_small_answers();
    std::ranges::stable_sort(found_, {}, [this](const Remedy& remedy) {
      const int rank = rank_of(remedy);
      const bool needs_nothing =
          (rank == 0 || rank == 2) && !needs_more_hardware(remedy);
      return std::tuple(rank, needs_more_hardware(remedy),
                        needs_nothing ? remedy.time_ratio : 0);
    });
    return std::move(found_);
  }

 private:
  // The smallest changes come first. Much larger limits and many more processes
  // come late: the user may not have them.
  int rank_of(const Remedy& remedy) const {
    if (changes_training(remedy)) return 4;
    if (remedy.config.memory_limit > 2 * config_.memory_limit ||
        remedy.world_size > 4 * world_size_) {
      return 3;
    }
    if (shrinks_groups(remedy)) return 2;
    return needs_more_hardware(remedy) ? 1 : 0;
  }

  // All values that a search varies.
  using Key = std::tuple<std::string, configs::Precision, std::string, int64_t,
                         int64_t, std::string, int64_t, bool, int64_t, int64_t,
                         int64_t, int64_t, int64_t, int>;

  static Key key_of(const RunConfig& trial, int world_size) {
    return {trial.cfg,
            trial.precision,
            trial.activations,
            trial.micro_batch_size,
            trial.zero_stage,
            trial.layout ? plan::to_string(*trial.layout) : "",
            trial.batch_norm_group_size,
            trial.sync_batch_norm,
            trial.image_height,
            trial.image_width,
            trial.global_batch_size,
            trial.memory_limit,
            trial.host_memory_limit,
            world_size};
  }

  PlanSearch& search_of(const RunConfig& trial) {
    if (trial.cfg == config_.cfg) return search_;
    return models_.try_emplace(trial.cfg, trial, search_.model().card)
        .first->second.search;
  }

  int64_t threads_of(const RunConfig& trial, int world_size) const {
    return scope_.threads_of ? scope_.threads_of(world_size) : trial.threads;
  }

  double seconds_of(const RunConfig& trial, const plan::Plan& plan) {
    const ModelOnCard& model = search_of(trial).model();
    if (scope_.seconds_of) return scope_.seconds_of(trial, plan, model.layers);
    const predict::StepEstimate step = plan_time(trial, plan, model);
    const int ranks = plan.layout.world_size();
    return scope_.cores == 0
               ? step.total()
               : seconds_on_cores(step, ranks, threads_of(trial, ranks),
                                  scope_.cores);
  }

  // The time per image, divided by the time per image of the request without
  // limits; 0 if unknown.
  double time_ratio_of(const Fit& fit) {
    const auto seconds_of_image = [](double seconds, const RunConfig& trial) {
      return seconds / static_cast<double>(trial.global_batch_size);
    };
    if (!unlimited_) {
      RunConfig free = config_;
      free.memory_limit = free.host_memory_limit = 0;
      const auto plan = search_.best(free, world_size_).plan;
      unlimited_ = plan ? seconds_of_image(seconds_of(free, *plan), free) : 0;
    }
    // plan_time() does not depend on the number format.
    const bool is_unknown =
        fit.config.precision != config_.precision && !scope_.seconds_of;
    return *unlimited_ == 0 || is_unknown
               ? 0
               : seconds_of_image(fit.seconds, fit.config) / *unlimited_;
  }

  // The plan that the request gets if `is_final`, else any plan that fits.
  std::optional<plan::Plan> plan_of(RunConfig trial, int world_size,
                                    bool is_final) {
    trial.threads = threads_of(trial, world_size);
    PlanSearch& search = search_of(trial);
    auto plan = is_final ? search.best(trial, world_size).plan
                         : search.any(trial, world_size);
    if (plan && scope_.admits && !scope_.admits(trial, *plan)) {
      return std::nullopt;
    }
    return plan;
  }

  bool fits(const RunConfig& trial, int world_size) {
    auto key = key_of(trial, world_size);
    const auto known = known_.find(key);
    if (known != known_.end()) return known->second;
    // With `admits` find the final plan, because `admits` may reject another
    // plan that fits.
    const bool is_found =
        plan_of(trial, world_size, scope_.admits != nullptr).has_value();
    known_.emplace(std::move(key), is_found);
    return is_found;
  }

  std::optional<Fit> final_fit(const RunConfig& trial, int world_size) {
    if (!fits(trial, world_size)) return std::nullopt;
    auto plan = plan_of(trial, world_size, true);
    if (!plan) return std::nullopt;
    const double seconds = seconds_of(trial, *plan);
    return Fit{trial, world_size, std::move(*plan), seconds};
  }

  // Adds a remedy for a request that fits, with the flags that differ from the
  // original. Returns false if there is no `fit`.
  bool add(RemedyKind kind, const std::optional<Fit>& fit) {
    if (!fit) return false;
    Remedy remedy{kind, fit->config, fit->world_size, {}, false, fit->plan};
    remedy.config.processes = fit->world_size;
    remedy.flags = changed_flags(*fit);
    remedy.drops_sync_bn =
        config_.sync_batch_norm && !fit->config.sync_batch_norm;
    remedy.time_ratio = time_ratio_of(*fit);
    found_.push_back(std::move(remedy));
    return true;
  }

  std::vector<configs::FlagUse> changed_flags(const Fit& fit) const {
    std::vector<configs::FlagUse> flags = configs::changed_flags(
        config_, fit.config,
        {"layout", "zero_stage", "activations", "micro_batch_size", "precision",
         "batch_norm_group_size", "image_height", "global_batch_size", "cfg"});
    const RunConfig& now = fit.config;
    if (fit.world_size != world_size_) {
      flags.insert(flags.begin(),
                   {scope_.processes_flag,
                    {cat(scope_.processes_prefix,
                         fit.world_size / scope_.processes_each)}});
    }
    if (now.memory_limit != config_.memory_limit) {
      flags.push_back({scope_.limit_flag, {cat(limit_mebibytes_, "MiB")}});
    }
    if (now.host_memory_limit != config_.host_memory_limit) {
      flags.push_back({"--host-memory-limit",
                       {cat(now.host_memory_limit / kMebibyte, "MiB")}});
    }
    return flags;
  }

  // The fastest request that fits and in which each `freed` flag has changed.
  std::optional<Fit> fastest_with(unsigned freed) {
    const RunConfig open = with_open(config_, freed);
    std::optional<Fit> best;
    // "auto" comes first: the planner then mixes policies.
    for (const char* policy :
         {"auto", "lean", "recompute", "offload", "keep"}) {
      const bool changes = config_.activations != policy;
      if (((freed & kActivations) != 0) != changes) continue;
      RunConfig trial = open;
      trial.activations = policy;
      keep_faster(best, final_fit(trial, world_size_));
    }
    if (!best) return std::nullopt;
    return final_fit(settled(best->config, best->plan, freed), world_size_);
  }

  static void keep_faster(std::optional<Fit>& best, std::optional<Fit> other) {
    if (other && (!best || other->seconds < best->seconds)) {
      best = std::move(other);
    }
  }

  // The request without the `freed` flags; its activations are not changed.
  static RunConfig with_open(RunConfig trial, unsigned freed) {
    if ((freed & kMicroBatch) != 0) trial.micro_batch_size = 0;
    if ((freed & kZero) != 0) trial.zero_stage = 0;
    if ((freed & kLayout) != 0) trial.layout.reset();
    return trial;
  }

  // Sets the `freed` flags to the values that the planner chose.
  static RunConfig settled(RunConfig trial, const plan::Plan& plan,
                           unsigned freed) {
    if ((freed & kMicroBatch) != 0) {
      trial.micro_batch_size = plan.micro_batch_size;
    }
    if ((freed & kZero) != 0) trial.zero_stage = plan.zero_stage;
    if ((freed & kLayout) != 0) trial.layout = plan.layout;
    return trial;
  }

  // The memory flags that the user gave, except for activations.
  unsigned given() const {
    return (config_.micro_batch_size > 0 ? kMicroBatch : 0U) |
           (config_.zero_stage > 0 ? kZero : 0U) |
           (config_.layout ? kLayout : 0U);
  }

  void change_memory_flags() {
    unsigned changeable = kActivations | given();
    if (world_size_ == 1) changeable &= ~kLayout;
    const auto sets_of = [changeable](int count) {
      std::vector<unsigned> sets;
      for (unsigned set = 1; set <= kAllMemoryFlags; ++set) {
        if (std::popcount(set) == count && (set & ~changeable) == 0) {
          sets.push_back(set);
        }
      }
      return sets;
    };
    for (const unsigned flag : sets_of(1)) {
      add(flag == kActivations  ? RemedyKind::kActivations
          : flag == kMicroBatch ? RemedyKind::kMicroBatch
          : flag == kZero       ? RemedyKind::kZero
                                : RemedyKind::kLayout,
          fastest_with(flag));
    }
    // Changes as few flags together as possible, or more if that avoids smaller
    // batch-norm groups.
    for (int count = 2; count <= 4; ++count) {
      if (std::ranges::any_of(found_, std::not_fn(shrinks_groups))) return;
      const size_t before = found_.size();
      std::optional<Fit> fastest;
      for (const unsigned set : sets_of(count)) {
        keep_faster(fastest, fastest_with(set));
      }
      if (add(RemedyKind::kTogether, fastest) && before > 0 &&
          shrinks_groups(found_.back())) {
        found_.resize(before);
      }
    }
  }

  // Returns the requests to vary: first the given request (without its layout
  // if `frees_layout`), then the request without any memory flags, once with
  // activations "auto" and once with "offload".
  std::vector<RunConfig> bases(bool frees_layout) const {
    const RunConfig as_typed = with_open(config_, frees_layout ? kLayout : 0U);
    std::vector<RunConfig> all = {as_typed};
    RunConfig free = with_open(config_, kAllMemoryFlags);
    for (const char* policy : {"auto", "offload"}) {
      free.activations = policy;
      if (key_of(free, 1) != key_of(as_typed, 1)) all.push_back(free);
    }
    return all;
  }

  // Adds a remedy. Flags that the user gave and that `trial` leaves open get
  // the plan's values. Returns false if the request does not fit.
  bool add_settled(RemedyKind kind, const RunConfig& trial, int world_size) {
    auto fit = final_fit(trial, world_size);
    if (!fit) return false;
    const unsigned freed =
        given() &
        ((trial.micro_batch_size == 0 ? kMicroBatch : 0U) |
         (trial.zero_stage == 0 ? kZero : 0U) | (!trial.layout ? kLayout : 0U));
    const RunConfig whole = settled(trial, fit->plan, freed);
    if (key_of(whole, 1) != key_of(trial, 1)) {
      fit = final_fit(whole, world_size);
    }
    return add(kind, fit);
  }

  void more_processes() {
    if (scope_.processes_flag.empty()) return;
    const int each = scope_.processes_each;
    for (const RunConfig& base : bases(/*frees_layout=*/true)) {
      for (int count = (world_size_ / each + 1) * each;
           count <= scope_.most_processes; count += each) {
        if (fits(base, count) &&
            add_settled(RemedyKind::kProcesses, base, count)) {
          return;
        }
      }
    }
  }

  int64_t limit_of(int64_t mebibytes) const {
    return scope_.limit_of ? scope_.limit_of(mebibytes) : mebibytes * kMebibyte;
  }

  // The smallest number above `below` with which a request fits.
  template <typename Trial>
  std::optional<int64_t> least_that_fits(int64_t below, const Trial& trial) {
    int64_t fits_so = kMostMebibytes;
    if (!fits(trial(fits_so), world_size_)) return std::nullopt;
    for (int64_t step = 1; below + step < fits_so; step *= 2) {
      if (fits(trial(below + step), world_size_)) fits_so = below + step;
    }
    return 1 + last_that_holds(below, fits_so, [&](int64_t number) {
             return !fits(trial(number), world_size_);
           });
  }

  // The current limit in MiB, rounded down.
  int64_t mebibytes_of_limit() const {
    return last_that_holds(0, kMostMebibytes, [this](int64_t number) {
      return limit_of(number) <= config_.memory_limit;
    });
  }

  void larger_limits() {
    RunConfig base = config_;
    const auto with_memory = [&](int64_t mebibytes) {
      RunConfig trial = base;
      trial.memory_limit = limit_of(mebibytes);
      return trial;
    };
    const auto with_host = [&](int64_t mebibytes) {
      RunConfig trial = base;
      trial.host_memory_limit = mebibytes * kMebibyte;
      return trial;
    };
    const bool has_memory =
        config_.memory_limit > 0 && !scope_.limit_flag.empty();
    const auto raise_memory = [&] {
      const auto least = least_that_fits(mebibytes_of_limit(), with_memory);
      if (!least) return false;
      limit_mebibytes_ = *least;
      return add(base.host_memory_limit == config_.host_memory_limit
                     ? RemedyKind::kMemoryLimit
                     : RemedyKind::kHostMemoryLimit,
                 final_fit(with_memory(*least), world_size_));
    };
    if (has_memory && raise_memory()) return;
    if (config_.host_memory_limit == 0) return;
    const int64_t host = config_.host_memory_limit / kMebibyte;
    if (const auto least = least_that_fits(host, with_host)) {
      add(RemedyKind::kHostMemoryLimit,
          final_fit(with_host(*least), world_size_));
      return;
    }
    // Neither limit alone suffices: find the host's limit with the largest
    // memory limit.
    if (!has_memory) return;
    base.memory_limit = limit_of(kMostMebibytes);
    const auto least = least_that_fits(host, with_host);
    if (!least) return;
    base = with_host(*least);
    base.memory_limit = config_.memory_limit;
    raise_memory();
  }

  // A number in [least, asked) with which a request fits, while a request with
  // the next number does not fit.
  template <typename Trial>
  std::optional<int64_t> largest_that_fits(int64_t least, int64_t asked,
                                           const Trial& trial) {
    if (least >= asked || !fits(trial(least), world_size_)) return std::nullopt;
    return last_that_holds(least, asked, [&](int64_t number) {
      return fits(trial(number), world_size_);
    });
  }

  int64_t blocks_of(const RunConfig& config) const {
    return layers::rounded_image_size(
               std::max(config.image_height, config.image_width), stride_) /
           stride_;
  }

  void shorter_numbers() {
    if (config_.tf32) return;  // TF32 has an effect on float32 only
    const size_t before = found_.size();
    for (const RunConfig& base : bases(/*frees_layout=*/false)) {
      for (const configs::Precision precision : scope_.precisions) {
        if (bytes_of(precision) >= bytes_of(config_.precision)) continue;
        RunConfig trial = base;
        trial.precision = precision;
        if (!add_settled(RemedyKind::kPrecision, trial, world_size_)) continue;
        if (shrinks_groups(found_.back())) continue;
        // This format keeps the usual groups: drop those that do not.
        found_.erase(found_.begin() + static_cast<std::ptrdiff_t>(before),
                     found_.end() - 1);
        return;
      }
    }
    found_.resize(std::min(found_.size(), before + 1));
  }

  void smaller_model() {
    for (const RunConfig& base : bases(/*frees_layout=*/false)) {
      for (const std::string& model : scope_.models) {
        RunConfig trial = base;
        trial.cfg = model;
        if (add_settled(RemedyKind::kModel, trial, world_size_)) return;
      }
    }
  }

  void smaller_image() {
    for (const RunConfig& base : bases(/*frees_layout=*/false)) {
      const auto image = [&](int64_t blocks) {
        RunConfig trial = base;
        trial.image_height = std::min(base.image_height, blocks * stride_);
        trial.image_width = std::min(base.image_width, blocks * stride_);
        return trial;
      };
      // A spatial layout needs one block of rows per rank.
      const int64_t least = std::max<int64_t>(
          divided_up(kLeastImage, stride_),
          base.layout ? base.layout->spatial_parallel_size : 1);
      const auto blocks = largest_that_fits(least, blocks_of(base), image);
      if (blocks &&
          add_settled(RemedyKind::kImage, image(*blocks), world_size_)) {
        return;
      }
    }
  }

  void smaller_batch() {
    if (config_.global_batch_size == configs::kLargestBatch) return;
    const auto with = [&](int64_t batch) {
      RunConfig trial = config_;
      trial.global_batch_size = batch;
      return trial;
    };
    const int64_t least = std::max<int64_t>(
        {1, config_.batch_norm_group_size,
         config_.layout ? config_.layout->data_parallel_size : 1});
    if (const auto batch =
            largest_that_fits(least, config_.global_batch_size, with)) {
      add(RemedyKind::kBatch, final_fit(with(*batch), world_size_));
    }
  }

  void smaller_groups() {
    if (config_.batch_norm_rule) return;  // a resumed run keeps its groups
    RunConfig trial = config_;
    trial.sync_batch_norm = false;
    if (config_.sync_batch_norm &&
        add(RemedyKind::kGroups, final_fit(trial, world_size_)) &&
        shrinks_groups(found_.back())) {
      found_.pop_back();
    }
    const auto with = [&](int64_t group) {
      trial.batch_norm_group_size = group;
      return trial;
    };
    int64_t group = config_.sync_batch_norm ? config_.global_batch_size
                                            : config_.batch_norm_group_size;
    if (config_.micro_batch_size == 0) {
      group = largest_that_fits(1, group, with).value_or(0);
    } else {  // groups must divide the micro-batch: try each size
      while (--group >= 1 && !fits(with(group), world_size_)) {
      }
    }
    if (group >= 1) {
      add(RemedyKind::kGroups, final_fit(with(group), world_size_));
    }
  }

  // Drops images and batches of less than half the size, and much smaller
  // models: training with them would be a different task.
  void drop_small_answers() {
    const auto is_small = [&](const Remedy& remedy) {
      return (remedy.kind == RemedyKind::kImage &&
              2 * blocks_of(remedy.config) < blocks_of(config_)) ||
             (remedy.kind == RemedyKind::kBatch &&
              2 * remedy.config.global_batch_size <
                  config_.global_batch_size) ||
             (remedy.kind == RemedyKind::kModel &&
              remedy.config.cfg != scope_.models.front());
    };
    if (!std::ranges::all_of(found_, is_small)) {
      std::erase_if(found_, is_small);
    }
  }

  const RunConfig& config_;
  const int world_size_;
  PlanSearch& search_;
  const RemedyScope& scope_;
  const int64_t stride_;
  int64_t limit_mebibytes_ = 0;  // the larger --memory-limit that was found
  std::map<Key, bool> known_;
  std::map<std::string, OtherModel> models_;
  // Seconds of an image without limits; 0 if there is no plan.
  std::optional<double> unlimited_;
  std::vector<Remedy> found_;
};

// The plan's bytes, its time and its batch-norm groups if they change: " (2
// GiB, 1.27 x the time)".
std::string fit_text(const Remedy& remedy) {
  std::string text = format_bytes(fullest_rank_bytes(remedy.plan));
  if (remedy.time_ratio > 0) {
    text += ", " + fixed_text(remedy.time_ratio, 2) + " x the time";
  }
  if (remedy.kind == RemedyKind::kGroups || shrinks_groups(remedy)) {
    text += ", batch-norm groups of " +
            plan::group_sizes_text(remedy.config.global_batch_size,
                                   remedy.plan.batch_norm_rule());
  }
  return " (" + text + ")";
}

}  // namespace

std::vector<Remedy> find_remedies(const configs::RunConfig& config,
                                  int world_size, PlanSearch& search,
                                  const RemedyScope& scope) {
  return RemedySearch(config, world_size, search, scope).run();
}

std::vector<Remedy> remedies_for_groups(const configs::RunConfig& config,
                                        int world_size,
                                        const ModelOnCard& model,
                                        const RemedyScope& scope) {
  configs::RunConfig usual = config;
  usual.batch_norm_rule = batch_norm_rule(config);
  PlanSearch search(model);
  std::vector<Remedy> remedies =
      find_remedies(usual, world_size, search, scope);
  // A smaller batch has no place here, because it would have other groups.
  std::erase_if(remedies, [](const Remedy& remedy) {
    return remedy.kind == RemedyKind::kBatch;
  });
  return remedies;
}

std::optional<std::string> smaller_groups_warning(
    const configs::RunConfig& config, const plan::Plan& plan,
    const ModelOnCard& model, const RemedyScope& scope) {
  if (!shrinks_groups(config, plan)) return std::nullopt;
  const int64_t batch = config.global_batch_size;
  const int world_size = plan.layout.world_size();
  return cat(
      "batch-norm groups of ",
      plan::group_sizes_text(batch, plan.batch_norm_rule()), " instead of ",
      plan::group_sizes_text(batch, batch_norm_rule(config)),
      " images, which fit no plan of ", counted(world_size, "process"),
      " within ", format_bytes(config.memory_limit),
      ". Statistics of fewer images are noisier: the weights become others, "
      "often less accurate ones. To keep the usual groups, ",
      remedies_text(remedies_for_groups(config, world_size, model, scope),
                    scope));
}

std::string flags_text(const Remedy& remedy) {
  const std::string text =
      joined(remedy.flags, " ", [](const configs::FlagUse& use) {
        std::string words = use.spelling;
        for (const std::string& value : use.values) words += " " + value;
        return words;
      });
  if (!remedy.drops_sync_bn) return text;
  return (text.empty() ? "the same command" : text) + " without --sync-bn";
}

std::string remedies_text(const std::vector<Remedy>& remedies,
                          const RemedyScope& scope) {
  if (remedies.empty()) {
    return scope.models.empty()
               ? "no change of a single flag fits: use a smaller model"
               : "no change of a single flag fits, and no smaller model";
  }
  std::string text;
  for (const Remedy& remedy : remedies) {
    const bool is_first = &remedy == remedies.data();
    const std::string command =
        is_first && scope.command_with ? scope.command_with(remedy) : "";
    text += (is_first ? "use " : ", or ") +
            (command.empty() ? flags_text(remedy) : command) + fit_text(remedy);
  }
  return text;
}

std::string remedy_of(const configs::RunConfig& config, int world_size,
                      const std::vector<layers::LayerCost>& layers,
                      const RemedyScope& scope) {
  PlanSearch search(layers);
  return remedies_text(find_remedies(config, world_size, search, scope), scope);
}

}  // namespace headroom::planner
