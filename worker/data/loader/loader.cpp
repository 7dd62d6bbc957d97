#include "worker/data/loader/loader.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>
#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <new>
#include <opencv2/core.hpp>
#include <opencv2/imgproc.hpp>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "parallel/base/check.h"
#include "parallel/base/device_scratch.h"
#include "parallel/base/text.h"
#include "worker/data/augment/augment.h"
#include "worker/data/augment/augment_program.h"
#include "worker/data/augment/sample_packing.h"
#include "worker/data/augment/sample_recipe.h"
#include "worker/data/codecs/image_bands.h"
#include "worker/data/loader/image_store.h"
#include "worker/data/loader/loader_plan.h"
#include "worker/data/loader/read_ahead.h"
#include "worker/data/packs/packed_file.h"
#include "worker/data/tiles/random_crop.h"

namespace headroom::loader {
namespace {

constexpr int kMemoryAttempts = 200;
constexpr std::chrono::milliseconds kMemoryPause{5};
// Longer files are not read ahead.
constexpr uint64_t kMostReadAhead = uint64_t{8} << 20;

// A batch that is being filled by the loader's threads. Each sample writes to
// its own place.
struct PendingBatch {
  BatchPlan plan;
  Batch batch;
  std::vector<augment::NetworkSample> made;  // without their pixels
  int64_t next_sample = 0;  // index of the next sample for a thread to claim
  int64_t unfinished = 0;
  bool ready = false;

  int64_t size() const { return static_cast<int64_t>(plan.samples.size()); }
};

cv::Size size_of(const at::Tensor& images) {
  return {static_cast<int>(images.size(2)), static_cast<int>(images.size(1))};
}

int64_t image_bytes(const at::Tensor& images) {
  return images.size(1) * images.size(2) * images.size(3) *
         static_cast<int64_t>(images.element_size());
}

// Copies the pixels, or resizes them bilinearly if the batch has another size.
// Pixels are treated as areas, as in YOLOv5, and results are rounded to levels.
void fit_pixels(const cv::Mat& pixels, cv::Mat& target) {
  if (target.size() == pixels.size()) {
    pixels.copyTo(target);
  } else {
    codecs::resize_bands(pixels, target, cv::INTER_LINEAR);
  }
}

void copy_pixels(const cv::Mat& pixels, const at::Tensor& images,
                 int64_t index) {
  auto* const memory = static_cast<uint8_t*>(images.mutable_data_ptr());
  cv::Mat target(size_of(images), pixels.type(),
                 memory + index * image_bytes(images));
  fit_pixels(pixels, target);
}

// Packs a recipe for a device. A recipe that no device can render, or that does
// not fit into `room`, is rendered here and packed as pixels.
augment::SamplePacking packing_of(augment::SampleRecipe recipe,
                                  const at::Tensor& images, int64_t room) {
  const cv::Size made(static_cast<int>(recipe.width),
                      static_cast<int>(recipe.kept.size()));
  const bool is_resized = made != size_of(images);
  if (!is_resized && augment::can_be_packed(recipe)) {
    augment::SamplePacking packing(recipe);
    if (packing.bytes() <= room) return packing;
  }
  const cv::Mat rendered = augment::render_sample(std::move(recipe));
  if (!is_resized) return augment::SamplePacking(augment::recipe_of(rendered));
  cv::Mat resized(size_of(images), rendered.type());
  fit_pixels(rendered, resized);
  return augment::SamplePacking(augment::recipe_of(resized));
}

}  // namespace

class Loader::Implementation {
 public:
  explicit Implementation(LoaderOptions options)
      : options_(std::move(options)),
        plan_(options_),
        batches_per_epoch_(plan_.batches_per_epoch()),
        budget_(plan_.budget()),
        store_(*options_.dataset, store_options()),
        read_ahead_(
            [this](int64_t sample) -> std::optional<std::chrono::microseconds> {
              if (store_.remembers(sample)) return std::nullopt;
              return packs::warm(options_.dataset->path(sample),
                                 kMostReadAhead);
            }) {
    // The loader's threads already use all cores, so OpenCV must not start
    // threads of its own.
    cv::setNumThreads(0);
    for (int64_t i = 0; i < budget_.num_threads; ++i) {
      threads_.emplace_back([this] {
        if (options_.begin_thread) options_.begin_thread();
        work();
      });
    }
  }

  ~Implementation() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    work_available_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  Batch next() {
    std::unique_lock lock(mutex_);
    HEADROOM_CHECK(num_yielded_ < last_index(),
                   cat("no batch left after ", num_yielded_));
    batch_ready_.wait(lock, [this] {
      return failure_ || (!pending_.empty() && pending_.front()->ready);
    });
    if (failure_) std::rethrow_exception(failure_);
    Batch batch = std::move(pending_.front()->batch);
    pending_.pop_front();
    ++num_yielded_;
    lock.unlock();
    work_available_.notify_all();
    return batch;
  }

  const Batch* made_ahead() {
    const std::lock_guard lock(mutex_);
    const bool is_made = !pending_.empty() && pending_.front()->ready;
    return is_made ? &pending_.front()->batch : nullptr;
  }

  void draw_from(std::shared_ptr<const sampling::WeightedSampler> weights,
                 int64_t epochs) {
    {
      const std::lock_guard lock(mutex_);
      plan_.draw_from(std::move(weights), epochs);
    }
    work_available_.notify_all();
  }

  int64_t batches_per_epoch() const { return batches_per_epoch_; }
  const configs::LoaderBudget& budget() const { return budget_; }

 private:
  bool is_validation() const {
    return options_.mode == LoaderMode::kValidation;
  }

  // The total number of batches that this loader yields.
  int64_t last_index() const {
    return is_validation() ? batches_per_epoch_ : INT64_MAX;
  }

  ImageStore::Options store_options() const {
    ImageStore::Options result;
    result.height = options_.image_height;
    result.width = options_.image_width;
    result.training = !is_validation();
    result.cache_bytes = budget_.cache_bytes;
    result.shared = options_.shared_images;
    result.limits = options_.image_limits();
    return result;
  }

  // Returns a batch with unclaimed samples. If there is no such batch and the
  // queue has room, opens a new batch. Returns nullptr if there is nothing to
  // do now. Call with the lock held, which is released while a batch is opened.
  PendingBatch* find_work(std::unique_lock<std::mutex>& lock) {
    for (const auto& pending : pending_) {
      if (pending->next_sample < pending->size()) return pending.get();
    }
    if (static_cast<int64_t>(pending_.size()) >= budget_.queue_depth ||
        next_index_ >= last_index() || !plan_.is_known(next_index_)) {
      return nullptr;
    }
    // The batch takes its place in the queue before it has samples.
    PendingBatch& pending =
        *pending_.emplace_back(std::make_unique<PendingBatch>());
    BatchPlan plan = plan_.undrawn_batch(next_index_++);
    std::vector<BatchPlan> wanted = plans_to_read_ahead();
    lock.unlock();
    plan.draw_samples();
    Batch batch = batch_of(plan);
    want_files(wanted);
    lock.lock();
    pending.batch = std::move(batch);
    pending.made.resize(plan.samples.size());
    pending.unfinished = std::ssize(plan.samples);
    pending.plan = std::move(plan);
    work_available_.notify_all();
    return &pending;
  }

  // A batch with room for its images.
  Batch batch_of(const BatchPlan& plan) const {
    Batch batch;
    batch.step = plan.step;
    batch.epoch = plan.epoch;
    batch.global_size = plan.global_size;
    batch.local_begin = plan.part.local.begin;
    batch.micro_batches = plan.part.micro_batches;
    batch.samples = plan.samples;
    batch.order = plan.order;
    batch.positions = plan.positions;
    batch.image_height = plan.input.height;
    batch.image_width = plan.input.width;
    // With multi-scale, images are resized, so they are held whole.
    const int64_t rows =
        options_.multi_scale ? plan.input.height : plan.rows.size();
    make_room(batch, {std::ssize(plan.samples), rows, plan.input.width,
                      int64_t{options_.bands}});
    return batch;
  }

  // The batches that will be opened next and whose files are not requested yet,
  // without their samples. Call with the lock held.
  std::vector<BatchPlan> plans_to_read_ahead() {
    std::vector<BatchPlan> plans;
    const int64_t end =
        std::min(next_index_ + budget_.queue_depth, last_index());
    next_wanted_ = std::max(next_wanted_, next_index_ - 1);
    for (; next_wanted_ < end && plan_.is_known(next_wanted_); ++next_wanted_) {
      plans.push_back(plan_.undrawn_batch(next_wanted_));
    }
    return plans;
  }

  void want_files(std::vector<BatchPlan>& plans) {
    for (BatchPlan& plan : plans) {
      plan.draw_samples();
      if (mode_in(options_, plan.epoch) != LoaderMode::kTrainMosaic) {
        read_ahead_.want(plan.samples);
        continue;
      }
      for (int64_t i = 0; i < static_cast<int64_t>(plan.samples.size()); ++i) {
        read_ahead_.want(augment::samples_of_mosaic(
            plan.id_of(options_.seed, i), options_.dataset->size(), plan.height,
            plan.width, options_.hyp));
      }
    }
  }

  void make_room(Batch& batch, const std::vector<int64_t>& sizes) const {
    const at::ScalarType type = image_type(!options_.ranges.empty());
    if (!options_.packs_samples) {
      batch.images = make_image_tensor(sizes[0], sizes[1], sizes[2], sizes[3],
                                       options_.allocate_images, type);
      return;
    }
    batch.images = at::empty(sizes, at::TensorOptions(at::kMeta).dtype(type));
    const int64_t room = packed_room(image_bytes(batch.images));
    batch.packed =
        make_image_tensor(sizes[0], 1, room, 1, options_.allocate_images)
            .view({sizes[0], room});
    batch.packed_bytes.resize(static_cast<size_t>(sizes[0]));
  }

  void work() {
    augment::AugmentProgram program(options_.program,
                                    [this] { return stopping_.load(); });
    std::unique_lock lock(mutex_);
    try {
      while (!stopping_ && !failure_) {
        PendingBatch* pending = find_work(lock);
        if (pending == nullptr) {
          work_available_.wait(lock);
          continue;
        }
        // A rank without samples still gets a batch; the thread that opened it
        // finishes it.
        if (pending->size() > 0) {
          const int64_t index = pending->next_sample++;
          lock.unlock();
          when_there_is_memory(pending->plan.step,
                               [&] { make_sample(*pending, index, program); });
          lock.lock();
          if (--pending->unfinished > 0) continue;
        }
        lock.unlock();
        finish(*pending);
        lock.lock();
        pending->ready = true;
        batch_ready_.notify_all();
      }
    } catch (...) {
      if (!lock.owns_lock()) lock.lock();
      if (!failure_) failure_ = std::current_exception();
      batch_ready_.notify_all();
      work_available_.notify_all();
    }
  }

  void make_sample(PendingBatch& pending, int64_t index,
                   augment::AugmentProgram& program) {
    const BatchPlan& plan = pending.plan;
    const augment::SampleId id = plan.id_of(options_.seed, index);
    const codecs::PixelRows own{plan.rows.begin, plan.rows.end};
    // A program gets whole samples, also where ranks share an image.
    const codecs::PixelRows rows =
        options_.has_program() ? codecs::PixelRows{0, plan.height} : own;
    augment::PlannedSample planned;
    tiles::RandomCrops crops(*options_.dataset, store_, id, plan.height,
                             plan.width, options_.image_limits());
    augment::ImageSource& images =
        options_.random_crop ? static_cast<augment::ImageSource&>(crops)
                             : store_;
    switch (mode_in(options_, plan.epoch)) {
      case LoaderMode::kTrainMosaic:
        planned = augment::plan_mosaic_sample(id, options_.dataset->size(),
                                              plan.height, plan.width, rows,
                                              options_.hyp, images);
        break;
      case LoaderMode::kTrainRect:
        planned = augment::plan_rect_sample(id, plan.height, plan.width, rows,
                                            options_.hyp, images);
        break;
      case LoaderMode::kValidation:
        planned = augment::plan_validation_sample(id.sample, plan.height,
                                                  plan.width, rows, store_);
        break;
    }
    HEADROOM_CHECK(planned.recipe.kept.size() == rows.size() &&
                       planned.recipe.width == plan.width &&
                       planned.recipe.type == store_.type(),
                   "a sample of another size than its plan");
    if (options_.has_program()) {
      cv::Mat pixels = augment::render_sample(std::move(planned.recipe));
      program.change(id, pixels, planned.sample.boxes);
      copy_pixels(pixels.rowRange(static_cast<int>(own.begin),
                                  static_cast<int>(own.end)),
                  pending.batch.images, index);
    } else {
      put(std::move(planned.recipe), pending.batch, index);
    }
    pending.made[index] = std::move(planned.sample);
  }

  static void put(augment::SampleRecipe recipe, Batch& batch, int64_t index) {
    if (!batch.packed.defined()) {
      copy_pixels(augment::render_sample(std::move(recipe)), batch.images,
                  index);
      return;
    }
    const int64_t room = batch.packed.size(1);
    const augment::SamplePacking packing =
        packing_of(std::move(recipe), batch.images, room);
    HEADROOM_CHECK(packing.bytes() <= room, "a finished sample without room");
    packing.write(batch.packed.data_ptr<uint8_t>() + index * room);
    batch.packed_bytes[static_cast<size_t>(index)] = packing.bytes();
  }

  // Completes the batch after all its samples are done.
  void finish(PendingBatch& pending) const {
    Batch& batch = pending.batch;
    for (int64_t i = 0; i < pending.size(); ++i) {
      const augment::NetworkSample& made = pending.made[i];
      for (const labels::NormalizedBox& box : made.boxes) {
        batch.labels.push_back(
            {i, box.class_index, box.cx, box.cy, box.w, box.h});
      }
      batch.geometry.push_back({made.source.height, made.source.width,
                                made.ratio, made.pad_x, made.pad_y});
      for (const std::string& fault : made.faults) {
        if (std::find(batch.faults.begin(), batch.faults.end(), fault) ==
            batch.faults.end()) {
          batch.faults.push_back(fault);
        }
      }
    }
    assign_targets(batch);
  }

  void assign_targets(Batch& batch) const {
    const LoaderHooks& hooks = options_.hooks;
    if (hooks.targets_begin) hooks.targets_begin(batch.step);
    when_there_is_memory(batch.step, [&] {
      batch.targets.clear();
      assign_micro_batches(batch, options_.assign, options_.pack);
    });
    if (hooks.targets_end) hooks.targets_end(batch.step);
  }

  // Retries `work` when memory runs out: a loader can wait until the training
  // step has freed memory. `work` may be called several times.
  template <typename Work>
  void when_there_is_memory(int64_t step, const Work& work) const {
    for (int attempt = 1;; ++attempt) {
      std::string failure;
      try {
        work();
        return;
      } catch (const c10::OutOfMemoryError& error) {
        if (attempt == kMemoryAttempts) throw;
        failure = error.what_without_backtrace();
      } catch (const std::bad_alloc& error) {
        if (attempt == kMemoryAttempts) throw;
        failure = error.what();
      }
      if (attempt == 1 && options_.hooks.out_of_memory) {
        options_.hooks.out_of_memory(step, failure);
      }
      std::this_thread::sleep_for(kMemoryPause);
    }
  }

  const LoaderOptions options_;
  LoaderPlan plan_;  // guarded by mutex_ once the threads are started
  const int64_t batches_per_epoch_;
  const configs::LoaderBudget budget_;
  ImageStore store_;
  ReadAhead read_ahead_;

  std::mutex mutex_;  // guards the members below
  std::condition_variable work_available_;
  std::condition_variable batch_ready_;
  std::deque<std::unique_ptr<PendingBatch>> pending_;  // oldest first
  int64_t next_index_ = 0;   // index of the next batch to open
  int64_t next_wanted_ = 0;  // index of the next batch to read ahead
  int64_t num_yielded_ = 0;
  std::atomic<bool> stopping_ = false;
  std::exception_ptr failure_;

  std::vector<std::thread> threads_;
};

Loader::Loader(LoaderOptions options)
    : implementation_(std::make_unique<Implementation>(std::move(options))) {}

Loader::~Loader() = default;

Batch Loader::next() { return implementation_->next(); }

const Batch* Loader::made_ahead() { return implementation_->made_ahead(); }

int64_t Loader::batches_per_epoch() const {
  return implementation_->batches_per_epoch();
}

void Loader::draw_from(std::shared_ptr<const sampling::WeightedSampler> weights,
                       int64_t epochs) {
  implementation_->draw_from(std::move(weights), epochs);
}

int64_t Loader::queue_depth() const {
  return implementation_->budget().queue_depth;
}

int64_t Loader::num_threads() const {
  return implementation_->budget().num_threads;
}

SharedImages::Content shared_content(const LoaderOptions& options) {
  const std::string text =
      cat(options.dataset->digest(), " ", options.image_height, " ",
          options.image_width, " ", options.bands, " ", to_text(options.ranges),
          " ", options.host_memory_limit_bytes);
  return {XXH3_64bits(text.data(), text.size()), options.dataset->size()};
}

}  // namespace headroom::loader
