// Loader: prefetches this rank's batches of a data set with threads of its own.
//
// The content of a sample depends only on (seed, epoch, sample) and the data
// set (with --image-weights, also on the weights). The numbers of ranks and
// threads decide which thread makes a sample, but never change its bytes.
// Training can start at any step, so a resumed run continues with exactly the
// same sequence.
//
//   training     step s of the run is step s % steps of epoch s / steps; its
//                samples are consecutive positions of the epoch's permutation
//                (sampler.h); this rank makes its share of them (part_of())
//   validation   batches of fixed composition (loader_plan.h); batch b
//                belongs to rank b % data_parallel_size; `local_begin` is 0
//                and `global_size` the batch's own size; micro_batch_size
//                images of it go through the network at once
//
// An image that was readable when it was indexed but cannot be decoded now
// becomes gray, without boxes. It is named in Batch::faults each time it is
// used. Training continues, and the caller reports each file once.
//
// Ownership: the data set must outlive the loader. Pixels are in memory of the
// loader, not of LibTorch's allocator, so that its host memory is limited
// separately from the step's memory. Threads: call next() from one thread; the
// destructor stops the loader's threads. Errors: throws Error for options that
// contradict each other (exit 2). An exception in a thread is rethrown by
// next(), and by every later call of next().
#pragma once

#include <memory>

#include "worker/data/loader/batch.h"
#include "worker/data/loader/loader_options.h"
#include "worker/data/loader/shared_images.h"

namespace headroom::loader {

class Loader : public BatchSource {
 public:
  explicit Loader(LoaderOptions options);
  ~Loader() override;  // waits for at most one sample per thread

  Batch next() override;
  const Batch* made_ahead() override;
  int64_t batches_per_epoch() const override;
  void draw_from(std::shared_ptr<const sampling::WeightedSampler> weights,
                 int64_t epochs) override;

  // The numbers of prefetched batches and of threads that the memory limit
  // allows.
  int64_t queue_depth() const;
  int64_t num_threads() const;

 private:
  class Implementation;
  std::unique_ptr<Implementation> implementation_;
};

// The images that training loaders with these options share. Loaders with
// another limit of host memory share others.
SharedImages::Content shared_content(const LoaderOptions& options);

}  // namespace headroom::loader
