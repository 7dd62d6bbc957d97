// DecimatedSeries: points of several columns over steps, as many as a picture
// can show.
//
// Above its capacity neighbours become a bucket, and of a bucket those points
// stay that hold the least or the greatest value of a column, and the newest
// point: no peak is lost. Buckets double as the series grows, so a run of any
// length takes the same memory.
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
  // REQUIRES: num_columns >= 1, capacity above 8 times that.
  DecimatedSeries(size_t num_columns, size_t capacity)
      : num_columns_(num_columns), capacity_(capacity) {}

  struct Point {
    int64_t step = 0;
    std::span<const double> values;  // NaN where nothing is known
  };

  // REQUIRES: as many values as columns. Points at `step` and beyond go: a run
  // that was restarted takes them again.
  void add(int64_t step, std::span<const double> values);
  void clear();
  // Never more than `capacity` points stay.
  void set_capacity(size_t capacity);

  size_t size() const { return steps_.size(); }
  Point point(size_t index) const {
    return {steps_[index],
            std::span(values_).subspan(index * num_columns_, num_columns_)};
  }
  // The indices of at most about `most` points, those with extremes, at
  // `from` and beyond.
  std::vector<size_t> chosen(size_t most, int64_t from) const;

 private:
  // The indices of [begin, size) that stay when buckets hold so many steps.
  std::vector<size_t> kept(size_t begin, int64_t bucket) const;
  std::vector<size_t> thinned(size_t begin, size_t most, int64_t bucket) const;
  void decimate();

  size_t num_columns_;
  size_t capacity_;
  int64_t bucket_ = 1;  // steps of a bucket
  std::vector<int64_t> steps_;
  std::vector<double> values_;
};

}  // namespace headroom::page
