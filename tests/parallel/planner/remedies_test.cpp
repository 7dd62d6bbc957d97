#include "parallel/planner/remedies.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <random>

#include "configs/layers/model_table.h"
#include "configs/options.h"
#include "parallel/base/units.h"
#include "parallel/plan/layout.h"
#include "parallel/planner/model_layers.h"
#include "parallel/planner/plan_memory.h"
#include "parallel/planner/plan_search.h"
#include "parallel/planner/plan_time.h"

namespace headroom::planner {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

struct Request {
  configs::RunConfig config;
  int world_size = 1;
};

const std::vector<layers::LayerCost>& layers_of(const std::string& model) {
  static std::map<std::string, std::vector<layers::LayerCost>> known;
  auto& costs = known[model];
  if (costs.empty())
    costs = layers::layer_costs(layers::load_model_table(model));
  return costs;
}

PlanSearch& search_of(const std::string& model) {
  static std::map<std::string, PlanSearch> known;
  return known.try_emplace(model, layers_of(model)).first->second;
}

PlanDecision decide(const configs::RunConfig& config, int world_size) {
  return search_of(config.cfg).best(config, world_size);
}

bool fits(const configs::RunConfig& config, int world_size) {
  return decide(config, world_size).plan.has_value();
}

std::vector<Remedy> remedies_of(const Request& request,
                                const RemedyScope& scope = {}) {
  return find_remedies(request.config, request.world_size,
                       search_of(request.config.cfg), scope);
}

// The request with the printed flags, parsed by the command line's own parser.
Request with_flags(const Request& request, const Remedy& remedy) {
  Request changed = request;
  std::vector<configs::FlagUse> flags = remedy.flags;
  std::erase_if(flags, [&](const configs::FlagUse& use) {
    if (use.spelling != "--processes") return false;
    changed.world_size = std::stoi(use.values.front());
    return true;
  });
  changed.config = configs::overlay_flags(changed.config, flags);
  if (remedy.drops_sync_bn) changed.config.sync_batch_norm = false;
  return changed;
}

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  int64_t below(int64_t bound) {
    return static_cast<int64_t>(engine_() % static_cast<uint64_t>(bound));
  }
  bool one_in(int64_t count) { return below(count) == 0; }
  template <typename Value>
  Value any_of(const std::vector<Value>& values) {
    return values[static_cast<size_t>(
        below(static_cast<int64_t>(values.size())))];
  }

 private:
  std::mt19937_64 engine_;
};

Request random_request(Random& random) {
  Request request;
  configs::RunConfig& config = request.config;
  config.cfg = random.any_of<std::string>(
      {"yolov5n", "yolov5n", "yolov5n", "yolov5n", "yolov5n", "yolov5s",
       "yolov5s", "yolov5m", "yolov5l", "yolov5x"});
  const int64_t side = 32 * (2 + random.below(random.one_in(3) ? 46 : 20));
  config.image_height = config.image_width = side;
  if (random.one_in(5)) config.image_width = 32 * (2 + random.below(20));
  config.global_batch_size = random.any_of<int64_t>(
      {1, 2, 4, 6, 8, 12, 16, 19, 24, 32, 37, 48, 62, 64});
  request.world_size =
      static_cast<int>(random.any_of<int64_t>({1, 1, 1, 2, 2, 3, 4, 8}));
  config.memory_limit = (8 << random.below(7)) * kMiB + random.below(8 * kMiB);
  config.activations = random.any_of<std::string>(
      {"auto", "auto", "auto", "keep", "lean", "recompute", "offload"});
  if (random.one_in(4)) {
    config.micro_batch_size = 1 + random.below(config.global_batch_size);
  }
  if (random.one_in(5)) config.zero_stage = 1 + random.below(3);
  if (random.one_in(4)) {
    config.layout = random.any_of(plan::layouts_of(request.world_size));
  }
  if (random.one_in(6)) {
    config.batch_norm_group_size = 1 + random.below(config.global_batch_size);
  } else if (random.one_in(8)) {
    config.sync_batch_norm = true;
  }
  if (random.one_in(3)) {
    config.device = "0";
    config.precision = random.any_of<configs::Precision>(
        {configs::Precision::kFp64, configs::Precision::kFp32,
         configs::Precision::kBf16});
  }
  if (random.one_in(10)) {
    config.host_memory_limit = (1 + random.below(200)) * kMiB;
  }
  if (random.one_in(2)) {
    // The limit is a share of the bytes that the plan needs without a limit.
    configs::RunConfig free = config;
    free.memory_limit = 0;
    if (const auto plan = decide(free, request.world_size).plan) {
      config.memory_limit =
          fullest_rank_bytes(*plan) / 100 * (20 + random.below(80));
    }
  }
  return request;
}

std::string text_of(const Request& request) {
  const configs::RunConfig& c = request.config;
  return c.cfg + " " + std::to_string(c.image_height) + " x " +
         std::to_string(c.image_width) + ", batch " +
         std::to_string(c.global_batch_size) + ", limit " +
         exact_bytes(c.memory_limit) + ", host " +
         format_bytes(c.host_memory_limit) + ", processes " +
         std::to_string(request.world_size) + ", layout " +
         (c.layout ? plan::short_text(*c.layout) : "open") + ", activations " +
         c.activations + ", micro-batch " + std::to_string(c.micro_batch_size) +
         ", zero " + std::to_string(c.zero_stage) + ", group " +
         std::to_string(c.batch_norm_group_size) +
         (c.sync_batch_norm ? ", sync" : "") + ", precision " +
         configs::value_text(c, *configs::find_key("precision"));
}

double seconds_of(const Request& request, const plan::Plan& plan) {
  return plan_time(request.config, plan, layers_of(request.config.cfg)).total();
}

// Expects that no faster policy fits.
void expect_fastest_policy(const Request& request, const Request& changed,
                           double seconds) {
  for (const char* policy : {"auto", "keep", "lean", "recompute", "offload"}) {
    if (request.config.activations == policy) continue;
    Request other = changed;
    other.config.activations = policy;
    const PlanDecision decision = decide(other.config, other.world_size);
    if (!decision.plan) continue;
    EXPECT_GE(seconds_of(other, *decision.plan), 0.999 * seconds) << policy;
  }
}

// Expects that the printed ratio of times is the ratio of the two plans' times
// for an image.
void expect_true_time(const Request& asked, const Request& changed,
                      const Remedy& remedy) {
  Request free = asked;
  free.config.memory_limit = free.config.host_memory_limit = 0;
  const PlanDecision unlimited = decide(free.config, free.world_size);
  if (changed.config.precision != asked.config.precision || !unlimited.plan) {
    EXPECT_EQ(remedy.time_ratio, 0);
    return;
  }
  const auto of_image = [](const Request& request, const plan::Plan& plan) {
    return seconds_of(request, plan) /
           static_cast<double>(request.config.global_batch_size);
  };
  EXPECT_NEAR(of_image(changed, remedy.plan),
              remedy.time_ratio * of_image(free, *unlimited.plan),
              1e-9 * of_image(changed, remedy.plan));
}

// Returns the request one step nearer to the original one, or nothing if it
// already is the original.
std::optional<Request> cheaper(const Request& asked, const Remedy& remedy,
                               Request changed) {
  configs::RunConfig& config = changed.config;
  switch (remedy.kind) {
    case RemedyKind::kProcesses: {
      --changed.world_size;
      // Another number of processes needs another layout.
      config.layout.reset();
      if (changed.world_size == asked.world_size) return std::nullopt;
      return changed;
    }
    case RemedyKind::kMemoryLimit:
      config.memory_limit -= kMiB;
      if (config.memory_limit <= asked.config.memory_limit) return std::nullopt;
      return changed;
    case RemedyKind::kHostMemoryLimit:
      config.host_memory_limit -= kMiB;
      if (config.host_memory_limit <= asked.config.host_memory_limit) {
        return std::nullopt;
      }
      return changed;
    case RemedyKind::kImage: {
      const auto larger = [](int64_t asked_side, int64_t side, int64_t most) {
        return side == most ? std::min(asked_side, side + 32) : side;
      };
      const int64_t most = std::max(config.image_height, config.image_width);
      config.image_height =
          larger(asked.config.image_height, config.image_height, most);
      config.image_width =
          larger(asked.config.image_width, config.image_width, most);
      if (config.image_height == asked.config.image_height &&
          config.image_width == asked.config.image_width) {
        return std::nullopt;
      }
      return changed;
    }
    case RemedyKind::kModel: {
      // The next larger model of the family.
      const std::vector<std::string> smaller = smaller_models(asked.config.cfg);
      const auto at = std::ranges::find(smaller, config.cfg);
      if (at == smaller.begin()) return std::nullopt;
      config.cfg = *(at - 1);
      return changed;
    }
    case RemedyKind::kBatch:
      ++config.global_batch_size;
      if (config.global_batch_size == asked.config.global_batch_size) {
        return std::nullopt;
      }
      return changed;
    case RemedyKind::kGroups: {
      const int64_t before = asked.config.sync_batch_norm
                                 ? config.global_batch_size
                                 : asked.config.batch_norm_group_size;
      const bool are_usual = config.batch_norm_group_size == 0;
      if (are_usual || ++config.batch_norm_group_size == before) {
        return std::nullopt;
      }
      return changed;
    }
    default:
      return std::nullopt;
  }
}

const std::map<RemedyKind, std::string>& kind_names() {
  static const std::map<RemedyKind, std::string> names = {
      {RemedyKind::kPrecision, "precision"},
      {RemedyKind::kActivations, "activations"},
      {RemedyKind::kMicroBatch, "micro-batch"},
      {RemedyKind::kZero, "zero"},
      {RemedyKind::kLayout, "layout"},
      {RemedyKind::kTogether, "together"},
      {RemedyKind::kProcesses, "processes"},
      {RemedyKind::kMemoryLimit, "memory limit"},
      {RemedyKind::kHostMemoryLimit, "host memory limit"},
      {RemedyKind::kImage, "image"},
      {RemedyKind::kBatch, "batch"},
      {RemedyKind::kModel, "model"},
      {RemedyKind::kGroups, "groups"}};
  return names;
}

// The parameter is the number of refusals.
class RandomRefusals : public testing::TestWithParam<int> {};

TEST_P(RandomRefusals, RemediesFitAndNoCheaperOneOfTheirKindDoes) {
  Random random(19);
  std::map<RemedyKind, int> counts;
  std::map<RemedyKind, int> refuted;
  int refusals = 0;
  int tried = 0;
  while (refusals < GetParam()) {
    const Request request = random_request(random);
    ++tried;
    const PlanDecision refused = decide(request.config, request.world_size);
    if (refused.plan || refused.exit_code != ExitCode::kNoPlan) continue;
    ++refusals;
    SCOPED_TRACE(text_of(request));
    RemedyScope scope;
    scope.most_processes = random.one_in(50) ? 64 : 6;
    scope.models = smaller_models(request.config.cfg);
    if (!request.config.device.empty()) {
      scope.precisions = {configs::Precision::kBf16, configs::Precision::kFp32};
    }
    const std::vector<Remedy> remedies = remedies_of(request, scope);
    EXPECT_FALSE(remedies.empty());
    for (const Remedy& remedy : remedies) {
      SCOPED_TRACE(flags_text(remedy));
      ++counts[remedy.kind];
      const Request changed = with_flags(request, remedy);
      const PlanDecision planned = decide(changed.config, changed.world_size);
      EXPECT_TRUE(planned.plan) << planned.reason;
      if (!planned.plan) continue;
      EXPECT_LE(fullest_rank_bytes(*planned.plan), changed.config.memory_limit);
      EXPECT_EQ(planned.plan, remedy.plan);
      expect_true_time(request, changed, remedy);
      if (remedy.kind == RemedyKind::kActivations) {
        expect_fastest_policy(request, changed,
                              seconds_of(changed, *planned.plan));
      }
      const auto nearer = cheaper(request, remedy, changed);
      if (!nearer) continue;
      ++refuted[remedy.kind];
      EXPECT_FALSE(fits(nearer->config, nearer->world_size))
          << text_of(*nearer);
    }
  }
  std::printf("%d refusals of %d requests; remedies (with a cheaper one tried)",
              refusals, tried);
  for (const auto& [kind, count] : counts) {
    std::printf(", %s %d (%d)", kind_names().at(kind).c_str(), count,
                refuted[kind]);
  }
  std::printf("\n");
}

INSTANTIATE_TEST_SUITE_P(Quick, RandomRefusals, testing::Values(50));
INSTANTIATE_TEST_SUITE_P(Slow, RandomRefusals, testing::Values(300));

// The remedies, as flags, of a request without a data set.
std::vector<std::string> flags_for(const Request& request) {
  std::vector<std::string> all;
  for (const Remedy& remedy : remedies_of(request))
    all.push_back(flags_text(remedy));
  return all;
}

using ::testing::Contains;
using ::testing::Not;
using ::testing::StartsWith;

Request request_of(const std::string& model, int64_t side, int64_t batch,
                   int64_t limit) {
  Request request;
  request.config.cfg = model;
  request.config.image_height = request.config.image_width = side;
  request.config.global_batch_size = batch;
  request.config.memory_limit = limit;
  return request;
}

TEST(Remedies, TwoProcessesAreNamedWhereTwoFit) {
  const auto flags = flags_for(request_of("yolov5m", 640, 16, 400 * kMiB));
  EXPECT_THAT(flags, Contains("--processes 2"));
}

TEST(Remedies, OffloadIsNamedWhereItFitsAlone) {
  Request request = request_of("yolov5x", 1280, 32, 2'254'857'744);
  EXPECT_TRUE(fits(request.config, 1)) << "the planner finds it by itself";
  request.config.activations = "recompute";
  const auto flags = flags_for(request);
  EXPECT_EQ(flags.front(), "--activations auto");
  EXPECT_THAT(flags, Contains("--processes 2"));
}

TEST(Remedies, AFewProcessesAreNamedWhereTheModelStateIsTooLarge) {
  const auto flags = flags_for(request_of("yolov5n", 64, 4, 20 * kMiB));
  EXPECT_THAT(flags, Contains("--processes 3"));
}

TEST(Remedies, FlagsThatAreInTheWayAreChangedBeforeImagesShrink) {
  Request request = request_of("yolov5m", 1536, 32, 4096 * kMiB);
  request.config.activations = "keep";
  request.config.micro_batch_size = 32;
  const auto flags = flags_for(request);
  EXPECT_EQ(flags.front(), "--micro-batch 1");
  EXPECT_THAT(flags, Not(Contains(StartsWith("--img"))));
}

TEST(Remedies, ALayoutOfOneProcessMakesRoomForMore) {
  Request request = request_of("yolov5m", 640, 16, 400 * kMiB);
  request.config.layout = plan::parse_layout("data=1");
  EXPECT_THAT(flags_for(request),
              Contains(StartsWith("--processes 2 --layout ")));
}

// No number divides 37 images evenly, so groups of the remainder are allowed.
TEST(Remedies, TheLargestGroupsThatFitAreNamedWhetherOrNotTheyDivideTheBatch) {
  Request request = request_of("yolov5n", 640, 37, 300 * kMiB);
  request.config.sync_batch_norm = true;
  request.config.activations = "recompute";
  const auto flags = flags_for(request);
  EXPECT_THAT(flags, Contains(StartsWith("--bn-group ")));
  EXPECT_THAT(flags, Not(Contains("--bn-group 1 without --sync-bn")));
}

TEST(Remedies, UsualGroupsAreNamedInsteadOfOneOfTheWholeBatch) {
  Request request = request_of("yolov5n", 640, 64, 1500 * kMiB);
  request.config.sync_batch_norm = true;
  EXPECT_THAT(flags_for(request),
              Contains("the same command without --sync-bn"));
}

TEST(Remedies, ThatKeepTheUsualGroupsKeepThem) {
  for (const int64_t limit : {128, 192, 256}) {
    Request request = request_of("yolov5n", 640, 32, limit * kMiB);
    const auto first = decide(request.config, 1);
    ASSERT_TRUE(first.plan);
    ASSERT_TRUE(shrinks_groups(request.config, *first.plan)) << limit;
    const auto remedies = remedies_for_groups(
        request.config, 1, layers_of(request.config.cfg), RemedyScope());
    EXPECT_FALSE(remedies.empty());
    for (const Remedy& remedy : remedies) {
      SCOPED_TRACE(flags_text(remedy));
      const Request changed = with_flags(request, remedy);
      const auto planned = decide(changed.config, changed.world_size);
      ASSERT_TRUE(planned.plan);
      EXPECT_FALSE(shrinks_groups(changed.config, *planned.plan));
    }
  }
}

TEST(Remedies, ASmallerModelOfTheFamilyIsNamed) {
  const Request request = request_of("yolov5m", 640, 16, 400 * kMiB);
  RemedyScope scope;
  scope.models = smaller_models("yolov5m");
  EXPECT_THAT(scope.models, testing::ElementsAre("yolov5s", "yolov5n"));
  EXPECT_THAT(
      remedies_text(remedies_of(request, scope), scope),
      testing::ContainsRegex("or --cfg yolov5s \\([0-9]+ MiB, 0\\.[0-9]+ "
                             "x the time"));
  EXPECT_THAT(smaller_models("yolov5n"), testing::IsEmpty());
  EXPECT_THAT(
      smaller_models("yolov5l6.yaml"),
      testing::ElementsAre("yolov5m6.yaml", "yolov5s6.yaml", "yolov5n6.yaml"));
  EXPECT_THAT(smaller_models("yolov5s-p2"), testing::IsEmpty());
  EXPECT_THAT(smaller_models("my/yolov5s.yaml"), testing::IsEmpty());
}

TEST(Remedies, ShorterNumbersAreNamedWhereTheCardHasThem) {
  Request request = request_of("yolov5s", 640, 16, 0);
  request.config.device = "0";
  request.config.activations = "keep";
  request.config.micro_batch_size = 16;
  request.config.precision = configs::Precision::kFp32;
  configs::RunConfig shorter = request.config;
  shorter.precision = configs::Precision::kFp16;
  request.config.memory_limit = fullest_rank_bytes(*decide(shorter, 1).plan);
  RemedyScope scope;
  scope.precisions = {configs::Precision::kFp16, configs::Precision::kFp32};
  scope.seconds_of = [](const configs::RunConfig& config, const plan::Plan&,
                        const std::vector<layers::LayerCost>&) {
    return config.precision == configs::Precision::kFp16 ? 1.0 : 4.0;
  };
  const auto remedies = remedies_of(request, scope);
  ASSERT_FALSE(remedies.empty());
  EXPECT_EQ(flags_text(remedies.front()), "--precision fp16")
      << "it is the fastest";
  EXPECT_DOUBLE_EQ(remedies.front().time_ratio, 0.25);
  EXPECT_THAT(flags_for(request), Not(Contains("--precision fp16")));
}

// Time is that of a rank with one core. The rank's share of the cores, at most
// its threads, divides it.
TEST(Remedies, ProcessesShareTheCoresOfTheirMachine) {
  const struct {
    int ranks, threads, cores;
    double compute, communication, seconds;
  } rows[] = {
      {1, 1, 2, 8, 0, 8},   // one core is idle
      {1, 2, 2, 8, 0, 4},   // its threads use both
      {1, 4, 2, 8, 0, 4},   // more threads than cores gain nothing
      {2, 1, 2, 4, 1, 5},   // a core for each
      {8, 1, 2, 1, 1, 8},   // four ranks for each core
      {8, 2, 2, 1, 0, 4},   // the same time as one process on both cores
      {3, 1, 2, 4, 0, 6},   // two cores for three
      {2, 4, 16, 8, 1, 3},  // an exchange keeps one core busy
      {1, 0, 2, 8, 0, 8},   // unknown threads count as one
  };
  for (const auto& row : rows) {
    predict::StepEstimate step;
    step.compute = row.compute;
    step.communication = row.communication;
    EXPECT_DOUBLE_EQ(seconds_on_cores(step, row.ranks, row.threads, row.cores),
                     row.seconds)
        << row.ranks << " " << row.threads << " " << row.cores;
  }
}

TEST(Remedies, MoreProcessesThanCoresPromiseNoMoreThanTheCoresGive) {
  int most_processes = 1;
  for (const int64_t limit : {24, 28, 30, 32, 36}) {
    Request request = request_of("yolov5n", 320, 16, limit * kMiB);
    request.config.activations = "keep";
    request.config.threads = 1;
    RemedyScope given_threads;
    given_threads.cores = 2;
    RemedyScope all_cores = given_threads;
    all_cores.threads_of = [](int world_size) {
      return std::max(1, 2 / world_size);
    };
    for (const Remedy& remedy : remedies_of(request, given_threads)) {
      if (remedy.kind != RemedyKind::kProcesses) continue;
      most_processes = std::max(most_processes, remedy.world_size);
      EXPECT_GE(remedy.time_ratio, 0.5) << flags_text(remedy);
    }
    for (const Remedy& remedy : remedies_of(request, all_cores)) {
      if (remedy.kind != RemedyKind::kProcesses) continue;
      EXPECT_GE(remedy.time_ratio, 0.999) << flags_text(remedy);
    }
  }
  EXPECT_GE(most_processes, 8);
}

TEST(Remedies, TheWholeCommandComesFirst) {
  RemedyScope scope;
  scope.command_with = [](const Remedy& remedy) {
    return "headroom plan " + flags_text(remedy);
  };
  EXPECT_THAT(
      remedies_text(remedies_of(request_of("yolov5m", 640, 16, 400 * kMiB)),
                    scope),
      StartsWith("use headroom plan --processes 2 ("));
}

}  // namespace
}  // namespace headroom::planner
