// Loader: this rank's batches of a data set, prefetched by threads.
//
// Sample for sample the content follows from (seed, epoch, sample) and the
// data set alone (with --image-weights, from the weights too): the number of
// ranks and threads changes who makes a sample, never its bytes. Training
// starts at any step, so a resumed run continues the very sequence.
//
//   training     step s of the run is step s % steps of epoch s / steps; its
//                samples are consecutive positions of the epoch's permutation
//                (sampler.h); this rank makes share_of() of them
//   validation   batches of fixed composition (loader_plan.h); batch b
//                belongs to rank b % data_parallel_size; `local_begin` is 0
//                and `global_size` the batch's own size; micro_batch_size
//                images of it go through the network at once
//
// An image that cannot be decoded (it was readable when indexed) becomes gray,
// without boxes, and is named in Batch::faults each time it is met: the run
// goes on, and the caller says each file once.
//
// Ownership: borrows the data set. Pixels lie in memory of the loader's own,
// not LibTorch's allocator: host memory is bounded apart from the step's.
// Threads: next() from one thread; the loader's own threads stop with it.
// Errors: Error for options that contradict each other (exit 2); what a thread
// throws reaches next(), and every next() after it.
#pragma once

#include <memory>

#include "worker/data/loader/batch.h"
#include "worker/data/loader/loader_options.h"

namespace headroom::loader {

class Loader : public BatchSource {
 public:
  explicit Loader(LoaderOptions options);
  ~Loader() override;  // takes the time of one sample at most

  Batch next() override;
  const Batch* made_ahead() override;
  int64_t batches_per_epoch() const override;
  void draw_from(std::shared_ptr<const sampling::WeightedSampler> weights,
                 int64_t epochs) override;

  // Batches that may wait, and threads that work, under the memory limit.
  int64_t queue_depth() const;
  int64_t num_threads() const;

 private:
  class Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace headroom::loader
