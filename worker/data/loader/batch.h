// Batch: one rank's part of one global batch, ready for the network.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "parallel/base/check.h"
#include "parallel/plan/batch_split.h"
#include "worker/data/sampling/sampler.h"
#include "worker/loss/packed_targets.h"
#include "worker/loss/target_assignment.h"

namespace headroom::loader {

// Allocates the memory for pixels. If the function is empty, aligned_alloc is
// used. Throws std::bad_alloc or Error.
using AllocateImages = std::function<std::shared_ptr<void>(int64_t bytes)>;

// Allocates [n, height, width, bands] without initialising it. Does not use
// LibTorch's allocator, because the measured memory of a step must not include
// the loader's prefetched batches. Throws std::bad_alloc.
at::Tensor make_image_tensor(int64_t n, int64_t height, int64_t width,
                             int64_t bands = 3,
                             const AllocateImages& allocate = {},
                             at::ScalarType type = at::kByte);

// The type of images: 16 bits if the data set declares a range of values.
inline at::ScalarType image_type(bool has_range) {
  return has_range ? at::kUInt16 : at::kByte;
}

struct Batch {
  int64_t step = 0;  // training only
  int64_t epoch = 0;
  int64_t global_size = 0;  // number of samples in the global batch
  int64_t local_begin = 0;  // number of global samples before the local ones
  // Ranges of local samples, counted from the first sample of the global batch.
  std::vector<plan::SampleRange> micro_batches;
  // [n, rows, W, 3] RGB, or with another number of bands. uint8, or uint16 if
  // the data set declares a range. n may be 0. Contains the rows of the images
  // that this rank works on: all rows, unless images are split.
  at::Tensor images;
  // Set only if a device renders the images: [n, room] uint8. The first
  // packed_bytes[i] bytes of row i are a PackedSample. `images` then has only
  // sizes and no memory (device `meta`).
  at::Tensor packed;
  std::vector<int64_t> packed_bytes;
  int64_t image_height = 0, image_width = 0;  // size of whole images
  // `image` counts from the first local sample.
  std::vector<loss::LabelRow> labels;
  std::vector<int64_t> samples;  // n indices into the data set
  // The positions of the whole global batch in the epoch's order, for the
  // ledger.
  plan::SampleRange positions;
  sampling::EpochOrder order;
  // The letterbox of each sample, to map boxes back to the source (validation).
  struct Geometry {
    int64_t height = 0, width = 0;  // size of the upright source image
    double ratio = 1;               // network pixels per source pixel
    double pad_x = 0, pad_y = 0;
  };
  std::vector<Geometry> geometry;
  // The assigned targets for each micro-batch and level. They are targets of
  // whole images, even if the images are split over ranks. `image` counts from
  // the micro-batch's first sample.
  std::vector<std::vector<loss::LevelTargets>> targets;
  // `targets` packed for a device, for each micro-batch; empty if no device
  // computes the loss.
  std::vector<loss::PackedTargets> packed_targets;
  std::vector<std::string> faults;  // images that failed while loading
};

// Assigns the targets of one micro-batch from its labels. `image` of a label
// counts from the micro-batch's first sample. Called on loader threads, several
// at once.
using AssignTargets = std::function<std::vector<loss::LevelTargets>(
    const std::vector<loss::LabelRow>& labels, int64_t height, int64_t width)>;

// Packs a micro-batch's targets for a device. Also called on loader threads.
using PackTargets = std::function<loss::PackedTargets(
    const std::vector<loss::LevelTargets>& targets, int64_t images,
    int64_t height, int64_t width)>;

// The labels of samples `part` of the batch. `image` counts from the first
// sample of the part.
std::vector<loss::LabelRow> labels_of(const Batch& batch,
                                      const plan::SampleRange& part);

// Fills batch.targets, and with `pack` also batch.packed_targets, with one
// entry for each micro-batch. Does nothing without `assign`. REQUIRES:
// everything else in the batch is set, and labels are sorted by `image`.
void assign_micro_batches(Batch& batch, const AssignTargets& assign,
                          const PackTargets& pack = {});

// A source of batches for one rank. The caller owns the batches that next()
// returns. One thread calls all functions.
class BatchSource {
 public:
  virtual ~BatchSource() = default;

  // Returns this rank's part of the next batch. In training, there is always a
  // next batch: one epoch follows the other. Rethrows exceptions of worker
  // threads. REQUIRES: in validation, at most batches_per_epoch() calls.
  virtual Batch next() = 0;

  // The batch that next() will return if that batch is ready, else nullptr. The
  // pointer is valid until the next call of next().
  virtual const Batch* made_ahead() { return nullptr; }

  // The number of next() calls in one pass over the data. In training it is the
  // number of steps in an epoch, equal on every rank; in validation it is the
  // number of this rank's batches.
  virtual int64_t batches_per_epoch() const = 0;

  // For sources that draw samples by weight (LoaderOptions::weights): batches
  // prepared from now on use these weights. Batches of epoch `epochs` and later
  // are not prepared before the next call.
  virtual void draw_from(
      std::shared_ptr<const sampling::WeightedSampler> /*weights*/,
      int64_t /*epochs*/) {
    HEADROOM_CHECK(false, "samples that are not drawn by weight");
  }
};

}  // namespace headroom::loader
