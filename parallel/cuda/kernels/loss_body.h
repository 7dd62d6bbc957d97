// The loss as CUDA threads compute it, in plain C++; a test runs it on the CPU.
//
//   forward    blocks of kLossThreads threads: half of the blocks process a
//              level's cells, one thread per cell; the others process its
//              matches, one warp per match. Each block writes its sums to
//              `partial`, and one last block adds them up.
//   backward   one warp per pixel writes the objectness's derivatives, and
//              zeros to all other channels; then the warp of each cell's first
//              match adds up all matches of the cell. So no two warps write to
//              the same place.
//
// A pixel of a level has one cell per anchor. T is the head's type and G the
// gradient's, which may have 16 bits. The gradient is computed in T and rounded
// once.
#pragma once

#include <cstdint>

#include "parallel/base/head_fields.h"
#include "parallel/cuda/kernels/batch_norm_body.h"
#include "worker/kernels/box_iou.h"
#include "worker/kernels/entropy.h"

namespace headroom::cuda {

constexpr int kLossThreads = 256;
constexpr int kLanes = 32;
constexpr int kLossParts = 2;  // cells and matches
constexpr int kLossSums = 3;   // box, obj, cls
constexpr int kOfAll = 2;      // scales of all levels together
constexpr int kLossLevels = 5;
constexpr int kFit = 5;  // a match's box gradient (4) and objectness target

struct LossLevel {
  const void* head = nullptr;  // [num_cells, fields]
  int64_t num_cells = 0;
  const int32_t* num_matches = nullptr;
  const int32_t* cells = nullptr;  // each match's cell, ascending
  const int32_t* classes = nullptr;
  const void* boxes = nullptr;
  const void* anchors = nullptr;
  void* objectness = nullptr;
  void* logits = nullptr;    // [matches, classes]
  double* fit = nullptr;     // [matches, kFit]
  void* gradient = nullptr;  // [num_pixels, channels]
  int64_t num_pixels = 0;
  int64_t channels = 0;
  int64_t num_anchors = 0;
};

struct LossArguments {
  bool is_double = false;  // the heads
  ElementType gradient_type = ElementType::kFloat32;
  int num_levels = 0;
  LossLevel levels[kLossLevels];
  int64_t num_classes = 0;
  kernels::EntropyRule obj_rule, cls_rule;
  double positive_target = 1, negative_target = 0;
  bool weighs_classes = false;  // `scales` end with a weight for each class
  const double* scales = nullptr;
  int64_t blocks = 0;         // number of blocks for each level and part
  double* partial = nullptr;  // [levels, parts, blocks, sums]
  double* items = nullptr;
  double* total = nullptr;
  const double* by_total = nullptr;
};

struct LossSums {
  double of[kLossSums] = {};
};

// Plain cross-entropy is computed in the logits' type, the focal form in
// double.
template <typename T>
HEADROOM_HD kernels::EntropyTerm entropy_of(T x, double target,
                                            const kernels::EntropyRule& rule) {
  if (rule.focal_gamma != 0) {
    return kernels::entropy(static_cast<double>(x), target, rule);
  }
  const T t = static_cast<T>(target);
  const T positive = static_cast<T>(rule.positive_weight * target);
  const T small = std::exp(x > 0 ? -x : x);  // at most 1
  const T rest = std::log1p(small);
  const T of_x = (x > 0 ? x : T(0)) + rest;         // softplus(x)
  const T of_minus_x = (x > 0 ? T(0) : -x) + rest;  // softplus(-x)
  const T high = 1 / (1 + small), low = small / (1 + small);
  const T s = x > 0 ? high : low, not_s = x > 0 ? low : high;
  return {static_cast<double>((1 - t) * of_x + positive * of_minus_x),
          static_cast<double>((1 - t) * s - positive * not_s)};
}

HEADROOM_HD bool is_first_of_cell(const LossLevel& level, int64_t match) {
  return match == 0 || level.cells[match - 1] != level.cells[match];
}
HEADROOM_HD bool is_last_of_cell(const LossLevel& level, int64_t match) {
  return match + 1 == *level.num_matches ||
         level.cells[match + 1] != level.cells[match];
}

// The factor of an item's sum in the loss.
HEADROOM_HD double loss_scale(const LossArguments& a, int level, int item) {
  const double* of_all = a.scales + a.num_levels * kLossSums;
  return a.scales[level * kLossSums + item] * of_all[0] * of_all[1];
}

// The rule of a class's logits.
HEADROOM_HD kernels::EntropyRule class_rule(const LossArguments& a, int64_t c) {
  kernels::EntropyRule rule = a.cls_rule;
  if (a.weighs_classes) {
    rule.positive_weight = a.scales[a.num_levels * kLossSums + kOfAll + c];
  }
  return rule;
}

template <typename T>
HEADROOM_HD double cell_loss(const LossArguments& a, const LossLevel& level,
                             int64_t cell) {
  const int64_t fields = kFirstClass + a.num_classes;
  const T x = static_cast<const T*>(level.head)[cell * fields + kObjectness];
  static_cast<T*>(level.objectness)[cell] = x;
  return entropy_of(x, 0, a.obj_rule).value;
}

// One lane's share of a match's sums.
template <typename T>
HEADROOM_HD LossSums match_loss(const LossArguments& a, const LossLevel& level,
                                int64_t match, int lane) {
  const int64_t fields = kFirstClass + a.num_classes;
  const T* raw = static_cast<const T*>(level.head) +
                 static_cast<int64_t>(level.cells[match]) * fields;
  LossSums sums;
  if (lane == 0) {
    const T* box = static_cast<const T*>(level.boxes) + match * 4;
    const T* sizes = static_cast<const T*>(level.anchors) + match * 2;
    double at[4], wanted[4];
    for (int i = 0; i < 4; ++i) {
      at[i] = static_cast<double>(raw[i]);
      wanted[i] = static_cast<double>(box[i]);
    }
    const double anchor[2] = {static_cast<double>(sizes[0]),
                              static_cast<double>(sizes[1])};
    const kernels::RowFit fit = kernels::fit_row(at, anchor, wanted);
    double* const kept = level.fit + match * kFit;
    for (int i = 0; i < 4; ++i) kept[i] = fit.gradient[i];
    kept[4] = is_last_of_cell(level, match) && fit.ciou > 0 ? fit.ciou : 0;
    sums.of[0] = 1 - fit.ciou;
    if (kept[4] > 0) {
      const auto x = static_cast<double>(raw[kObjectness]);
      sums.of[1] = kernels::entropy(x, kept[4], a.obj_rule).value -
                   entropy_of(raw[kObjectness], 0, a.obj_rule).value;
    }
  }
  if (a.num_classes == 1) return sums;
  T* const logits = static_cast<T*>(level.logits) + match * a.num_classes;
  for (int64_t c = lane; c < a.num_classes; c += kLanes) {
    const T x = raw[kFirstClass + c];
    logits[c] = x;
    sums.of[2] += entropy_of(x,
                             c == level.classes[match] ? a.positive_target
                                                       : a.negative_target,
                             class_rule(a, c))
                      .value;
  }
  return sums;
}

// One lane's share of the sum of one item over a level.
HEADROOM_HD double level_sum(const LossArguments& a, int level, int item,
                             int lane) {
  const int64_t count = kLossParts * a.blocks;
  const double* const first = a.partial + level * count * kLossSums + item;
  double sum = 0;
  for (int64_t block = lane; block < count; block += kLanes) {
    sum += first[block * kLossSums];
  }
  return sum;
}

// Writes items and total, from the sums of all levels.
HEADROOM_HD void write_loss(const LossArguments& a, const double* sums) {
  double total = 0;
  for (int item = 0; item < kLossSums; ++item) {
    double of_item = 0;
    for (int level = 0; level < a.num_levels; ++level) {
      const double sum = sums[level * kLossSums + item];
      of_item += a.scales[level * kLossSums + item] * sum;
      total += loss_scale(a, level, item) * sum;
    }
    a.items[item] = of_item;
  }
  *a.total = total;
}

// One lane's channels of a pixel: V adjacent ones of every kLanes * V.
template <typename T, typename G, int V>
HEADROOM_HD void pixel_gradient(const LossArguments& a, int number,
                                int64_t pixel, int lane) {
  const LossLevel& level = a.levels[number];
  const int64_t fields = kFirstClass + a.num_classes;
  G* const to = static_cast<G*>(level.gradient) + pixel * level.channels;
  for (int64_t first = lane * V; first < level.channels; first += kLanes * V) {
    Pack<G, V> values;
    for (int v = 0; v < V; ++v) values.at[v] = static_cast<G>(T(0));
    for (int64_t anchor = 0; anchor < level.num_anchors; ++anchor) {
      const int64_t place = anchor * fields + kObjectness - first;
      if (place < 0 || place >= V) continue;
      const T x = static_cast<const T*>(
          level.objectness)[pixel * level.num_anchors + anchor];
      const auto value =
          static_cast<T>(*a.by_total * loss_scale(a, number, 1) *
                         entropy_of(x, 0, a.obj_rule).derivative);
      // Without a variable index the values stay in registers.
      for (int v = 0; v < V; ++v) {
        if (v == place) values.at[v] = static_cast<G>(value);
      }
    }
    *reinterpret_cast<Pack<G, V>*>(to + first) = values;
  }
}

// REQUIRES: pixel_gradient() has run for all pixels.
template <typename T, typename G>
HEADROOM_HD void match_gradient(const LossArguments& a, int number,
                                int64_t match, int lane) {
  const LossLevel& level = a.levels[number];
  if (!is_first_of_cell(level, match)) return;
  int64_t last = match;
  while (!is_last_of_cell(level, last)) ++last;
  const int64_t fields = kFirstClass + a.num_classes;
  const int64_t cell = level.cells[match];
  G* const to = static_cast<G*>(level.gradient) +
                cell / level.num_anchors * level.channels +
                cell % level.num_anchors * fields;
  const double box = *a.by_total * loss_scale(a, number, 0);
  const double obj = *a.by_total * loss_scale(a, number, 1);
  const double cls = *a.by_total * loss_scale(a, number, 2);
  for (int64_t f = lane; f < fields; f += kLanes) {
    if (f == kObjectness) {
      const double target = level.fit[last * kFit + 4];
      if (!(target > 0)) continue;
      const T x = static_cast<const T*>(level.objectness)[cell];
      to[f] = static_cast<G>(static_cast<T>(
          obj * kernels::entropy(static_cast<double>(x), target, a.obj_rule)
                    .derivative));
      continue;
    }
    if (f >= kFirstClass && a.num_classes == 1) continue;
    double sum = 0;
    for (int64_t of = match; of <= last; ++of) {
      if (f < 4) {
        sum -= box * level.fit[of * kFit + f];
        continue;
      }
      const int64_t c = f - kFirstClass;
      const T x = static_cast<const T*>(level.logits)[of * a.num_classes + c];
      sum += cls * entropy_of(x,
                              c == level.classes[of] ? a.positive_target
                                                     : a.negative_target,
                              class_rule(a, c))
                       .derivative;
    }
    to[f] = static_cast<G>(static_cast<T>(sum));
  }
}

// The launchers; see launch.h for their contract.
extern "C" {
int headroom_loss(const LossArguments* arguments, void* stream);
int headroom_loss_gradient(const LossArguments* arguments, void* stream);
}

}  // namespace headroom::cuda
