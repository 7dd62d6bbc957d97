#include "worker/metrics/coco_evaluation.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <string>

#include "parallel/base/check.h"
#include "parallel/base/text.h"

namespace headroom::metrics {
namespace {

constexpr size_t kNumRecalls = 101;

double coco_iou(const Corners& a, const Corners& b) {
  const double w = static_cast<double>(std::min(a.x2, b.x2)) -
                   static_cast<double>(std::max(a.x1, b.x1));
  const double h = static_cast<double>(std::min(a.y2, b.y2)) -
                   static_cast<double>(std::max(a.y1, b.y1));
  if (w <= 0 || h <= 0) return 0;
  const auto area = [](const Corners& c) {
    return (static_cast<double>(c.x2) - static_cast<double>(c.x1)) *
           (static_cast<double>(c.y2) - static_cast<double>(c.y1));
  };
  return w * h / (area(a) + area(b) - w * h);
}

// The object that overlaps most, among the objects that are not taken yet and
// overlap by at least the threshold; the last one if several are equal. Returns
// ious.size() if there is none.
size_t best_free_label(const std::vector<double>& ious,
                       const std::vector<Matched>& is_taken, size_t t) {
  size_t best = ious.size();
  double best_iou = std::min(coco_threshold(t), 1 - 1e-10);
  for (size_t l = 0; l < ious.size(); ++l) {
    if (is_taken[l][t] || ious[l] < best_iou) continue;
    best_iou = ious[l];
    best = l;
  }
  return best;
}

}  // namespace

double coco_threshold(size_t i) {
  return i + 1 == kNumIouThresholds
             ? 0.95
             : 0.5 + static_cast<double>(i) * ((0.95 - 0.5) / 9);
}

double coco_step_average(const PrecisionCurve& curve) {
  std::vector<double> envelope = curve.precision;
  make_envelope(envelope);
  double sum = 0;
  for (size_t i = 0; i < kNumRecalls; ++i) {
    const double recall =
        i + 1 == kNumRecalls ? 1.0 : static_cast<double>(i) * 0.01;
    const auto reached =
        std::lower_bound(curve.recall.begin(), curve.recall.end(), recall);
    if (reached == curve.recall.end()) break;
    sum += envelope[static_cast<size_t>(reached - curve.recall.begin())];
  }
  return sum / kNumRecalls;
}

std::vector<DetectionRecord> coco_match_records(
    std::span<const Detection> detections, std::span<const LabelledBox> labels,
    int64_t max_detections) {
  std::vector<Matched> is_taken(labels.size());
  std::map<int32_t, int64_t> seen_per_class;
  std::vector<DetectionRecord> records;
  for (const Detection& detection : detections) {
    if (++seen_per_class[detection.class_index] > max_detections) continue;
    DetectionRecord& record = records.emplace_back();
    record.confidence = detection.confidence;
    record.class_index = detection.class_index;
    std::vector<double> ious(labels.size(), 0.0);
    for (size_t l = 0; l < labels.size(); ++l)
      if (labels[l].class_index == detection.class_index)
        ious[l] = coco_iou(detection.box, labels[l].box);
    for (size_t t = 0; t < kNumIouThresholds; ++t) {
      const size_t best = best_free_label(ious, is_taken, t);
      if (best == labels.size()) continue;
      is_taken[best][t] = true;
      record.correct[t] = true;
    }
  }
  return records;
}

void add_class(const ClassRanking& ranking, int64_t class_index, int64_t labels,
               CocoAveragePrecision& result) {
  CocoClassPrecision& figures = result.classes.emplace_back();
  figures.class_index = class_index;
  for (size_t t = 0; t < kNumIouThresholds; ++t) {
    const double ap = coco_step_average(
        ranking.curve(t, labels, 0, std::numeric_limits<double>::epsilon()));
    if (t == 0) figures.ap50 = ap;
    figures.ap += ap / kNumIouThresholds;
  }
}

void take_means(CocoAveragePrecision& result) {
  const auto num_classes = static_cast<double>(result.classes.size());
  for (const CocoClassPrecision& figures : result.classes) {
    result.map50 += figures.ap50 / num_classes;
    result.map += figures.ap / num_classes;
  }
}

CocoAveragePrecision compute_coco_average_precision(
    std::span<const DetectionRecord> records,
    std::span<const int64_t> labels_per_class) {
  const auto ranking = rank_by_class(records, labels_per_class.size());
  CocoAveragePrecision result;
  for (size_t c = 0; c < labels_per_class.size(); ++c) {
    if (labels_per_class[c] == 0) continue;
    ClassRanking ranked;
    for (const size_t i : ranking[c]) ranked.add(bits_of(records[i].correct));
    add_class(ranked, static_cast<int64_t>(c), labels_per_class[c], result);
  }
  take_means(result);
  return result;
}

namespace {

using Flags = std::array<bool, kNumIouThresholds>;

struct AreaRange {
  double low, high;
};
constexpr std::array<AreaRange, kNumCocoAreas> kAreas{
    {{0, 1e10}, {0, 32 * 32}, {32 * 32, 96 * 96}, {96 * 96, 1e10}}};

bool lies_in(const AreaRange& range, double area) {
  return area >= range.low && area <= range.high;
}

// The objects and detections of one class in one image, and their overlaps.
struct Cell {
  std::vector<const CocoObject*> objects;
  // in descending score; at most max_detections
  std::vector<const CocoDetection*> detections;
  std::vector<std::vector<double>> overlaps;  // overlaps[detection][object]
};

double overlap(const CocoDetection& d, const CocoObject& o) {
  const double w = std::min(d.x + d.w, o.x + o.w) - std::max(d.x, o.x);
  const double h = std::min(d.y + d.h, o.y + o.h) - std::max(d.y, o.y);
  if (w <= 0 || h <= 0) return 0;
  const double shared = w * h;
  const double united = o.crowd ? d.w * d.h : d.w * d.h + o.w * o.h - shared;
  return shared / united;
}

void finish(Cell& cell, size_t max_detections) {
  std::stable_sort(cell.detections.begin(), cell.detections.end(),
                   [](const CocoDetection* a, const CocoDetection* b) {
                     return a->score > b->score;
                   });
  if (cell.detections.size() > max_detections) {
    cell.detections.resize(max_detections);
  }
  for (const CocoDetection* detection : cell.detections) {
    std::vector<double>& row = cell.overlaps.emplace_back();
    for (const CocoObject* object : cell.objects) {
      row.push_back(overlap(*detection, *object));
    }
  }
}

// The result of matching one detection, per threshold.
struct Judged {
  double score = 0;
  size_t rank = 0;  // rank in its image
  Flags matched{}, ignored{};
};

// Appends the results of the cell's detections to `judged`. Returns the number
// of objects that count.
int64_t judge(const Cell& cell, const AreaRange& range,
              std::vector<Judged>& judged) {
  std::vector<size_t> order(cell.objects.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto is_ignored = [&](size_t o) {
    return cell.objects[o]->crowd || !lies_in(range, cell.objects[o]->area);
  };
  std::stable_partition(order.begin(), order.end(),
                        [&](size_t o) { return !is_ignored(o); });
  std::vector<Flags> taken(cell.objects.size());
  for (size_t d = 0; d < cell.detections.size(); ++d) {
    const CocoDetection& detection = *cell.detections[d];
    Judged& result = judged.emplace_back();
    result.score = detection.score;
    result.rank = d;
    const bool outside = !lies_in(range, detection.w * detection.h);
    for (size_t t = 0; t < kNumIouThresholds; ++t) {
      double best_iou = std::min(coco_threshold(t), 1 - 1e-10);
      size_t best = order.size();
      for (const size_t o : order) {
        if (taken[o][t] && !cell.objects[o]->crowd) continue;
        // Ignored objects are last: a match with an object that counts is never
        // replaced by an ignored one.
        if (best != order.size() && !is_ignored(best) && is_ignored(o)) break;
        if (cell.overlaps[d][o] < best_iou) continue;
        best_iou = cell.overlaps[d][o];
        best = o;
      }
      if (best == order.size()) {
        result.ignored[t] = outside;
        continue;
      }
      taken[best][t] = true;
      result.matched[t] = true;
      result.ignored[t] = is_ignored(best);
    }
  }
  return static_cast<int64_t>(order.size()) -
         std::count_if(order.begin(), order.end(), is_ignored);
}

struct Curve {
  double average = 0;  // mean precision over 101 recalls
  double recall = 0;   // last recall
};

// `judged` is in descending score.
Curve curve_of(const std::vector<Judged>& judged, size_t t, size_t most,
               int64_t objects) {
  PrecisionCurve curve;
  double hits = 0, misses = 0;
  for (const Judged& one : judged) {
    // Ignored detections repeat the previous point, which does not change the
    // curve.
    if (one.rank >= most) continue;
    if (!one.ignored[t]) (one.matched[t] ? hits : misses) += 1;
    curve.recall.push_back(hits / static_cast<double>(objects));
    curve.precision.push_back(
        hits / (hits + misses + std::numeric_limits<double>::epsilon()));
  }
  return {coco_step_average(curve),
          curve.recall.empty() ? 0 : curve.recall.back()};
}

CocoFigures figures_of(const std::vector<Cell>& cells, const AreaRange& range,
                       int64_t max_detections) {
  CocoFigures figures;
  std::vector<Judged> judged;
  for (const Cell& cell : cells) figures.objects += judge(cell, range, judged);
  if (figures.objects == 0) return figures;
  std::stable_sort(
      judged.begin(), judged.end(),
      [](const Judged& a, const Judged& b) { return a.score > b.score; });
  figures.ap = figures.ar1 = figures.ar10 = figures.ar = 0;
  for (size_t t = 0; t < kNumIouThresholds; ++t) {
    const auto at = [&](size_t most) {
      return curve_of(judged, t, most, figures.objects);
    };
    const Curve whole = at(static_cast<size_t>(max_detections));
    if (t == 0) figures.ap50 = whole.average;
    if (t == 5) figures.ap75 = whole.average;
    figures.ap += whole.average / kNumIouThresholds;
    figures.ar += whole.recall / kNumIouThresholds;
    figures.ar1 += at(1).recall / kNumIouThresholds;
    figures.ar10 += at(10).recall / kNumIouThresholds;
  }
  return figures;
}

CocoFigures mean_of(
    const std::vector<std::array<CocoFigures, kNumCocoAreas>>& classes,
    size_t area) {
  CocoFigures mean;
  double count = 0;
  for (const auto& figures : classes) {
    if (figures[area].objects > 0) count += 1;
  }
  if (count == 0) return mean;
  mean.ap = mean.ap50 = mean.ap75 = mean.ar1 = mean.ar10 = mean.ar = 0;
  for (const auto& by_area : classes) {
    const CocoFigures& figures = by_area[area];
    if (figures.objects == 0) continue;
    mean.objects += figures.objects;
    mean.ap += figures.ap / count;
    mean.ap50 += figures.ap50 / count;
    mean.ap75 += figures.ap75 / count;
    mean.ar1 += figures.ar1 / count;
    mean.ar10 += figures.ar10 / count;
    mean.ar += figures.ar / count;
  }
  return mean;
}

}  // namespace

std::array<double, 12> CocoEvaluation::stats() const {
  const auto& [all, small, medium, large] = by_area;
  return {all.ap,  all.ap50, all.ap75, small.ap, medium.ap, large.ap,
          all.ar1, all.ar10, all.ar,   small.ar, medium.ar, large.ar};
}

CocoEvaluation evaluate_coco(std::span<const CocoScene> scenes,
                             int64_t num_classes, int64_t max_detections) {
  std::vector<std::vector<Cell>> cells(static_cast<size_t>(num_classes));
  for (const CocoScene& scene : scenes) {
    std::map<int32_t, Cell> by_class;
    for (const CocoObject& object : scene.objects) {
      by_class[object.class_index].objects.push_back(&object);
    }
    for (const CocoDetection& detection : scene.detections) {
      by_class[detection.class_index].detections.push_back(&detection);
    }
    for (auto& [c, cell] : by_class) {
      HEADROOM_CHECK(c >= 0 && c < num_classes,
                     cat("class ", c, " of ", num_classes));
      finish(cell, static_cast<size_t>(max_detections));
      cells[static_cast<size_t>(c)].push_back(std::move(cell));
    }
  }
  CocoEvaluation result;
  for (const std::vector<Cell>& of_class : cells) {
    auto& figures = result.classes.emplace_back();
    for (size_t a = 0; a < kNumCocoAreas; ++a) {
      figures[a] = figures_of(of_class, kAreas[a], max_detections);
    }
  }
  for (size_t a = 0; a < kNumCocoAreas; ++a) {
    result.by_area[a] = mean_of(result.classes, a);
  }
  return result;
}

}  // namespace headroom::metrics
