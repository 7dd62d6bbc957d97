// The assignment and loss without anchors on a device equal the CPU's. The host
// cannot access the test device's memory, and the device's kernels are the
// source text of the CUDA plugin.
#include "worker/loss/device_place_loss.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/max.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/variable.h>

#include <barrier>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "parallel/base/device_scratch.h"
#include "tests/support/test_device/launch_count.h"
#include "tests/support/test_device/test_device_api.h"
#include "worker/model/detect.h"

namespace headroom::loss {
namespace {

struct Case {
  std::string name = {};
  int64_t labels = 10;  // of each image
  int64_t images = 2;
  int64_t classes = 4;
  int64_t height = 64, width = 96;
  at::ScalarType type = at::kDouble;
  double largest = 0.8;  // side of a label, as a part of the image
  bool ties = false;     // all places predict the same
  int64_t capacity = 0;
};

const std::vector<int64_t> kStrides = {8, 16, 32};
constexpr double kImages = 3, kFactor = 0.125;

PlaceLossRule rule_of(const Case& c) {
  PlaceLossRule rule;
  rule.num_classes = c.classes;
  rule.images = kImages;
  rule.factor = kFactor;
  return rule;
}

// Not at::manual_seed: it seeds every device, and the test device has no
// generator.
void seed(uint64_t value) {
  at::Generator generator = at::globalContext().defaultGenerator(at::kCPU);
  generator.set_current_seed(value);
}

// Box logits whose largest bin differs from side to side, and class logits.
std::vector<PlaceMaps> maps_of(const Case& c) {
  std::vector<PlaceMaps> levels;
  for (const int64_t stride : kStrides) {
    const int64_t height = c.height / stride, width = c.width / stride;
    const at::Tensor centre =
        at::rand({c.images, kBoxSides, 1, height, width}, at::kDouble) * 6;
    const at::Tensor bins =
        at::arange(kDistanceBins, at::kDouble).view({1, 1, -1, 1, 1});
    at::Tensor box =
        (at::randn({c.images, kBoxSides, kDistanceBins, height, width},
                   at::kDouble) -
         (bins - centre).square() * 0.5)
            .flatten(1, 2);
    at::Tensor cls =
        at::randn({c.images, c.classes, height, width}, at::kDouble) - 1;
    if (c.ties) {
      box.zero_();
      cls.zero_();
    }
    const auto map = [&c](const at::Tensor& values) {
      return values.to(c.type).contiguous(at::MemoryFormat::ChannelsLast);
    };
    levels.push_back({map(box), map(cls), stride});
  }
  return levels;
}

std::vector<LabelRow> labels_of(const Case& c) {
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> part(0, 1);
  std::vector<LabelRow> labels;
  for (int64_t i = 0; i < c.labels * c.images; ++i) {
    LabelRow label;
    label.image = i / c.labels;
    label.class_index = static_cast<int64_t>(random() % 1000) % c.classes;
    label.cx = part(random);
    label.cy = part(random);
    label.w = 0.02 + c.largest * part(random) * part(random);
    label.h = 0.02 + c.largest * part(random) * part(random);
    labels.push_back(label);
  }
  return labels;
}

std::vector<Case> cases() {
  std::vector<Case> made;
  for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
    const auto add = [&](Case c) {
      c.type = type;
      c.name += type == at::kFloat ? "Float32" : "Float64";
      made.push_back(c);
    };
    add({.name = "Few", .labels = 1});
    add({.name = "Many", .labels = 40});
    add({.name = "Tiny", .labels = 30, .largest = 0});
    add({.name = "Ties", .labels = 30, .ties = true});
    add({.name = "None", .labels = 0});
    add({.name = "OneClass", .classes = 1, .capacity = 31});
    add({.name = "ManyClasses", .classes = 80});
    add({.name = "Crowded",
         .labels = 2000,
         .images = 1,
         .height = 256,
         .width = 256,
         .largest = 0.2});
  }
  return made;
}

PackedTargets packed(const Case& c, const std::vector<LabelRow>& labels) {
  return pack_labels(labels, c.classes, c.images, c.height, c.width, c.type,
                     c.capacity);
}

// Takes a gradient of the sizes and type of `map`, as output_convolution() does
// for 16-bit maps.
struct TakesPlaces : torch::autograd::Function<TakesPlaces> {
  static at::Tensor forward(torch::autograd::AutogradContext*,
                            const at::Tensor& map) {
    return at::empty_strided(map.sizes(), {0, 0, 0, 0}, map.options());
  }
  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext*,
      torch::autograd::variable_list gradients) {
    return gradients;
  }
};

struct Result {
  at::Tensor total, items;
  std::vector<at::Tensor> gradients;  // box and cls of each level
};

Result loss_on(const devices::ComputeDevice& device, const Case& c,
               const std::vector<PlaceMaps>& maps,
               const std::vector<LabelRow>& labels,
               std::optional<at::ScalarType> narrow = {},
               const GatherParts& gather = {}) {
  std::vector<at::Tensor> leaves;
  const auto on_device = [&](const at::Tensor& map) {
    const at::Tensor there = map.to(device.device()).clone();
    if (!narrow) {
      leaves.push_back(there.requires_grad_());
      return leaves.back();
    }
    leaves.push_back(at::zeros({map.size(0), filled_channels(map.size(1)),
                                map.size(2), map.size(3)},
                               *narrow)
                         .contiguous(at::MemoryFormat::ChannelsLast)
                         .to(device.device())
                         .requires_grad_());
    return torch::autograd::make_variable(
        there, torch::autograd::impl::gradient_edge(
                   TakesPlaces::apply(leaves.back())));
  };
  std::vector<PlaceMaps> levels = maps;
  for (PlaceMaps& level : levels) {
    level.box = on_device(level.box);
    level.cls = on_device(level.cls);
  }
  PlaceLoss loss;
  if (device.is_cpu()) {
    loss = place_loss(levels, labels, rule_of(c));
  } else {
    PackedTargets targets = packed(c, labels);
    targets.bytes = device.upload(targets.bytes);
    loss = device_place_loss(*device.kernels(), levels, targets,
                             device.upload(place_scales(kImages, kFactor)),
                             rule_of(c), gather);
  }
  loss.total.mul(2).backward();
  Result result{loss.total.detach().cpu(), loss.items.cpu(), {}};
  for (const at::Tensor& leaf : leaves) {
    result.gradients.push_back(leaf.grad().cpu());
  }
  return result;
}

double relative_error(const at::Tensor& a, const at::Tensor& b) {
  const double size = at::max(at::abs(b)).item<double>();
  const double error = at::max(at::abs(a - b)).item<double>();
  return size == 0 ? error : error / size;
}

// --- owners, from the passes themselves ---

// A call for all passes with maps and labels on the device.
kernels::PlaceLossCall call_of(const devices::ComputeDevice& device,
                               const Case& c,
                               const std::vector<PlaceMaps>& maps,
                               const std::vector<LabelRow>& labels) {
  kernels::PlaceLossCall call;
  const auto cells = [&device](const at::Tensor& map) {
    return map.permute({0, 2, 3, 1}).contiguous().to(device.device());
  };
  int64_t places = 0;
  for (const PlaceMaps& level : maps) {
    kernels::PlaceLossCall::Level to;
    to.box = cells(level.box);
    to.cls = cells(level.cls);
    to.stride = level.stride;
    to.height = level.box.size(2);
    to.box_gradient = at::empty_like(to.box);
    to.cls_gradient = at::empty_like(to.cls);
    places += to.cls.numel() / c.classes;
    call.levels.push_back(to);
  }
  const PackedTargets targets = packed(c, labels);
  const auto made = [&device](at::IntArrayRef sizes, at::ScalarType type) {
    return at::empty(sizes, device.options(type));
  };
  call.num_classes = c.classes;
  call.capacity = targets.capacities.front();
  call.labels = device.upload(targets.bytes);
  call.scales = device.upload(place_scales(kImages, kFactor));
  const PlaceLossRule rule = rule_of(c);
  call.rules = {rule.gains.box, rule.gains.cls, rule.gains.dfl,
                rule.places.chosen};
  call.distances = made({places, kBoxSides}, c.type);
  call.owners = made({places}, at::kLong);
  call.alignments = made({places}, c.type);
  call.taken =
      made({call.capacity, kernels::kMostTakenPlaces, kernels::kTakenFields},
           at::kDouble);
  call.maxima = made({call.capacity, kernels::kMaximaFields}, at::kDouble);
  call.all_taken = call.taken.unsqueeze(0);
  call.all_maxima = call.maxima.unsqueeze(0);
  call.partial = made({std::ssize(maps) * 2 * kernels::kPlaceLossBlocks *
                       kernels::kPlaceLossItems},
                      at::kDouble);
  call.items = made({kernels::kPlaceLossItems}, at::kDouble);
  call.total = made({}, at::kDouble);
  return call;
}

// The owner (1 + label of the batch) and alignment of each place, in the
// device's order of places.
template <typename T>
std::pair<at::Tensor, at::Tensor> owners_on_cpu(
    const Case& c, const std::vector<PlaceMaps>& maps,
    const std::vector<LabelRow>& labels) {
  std::vector<PlaceLevel> levels;
  int64_t places = 0;
  for (const PlaceMaps& level : maps) {
    const int64_t rows = level.box.size(2);
    levels.push_back({level.stride, rows, level.box.size(3), 0, rows});
    places += c.images * rows * level.box.size(3);
  }
  const PlaceGrid grid(levels);
  const at::Tensor owners = at::zeros({places}, at::kLong);
  const at::Tensor alignments = at::zeros({places}, c.type);
  int64_t first_label = 0;
  for (int64_t image = 0; image < c.images; ++image) {
    std::vector<kernels::CornerBox<T>> boxes;
    std::vector<T> scores;
    std::vector<PlaceLabel<T>> own;
    for (const LabelRow& label : labels) {
      if (label.image != image) continue;
      own.push_back(pixel_label(label, static_cast<T>(c.width),
                                static_cast<T>(c.height)));
    }
    for (size_t i = 0; i < maps.size(); ++i) {
      const auto cells = [image](const at::Tensor& map) {
        return map[image].permute({1, 2, 0}).contiguous();
      };
      const at::Tensor box = cells(maps[i].box), cls = cells(maps[i].cls);
      for (int64_t cell = 0; cell < levels[i].rows * levels[i].width; ++cell) {
        T distances[kBoxSides];
        for (int64_t side = 0; side < kBoxSides; ++side) {
          distances[side] = static_cast<T>(
              kernels::distance_of(box.const_data_ptr<T>() +
                                   (cell * kBoxSides + side) * kDistanceBins)
                  .mean);
        }
        boxes.push_back(kernels::predicted_box(cell % levels[i].width,
                                               cell / levels[i].width,
                                               levels[i].stride, distances));
        for (int64_t k = 0; k < c.classes; ++k) {
          scores.push_back(
              kernels::score_of(cls.const_data_ptr<T>()[cell * c.classes + k]));
        }
      }
    }
    const PlacePredictions<T> predictions = {
        boxes.data(), [&](int64_t local, int64_t class_index) {
          return scores[static_cast<size_t>(local * c.classes + class_index)];
        }};
    const PlaceRule rule = rule_of(c).places;
    const auto taken = best_places(grid, own, predictions, rule);
    for (const OwnedPlace<T>& place :
         owned_places(grid, own, predictions, taken, rule)) {
      const size_t level = grid.level_of(place.local);
      const int64_t cell = place.local - grid.local_begin(level);
      const int64_t at = grid.local_begin(level) * c.images +
                         image * levels[level].rows * levels[level].width +
                         cell;
      owners[at].fill_(first_label + place.label + 1);
      alignments[at].fill_(place.alignment);
    }
    first_label += std::ssize(own);
  }
  return {owners, alignments};
}

class DevicePlaceLossTest : public testing::TestWithParam<Case> {
 protected:
  DevicePlaceLossTest() { seed(5); }
};

TEST_P(DevicePlaceLossTest, OwnersAreTheCpusToTheBit) {
  const Case& c = GetParam();
  const devices::ComputeDevice device = test_compute_device();
  const auto maps = maps_of(c);
  const auto labels = labels_of(c);
  const kernels::PlaceLossCall call = call_of(device, c, maps, labels);
  device.kernels()->best_places(call);
  device.kernels()->place_owners(call);
  const auto [owners, alignments] = c.type == at::kDouble
                                        ? owners_on_cpu<double>(c, maps, labels)
                                        : owners_on_cpu<float>(c, maps, labels);
  const at::Tensor on_device = call.owners.cpu();
  EXPECT_TRUE(on_device.equal(owners))
      << on_device.ne(owners).sum().item<int64_t>() << " of "
      << owners.gt(0).sum().item<int64_t>() << " owned places differ";
  EXPECT_EQ(owners.gt(0).any().item<bool>(), c.labels > 0);
  const at::Tensor is_owned = owners.gt(0);
  EXPECT_TRUE(call.alignments.cpu().masked_select(is_owned).equal(
      alignments.masked_select(is_owned)));
}

TEST_P(DevicePlaceLossTest, LossAndGradientsEqualTheCpus) {
  const Case& c = GetParam();
  const devices::ComputeDevice device = test_compute_device();
  const auto maps = maps_of(c);
  const auto labels = labels_of(c);
  const Result expected = loss_on({}, c, maps, labels);
  const Result result = loss_on(device, c, maps, labels);
  // In float32 the device rounds distances to float32.
  const double tolerance = c.type == at::kDouble ? 1e-12 : 2e-6;
  EXPECT_LE(relative_error(result.total, expected.total), tolerance);
  EXPECT_LE(relative_error(result.items, expected.items), tolerance);
  for (size_t i = 0; i < result.gradients.size(); ++i) {
    EXPECT_LE(relative_error(result.gradients[i], expected.gradients[i]),
              c.type == at::kDouble ? 1e-12 : 1e-5)
        << "map " << i;
    EXPECT_EQ(result.gradients[i].scalar_type(), c.type);
  }

  // Room for more labels changes no bit.
  Case roomy = c;
  roomy.capacity = std::ssize(labels) + 100;
  const Result padded = loss_on(device, roomy, maps, labels);
  EXPECT_TRUE(padded.total.equal(result.total));
  EXPECT_TRUE(padded.items.equal(result.items));
  for (size_t i = 0; i < result.gradients.size(); ++i) {
    EXPECT_TRUE(padded.gradients[i].equal(result.gradients[i]));
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, DevicePlaceLossTest, testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

// The gradients are the ones of float32 maps, rounded once; the channels that
// fill a map up are zeros.
TEST(DevicePlaceLoss, TheGradientOf16BitMapsHas16Bits) {
  const devices::ComputeDevice device = test_compute_device();
  for (const int64_t classes : {1, 3, 80}) {
    seed(5);
    const Case c{.classes = classes, .type = at::kFloat};
    const auto maps = maps_of(c);
    const auto labels = labels_of(c);
    const Result wide = loss_on(device, c, maps, labels);
    for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
      const Result result = loss_on(device, c, maps, labels, type);
      EXPECT_TRUE(result.total.equal(wide.total));
      for (size_t i = 0; i < result.gradients.size(); ++i) {
        const at::Tensor& gradient = result.gradients[i];
        ASSERT_EQ(gradient.scalar_type(), type);
        const int64_t own = wide.gradients[i].size(1);
        EXPECT_TRUE(
            gradient.narrow(1, 0, own).equal(wide.gradients[i].to(type)))
            << classes << " classes, map " << i;
        EXPECT_EQ(gradient.narrow(1, own, gradient.size(1) - own)
                      .ne(0)
                      .sum()
                      .item<int64_t>(),
                  0);
      }
    }
  }
}

TEST(DevicePlaceLoss, LaunchesDoNotDependOnTheLabels) {
  const devices::ComputeDevice device = test_compute_device();
  std::optional<std::map<std::string, int64_t>> expected;
  for (const int64_t count : {0, 3, 50}) {
    seed(5);
    const Case c{.labels = count, .capacity = 100};
    const auto maps = maps_of(c);
    take_launches();
    loss_on(device, c, maps, labels_of(c));
    const auto launches = take_launches();
    EXPECT_EQ(launches.at("place loss"), 8);
    if (!expected) expected = launches;
    EXPECT_EQ(launches, *expected) << count << " labels";
  }
}

TEST(DevicePlaceLoss, ACapturedGraphTakesOtherLabels) {
  const devices::ComputeDevice device = test_compute_device();
  device.api()->leave_default_stream(device.device().index());
  seed(5);
  const Case c{.labels = 4, .capacity = 100};
  const auto maps = maps_of(c);
  kernels::DeviceKernels& kernels = *device.kernels();
  const auto run = [&kernels](kernels::PlaceLossCall call,
                              const at::Tensor& by_total) {
    kernels.best_places(call);
    kernels.place_owners(call);
    kernels.place_loss(call);
    call.by_total = by_total;
    kernels.place_loss_gradient(call);
  };
  const at::Tensor one = device.upload(at::ones({}, at::kDouble));
  const kernels::PlaceLossCall captured =
      call_of(device, c, maps, labels_of(c));
  const auto graph = device.api()->make_graph(device.device().index());
  graph->begin_capture(nullptr);
  run(captured, one);
  graph->end_capture();
  for (const int64_t count : {0, 50, 7}) {
    Case other = c;
    other.labels = count;
    const kernels::PlaceLossCall plain =
        call_of(device, other, maps, labels_of(other));
    device.upload_into(packed(other, labels_of(other)).bytes, captured.labels);
    graph->replay();
    run(plain, one);
    EXPECT_TRUE(captured.items.cpu().equal(plain.items.cpu())) << count;
    for (size_t i = 0; i < maps.size(); ++i) {
      EXPECT_TRUE(captured.levels[i].box_gradient.cpu().equal(
          plain.levels[i].box_gradient.cpu()));
      EXPECT_TRUE(captured.levels[i].cls_gradient.cpu().equal(
          plain.levels[i].cls_gradient.cpu()));
    }
  }
}

// Two ranks with the rows of the same images.
TEST(DevicePlaceLoss, PartsOfTheRowsGiveTheLossOfTheImage) {
  const devices::ComputeDevice device = test_compute_device();
  seed(5);
  const Case c{.labels = 30, .height = 128};
  const auto maps = maps_of(c);
  const auto labels = labels_of(c);
  const Result whole = loss_on(device, c, maps, labels);
  constexpr int kParts = 2;
  std::barrier<> all_here(kParts);
  std::vector<at::Tensor> gathered(kParts);
  std::vector<Result> results(kParts);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kParts; ++rank) {
    ranks.emplace_back([&, rank] {
      std::vector<PlaceMaps> own = maps;
      for (PlaceMaps& level : own) {
        level.height = level.box.size(2);
        const int64_t rows = level.height / kParts;
        level.first_row = rank * rows;
        for (at::Tensor* const map : {&level.box, &level.cls}) {
          *map = map->narrow(2, level.first_row, rows)
                     .contiguous(at::MemoryFormat::ChannelsLast);
        }
      }
      const GatherParts gather = [&](const at::Tensor& numbers) {
        gathered[static_cast<size_t>(rank)] = numbers.cpu();
        all_here.arrive_and_wait();
        std::vector<at::Tensor> all;
        for (const at::Tensor& part : gathered) {
          all.push_back(device.upload(part));
        }
        all_here.arrive_and_wait();
        return all;
      };
      results[static_cast<size_t>(rank)] =
          loss_on(device, c, own, labels, {}, gather);
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_LE(relative_error(results[0].total + results[1].total, whole.total),
            1e-14);
  EXPECT_LE(relative_error(results[0].items + results[1].items, whole.items),
            1e-14);
  for (size_t i = 0; i < whole.gradients.size(); ++i) {
    EXPECT_TRUE(at::cat({results[0].gradients[i], results[1].gradients[i]}, 2)
                    .equal(whole.gradients[i]))
        << "map " << i;
  }
}

TEST(DevicePlaceLoss, ALabelOfAnotherImageOrClassIsRefused) {
  const LabelRow label{.image = 1, .class_index = 2};
  EXPECT_NO_THROW(pack_labels({label}, 3, 2, 64, 64, at::kFloat));
  EXPECT_ANY_THROW(pack_labels({label}, 3, 1, 64, 64, at::kFloat));
  EXPECT_ANY_THROW(pack_labels({label}, 2, 2, 64, 64, at::kFloat));
}

// The convolutions that end the head, with the loss behind them.
TEST(DevicePlaceLoss, TheHeadsConvolutionsLearnAsOnTheCpu) {
  const devices::ComputeDevice device = test_compute_device();
  struct Learned {
    at::Tensor total;
    std::vector<at::Tensor> gradients;
  };
  const Case c{.classes = 3, .type = at::kFloat};
  const auto labels = labels_of(c);
  const auto learn = [&](const devices::ComputeDevice& on,
                         at::ScalarType type) {
    seed(5);
    std::vector<at::Tensor> leaves;
    const auto leaf = [&](const at::Tensor& values) {
      leaves.push_back(values.contiguous(at::MemoryFormat::ChannelsLast)
                           .to(on.device())
                           .requires_grad_());
      return leaves.back();
    };
    std::vector<PlaceMaps> levels;
    for (const int64_t stride : kStrides) {
      const at::Tensor x =
          leaf(at::randn({c.images, 16, c.height / stride, c.width / stride})
                   .to(type));
      const auto head = [&](int64_t channels) {
        const at::Tensor weight = leaf(at::randn({channels, 16, 1, 1}) * 0.3);
        leaves.push_back(
            at::randn({channels}).to(on.device()).requires_grad_());
        return model::output_convolution(x, weight, leaves.back(), {});
      };
      const at::Tensor box = head(kBoxSides * kDistanceBins);
      levels.push_back({box, head(c.classes), stride});
    }
    PlaceLoss loss;
    if (on.is_cpu()) {
      loss = place_loss(levels, labels, rule_of(c));
    } else {
      PackedTargets targets = packed(c, labels);
      targets.bytes = on.upload(targets.bytes);
      loss = device_place_loss(*on.kernels(), levels, targets,
                               on.upload(place_scales(kImages, kFactor)),
                               rule_of(c));
    }
    loss.total.backward();
    Learned learned{loss.total.detach().cpu(), {}};
    for (const at::Tensor& each : leaves) {
      EXPECT_TRUE(each.grad().defined());
      learned.gradients.push_back(each.grad().cpu().to(at::kFloat));
    }
    return learned;
  };
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const Learned expected = learn({}, type);
    const Learned result = learn(device, type);
    const double tolerance = type == at::kFloat ? 1e-5 : 2e-2;
    EXPECT_LE(relative_error(result.total, expected.total), tolerance);
    ASSERT_EQ(result.gradients.size(), expected.gradients.size());
    for (size_t i = 0; i < result.gradients.size(); ++i) {
      EXPECT_LE(relative_error(result.gradients[i], expected.gradients[i]),
                tolerance)
          << c10::toString(type) << ", leaf " << i;
    }
  }
}

}  // namespace
}  // namespace headroom::loss
