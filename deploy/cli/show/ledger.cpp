#include "deploy/cli/show/ledger.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "configs/run_config.h"
#include "deploy/records/run_lines.h"
#include "parallel/base/check.h"
#include "parallel/base/regular_file.h"
#include "parallel/base/run_files.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "worker/data/sampling/sampler.h"

namespace headroom::cli {
namespace {

using Json = nlohmann::ordered_json;

// "3, 7, 9 and 40 more"
std::string listed(const std::vector<int64_t>& numbers) {
  return first_of(numbers, 8,
                  [](int64_t number) { return std::to_string(number); });
}

// No data set has more samples. The check needs 8 bytes for each sample, and a
// damaged file may contain any number.
constexpr int64_t kMostSamples = 100'000'000;

class Check {
 public:
  explicit Check(const LedgerRules& rules) : rules_(rules) {
    report_.by_weight = rules.by_weight;
  }

  void take(std::string_view text, bool is_whole) {
    if (!is_whole) {
      report_.torn_last_line = true;
      return;
    }
    ++line_;
    ++report_.num_steps;
    const auto entry = records::step_line(text, records::Samples::kRead);
    if (!entry || !entry->epoch || !entry->generation ||
        !entry->epoch_samples || !entry->has_samples) {
      problem(
          "no record of a step (step, epoch, generation, samples, "
          "epoch_samples)");
      return;
    }
    check(*entry);
  }

  LedgerReport finish() {
    close_epoch(/*is_last=*/true);
    return std::move(report_);
  }

 private:
  void problem(const std::string& what) { add(line_, what); }
  void add(int64_t line, const std::string& what) {
    ++report_.num_problems;
    if (report_.problems.size() < LedgerReport::kMaxProblems) {
      report_.problems.push_back(cat("line ", line, ": ", what));
    }
  }

  void check(const records::StepLine& entry) {
    if (*entry.epoch_samples <= 0 || *entry.epoch_samples > kMostSamples ||
        entry.step < 0) {
      problem(cat("step ", entry.step, " of a data set of ",
                  counted(*entry.epoch_samples, "sample")));
      return;
    }
    if (report_.num_samples == 0) {
      report_.num_samples = *entry.epoch_samples;
      used_.resize(static_cast<size_t>(report_.num_samples), 0);
    }
    if (*entry.epoch_samples != report_.num_samples) {
      problem(cat("the data set has ", counted(*entry.epoch_samples, "sample"),
                  ", before it had ", report_.num_samples));
      return;
    }
    check_order(entry);
    const sampling::EpochStep at = sampling::epoch_step(
        entry.step, report_.num_samples, rules_.global_batch_size);
    if (*entry.epoch != at.epoch) {
      problem(cat("step ", entry.step, " belongs to epoch ", at.epoch, ", not ",
                  *entry.epoch));
    }
    if (at.epoch != epoch_) {
      close_epoch(/*is_last=*/false);
      epoch_ = at.epoch;
    }
    if (entry.range) {
      if (check_range(entry, at)) use_range(at);
    } else {
      if (check_samples(entry, at) && rules_.by_weight) check_draws(entry, at);
      use(entry.samples);
    }
    next_step_ = std::max(next_step_, entry.step + 1);
    epoch_has_ended_ = at.positions.end == report_.num_samples;
  }

  void check_order(const records::StepLine& entry) {
    if (entry.step < next_step_) {
      problem(cat("step ", entry.step, " was there before: the next is step ",
                  next_step_));
    } else if (entry.step > next_step_) {
      problem(cat("step ", entry.step, " follows step ", next_step_ - 1, ": ",
                  counted(entry.step - next_step_, "step"), " missing"));
    }
    // A resumed run counts generations from 1 again.
    const auto generation = static_cast<uint64_t>(*entry.generation);
    if (generation < generation_ && generation != 1) {
      problem(
          cat("generation ", generation, " after generation ", generation_));
    }
    generation_ = generation;
    report_.generations = std::max(report_.generations, generation);
  }

  // Returns whether the positions are those of the step.
  bool check_range(const records::StepLine& entry,
                   const sampling::EpochStep& at) {
    const records::SampleRange& is = *entry.range;
    const records::SampleRange should{rules_.seed, at.epoch, at.positions.begin,
                                      at.positions.end};
    if (is == should) return true;
    const auto text = [](const records::SampleRange& range) {
      return cat("positions ", range.begin, " to ", range.end, " of epoch ",
                 range.epoch, " with seed ", range.seed);
    };
    problem(
        cat("step ", entry.step, " used ", text(is), ", not ", text(should)));
    return false;
  }

  void use_range(const sampling::EpochStep& at) {
    if (rules_.order_is_known && !rules_.by_weight) {
      use(sampling::shuffled_samples(rules_.seed, at, report_.num_samples));
      return;
    }
    report_.names_samples = false;
    num_used_ += at.positions.size();
    num_unnamed_ += at.positions.size();
  }

  // Returns whether the number of samples is right.
  bool check_samples(const records::StepLine& entry,
                     const sampling::EpochStep& at) {
    const std::vector<int64_t>& samples = entry.samples;
    const auto count = static_cast<int64_t>(samples.size());
    if (count != at.positions.size()) {
      problem(cat("step ", entry.step, " has ", counted(count, "sample"),
                  ", not ", at.positions.size()));
      return false;
    }
    if (!rules_.order_is_known || rules_.by_weight) return true;
    const std::vector<int64_t> expected =
        sampling::shuffled_samples(rules_.seed, at, report_.num_samples);
    if (samples == expected) return true;
    const auto [is, should] =
        std::mismatch(samples.begin(), samples.end(), expected.begin());
    problem(cat("step ", entry.step, " used sample ", *is,
                " where the run's order has ", *should, " (position ",
                is - samples.begin(), ")"));
    return true;
  }

  // Checks that in an epoch a larger draw never has a smaller sample index.
  void check_draws(const records::StepLine& entry,
                   const sampling::EpochStep& at) {
    const std::vector<int64_t>& samples = entry.samples;
    for (size_t i = 0; i < samples.size(); ++i) {
      const int64_t place = at.positions.begin + static_cast<int64_t>(i);
      const int64_t sample = samples[i];
      const auto [drawn, is_new] = drawn_.emplace(
          sampling::weighted_draw(rules_.seed, at.epoch, place), sample);
      if (!is_new) continue;  // a repeated step, which is reported elsewhere
      const auto next = std::next(drawn);
      const bool falls =
          drawn != drawn_.begin() && std::prev(drawn)->second > sample;
      const bool rises = next != drawn_.end() && next->second < sample;
      if (!falls && !rises) continue;
      problem(cat("step ", entry.step, " used sample ", sample, " (position ",
                  i, "), but its draw lies ", falls ? "above" : "below",
                  " that of sample ",
                  falls ? std::prev(drawn)->second : next->second));
      drawn_.erase(drawn);
    }
  }

  void use(const std::vector<int64_t>& samples) {
    for (const int64_t sample : samples) {
      if (sample < 0 || sample >= report_.num_samples) {
        problem(cat("there is no sample ", sample));
        continue;
      }
      int64_t& line = used_[static_cast<size_t>(sample)];
      if (rules_.by_weight) {
        ++num_used_;
      } else if (line != 0) {
        problem(cat("sample ", sample, " was used in epoch ", epoch_,
                    " before, by line ", line));
      } else {
        line = line_;
        ++num_used_;
      }
    }
  }

  // Checks that a finished epoch used every sample.
  void close_epoch(bool is_last) {
    const bool finished = epoch_has_ended_ || !is_last;
    if (report_.num_samples > 0 && finished &&
        (rules_.by_weight || num_unnamed_ > 0)) {
      if (num_used_ == report_.num_samples) {
        ++report_.complete_epochs;
      } else {
        add(is_last ? line_ : line_ - 1,
            cat("epoch ", epoch_, " ends with ", counted(num_used_, "sample"),
                ", not ", report_.num_samples));
      }
    } else if (report_.num_samples > 0 && finished) {
      std::vector<int64_t> unused;
      for (size_t sample = 0; sample < used_.size(); ++sample) {
        if (used_[sample] == 0) unused.push_back(static_cast<int64_t>(sample));
      }
      if (unused.empty()) {
        ++report_.complete_epochs;
      } else {
        add(is_last ? line_ : line_ - 1,
            cat("epoch ", epoch_, " ends without ",
                counted(static_cast<int64_t>(unused.size()), "sample"), ": ",
                listed(unused)));
      }
    }
    report_.used_in_open_epoch = finished ? 0 : num_used_;
    std::fill(used_.begin(), used_.end(), 0);
    drawn_.clear();
    num_used_ = num_unnamed_ = 0;
    epoch_has_ended_ = false;
  }

  const LedgerRules rules_;
  LedgerReport report_;
  int64_t line_ = 0;
  int64_t next_step_ = 0;
  uint64_t generation_ = 0;  // the generation of the previous line
  int64_t epoch_ = 0;
  bool epoch_has_ended_ = false;  // the epoch's last positions were used
  std::vector<int64_t> used_;     // the line that used each sample; 0 if unused
  int64_t num_used_ = 0;
  int64_t num_unnamed_ = 0;  // how many of them are unknown samples
  // With image weights, this map has the epoch's samples, ordered by their
  // draws.
  std::map<double, int64_t> drawn_;
};

std::string verdict_text(const LedgerReport& report) {
  if (!report.exact()) {
    return "NOT exact: " + counted(report.num_problems, "contradiction") + "\n";
  }
  if (!report.names_samples) {
    return "exact: every step once, in order; every position of each complete "
           "epoch once, none twice. Which samples these are is not in these "
           "files: lines of large batches have positions, and with --rect or "
           "--image-weights their order depends on the data set\n";
  }
  return report.by_weight
             ? "exact: every step once, in order, with as many samples as it "
               "has; over each epoch they rise with the draws of its steps. "
               "With --image-weights one may come again, and which do is not "
               "in these files\n"
             : "exact: every step once, in order; every sample of each "
               "complete epoch once, none twice\n";
}

}  // namespace

LedgerReport check_ledger(const LedgerRules& rules,
                          const std::filesystem::path& steps_jsonl) {
  const RegularFile steps(steps_jsonl, Links::kFollowed);
  Check check(rules);
  if (!steps.is_open() ||
      !for_each_line(steps, [&](std::string_view line, bool is_whole) {
        check.take(line, is_whole);
        return true;
      })) {
    throw Error("ledger",
                cat("cannot read ", steps_jsonl.string(), " (",
                    std::strerror(errno), ")"),
                "name the run directory of a training");
  }
  return check.finish();
}

std::string ledger_text(const LedgerReport& report) {
  std::string text =
      cat("ledger     ", counted(report.num_steps, "step"), ", ",
          counted(report.complete_epochs, "complete epoch"), " of ",
          counted(report.num_samples, "sample"),
          report.used_in_open_epoch > 0
              ? cat(", ", report.used_in_open_epoch, " of the next")
              : "",
          "; generation ", report.generations, "\n");
  if (report.torn_last_line) text += "           the last line is cut off\n";
  for (const std::string& problem : report.problems) text += problem + "\n";
  const auto shown = static_cast<int64_t>(report.problems.size());
  if (report.num_problems > shown) {
    text += cat("and ", report.num_problems - shown, " more\n");
  }
  return text + verdict_text(report);
}

std::string ledger_json(const LedgerReport& report) {
  const Json json = {{"exact", report.exact()},
                     {"num_steps", report.num_steps},
                     {"num_samples", report.num_samples},
                     {"complete_epochs", report.complete_epochs},
                     {"used_in_open_epoch", report.used_in_open_epoch},
                     {"generations", report.generations},
                     {"torn_last_line", report.torn_last_line},
                     {"drawn_by_weight", report.by_weight},
                     {"names_samples", report.names_samples},
                     {"num_problems", report.num_problems},
                     {"problems", report.problems}};
  return json.dump(2);
}

LedgerReport check_ledger_of(const std::string& run_directory) {
  const std::string yaml_file = run_directory + "/" + run_files::kRun;
  const std::string steps = run_directory + "/" + run_files::kSteps;
  for (const std::string& file : {yaml_file, steps}) {
    if (RegularFile(file, Links::kFollowed).is_open()) continue;
    throw Error("ledger",
                run_directory + " has no " +
                    std::filesystem::path(file).filename().string(),
                "name the run directory of a training");
  }
  const configs::RunConfig config =
      configs::parse_run_config(records::file_text(yaml_file), yaml_file);
  if (config.synthetic_input) {
    throw Error("ledger", run_directory + " was trained on synthetic input",
                "it has no samples to account for");
  }
  return check_ledger({config.seed, config.global_batch_size, !config.rect,
                       config.image_weights},
                      steps);
}

}  // namespace headroom::cli
