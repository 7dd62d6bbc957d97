#include "deploy/page/decimated_series.h"

#include <algorithm>

#include "parallel/base/check.h"

namespace headroom::page {

void DecimatedSeries::add(int64_t step, std::span<const double> values) {
  HEADROOM_CHECK(values.size() == num_columns_, "one value for each column");
  const auto first = std::ranges::lower_bound(steps_, step);
  const auto stay = static_cast<size_t>(first - steps_.begin());
  steps_.resize(stay);
  values_.resize(stay * num_columns_);
  steps_.push_back(step);
  values_.insert(values_.end(), values.begin(), values.end());
  if (steps_.size() > capacity_) decimate();
}

void DecimatedSeries::clear() {
  steps_.clear();
  values_.clear();
  bucket_ = 1;
}

void DecimatedSeries::set_capacity(size_t capacity) {
  capacity_ = capacity;
  if (steps_.size() > capacity_) decimate();
}

std::vector<size_t> DecimatedSeries::kept(size_t begin, int64_t bucket) const {
  std::vector<size_t> result, extremes;
  for (size_t first = begin; first < steps_.size();) {
    size_t end = first + 1;
    while (end < steps_.size() &&
           steps_[end] / bucket == steps_[first] / bucket) {
      ++end;
    }
    extremes.clear();
    for (size_t column = 0; column < num_columns_; ++column) {
      const auto value = [&](size_t i) {
        return values_[i * num_columns_ + column];
      };
      size_t least = end, greatest = end;
      for (size_t i = first; i < end; ++i) {
        if (value(i) != value(i)) continue;  // NaN
        if (least == end || value(i) < value(least)) least = i;
        if (greatest == end || value(i) > value(greatest)) greatest = i;
      }
      if (least < end) extremes.insert(extremes.end(), {least, greatest});
    }
    if (end == steps_.size() || extremes.empty()) extremes.push_back(end - 1);
    std::ranges::sort(extremes);
    extremes.erase(std::ranges::unique(extremes).begin(), extremes.end());
    result.insert(result.end(), extremes.begin(), extremes.end());
    first = end;
  }
  return result;
}

std::vector<size_t> DecimatedSeries::thinned(size_t begin, size_t most,
                                             int64_t bucket) const {
  std::vector<size_t> indices;
  const size_t count = steps_.size() - begin;
  if (count <= most) {
    for (size_t i = begin; i < steps_.size(); ++i) indices.push_back(i);
    return indices;
  }
  const int64_t range = steps_.back() - steps_[begin];
  do {
    bucket *= 2;
    indices = kept(begin, bucket);
  } while (indices.size() > most && bucket <= range);
  return indices;
}

std::vector<size_t> DecimatedSeries::chosen(size_t most, int64_t from) const {
  const auto first = std::ranges::lower_bound(steps_, from);
  return thinned(static_cast<size_t>(first - steps_.begin()), most, bucket_);
}

void DecimatedSeries::decimate() {
  // Points added since the last decimation may share a bucket of the current
  // size.
  std::vector<size_t> stay = kept(0, bucket_);
  const int64_t range = steps_.back() - steps_.front();
  while (stay.size() > capacity_ / 2 && bucket_ <= range) {
    bucket_ *= 2;
    stay = kept(0, bucket_);
  }
  for (size_t i = 0; i < stay.size(); ++i) {
    steps_[i] = steps_[stay[i]];
    std::copy_n(
        values_.begin() + static_cast<std::ptrdiff_t>(stay[i] * num_columns_),
        num_columns_,
        values_.begin() + static_cast<std::ptrdiff_t>(i * num_columns_));
  }
  steps_.resize(stay.size());
  values_.resize(stay.size() * num_columns_);
}

}  // namespace headroom::page
