#include "parallel/planner/remedies.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <tuple>

#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "parallel/plan/batch_norm_groups.h"
#include "parallel/plan/layout.h"
#include "parallel/planner/plan_memory.h"
#include "parallel/planner/planner.h"

namespace headroom::planner {
namespace {

using configs::RunConfig;

constexpr int64_t kMebibyte = int64_t{1} << 20;
constexpr int64_t kMostMebibytes = int64_t{1} << 24;  // 16 TiB
constexpr int64_t kLeastImage = 64;                   // the least --img

// The flags that change where memory goes, and nothing else.
struct MemoryFlags {
  bool activations = false;
  bool micro_batch = false;
  bool zero = false;
  bool layout = false;

  int count() const {
    return static_cast<int>(activations) + static_cast<int>(micro_batch) +
           static_cast<int>(zero) + static_cast<int>(layout);
  }
};

// A request that fits, and how long its steps take.
struct Fit {
  RunConfig config;
  int world_size = 1;
  plan::Plan plan;
  double seconds = 0;
};

// Whether the planner takes smaller batch-norm groups than without a limit.
bool shrinks_groups(const Remedy& remedy) {
  return chooses_batch_norm_groups(remedy.config) &&
         remedy.plan.batch_norm_group_size <
             batch_norm_rule(remedy.config).size;
}

bool changes_training(const Remedy& remedy) {
  return remedy.kind == RemedyKind::kImage ||
         remedy.kind == RemedyKind::kBatch ||
         remedy.kind == RemedyKind::kGroups;
}

class RemedySearch {
 public:
  RemedySearch(const RunConfig& config, int world_size,
               const std::vector<layers::LayerCost>& layers,
               const RemedyScope& scope, const TryPlan& try_plan)
      : config_(config),
        world_size_(world_size),
        layers_(layers),
        scope_(scope),
        try_plan_(try_plan),
        given_{config.activations != "auto", config.micro_batch_size > 0,
               config.zero_stage > 0, config.layout.has_value()},
        stride_(layers::largest_stride(layers)) {}

  std::vector<Remedy> run() {
    change_memory_flags();
    more_processes();
    larger_limits();
    smaller_image();
    smaller_batch();
    smaller_groups();
    drop_small_answers();
    std::ranges::stable_sort(
        found_, {}, [this](const Remedy& remedy) { return rank_of(remedy); });
    return std::move(found_);
  }

 private:
  // What changes least comes first. A limit far from the one there is, or many
  // more processes, may be what nobody has.
  int rank_of(const Remedy& remedy) const {
    if (changes_training(remedy)) return 3;
    if (remedy.config.memory_limit > 2 * config_.memory_limit ||
        remedy.world_size > 4 * world_size_) {
      return 2;
    }
    return shrinks_groups(remedy) ? 1 : 0;
  }

  // What can differ between the requests of a search.
  using Key =
      std::tuple<std::string, int64_t, int64_t, std::string, int64_t, bool,
                 int64_t, int64_t, int64_t, int64_t, int64_t, int>;

  static Key key_of(const RunConfig& trial, int world_size) {
    return {trial.activations,
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

  std::optional<plan::Plan> attempt(RunConfig trial, int world_size,
                                    bool is_final) const {
    if (scope_.threads_of) trial.threads = scope_.threads_of(world_size);
    auto plan = try_plan_(trial, world_size, is_final);
    if (plan && scope_.admits && !scope_.admits(trial, *plan)) {
      return std::nullopt;
    }
    return plan;
  }

  bool fits(const RunConfig& trial, int world_size) {
    const auto [place, is_new] =
        known_.try_emplace(key_of(trial, world_size), false);
    if (is_new) {
      // Another plan than the final one may have other segments.
      place->second =
          attempt(trial, world_size, scope_.admits != nullptr).has_value();
    }
    return place->second;
  }

  std::optional<Fit> final_fit(const RunConfig& trial, int world_size) {
    if (!fits(trial, world_size)) return std::nullopt;
    auto plan = attempt(trial, world_size, true);
    if (!plan) return std::nullopt;
    const double seconds = plan_time(trial, *plan, layers_).total();
    return Fit{trial, world_size, std::move(*plan), seconds};
  }

  // Adds a request that fits, with the flags that tell it from the one that
  // does not.
  bool add(RemedyKind kind, const std::optional<Fit>& fit) {
    if (!fit) return false;
    Remedy remedy{kind, fit->config, fit->world_size, {}, false, fit->plan};
    remedy.config.processes = fit->world_size;
    remedy.flags = changed_flags(*fit);
    remedy.drops_sync_bn =
        config_.sync_batch_norm && !fit->config.sync_batch_norm;
    found_.push_back(std::move(remedy));
    return true;
  }

  std::vector<configs::FlagUse> changed_flags(const Fit& fit) const {
    std::vector<configs::FlagUse> flags = configs::changed_flags(
        config_, fit.config,
        {"layout", "zero_stage", "activations", "micro_batch_size",
         "batch_norm_group_size", "image_height", "global_batch_size"});
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

  // The fastest of the requests that fit whose `freed` flags have other values.
  std::optional<Fit> fastest_with(const MemoryFlags& freed, int world_size) {
    RunConfig trial = config_;
    if (freed.micro_batch) trial.micro_batch_size = 0;
    if (freed.zero) trial.zero_stage = 0;
    if (freed.layout) trial.layout.reset();
    std::optional<Fit> best;
    // Policies that the planner mixes come first.
    for (const char* policy :
         {"auto", "lean", "recompute", "offload", "keep"}) {
      if (freed.activations == (config_.activations == policy)) continue;
      trial.activations = policy;
      auto fit = final_fit(trial, world_size);
      if (fit && (!best || fit->seconds < best->seconds)) best = std::move(fit);
    }
    if (!best) return std::nullopt;
    // What was left open is said.
    trial = best->config;
    if (freed.micro_batch) trial.micro_batch_size = best->plan.micro_batch_size;
    if (freed.zero) trial.zero_stage = best->plan.zero_stage;
    if (freed.layout) trial.layout = best->plan.layout;
    return final_fit(trial, world_size);
  }

  void change_memory_flags() {
    add(RemedyKind::kActivations,
        fastest_with({.activations = true}, world_size_));
    if (given_.micro_batch) {
      add(RemedyKind::kMicroBatch,
          fastest_with({.micro_batch = true}, world_size_));
    }
    if (given_.zero) {
      add(RemedyKind::kZero, fastest_with({.zero = true}, world_size_));
    }
    if (given_.layout && world_size_ > 1) {
      add(RemedyKind::kLayout, fastest_with({.layout = true}, world_size_));
    }
    // The fewest of those, and more where that saves the batch-norm groups.
    for (int count = 2; count <= 4; ++count) {
      if (std::ranges::any_of(found_, std::not_fn(shrinks_groups))) return;
      const size_t before = found_.size();
      const bool is_first = found_.empty();
      if (add(RemedyKind::kTogether, fastest_of(count, world_size_)) &&
          !is_first && shrinks_groups(found_.back())) {
        found_.resize(before);
      }
    }
  }

  // The fastest request with `count` flags changed.
  std::optional<Fit> fastest_of(int count, int world_size) {
    std::optional<Fit> best;
    for (int set = 0; set < 16; ++set) {
      const MemoryFlags freed{(set & 1) != 0, (set & 2) != 0, (set & 4) != 0,
                              (set & 8) != 0};
      const bool is_given =
          (!freed.micro_batch || given_.micro_batch) &&
          (!freed.zero || given_.zero) &&
          (!freed.layout || (given_.layout && world_size > 1));
      if (!is_given || freed.count() != count) continue;
      auto fit = fastest_with(freed, world_size);
      if (fit && (!best || fit->seconds < best->seconds)) best = std::move(fit);
    }
    return best;
  }

  // The request as it is, and with every memory flag at its leanest.
  std::vector<RunConfig> bases(bool frees_layout) const {
    RunConfig as_typed = config_;
    if (frees_layout) as_typed.layout.reset();
    std::vector<RunConfig> all = {as_typed};
    RunConfig free = as_typed;
    free.layout.reset();
    free.zero_stage = 0;
    free.micro_batch_size = 0;
    for (const char* policy : {"auto", "offload"}) {
      free.activations = policy;
      if (key_of(free, 1) != key_of(as_typed, 1)) all.push_back(free);
    }
    return all;
  }

  // A plan's values for what was given and has been left open.
  RunConfig settled(RunConfig trial, const plan::Plan& plan) const {
    if (given_.micro_batch && trial.micro_batch_size == 0) {
      trial.micro_batch_size = plan.micro_batch_size;
    }
    if (given_.zero && trial.zero_stage == 0) {
      trial.zero_stage = plan.zero_stage;
    }
    if (given_.layout && !trial.layout) trial.layout = plan.layout;
    return trial;
  }

  bool add_settled(RemedyKind kind, const RunConfig& trial, int world_size) {
    auto fit = final_fit(trial, world_size);
    if (!fit) return false;
    const RunConfig whole = settled(trial, fit->plan);
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

  // The least number above `below` with which a request fits.
  template <typename Trial>
  std::optional<int64_t> least_that_fits(int64_t below, const Trial& trial) {
    int64_t fits_so = kMostMebibytes;
    if (!fits(trial(fits_so), world_size_)) return std::nullopt;
    for (int64_t step = 1; below + step < fits_so; step *= 2) {
      if (fits(trial(below + step), world_size_)) fits_so = below + step;
    }
    while (below + 1 < fits_so) {
      const int64_t middle = below + (fits_so - below) / 2;
      (fits(trial(middle), world_size_) ? fits_so : below) = middle;
    }
    return fits_so;
  }

  // The largest number of MiB within the limit there is.
  int64_t mebibytes_of_limit() const {
    int64_t within = 0;
    int64_t beyond = kMostMebibytes;
    while (within + 1 < beyond) {
      const int64_t middle = within + (beyond - within) / 2;
      (limit_of(middle) <= config_.memory_limit ? within : beyond) = middle;
    }
    return within;
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
    // Neither suffices: the host's is found where there is no other.
    if (!has_memory) return;
    base.memory_limit = limit_of(kMostMebibytes);
    const auto least = least_that_fits(host, with_host);
    if (!least) return;
    base = with_host(*least);
    base.memory_limit = config_.memory_limit;
    raise_memory();
  }

  // The largest number in [least, asked) for which a request fits, whose
  // neighbour above does not.
  template <typename Trial>
  std::optional<int64_t> largest_that_fits(int64_t least, int64_t asked,
                                           const Trial& trial) {
    if (least >= asked || !fits(trial(least), world_size_)) return std::nullopt;
    while (least + 1 < asked) {
      const int64_t middle = least + (asked - least) / 2;
      (fits(trial(middle), world_size_) ? least : asked) = middle;
    }
    return least;
  }

  int64_t blocks_of(const RunConfig& config) const {
    return layers::rounded_image_size(
               std::max(config.image_height, config.image_width), stride_) /
           stride_;
  }

  void smaller_image() {
    for (const RunConfig& base : bases(/*frees_layout=*/false)) {
      const auto image = [&](int64_t blocks) {
        RunConfig trial = base;
        trial.image_height = std::min(base.image_height, blocks * stride_);
        trial.image_width = std::min(base.image_width, blocks * stride_);
        return trial;
      };
      // A spatial layout has a block for each of its ranks.
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
    if (config_.batch_norm_rule) return;  // a run that goes on keeps its own
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
    } else {  // only some numbers divide it
      while (--group >= 1 && !fits(with(group), world_size_)) {
      }
    }
    if (group >= 1) {
      add(RemedyKind::kGroups, final_fit(with(group), world_size_));
    }
  }

  // A detector of a fraction of the size answers another question.
  void drop_small_answers() {
    const auto is_small = [&](const Remedy& remedy) {
      return (remedy.kind == RemedyKind::kImage &&
              2 * blocks_of(remedy.config) < blocks_of(config_)) ||
             (remedy.kind == RemedyKind::kBatch &&
              2 * remedy.config.global_batch_size < config_.global_batch_size);
    };
    if (!std::ranges::all_of(found_, is_small)) {
      std::erase_if(found_, is_small);
    }
  }

  const RunConfig& config_;
  const int world_size_;
  const std::vector<layers::LayerCost>& layers_;
  const RemedyScope& scope_;
  const TryPlan& try_plan_;
  const MemoryFlags given_;
  const int64_t stride_;
  int64_t limit_mebibytes_ = 0;  // the limit that was found
  std::map<Key, bool> known_;
  std::vector<Remedy> found_;
};

// "2 GiB", and what else the plan changes.
std::string fit_text(const Remedy& remedy) {
  std::string text = format_bytes(fullest_rank_bytes(remedy.plan));
  if (remedy.kind == RemedyKind::kGroups || shrinks_groups(remedy)) {
    text += ", batch-norm groups of " +
            plan::group_sizes_text(remedy.config.global_batch_size,
                                   remedy.plan.batch_norm_rule());
  }
  return " (" + text + ")";
}

}  // namespace

std::vector<Remedy> find_remedies(const configs::RunConfig& config,
                                  int world_size,
                                  const std::vector<layers::LayerCost>& layers,
                                  const RemedyScope& scope,
                                  const TryPlan& try_plan) {
  return RemedySearch(config, world_size, layers, scope, try_plan).run();
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
    return "no change of a single flag fits: use a smaller model";
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

}  // namespace headroom::planner
