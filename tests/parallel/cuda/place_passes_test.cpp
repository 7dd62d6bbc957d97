// Compares the kernels of heads without anchors with the CPU's loss: items and
// gradients, with the same bits every time.
#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <string>
#include <vector>

#include "tests/parallel/cuda/kernels_under_test.h"
#include "worker/loss/device_place_loss.h"

namespace headroom::cuda {
namespace {

constexpr int64_t kImages = 3, kClasses = 5, kSide = 160;

std::vector<loss::PlaceMaps> maps_of(at::ScalarType type) {
  at::Generator generator = at::globalContext().defaultGenerator(at::kCPU);
  generator.set_current_seed(11);
  std::vector<loss::PlaceMaps> levels;
  for (const int64_t stride : {8, 16, 32}) {
    const auto map = [&](int64_t channels) {
      return at::randn({kImages, channels, kSide / stride, kSide / stride},
                       at::kDouble)
          .mul(2)
          .to(type)
          .contiguous(at::MemoryFormat::ChannelsLast);
    };
    const at::Tensor box = map(kBoxSides * kDistanceBins);
    levels.push_back({box, map(kClasses), stride});
  }
  return levels;
}

// Small and large labels that overlap.
std::vector<loss::LabelRow> some_labels() {
  std::vector<loss::LabelRow> labels;
  for (int64_t i = 0; i < 90; ++i) {
    const auto part = [i](int64_t factor) {
      return static_cast<double>(i * factor % 97) / 97;
    };
    labels.push_back({.image = i * kImages / 90,
                      .class_index = i % kClasses,
                      .cx = part(31),
                      .cy = part(57),
                      .w = 0.03 + part(11) * part(13),
                      .h = 0.03 + part(7) * part(23)});
  }
  return labels;
}

struct Result {
  at::Tensor items;
  std::vector<at::Tensor> gradients;
};

Result result_of(const loss::PlaceLoss& loss,
                 const std::vector<loss::PlaceMaps>& maps) {
  loss.total.backward();
  Result result{loss.items.cpu(), {}};
  for (const loss::PlaceMaps& level : maps) {
    result.gradients.push_back(level.box.grad().cpu());
    result.gradients.push_back(level.cls.grad().cpu());
  }
  return result;
}

std::vector<loss::PlaceMaps> leaves(std::vector<loss::PlaceMaps> maps,
                                    const c10::Device& device) {
  for (loss::PlaceMaps& level : maps) {
    level.box = level.box.to(device).clone().requires_grad_();
    level.cls = level.cls.to(device).clone().requires_grad_();
  }
  return maps;
}

double relative(const at::Tensor& value, const at::Tensor& reference) {
  return ((value - reference).norm() / reference.norm()).item<double>();
}

TEST(PlacePasses, EqualTheCpus) {
  HEADROOM_NEEDS_KERNELS();
  const KernelsUnderTest& under = under_test();
  const std::vector<loss::LabelRow> labels = some_labels();
  loss::PlaceLossRule rule;
  rule.num_classes = kClasses;
  rule.images = kImages;
  for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
    const auto maps = maps_of(type);
    const auto on_cpu = leaves(maps, at::kCPU);
    const Result expected =
        result_of(loss::place_loss(on_cpu, labels, rule), on_cpu);
    const auto on_device = [&] {
      const auto there = leaves(maps, under.device);
      loss::PackedTargets packed =
          loss::pack_labels(labels, kClasses, kImages, kSide, kSide, type, 200);
      packed.bytes = under.there(packed.bytes);
      return result_of(
          loss::device_place_loss(
              *under.kernels, there, packed,
              under.there(loss::place_scales(rule.images, rule.factor)), rule),
          there);
    };
    const Result result = on_device(), again = on_device();
    // In float32 a device may round an overlap differently, and so choose
    // another of two nearly equal places.
    const bool is_double = type == at::kDouble;
    EXPECT_LE(relative(result.items, expected.items), is_double ? 1e-11 : 1e-3);
    EXPECT_TRUE(again.items.equal(result.items));
    for (size_t i = 0; i < result.gradients.size(); ++i) {
      EXPECT_LE(relative(result.gradients[i], expected.gradients[i]),
                is_double ? 1e-10 : 1e-2)
          << c10::toString(type) << ", map " << i;
      EXPECT_TRUE(again.gradients[i].equal(result.gradients[i]));
    }
  }
}

}  // namespace
}  // namespace headroom::cuda
