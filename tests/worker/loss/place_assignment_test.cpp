// Owners and weights of places equal the reference's, for whole images and for
// images whose rows are split.
#include "worker/loss/place_assignment.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/parity.h"

namespace headroom::loss {
namespace {

// The levels of a list of points, which are ordered by level, row and column.
std::vector<PlaceLevel> levels_of(const at::Tensor& points,
                                  const std::vector<int64_t>& strides) {
  const auto at = points.accessor<float, 2>();
  std::vector<PlaceLevel> levels;
  int64_t next = 0;
  for (const int64_t stride : strides) {
    PlaceLevel level{stride, 0, 0, 0, 0};
    const int64_t begin = next;
    // The next level begins above and to the left of the last place.
    while (
        next < points.size(0) &&
        (next == begin || at[next][1] > at[next - 1][1] ||
         (at[next][1] == at[next - 1][1] && at[next][0] > at[next - 1][0]))) {
      if (at[next][1] == at[begin][1]) ++level.width;
      ++next;
    }
    level.height = level.rows = (next - begin) / level.width;
    levels.push_back(level);
  }
  EXPECT_EQ(next, points.size(0));
  return levels;
}

template <typename T>
struct Case {
  std::vector<PlaceLevel> levels;
  PlaceRule rule;
  std::vector<std::vector<PlaceLabel<T>>> labels;  // of each image
  at::Tensor boxes, scores, owner, weight;
};

template <typename T>
Case<T> case_of(const std::string& name, const nlohmann::json& facts,
                const weights::Safetensors& tensors) {
  constexpr auto kType = c10::CppTypeToScalarType<T>::value;
  Case<T> made;
  made.levels = levels_of(tensors.at(name + ".points"),
                          facts["strides"].get<std::vector<int64_t>>());
  made.rule = {facts["topk"], facts["topk2"]};
  made.boxes = tensors.at(name + ".boxes").to(kType).contiguous();
  made.scores = tensors.at(name + ".scores").to(kType).contiguous();
  made.owner = tensors.at(name + ".owner").to(at::kLong);
  made.weight = tensors.at(name + ".weight");
  const at::Tensor gt = tensors.at(name + ".gt").to(kType).contiguous();
  const at::Tensor classes = tensors.at(name + ".labels").to(at::kLong);
  for (int64_t image = 0; image < gt.size(0); ++image) {
    made.labels.emplace_back();
    for (int64_t i = 0; i < gt.size(1); ++i) {
      const auto class_index = classes[image][i].item<int64_t>();
      if (class_index < 0) continue;  // padding
      const T* box = gt[image][i].const_data_ptr<T>();
      made.labels.back().push_back(
          {{box[0], box[1], box[2], box[3]}, class_index});
    }
  }
  return made;
}

// The local part of an image's predictions.
template <typename T>
struct Part {
  PlaceGrid grid;
  std::vector<kernels::CornerBox<T>> boxes;
  std::vector<T> scores;
  int64_t num_classes;
  PlacePredictions<T> predictions() const {
    return {
        boxes.data(), [this](int64_t local, int64_t class_index) {
          return scores[static_cast<size_t>(local * num_classes + class_index)];
        }};
  }
};

template <typename T>
Part<T> part_of(const Case<T>& from, int64_t image,
                std::vector<PlaceLevel> levels) {
  Part<T> part{PlaceGrid(std::move(levels)), {}, {}, from.scores.size(2)};
  for (size_t i = 0; i < part.grid.levels().size(); ++i) {
    const PlaceLevel& level = part.grid.levels()[i];
    for (int64_t row = 0; row < level.rows; ++row) {
      for (int64_t x = 0; x < level.width; ++x) {
        const int64_t place = part.grid.place(i, level.first_row + row, x);
        const T* box = from.boxes[image][place].template const_data_ptr<T>();
        part.boxes.push_back({box[0], box[1], box[2], box[3]});
        const T* scores =
            from.scores[image][place].template const_data_ptr<T>();
        part.scores.insert(part.scores.end(), scores,
                           scores + part.num_classes);
      }
    }
  }
  return part;
}

// Splits the rows of every level into `parts`.
std::vector<PlaceLevel> rows_of(std::vector<PlaceLevel> levels, int64_t part,
                                int64_t parts) {
  for (PlaceLevel& level : levels) {
    level.first_row = level.height * part / parts;
    level.rows = level.height * (part + 1) / parts - level.first_row;
  }
  return levels;
}

struct Result {
  std::vector<int64_t> owner;  // by place; -1 without weight
  std::vector<double> weight;
  bool operator==(const Result&) const = default;
};

// Assigns an image whose rows are split into `num_parts`.
template <typename T>
Result assign(const Case<T>& from, int64_t image, int64_t num_parts) {
  const auto& labels = from.labels[static_cast<size_t>(image)];
  std::vector<Part<T>> parts;
  std::vector<TakenPlaces<T>> taken;
  for (int64_t i = 0; i < num_parts; ++i) {
    parts.push_back(part_of(from, image, rows_of(from.levels, i, num_parts)));
    taken.push_back(best_places(parts.back().grid, labels,
                                parts.back().predictions(), from.rule));
  }
  const TakenPlaces<T> all = merged_places(taken, from.rule);
  std::vector<std::vector<OwnedPlace<T>>> owned;
  std::vector<std::vector<LabelMaxima<T>>> of_parts;
  for (const Part<T>& part : parts) {
    owned.push_back(
        owned_places(part.grid, labels, part.predictions(), all, from.rule));
    of_parts.push_back(label_maxima(owned.back(), labels.size()));
  }
  const auto maxima = merged_maxima(of_parts);
  const auto places = static_cast<size_t>(from.boxes.size(1));
  Result result{std::vector<int64_t>(places, -1), std::vector<double>(places)};
  for (size_t i = 0; i < parts.size(); ++i) {
    const PlaceGrid& grid = parts[i].grid;
    for (size_t place = 0; place < places; ++place) {
      const int64_t local = grid.local_of(static_cast<int64_t>(place));
      for (const OwnedPlace<T>& one : owned[i]) {
        if (one.local != local) continue;
        const T weight =
            place_weight(one, maxima[static_cast<size_t>(one.label)]);
        result.weight[place] = static_cast<double>(weight);
        if (weight > 0) result.owner[place] = one.label;
      }
    }
  }
  return result;
}

template <typename T>
void expect_reference(const std::string& name, const Case<T>& one,
                      double tolerance) {
  for (int64_t image = 0; image < one.boxes.size(0); ++image) {
    const Result found = assign(one, image, 1);
    for (size_t place = 0; place < found.owner.size(); ++place) {
      const auto at = static_cast<int64_t>(place);
      SCOPED_TRACE(name + " image " + std::to_string(image) + " place " +
                   std::to_string(place));
      EXPECT_EQ(found.owner[place],
                one.owner[image][at].template item<int64_t>());
      EXPECT_NEAR(found.weight[place],
                  one.weight[image][at].template item<double>(), tolerance);
    }
  }
}

TEST(PlaceAssignment, OwnersAndWeightsEqualTheReference) {
  if (!parity_present()) GTEST_SKIP() << kParityMissing;
  const nlohmann::json cases = load_parity_json("u/assign.json");
  const auto tensors = load_parity_tensors("u/assign.safetensors");
  EXPECT_EQ(cases.size(), 21u);
  for (const auto& [name, facts] : cases.items()) {
    expect_reference(name, case_of<double>(name, facts, tensors), 1e-12);
    if (facts["f32"]["owners_differ"] == 0) {
      expect_reference(name, case_of<float>(name, facts, tensors), 2e-6);
    }
  }
}

TEST(PlaceAssignment, ASplitImageHasTheSamePlaces) {
  if (!parity_present()) GTEST_SKIP() << kParityMissing;
  const nlohmann::json cases = load_parity_json("u/assign.json");
  const auto tensors = load_parity_tensors("u/assign.safetensors");
  for (const auto& [name, facts] : cases.items()) {
    const auto one = case_of<float>(name, facts, tensors);
    if (one.rule.kept < one.rule.chosen) continue;  // needs the whole image
    for (int64_t image = 0; image < one.boxes.size(0); ++image) {
      for (const int64_t parts : {2, 4}) {
        EXPECT_EQ(assign(one, image, parts), assign(one, image, 1))
            << name << " image " << image << " in " << parts << " parts";
      }
    }
  }
}

}  // namespace
}  // namespace headroom::loss
