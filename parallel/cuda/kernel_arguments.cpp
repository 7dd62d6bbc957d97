#include "parallel/cuda/kernel_arguments.h"

#include <algorithm>
#include <string>

#include "parallel/base/check.h"
#include "parallel/base/device_scratch.h"
#include "parallel/base/head_fields.h"
#include "parallel/base/text.h"
#include "parallel/cuda/map_call.h"
#include "worker/kernels/packed_sample.h"

namespace headroom::cuda {
namespace {

void check_bytes(const at::Tensor& tensor, const char* name) {
  HEADROOM_CHECK(tensor.scalar_type() == at::kByte && tensor.is_contiguous(),
                 std::string(name) + " of " +
                     c10::toString(tensor.scalar_type()) +
                     ", to be dense bytes");
}

// Checks the images. Returns true if they have 16 bits.
bool checked_depth(const at::Tensor& images) {
  const bool is_deep = images.scalar_type() == at::kUInt16;
  if (!is_deep) check_bytes(images, "images");
  HEADROOM_CHECK(images.is_contiguous(), "images that are not dense");
  return is_deep;
}

std::string map_text(const at::Tensor& map) {
  return cat(map.size(0), " x ", map.size(2), " x ", map.size(3), " cells of ",
             map.size(1), " channels");
}

// The arguments that both pooling passes share. `map` is the unpooled map.
PoolArguments arguments_of_pool(const at::Tensor& map, const at::Tensor& pooled,
                                const at::Tensor& choices, int64_t window) {
  HEADROOM_CHECK(map.dim() == 4 && pooled.dim() == 4,
                 cat("a pooled map of ", pooled.dim(), " dimensions"));
  const int64_t fewer = map.size(2) - pooled.size(2);
  HEADROOM_CHECK(
      window % 2 == 1 && chooses_in_bytes(window) && 0 <= fewer &&
          fewer < window && fewer % 2 == 0 && pooled.size(0) == map.size(0) &&
          pooled.size(1) == map.size(1) && pooled.size(3) == map.size(3) &&
          pooled.device() == map.device() &&
          pooled.scalar_type() == map.scalar_type(),
      cat("windows of ", window, " from ", map_text(map), " to ",
          map_text(pooled)));
  PoolArguments arguments;
  arguments.type = element_type(map);
  if (choices.defined()) {
    HEADROOM_CHECK(
        choices.scalar_type() == at::kByte && is_channels_last(choices) &&
            choices.sizes() == pooled.sizes() &&
            choices.device() == map.device(),
        "choices for " + map_text(choices) + " beside " + map_text(pooled));
    arguments.choices = choices.mutable_data_ptr<uint8_t>();
  }
  arguments.samples = map.size(0);
  arguments.channels = map.size(1);
  arguments.width = static_cast<int32_t>(map.size(3));
  arguments.window = static_cast<int32_t>(window);
  return arguments;
}

// Sets the map that is read and the map that is written.
void set_direction(const at::Tensor& from, const at::Tensor& to,
                   PoolArguments& arguments) {
  HEADROOM_CHECK(is_channels_last(to),
                 "a pooled map that is not channels-last");
  arguments.from = from.const_data_ptr();
  arguments.from_stride = pixel_stride(from);
  arguments.to = to.mutable_data_ptr();
  arguments.from_rows = static_cast<int32_t>(from.size(2));
  arguments.to_rows = static_cast<int32_t>(to.size(2));
  // Half a window, plus half the difference between the rows of `to` and of
  // `from`.
  arguments.rows_before = static_cast<int32_t>(
      (arguments.window - 1 + to.size(2) - from.size(2)) / 2);
  const int64_t wide = 16 / static_cast<int64_t>(from.element_size());
  const auto lies_at = [](const void* pointer, int64_t multiple) {
    return reinterpret_cast<uintptr_t>(pointer) %
               static_cast<uintptr_t>(multiple) ==
           0;
  };
  arguments.is_aligned =
      arguments.channels % wide == 0 && arguments.from_stride % wide == 0 &&
      lies_at(arguments.from, 16) && lies_at(arguments.to, 16) &&
      lies_at(arguments.choices, wide);
  HEADROOM_CHECK(arguments.strips() <= INT32_MAX,
                 "pooling of " + map_text(to) + ", more than a kernel counts");
}

// Checks that `tensor` has `numel` contiguous elements of `type` and is on the
// device of `beside`.
void check_operand(const at::Tensor& tensor, int64_t numel, at::ScalarType type,
                   const at::Tensor& beside, const char* name) {
  HEADROOM_CHECK(
      tensor.numel() == numel && tensor.is_contiguous() &&
          tensor.scalar_type() == type && tensor.device() == beside.device(),
      cat(std::string(name), " has ", tensor.numel(), " elements of ",
          c10::toString(tensor.scalar_type()), " on ", tensor.device().str()));
}

bool is_double(const at::Tensor& values) {
  HEADROOM_CHECK(
      values.scalar_type() == at::kDouble || values.scalar_type() == at::kFloat,
      std::string("numbers of ") + c10::toString(values.scalar_type()));
  return values.scalar_type() == at::kDouble;
}

const kernels::CommitNumbers* numbers_of(const kernels::CommitPlace& place,
                                         const at::Tensor& beside) {
  check_operand(place.numbers, sizeof(kernels::CommitNumbers), at::kByte,
                beside, "numbers of a commit");
  return static_cast<const kernels::CommitNumbers*>(
      place.numbers.const_data_ptr());
}

kernels::CommitOutcome* outcome_of(const kernels::CommitPlace& place,
                                   const at::Tensor& beside) {
  check_operand(place.outcome, kernels::kOutcomeDoubles, at::kDouble, beside,
                "outcome of a commit");
  return static_cast<kernels::CommitOutcome*>(place.outcome.mutable_data_ptr());
}

const double* items_of(const kernels::CommitPlace& place,
                       const at::Tensor& beside) {
  check_operand(place.items, kernels::kStepItems, at::kDouble, beside,
                "items of a step");
  return place.items.const_data_ptr<double>();
}

}  // namespace

RenderArguments render_arguments(const at::Tensor& region,
                                 std::span<const int64_t> starts,
                                 const at::Tensor& images, size_t first) {
  check_bytes(region, "packed samples");
  const bool is_deep = checked_depth(images);
  HEADROOM_CHECK(
      images.dim() == 4 && region.device() == images.device() &&
          images.size(0) == static_cast<int64_t>(starts.size()),
      cat(starts.size(), " packed samples on ", region.device().str(), " for ",
          images.dim() == 0 ? 0 : images.size(0), " images on ",
          images.device().str()));
  RenderArguments arguments;
  arguments.region = region.const_data_ptr<uint8_t>();
  arguments.count = static_cast<int32_t>(
      std::min<size_t>(kMostRendered, starts.size() - first));
  for (int i = 0; i < arguments.count; ++i) {
    const int64_t start = starts[first + static_cast<size_t>(i)];
    HEADROOM_CHECK(
        start >= 0 && start % kernels::kPackedAlignment == 0 &&
            start + static_cast<int64_t>(sizeof(kernels::PackedSample)) <=
                region.numel(),
        cat("a packed sample at byte ", start, " of ", region.numel()));
    arguments.starts[i] = start;
  }
  arguments.images = images[static_cast<int64_t>(first)].mutable_data_ptr();
  arguments.is_deep = is_deep;
  arguments.rows = static_cast<int32_t>(images.size(1));
  arguments.width = static_cast<int32_t>(images.size(2));
  arguments.bands = static_cast<int32_t>(images.size(3));
  return arguments;
}

ImageArguments image_arguments(const at::Tensor& images,
                               const at::Tensor& input) {
  const bool is_deep = checked_depth(images);
  HEADROOM_CHECK(images.dim() == 4 && input.dim() == 4 &&
                     images.device() == input.device() &&
                     input.permute({0, 2, 3, 1}).is_contiguous() &&
                     input.permute({0, 2, 3, 1}).sizes() == images.sizes(),
                 "the network's input is no channels-last map of its images");
  ImageArguments arguments;
  arguments.type = element_type(input);
  arguments.images = images.const_data_ptr();
  arguments.is_deep = is_deep;
  arguments.input = input.mutable_data_ptr();
  arguments.size = images.numel();
  constexpr uintptr_t kAligned = 16;
  arguments.is_aligned =
      reinterpret_cast<uintptr_t>(arguments.images) % kAligned == 0 &&
      reinterpret_cast<uintptr_t>(arguments.input) % kAligned == 0;
  return arguments;
}

PoolArguments pool_arguments(const at::Tensor& x, int64_t window,
                             const at::Tensor& out, const at::Tensor& choices) {
  PoolArguments arguments = arguments_of_pool(x, out, choices, window);
  set_direction(x, out, arguments);
  return arguments;
}

PoolArguments pool_gradient_arguments(const at::Tensor& dout,
                                      const at::Tensor& choices, int64_t window,
                                      const at::Tensor& dx) {
  HEADROOM_CHECK(choices.defined(), "a gradient of pooling without choices");
  PoolArguments arguments = arguments_of_pool(dx, dout, choices, window);
  set_direction(dout, dx, arguments);
  return arguments;
}

namespace {

// Sets a level's gradient, for backward. `head` is any tensor of the heads'
// type.
void set_gradient(const at::Tensor& gradient, const at::Tensor& head,
                  int64_t fields, at::ScalarType type, LossLevel& level) {
  level.channels = gradient.size(-1);
  level.num_pixels = gradient.numel() / level.channels;
  check_operand(gradient, level.num_pixels * level.channels, type, head,
                "a head's gradient");
  if (level.num_pixels > 0) {
    level.num_anchors = level.num_cells / level.num_pixels;
  }
  const bool is_narrow = gradient.element_size() == 2;
  HEADROOM_CHECK(
      level.num_pixels * level.num_anchors == level.num_cells &&
          level.num_anchors * fields <= level.channels &&
          (type == head.scalar_type() ||
           (is_narrow && head.scalar_type() == at::kFloat)) &&
          (!is_narrow ||
           (level.channels % kChannelsTogether == 0 &&
            reinterpret_cast<uintptr_t>(gradient.const_data_ptr()) %
                    kVectorBytes ==
                0)),
      cat("a gradient of ", level.channels, " channels of ",
          c10::toString(type), " for ", level.num_cells, " cells of ", fields,
          " fields in ", level.num_pixels, " pixels"));
  level.gradient = gradient.mutable_data_ptr();
}

}  // namespace

LossArguments loss_arguments(const kernels::LossCall& call) {
  static_assert(kLossLevels == kernels::kMostLossLevels &&
                kLossSums == kernels::kLossItems &&
                kOfAll == kernels::kScalesOfAll && kFit == kernels::kFitFields);
  const auto num_levels = static_cast<int64_t>(call.levels.size());
  HEADROOM_CHECK(0 < num_levels && num_levels <= kLossLevels,
                 cat(num_levels, " levels of a loss"));
  const bool is_backward = call.by_total.defined();
  const at::Tensor& first = call.levels.front().objectness;
  const at::ScalarType type = first.scalar_type();
  LossArguments arguments;
  arguments.is_double = is_double(first);
  arguments.num_levels = static_cast<int>(num_levels);
  arguments.num_classes = call.num_classes;
  arguments.obj_rule = call.rules.obj;
  arguments.cls_rule = call.rules.cls;
  arguments.positive_target = call.rules.positive_target;
  arguments.negative_target = call.rules.negative_target;
  arguments.weighs_classes = call.rules.weighs_classes;
  check_operand(call.scales,
                num_levels * kLossSums + kernels::kScalesOfAll +
                    (arguments.weighs_classes ? arguments.num_classes : 0),
                at::kDouble, first, "scales");
  arguments.scales = call.scales.const_data_ptr<double>();
  arguments.blocks = kernels::kLossBlocks;
  if (is_backward) {
    check_operand(call.by_total, 1, at::kDouble, first, "by_total");
    arguments.gradient_type = element_type(call.levels.front().gradient);
    arguments.by_total = call.by_total.const_data_ptr<double>();
  } else {
    check_operand(call.partial,
                  num_levels * kLossParts * arguments.blocks * kLossSums,
                  at::kDouble, first, "partial");
    check_operand(call.items, kLossSums, at::kDouble, first, "items");
    check_operand(call.total, 1, at::kDouble, first, "total");
    arguments.partial = call.partial.mutable_data_ptr<double>();
    arguments.items = call.items.mutable_data_ptr<double>();
    arguments.total = call.total.mutable_data_ptr<double>();
  }
  HEADROOM_CHECK(call.targets.scalar_type() == at::kByte &&
                     call.targets.is_contiguous() &&
                     call.targets.device() == first.device(),
                 "targets are bytes beside the heads");
  const auto* const targets = call.targets.const_data_ptr<uint8_t>();
  for (int64_t i = 0; i < num_levels; ++i) {
    const kernels::LossCall::Level& level = call.levels[static_cast<size_t>(i)];
    const int64_t fields = kFirstClass + arguments.num_classes;
    LossLevel& to = arguments.levels[i];
    to.num_cells = level.objectness.numel();
    check_operand(level.objectness, to.num_cells, type, first, "objectness");
    check_operand(level.fit, level.capacity * kFit, at::kDouble, first, "fit");
    const kernels::MatchLayout at = {
        level.capacity, static_cast<int64_t>(first.element_size())};
    HEADROOM_CHECK(level.begin + at.bytes() <= call.targets.numel() &&
                       level.begin % kernels::MatchLayout::kAlignment == 0,
                   cat(level.capacity, " matches from byte ", level.begin,
                       " of ", call.targets.numel()));
    const uint8_t* const begin = targets + level.begin;
    to.num_matches = reinterpret_cast<const int32_t*>(begin);
    to.cells = reinterpret_cast<const int32_t*>(begin + at.cells());
    to.classes = reinterpret_cast<const int32_t*>(begin + at.classes());
    to.boxes = begin + at.boxes();
    to.anchors = begin + at.anchors();
    to.objectness = level.objectness.mutable_data_ptr();
    to.fit = level.fit.mutable_data_ptr<double>();
    if (arguments.num_classes > 1) {
      check_operand(level.classes, level.capacity * arguments.num_classes, type,
                    first, "classes");
      to.logits = level.classes.mutable_data_ptr();
    }
    if (is_backward) {
      set_gradient(level.gradient, first, fields,
                   call.levels.front().gradient.scalar_type(), to);
    } else {
      check_operand(level.head, to.num_cells * fields, type, first, "a head");
      to.head = level.head.const_data_ptr();
    }
  }
  return arguments;
}

namespace {

// Checks that `gradient` is one of [places, channels] for a map of `channels`
// channels of T, as a producer of the map takes it. Returns its data.
void* place_gradient(const at::Tensor& gradient, const at::Tensor& map,
                     at::ScalarType type) {
  const int64_t channels = map.size(3);
  const bool is_narrow = gradient.element_size() == 2;
  const auto address = reinterpret_cast<uintptr_t>(gradient.const_data_ptr());
  check_operand(gradient, map.numel() / channels * gradient.size(-1), type, map,
                "a map's gradient");
  HEADROOM_CHECK(
      gradient.size(-1) >= channels &&
          (type == map.scalar_type() ||
           (is_narrow && map.scalar_type() == at::kFloat)) &&
          (!is_narrow || gradient.size(-1) % kChannelsTogether == 0) &&
          address % kVectorBytes == 0,
      cat("a gradient of ", gradient.size(-1), " channels of ",
          c10::toString(type), " for a map of ", channels));
  return gradient.mutable_data_ptr();
}

void set_place_level(const kernels::PlaceLossCall::Level& level,
                     const at::Tensor& first, int64_t num_classes,
                     PlaceLossLevel& to) {
  to.stride = level.stride;
  to.rows = level.box.size(1);
  to.width = level.box.size(2);
  to.first_row = level.first_row;
  to.num_places = first.size(0) * to.rows * to.width;
  check_operand(level.box, to.num_places * kBoxSides * kDistanceBins,
                first.scalar_type(), first, "a map of distances");
  check_operand(level.cls, to.num_places * num_classes, first.scalar_type(),
                first, "a map of classes");
  HEADROOM_CHECK(
      level.first_row >= 0 && level.first_row + to.rows <= level.height &&
          to.num_places * kBoxSides <= INT32_MAX &&
          reinterpret_cast<uintptr_t>(level.box.const_data_ptr()) %
                  kVectorBytes ==
              0,
      cat("rows ", level.first_row, " to ", level.first_row + to.rows, " of ",
          level.height, " of a level with ", to.num_places, " places"));
  to.box = level.box.const_data_ptr();
  to.cls = level.cls.const_data_ptr();
}

void set_place_labels(const kernels::PlaceLossCall& call,
                      const at::Tensor& first, PlaceLossArguments& arguments) {
  const kernels::PlaceLabelLayout at = {
      call.capacity, first.size(0), static_cast<int64_t>(first.element_size())};
  check_operand(call.labels, at.bytes(), at::kByte, first, "labels");
  const auto* const labels = call.labels.const_data_ptr<uint8_t>();
  const auto numbers = [labels](int64_t begin) {
    return reinterpret_cast<const int32_t*>(labels + begin);
  };
  arguments.capacity = call.capacity;
  arguments.num_labels = numbers(0);
  arguments.image_begins = numbers(at.begins());
  arguments.images = numbers(at.image());
  arguments.classes = numbers(at.classes());
  arguments.boxes = labels + at.boxes();
}

// Sets what the ranks of an image exchange: a label's `values` numbers of this
// rank, and of all parts. Both may be undefined. Returns the number of parts.
int64_t set_exchanged(const at::Tensor& own, const at::Tensor& all,
                      int64_t values, const at::Tensor& first,
                      double*& own_data, const double*& all_data) {
  if (own.defined()) {
    check_operand(own, values, at::kDouble, first, "numbers of the labels");
    own_data = own.mutable_data_ptr<double>();
  }
  if (!all.defined()) return 0;
  check_operand(all, all.size(0) * values, at::kDouble, first,
                "numbers of the labels of all parts");
  all_data = all.const_data_ptr<double>();
  return all.size(0);
}

}  // namespace

PlaceLossArguments place_loss_arguments(const kernels::PlaceLossCall& call) {
  static_assert(kLossLevels == kernels::kMostLossLevels &&
                kTaken == kernels::kMostTakenPlaces &&
                kTakenDoubles == kernels::kTakenFields &&
                kMaximaDoubles == kernels::kMaximaFields &&
                kPlaceSums == kernels::kPlaceLossItems &&
                sizeof(TakerCount) == sizeof(int64_t));
  const auto num_levels = static_cast<int64_t>(call.levels.size());
  HEADROOM_CHECK(0 < num_levels && num_levels <= kLossLevels &&
                     0 < call.rules.chosen && call.rules.chosen <= kTaken,
                 cat(num_levels, " levels of a loss, ", call.rules.chosen,
                     " places of a label"));
  const at::Tensor& first = call.levels.front().box;
  PlaceLossArguments arguments;
  arguments.is_double = is_double(first);
  arguments.num_levels = static_cast<int>(num_levels);
  arguments.num_classes = call.num_classes;
  arguments.box_gain = call.rules.box_gain;
  arguments.cls_gain = call.rules.cls_gain;
  arguments.dfl_gain = call.rules.dfl_gain;
  arguments.chosen = static_cast<int>(call.rules.chosen);
  const bool is_backward = call.by_total.defined();
  int64_t num_places = 0, of_image = 0, most_places = 0;
  for (int64_t i = 0; i < num_levels; ++i) {
    const kernels::PlaceLossCall::Level& level =
        call.levels[static_cast<size_t>(i)];
    PlaceLossLevel& to = arguments.levels[i];
    set_place_level(level, first, arguments.num_classes, to);
    to.begin = num_places;
    to.first_place = of_image;
    num_places += to.num_places;
    most_places = std::max(most_places, to.num_places);
    of_image += level.height * to.width;
    if (!is_backward) continue;
    const at::ScalarType type = level.box_gradient.scalar_type();
    arguments.gradient_type = element_type(level.box_gradient);
    HEADROOM_CHECK(i == 0 || type == call.levels[0].box_gradient.scalar_type(),
                   "gradients of several types");
    HEADROOM_CHECK(level.box_gradient.size(-1) == level.box.size(3),
                   "a gradient with more channels than distances");
    to.box_gradient = place_gradient(level.box_gradient, level.box, type);
    to.cls_gradient = place_gradient(level.cls_gradient, level.cls, type);
    to.cls_channels = level.cls_gradient.size(-1);
  }
  HEADROOM_CHECK(of_image <= INT32_MAX,
                 cat(of_image,
                     " places of an image, more than a kernel "
                     "counts"));
  // Fewer blocks for small maps, so that a thread sums several values.
  constexpr int64_t kValuesOfThread = 4;
  arguments.blocks =
      std::clamp<int64_t>(most_places * std::max(call.num_classes, kBoxSides) /
                              (kSideThreads * kValuesOfThread),
                          1, kernels::kPlaceLossBlocks);
  set_place_labels(call, first, arguments);
  check_operand(call.scales, kernels::kPlaceLossScales, at::kDouble, first,
                "scales");
  check_operand(call.distances, num_places * kBoxSides, first.scalar_type(),
                first, "distances");
  check_operand(call.owners, num_places, at::kLong, first, "owners");
  check_operand(call.alignments, num_places, first.scalar_type(), first,
                "alignments");
  arguments.scales = call.scales.const_data_ptr<double>();
  arguments.distances = call.distances.mutable_data_ptr();
  arguments.owners =
      reinterpret_cast<TakerCount*>(call.owners.mutable_data_ptr<int64_t>());
  arguments.alignments = call.alignments.mutable_data_ptr();
  arguments.taken_parts = set_exchanged(
      call.taken, call.all_taken, call.capacity * kTaken * kTakenDoubles, first,
      arguments.taken, arguments.all_taken);
  arguments.maxima_parts = set_exchanged(
      call.maxima, call.all_maxima, call.capacity * kMaximaDoubles, first,
      arguments.maxima, arguments.all_maxima);
  if (is_backward) {
    check_operand(call.by_total, 1, at::kDouble, first, "by_total");
    arguments.by_total = call.by_total.const_data_ptr<double>();
    return arguments;
  }
  check_operand(
      call.partial,
      num_levels * kPlaceParts * kernels::kPlaceLossBlocks * kPlaceSums,
      at::kDouble, first, "partial");
  check_operand(call.items, kPlaceSums, at::kDouble, first, "items");
  check_operand(call.total, 1, at::kDouble, first, "total");
  arguments.partial = call.partial.mutable_data_ptr<double>();
  arguments.items = call.items.mutable_data_ptr<double>();
  arguments.total = call.total.mutable_data_ptr<double>();
  return arguments;
}

std::vector<FlatBufferPiece> flat_buffer_pieces(
    std::span<const kernels::FlatBufferRange> ranges, int64_t size) {
  std::vector<FlatBufferPiece> pieces;
  int64_t done = 0;
  const auto cut_to = [&](int64_t end, int group) {
    for (; done < end; done += pieces.back().size) {
      pieces.push_back({done,
                        static_cast<int32_t>(
                            std::min<int64_t>(kMostPieceElements, end - done)),
                        group});
    }
  };
  for (const kernels::FlatBufferRange& range : ranges) {
    HEADROOM_CHECK(range.offset >= done && range.size >= 0 &&
                       range.offset + range.size <= size,
                   cat("range [", range.offset, ", +", range.size, ") after ",
                       done, " in ", size));
    HEADROOM_CHECK(range.group >= 0 && range.group < kernels::kParameterGroups,
                   cat("group ", range.group));
    cut_to(range.offset, -1);
    cut_to(range.offset + range.size, range.group);
  }
  cut_to(size, -1);
  return pieces;
}

FlatBufferArguments flat_buffer_arguments(const kernels::FlatBuffers& buffers,
                                          const kernels::CommitPlace& place) {
  const at::Tensor& first = buffers.parameters;
  const auto elements = [&](const at::Tensor& tensor, const char* name) {
    check_operand(tensor, first.numel(), first.scalar_type(), first, name);
    return tensor.mutable_data_ptr();
  };
  const at::Tensor& pieces = buffers.pieces;
  check_operand(pieces, pieces.numel(), at::kByte, first, "pieces");
  HEADROOM_CHECK(pieces.dim() == 2 && pieces.size(1) == kPieceBytes,
                 cat(pieces.dim(), " dimensions of pieces"));
  FlatBufferArguments arguments;
  arguments.is_double = is_double(first);
  arguments.parameters = elements(first, "parameters");
  arguments.gradients = elements(buffers.gradients, "gradients");
  arguments.accumulated = elements(buffers.accumulated, "accumulated");
  arguments.first_moment = elements(buffers.first, "first moment");
  if (buffers.second.defined()) {
    arguments.second_moment = elements(buffers.second, "second moment");
  }
  if (buffers.average.defined()) {
    arguments.average = elements(buffers.average, "average");
  }
  arguments.pieces =
      static_cast<const FlatBufferPiece*>(pieces.const_data_ptr());
  arguments.num_pieces = pieces.size(0);
  arguments.numbers = numbers_of(place, first);
  arguments.outcome = outcome_of(place, first);
  if (place.items.defined()) arguments.items = items_of(place, first);
  return arguments;
}

DecisionArguments decision_arguments(const at::Tensor& partial,
                                     const kernels::CommitPlace& place) {
  check_operand(partial, partial.numel(), at::kDouble, place.items,
                "partial sums");
  DecisionArguments arguments;
  arguments.partial = partial.const_data_ptr<double>();
  arguments.count = partial.numel();
  arguments.items = items_of(place, partial);
  arguments.numbers = numbers_of(place, partial);
  arguments.outcome = outcome_of(place, partial);
  if (place.objections.defined()) {
    check_operand(place.objections, 1, at::kDouble, partial, "objections");
    arguments.objections = place.objections.const_data_ptr<double>();
  }
  arguments.failure_word = place.failure_word;
  return arguments;
}

RunningArguments running_arguments(const kernels::RunningStatistics& statistics,
                                   const kernels::CommitPlace& place) {
  const at::Tensor& values = statistics.values;
  const int64_t size = values.numel();
  check_operand(values, size, values.scalar_type(), values, "statistics");
  check_operand(statistics.average, size, values.scalar_type(), values,
                "average statistics");
  check_operand(statistics.places, size, at::kLong, values, "places");
  check_operand(statistics.sums, statistics.sums.numel(), at::kDouble, values,
                "sums");
  RunningArguments arguments;
  arguments.is_double = is_double(values);
  arguments.statistics = values.mutable_data_ptr();
  arguments.average = statistics.average.mutable_data_ptr();
  arguments.sums = statistics.sums.const_data_ptr<double>();
  arguments.places = statistics.places.const_data_ptr<int64_t>();
  arguments.size = size;
  arguments.momentum = statistics.momentum;
  arguments.numbers = numbers_of(place, values);
  arguments.outcome = outcome_of(place, values);
  return arguments;
}

}  // namespace headroom::cuda
