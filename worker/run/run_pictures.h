// RunPictures: draws the pictures of a run's folder, on rank 0.
//
//   during training   labels.jpg, train_batch0..2.jpg, on a thread of the
//                     lowest priority
//   at the end        results.png; P, R, F1 and PR curves,
//                     confusion_matrix.png, val_batch0..2_labels.jpg and
//                     val_batch0..2_pred.jpg of the run's best validation; if
//                     this object did not get it by note(), of the newest one
//                     that it got, unless these pictures exist already
//
// Drawing changes no batch, number or random draw of the run. A picture that
// cannot be drawn or written is reported in one line.
//
// Borrows the data sets. Threads: methods are called from one thread; `say` is
// also called from a second one.
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
    // Loader options. Pictures of a missing data set are not drawn.
    loader::LoaderOptions training, validation;
    // Reports a picture that is missing, in one line.
    std::function<void(const std::string&)> say;
  };
  explicit RunPictures(Subject subject);
  ~RunPictures();  // drops pictures that are not drawn yet
  RunPictures(const RunPictures&) = delete;
  RunPictures& operator=(const RunPictures&) = delete;

  // Starts to draw labels.jpg and train_batch0..2.jpg, unless they exist.
  void begin();
  void note(const validation::ValidationResult& result,
            const std::string& title, bool is_best);
  // Draws the remaining pictures.
  void finish();
  // Reports the pictures that cannot be drawn because an earlier generation did
  // the last validation. Called if a later generation ends the run.
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
