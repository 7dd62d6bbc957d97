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
#include "worker/loss/packed_targets.h"
#include "worker/loss/target_assignment.h"

namespace headroom::sampling {
class WeightedSampler;
}

namespace headroom::loader {

// Gives the memory that pixels lie in; where it is empty, malloc does. Throws
// std::bad_alloc or Error.
using AllocateImages = std::function<std::shared_ptr<void>(int64_t bytes)>;

// [n, height, width, bands], not initialised, and not from LibTorch's
// allocator: what a step is measured by must not contain what the loader
// prefetches. Throws std::bad_alloc.
at::Tensor make_image_tensor(int64_t n, int64_t height, int64_t width,
                             int64_t bands = 3,
                             const AllocateImages& allocate = {},
                             at::ScalarType type = at::kByte);

// The type of the images of such a data set.
inline at::ScalarType image_type(bool has_range) {
  return has_range ? at::kUInt16 : at::kByte;
}

struct Batch {
  int64_t step = 0;  // training only
  int64_t epoch = 0;
  int64_t global_size = 0;  // samples of the global batch
  int64_t local_begin = 0;  // the first local sample's place in it
  // The ranges of local samples, counted from the global batch's first.
  std::vector<plan::SampleRange> micro_batches;
  // [n, rows, W, 3] RGB, or of more or fewer bands, uint8, or uint16 where the
  // data set declares a range; n may be 0. The rows of the images that this
  // rank works on: all, unless images are split.
  at::Tensor images;
  // What each image is made from where a device renders them: [n, room] uint8,
  // of row i the first packed_bytes[i] a PackedSample. `images` has sizes alone
  // then (on LibTorch's `meta`). Else undefined.
  at::Tensor packed;
  std::vector<int64_t> packed_bytes;
  int64_t image_height = 0, image_width = 0;  // whole images' size
  std::vector<loss::LabelRow>
      labels;                    // `image` counts from the first local sample
  std::vector<int64_t> samples;  // n indices into the data set
  // Training: the whole global batch in its order, for the ledger.
  std::vector<int64_t> global_samples;
  // Letterbox of each sample, to map boxes back (validation).
  struct Geometry {
    int64_t height = 0, width = 0;  // the source image's size, EXIF applied
    double ratio = 1;               // network pixels per source pixel
    double pad_x = 0, pad_y = 0;
  };
  std::vector<Geometry> geometry;
  // Matches in whole images, per micro-batch and level, `image` counting from
  // the micro-batch's first sample.
  std::vector<std::vector<loss::LevelTargets>> targets;
  // The same per micro-batch, where a device computes the loss; else empty.
  std::vector<loss::PackedTargets> packed_targets;
  std::vector<std::string> faults;  // images that failed while loading
};

// Label-dependent work of one micro-batch; `image` of a row counts from its
// first sample. Called on loader threads, several at once.
using AssignTargets = std::function<std::vector<loss::LevelTargets>(
    const std::vector<loss::LabelRow>& labels, int64_t height, int64_t width)>;

// Packs a micro-batch's targets for a device, on loader threads as well.
using PackTargets = std::function<loss::PackedTargets(
    const std::vector<loss::LevelTargets>& targets, int64_t images,
    int64_t height, int64_t width)>;

// The labels of samples `part` of the batch, `image` counting from its first.
std::vector<loss::LabelRow> labels_of(const Batch& batch,
                                      const plan::SampleRange& part);

// Fills batch.targets, and with `pack` batch.packed_targets: one entry per
// micro-batch. Does nothing without `assign`.
// REQUIRES: everything else of the batch is set, its labels in order of
// `image`.
void assign_micro_batches(Batch& batch, const AssignTargets& assign,
                          const PackTargets& pack = {});

// The source of a rank's batches, whatever they are made of. Batches are the
// caller's: the source keeps no part of them. One thread calls it.
class BatchSource {
 public:
  virtual ~BatchSource() = default;

  // This rank's part of the next batch. Training never ends: epoch follows
  // epoch. Throws what a worker thread threw.
  // REQUIRES: in validation, called at most batches_per_epoch() times.
  virtual Batch next() = 0;

  // What next() will give, where that is made already; else null. Valid until
  // next() is called, by the same thread.
  virtual const Batch* made_ahead() { return nullptr; }

  // Calls of next() that make one pass over the data. In training the steps of
  // an epoch, the same on every rank; in validation this rank's batches.
  virtual int64_t batches_per_epoch() const = 0;

  // Changes a source whose samples are drawn by weight
  // (LoaderOptions::weights): batches opened from now on are drawn from these,
  // and those of epoch `epochs` and later are not opened before the next call.
  virtual void draw_from(
      std::shared_ptr<const sampling::WeightedSampler> /*weights*/,
      int64_t /*epochs*/) {
    HEADROOM_CHECK(false, "samples that are not drawn by weight");
  }
};

}  // namespace headroom::loader
