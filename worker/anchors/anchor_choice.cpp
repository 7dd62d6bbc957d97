#include "worker/anchors/anchor_choice.h"

#include <algorithm>
#include <cstdio>

#include "parallel/base/check.h"
#include "worker/anchors/anchor_search.h"

namespace headroom::anchors {
namespace {

std::vector<Anchor> all_of(const layers::AnchorList& levels) {
  std::vector<Anchor> all;
  for (const auto& level : levels) {
    all.insert(all.end(), level.begin(), level.end());
  }
  return all;
}

layers::AnchorList in_levels(const std::vector<Anchor>& anchors,
                             size_t per_level) {
  layers::AnchorList levels;
  for (size_t i = 0; i < anchors.size(); i += per_level) {
    const auto begin = anchors.begin() + static_cast<std::ptrdiff_t>(i);
    levels.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(per_level));
  }
  return levels;
}

std::string share_text(double share) {
  char text[16];
  std::snprintf(text, sizeof text, "%.4f", share);
  return text;
}

// "0.7383 of 107 boxes, 16 of them with a side under 3 px"
std::string answered_text(double recall, const std::vector<BoxSize>& boxes) {
  const auto tiny = std::count_if(boxes.begin(), boxes.end(), is_tiny);
  return share_text(recall) + " of " + std::to_string(boxes.size()) + " boxes" +
         (tiny == 0 ? ""
                    : ", " + std::to_string(tiny) +
                          " of them with a side under 3 px");
}

}  // namespace

AnchorChoice choose_anchors(const AnchorQuestion& question) {
  HEADROOM_CHECK(!question.current.empty(), "anchors without a level");
  const auto recall_of = [&](const std::vector<Anchor>& anchors) {
    return fit_of(anchors, question.varied, question.threshold,
                  question.num_threads)
        .best_possible_recall;
  };
  const std::vector<Anchor> current = all_of(question.current);
  AnchorChoice choice;
  choice.anchors = question.current;
  choice.recall = choice.recall_before = recall_of(current);
  const std::string judged = "the model's anchors answer for " +
                             answered_text(choice.recall, question.boxes);
  if (choice.recall > kEnoughRecall && !question.must_find) {
    choice.reason = judged + ": kept, more than 0.98 is enough";
    return choice;
  }
  const std::string count = std::to_string(current.size());
  const std::vector<Anchor> found =
      find_anchors(question.boxes, static_cast<int64_t>(current.size()),
                   question.threshold, question.seed, question.num_threads);
  if (found.empty()) {
    const std::string too_few = "fewer than " + count +
                                " different sizes of 2 px or more to find " +
                                count + " anchors from";
    if (question.must_find) {
      throw Error("anchors", "the training boxes have " + too_few,
                  "keep the model's: --set hyp.anchors=0", ExitCode::kData);
    }
    choice.reason = judged + "; kept, for the boxes have " + too_few;
    return choice;
  }
  const double recall = recall_of(found);
  if (recall <= choice.recall && !question.must_find) {
    choice.reason = judged + "; kept, for " + count +
                    " found from the boxes answer for " + share_text(recall);
    return choice;
  }
  choice.anchors = in_levels(found, question.current.front().size());
  choice.found = true;
  choice.recall = recall;
  choice.reason = judged + "; replaced by " + count +
                  " found from the boxes, which answer for " +
                  share_text(recall) + ": " + layers::to_text(choice.anchors);
  return choice;
}

}  // namespace headroom::anchors
