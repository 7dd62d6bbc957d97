#include "worker/step/teacher.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "configs/layers/model_table.h"
#include "parallel/base/atomic_file.h"
#include "parallel/base/check.h"
#include "parallel/base/memory_category.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "worker/step/run_data.h"
#include "worker/weights/open_weights.h"

namespace headroom::step {
namespace {

[[noreturn]] void refuse(const std::string& what, const std::string& remedy) {
  throw Error("teacher", what, remedy);
}

std::string text_of(const model::LayerGraph::Level& level) {
  std::string text = cat("stride ", level.stride, ", anchors");
  for (const auto& [w, h] : level.anchors) {
    text += cat(" ", std::lround(w), "x", std::lround(h));
  }
  return text;
}

std::string text_of(const ValueRanges& ranges) {
  return ranges.empty() ? "8 bits" : "the range " + to_text(ranges);
}

// A range with one pair applies to all bands.
bool are_equal(const ValueRanges& a, const ValueRanges& b) {
  if (a.size() == b.size() || a.empty() || b.empty()) return a == b;
  const auto are_all = [](const ValueRanges& ranges, const ValueRange& one) {
    return std::ranges::all_of(
        ranges, [&one](const ValueRange& range) { return range == one; });
  };
  return (a.size() == 1 && are_all(b, a[0])) ||
         (b.size() == 1 && are_all(a, b[0]));
}

// Compares in float16, because weights files may store anchors in this type.
bool same_anchors(const model::LayerGraph::Level& a,
                  const model::LayerGraph::Level& b) {
  constexpr double kWithin = 1e-2;
  if (a.stride != b.stride || a.anchors.size() != b.anchors.size()) {
    return false;
  }
  for (size_t i = 0; i < a.anchors.size(); ++i) {
    const auto [w, h] = a.anchors[i];
    const auto [other_w, other_h] = b.anchors[i];
    if (std::abs(w - other_w) > kWithin * w ||
        std::abs(h - other_h) > kWithin * h) {
      return false;
    }
  }
  return true;
}

}  // namespace

Teacher::Teacher(std::unique_ptr<model::LayerGraph> model)
    : model_(std::move(model)) {
  model_->freeze(model_->num_layers());
}

std::unique_ptr<Teacher> Teacher::open(const configs::RunConfig& config,
                                       const devices::ComputeDevice& device) {
  if (!device.is_cpu()) {
    refuse("a teacher looks on the CPU alone, and the run is on a device",
           "use --device cpu, or leave --teacher out");
  }
  const std::string digest = file_digest(config.teacher);
  if (digest != config.teacher_digest) {
    refuse(config.teacher +
               " is not what the run began with: its XXH3-128 is " + digest +
               " and was " + config.teacher_digest,
           "put the old file back, or start a new run");
  }
  const MemoryCategoryScope scope(MemoryCategory::kParameters);
  weights::OpenedWeights opened = weights::open_weights(
      config.teacher, "", scalar_type_of(config.precision));
  const ValueRanges own = value_ranges(config);
  if (!are_equal(opened.ranges, own)) {
    refuse("the teacher was trained with " + text_of(opened.ranges) +
               ", and this run has " + text_of(own),
           opened.ranges.empty()
               ? "give a teacher that was trained on images of this range"
               : "start with --set value_range='" + to_text(opened.ranges) +
                     "', or give another teacher");
  }
  return std::make_unique<Teacher>(std::move(opened.model));
}

void Teacher::check(const model::LayerGraph& student) const {
  const auto classes = [](const model::LayerGraph& model) {
    return counted(model.num_classes(), "class");
  };
  if (model_->num_classes() != student.num_classes()) {
    refuse("the teacher knows " + classes(*model_) + ", the student " +
               classes(student),
           "give a teacher that was trained on this data set");
  }
  const auto bands = [](const model::LayerGraph& model) {
    return layers::picture_channels(model.input_channels());
  };
  if (bands(*model_) != bands(student)) {
    refuse(cat("the teacher looks at images of ", bands(*model_),
               " bands, the student at ", bands(student)),
           "give a teacher of the same ch");
  }
  const auto& its = model_->levels();
  const auto& own = student.levels();
  if (its.size() != own.size()) {
    refuse(cat("the teacher has ", its.size(), " levels, the student ",
               own.size()),
           "give a teacher with as many");
  }
  for (size_t i = 0; i < its.size(); ++i) {
    if (same_anchors(its[i], own[i])) continue;
    refuse(cat("level ", i, " of the teacher: ", text_of(its[i]),
               "; of the student: ", text_of(own[i])),
           "give a teacher with the same anchors");
  }
}

std::vector<at::Tensor> Teacher::heads(const at::Tensor& images) {
  const at::NoGradGuard no_grad;
  return model_->forward(images, model::StepContext());
}

}  // namespace headroom::step
