// BatchSource: where a rank's batches come from, whatever they are made of.
//
// Ownership: batches are the caller's; the source keeps no part of them.
// Threads: next() is called by one thread; sources may have threads of their
// own.
#pragma once

#include <cstdint>
#include <memory>

#include "parallel/base/check.h"
#include "worker/data/loader/batch.h"

namespace headroom::sampling {
class WeightedSampler;
}

namespace headroom::loader {

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

  // Of a source whose samples are drawn by weight (LoaderOptions::weights):
  // what is opened from now on is drawn from this. Batches of epoch `epochs`
  // and later ones are not opened before the next call.
  virtual void draw_from(
      std::shared_ptr<const sampling::WeightedSampler> /*weights*/,
      int64_t /*epochs*/) {
    HEADROOM_CHECK(false, "samples that are not drawn by weight");
  }
};

}  // namespace headroom::loader
