// RunPictures: draws the pictures of a run's folder, on rank 0.
//
//   beside training   labels.jpg, train_batch0..2.jpg, on a thread of the
//                     lowest priority
//   at the end        results.png; of the best validation of this start (with
//                     none, of the newest, unless an earlier start has drawn
//                     one): P, R, F1 and PR curves, confusion_matrix.png,
//                     val_batch0..2_labels.jpg, val_batch0..2_pred.jpg
//
// No batch, number or random draw of the run is changed. A picture that cannot
// be drawn or written is reported in a line.
//
// Borrows the data sets. Threads: methods from one thread; `say` is called from
// another too.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "worker/checkpoint/background_writer.h"
#include "worker/data/loader/loader_options.h"
#include "worker/pictures/metric_pictures.h"
#include "worker/validation/validate.h"

namespace headroom::run {

class RunPictures {
 public:
  struct Subject {
    std::filesystem::path folder;
    // Options of loaders; without a data set there are no pictures of it.
    loader::LoaderOptions training, validation;
    // A line for people about a picture that is missing.
    std::function<void(const std::string&)> say;
  };
  explicit RunPictures(Subject subject);
  ~RunPictures();  // what is not drawn yet is not drawn
  RunPictures(const RunPictures&) = delete;
  RunPictures& operator=(const RunPictures&) = delete;

  // Draws the pictures of the run's start, unless they exist.
  void begin();
  // The pictures get the title `title`, for example "epoch 12".
  void note(const validation::ValidationResult& result,
            const std::string& title, bool is_best);
  // Draws all that is left.
  void finish();
  // Called by a generation that ends a run which an earlier one validated.
  void say_what_is_lost() const;

 private:
  class StartJob;
  struct Noted {
    pictures::MetricFigures figures;
    std::vector<validation::ImageFindings> found;
    std::string title;
    bool is_best = false;
  };
  void draw_validation();
  void draw_batches();

  const Subject subject_;
  std::shared_ptr<StartJob> job_;
  checkpoint::BackgroundWriter background_;
  std::optional<Noted> noted_;
};

}  // namespace headroom::run
