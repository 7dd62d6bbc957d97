#include "parallel/predict/label_bound.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace headroom::predict {
namespace {

using Group = LabelStatistics::Group;

// The number of images that a mosaic draws in addition to the sample's own
// image, and the number that mixup draws for its second mosaic.
double drawn_by_mosaic(const LabelBound& labels) {
  return static_cast<double>(labels.images_of_mosaic - 1);
}
double drawn_by_mixup(const LabelBound& labels) {
  return static_cast<double>(labels.images_of_mosaic);
}
constexpr int64_t kExactBelow = 64;
constexpr std::string_view kOutlines = "outlines=";

// Rounds up to a number of at most six significant bits.
int64_t rounded_up(int64_t boxes) {
  int64_t unit = 1;
  while (boxes / unit >= kExactBelow) unit *= 2;
  return round_up(boxes, unit);
}

// `count` independent, identically distributed numbers: the mean, variance and
// largest value of each.
struct Numbers {
  double count = 0;
  double mean = 0;
  double variance = 0;
  double most = 0;
};

// Returns a bound; the probability that the sum of the numbers exceeds it is at
// most kMoreBoxesProbability.
double likely_sum(const Numbers& numbers) {
  const double log = -std::log(kMoreBoxesProbability);
  const double linear = log * (numbers.most - numbers.mean) / 3;
  const double root =
      std::sqrt(linear * linear + 2 * log * numbers.count * numbers.variance);
  return numbers.count * numbers.mean + linear + root;
}

// The mean of the squared number of boxes in `count` drawn images.
double square_of_sum(const LabelStatistics& images, double count) {
  const double mean = count * images.mean();
  return count * images.variance() + mean * mean;
}

// Boxes drawn per sample if only some samples are mosaics or mixed.
Numbers drawn_by_samples(const LabelBound& labels, double samples) {
  const LabelStatistics& images = labels.statistics;
  const double plain = labels.mosaic * (1 - labels.mixup);
  const double mixed = labels.mosaic * labels.mixup;
  const double of_one = drawn_by_mosaic(labels);
  const double of_both = of_one + drawn_by_mixup(labels);
  Numbers numbers;
  numbers.count = samples;
  numbers.mean = images.mean() * (plain * of_one + mixed * of_both);
  numbers.variance = plain * square_of_sum(images, of_one) +
                     mixed * square_of_sum(images, of_both) -
                     numbers.mean * numbers.mean;
  numbers.most =
      static_cast<double>(images.most_boxes()) * (mixed > 0 ? of_both : of_one);
  return numbers;
}

bool parse_number(std::string_view text, int64_t& number) {
  const auto parsed = parse_whole(text, 0);
  number = parsed.value_or(0);
  return parsed.has_value();
}

}  // namespace

int64_t LabelStatistics::num_images() const {
  int64_t count = 0;
  for (const Group& group : groups) count += group.images;
  return count;
}

int64_t LabelStatistics::most_boxes() const {
  return groups.empty() ? 0 : groups.back().boxes;
}

double LabelStatistics::mean() const {
  double sum = 0;
  for (const Group& group : groups) {
    sum += static_cast<double>(group.boxes) * static_cast<double>(group.images);
  }
  return groups.empty() ? 0 : sum / static_cast<double>(num_images());
}

double LabelStatistics::variance() const {
  const double middle = mean();
  double sum = 0;
  for (const Group& group : groups) {
    const double distance = static_cast<double>(group.boxes) - middle;
    sum += distance * distance * static_cast<double>(group.images);
  }
  return groups.empty() ? 0 : sum / static_cast<double>(num_images());
}

int64_t LabelStatistics::boxes_of_fullest(int64_t count) const {
  int64_t boxes = 0;
  for (auto group = groups.rbegin(); group != groups.rend(); ++group) {
    const int64_t taken = std::min(count, group->images);
    boxes += taken * group->boxes;
    count -= taken;
  }
  return boxes;
}

LabelStatistics label_statistics(const std::vector<int64_t>& boxes) {
  if (boxes.empty()) return {};
  const int64_t most = *std::ranges::max_element(boxes);
  std::map<int64_t, int64_t> images;
  for (const int64_t count : boxes) {
    ++images[std::min(rounded_up(count), most)];
  }
  LabelStatistics statistics;
  for (const auto& [count, number] : images) {
    statistics.groups.push_back({count, number});
  }
  return statistics;
}

std::string to_text(const LabelStatistics& statistics) {
  std::string text = joined(statistics.groups, " ", [](const Group& group) {
    return cat(group.boxes, "x", group.images);
  });
  if (statistics.outlines > 0) {
    text += cat(" ", kOutlines, statistics.outlines);
  }
  return text;
}

std::optional<LabelStatistics> parse_label_statistics(std::string_view text) {
  LabelStatistics statistics;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(word.size() + 1, text.size()));
    if (word.starts_with(kOutlines)) {
      const bool is_last = text.empty() && statistics.is_known();
      if (!is_last ||
          !parse_number(word.substr(kOutlines.size()), statistics.outlines)) {
        return std::nullopt;
      }
      continue;
    }
    const size_t middle = word.find('x');
    Group group;
    if (middle == std::string_view::npos ||
        !parse_number(word.substr(0, middle), group.boxes) ||
        !parse_number(word.substr(middle + 1), group.images) ||
        group.images == 0) {
      return std::nullopt;
    }
    if (statistics.is_known() && group.boxes <= statistics.most_boxes()) {
      return std::nullopt;
    }
    statistics.groups.push_back(group);
  }
  return statistics;
}

namespace {

// The most boxes pasted into samples that have `boxes` boxes together.
int64_t most_pasted(const LabelBound& labels, int64_t samples, int64_t boxes) {
  if (labels.copy_paste <= 0) return 0;
  const auto mosaics =
      static_cast<double>(labels.mixup > 0 ? 2 * samples : samples);
  return static_cast<int64_t>(labels.copy_paste * static_cast<double>(boxes) +
                              mosaics / 2);
}

}  // namespace

BoxBound most_boxes(const LabelBound& labels, int64_t samples) {
  const LabelStatistics& images = labels.statistics;
  if (!images.is_known()) {
    return {samples * labels.assumed_boxes_per_image, BoxBound::Kind::kAssumed};
  }
  const int64_t own = labels.repeats ? samples * images.most_boxes()
                                     : images.boxes_of_fullest(samples);
  if (labels.mosaic <= 0) return {own, BoxBound::Kind::kCertain};
  const auto count = static_cast<double>(samples);
  const auto most = static_cast<double>(images.most_boxes());
  const double drawn =
      count * (drawn_by_mosaic(labels) +
               (labels.mixup > 0 ? drawn_by_mixup(labels) : 0));
  const double certain = drawn * most;
  // With --image-weights the probability of an image is unknown.
  const double likely =
      labels.repeats
          ? certain
          : std::min(
                likely_sum({drawn, images.mean(), images.variance(), most}),
                likely_sum(drawn_by_samples(labels, count)));
  const int64_t boxes =
      own + static_cast<int64_t>(std::ceil(std::min(certain, likely)));
  return {
      boxes + most_pasted(labels, samples, boxes),
      likely < certain ? BoxBound::Kind::kLikely : BoxBound::Kind::kCertain};
}

std::string bound_text(const LabelBound& labels, int64_t samples) {
  const BoxBound bound = most_boxes(labels, samples);
  if (bound.kind == BoxBound::Kind::kAssumed) {
    return cat(labels.assumed_boxes_per_image, " boxes per image assumed");
  }
  return cat("at most ", counted(bound.boxes, "box"), " in ",
             counted(samples, "image"), ", from the labels of ",
             counted(labels.statistics.num_images(), "image"),
             bound.kind == BoxBound::Kind::kLikely
                 ? " (more in one of 1e9 micro-batches)"
                 : "");
}

}  // namespace headroom::predict
