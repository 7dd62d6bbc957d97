// ConvolutionWorkspaces: how many bytes of scratch memory a device's library
// allocated for each convolution, as observed
// (worker/kernels/cpu/convolution.h). The memory model reads this record
// (parallel/predict/convolution.h).
//
// A library chooses an algorithm by the shape and keeps that choice as long as
// the process runs, so the next call with the same shape takes the same bytes.
// Each training thread has its own record.
#pragma once

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>

namespace headroom {

struct ConvolutionKey {
  bool is_backward = false;  // computes both gradients, not the output
  int64_t in_channels = 0;
  int64_t out_channels = 0;
  int64_t taps = 1;  // rows x columns of the kernel
  int64_t stride = 1;
  int64_t groups = 1;
  int64_t samples = 0;
  int64_t out_cells = 0;  // output cells of all samples
  int64_t element_bytes = 4;
  auto operator<=>(const ConvolutionKey&) const = default;
};

class ConvolutionWorkspaces {
 public:
  void note(const ConvolutionKey& key, int64_t bytes) {
    int64_t& most = bytes_[key];
    most = std::max(most, bytes);
  }
  // Returns 0 for a convolution that was not observed.
  int64_t bytes_of(const ConvolutionKey& key) const {
    const auto known = bytes_.find(key);
    return known == bytes_.end() ? 0 : known->second;
  }
  size_t num_shapes() const { return bytes_.size(); }
  int64_t largest_bytes() const {
    int64_t largest = 0;
    for (const auto& [key, bytes] : bytes_) largest = std::max(largest, bytes);
    return largest;
  }

 private:
  std::map<ConvolutionKey, int64_t> bytes_;
};

// The record of the calling thread; it exists until the thread ends.
inline ConvolutionWorkspaces& convolution_workspaces() {
  thread_local ConvolutionWorkspaces of_thread;
  return of_thread;
}

}  // namespace headroom
