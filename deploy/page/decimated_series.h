// DecimatedSeries: points of several columns over steps, reduced to the number
// that a picture can show.
//
// Above its capacity, neighbouring points are grouped into buckets. From each
// bucket the series keeps the points with the minimum or maximum of a column,
// and it always keeps the newest point, so no peak is lost. The size of buckets
// doubles as the series grows, so memory does not depend on the length of the
// run.
//
// Threads: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace headroom::page {

class DecimatedSeries {
 public:
  // REQUIRES: num_columns >= 1, capacity > 8 * num_columns.
  DecimatedSeries(size_t num_columns, size_t capacity)
      : num_columns_(num_columns), capacity_(capacity) {}

  struct Point {
    int64_t step = 0;
    std::span<const double> values;  // NaN if unknown
  };

  // Adds a point. Removes points at `step` and later first, because a restarted
  // run repeats these steps. REQUIRES: as many values as columns.
  void add(int64_t step, std::span<const double> values);
  void clear();
  // Changes the greatest number of points that are kept.
  void set_capacity(size_t capacity);

  size_t size() const { return steps_.size(); }
  Point point(size_t index) const {
    return {steps_[index],
            std::span(values_).subspan(index * num_columns_, num_columns_)};
  }
  // The indices of about `most` points from step `from` on, with the extremes.
  std::vector<size_t> chosen(size_t most, int64_t from) const;

 private:
  // The indices of the points from `begin` on that are kept with buckets of
  // `bucket` steps.
  std::vector<size_t> kept(size_t begin, int64_t bucket) const;
  std::vector<size_t> thinned(size_t begin, size_t most, int64_t bucket) const;
  void decimate();

  size_t num_columns_;
  size_t capacity_;
  int64_t bucket_ = 1;  // steps per bucket
  std::vector<int64_t> steps_;
  std::vector<double> values_;
};

}  // namespace headroom::page
