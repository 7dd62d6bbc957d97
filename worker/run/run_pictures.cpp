#include "worker/run/run_pictures.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <system_error>
#include <utility>

#include "parallel/base/atomic_file.h"
#include "parallel/base/run_files.h"
#include "parallel/base/text.h"
#include "worker/data/codecs/image_writer.h"
#include "worker/data/labels/dataset.h"
#include "worker/pictures/batch_pictures.h"
#include "worker/pictures/label_picture.h"

namespace headroom::run {
namespace {

namespace fs = std::filesystem;

constexpr int kJpegQuality = 90;

void write(const fs::path& file, const cv::Mat& pixels) {
  const std::string bytes = file.extension() == ".jpg"
                                ? codecs::encode_jpeg(pixels, kJpegQuality)
                                : codecs::encode_png_bytes(pixels);
  write_whole_file(file, bytes);
}

bool is_there(const fs::path& file) {
  std::error_code error;
  return fs::exists(file, error);
}

// A failure is only reported: the run goes on.
template <typename Draw>
void draw_or_say(const std::function<void(const std::string&)>& say,
                 const std::string& name, const Draw& draw) {
  try {
    draw();
  } catch (const std::exception& error) {
    say(name + " is not drawn: " + error.what());
  }
}

}  // namespace

// Draws the pictures one after another, one image at a time.
class RunPictures::StartJob : public checkpoint::BackgroundWriter::Job {
 public:
  explicit StartJob(const Subject& subject) : subject_(subject) {}

  void abandon() { is_abandoned_ = true; }

  bool advance() override {
    if (is_abandoned_ || next_ > pictures::kPicturedBatches) return false;
    const std::string name = next_ == 0
                                 ? run_files::kLabelsPicture
                                 : run_files::train_batch_picture(next_ - 1);
    bool is_done = true;
    draw_or_say(subject_.say, name,
                [&] { is_done = draw_part(subject_.folder / name); });
    if (is_done) {
      batch_.reset();
      ++next_;
    }
    return next_ <= pictures::kPicturedBatches;
  }

 private:
  // Returns true once the picture is finished.
  bool draw_part(const fs::path& file) {
    const labels::Dataset& dataset = *subject_.training.dataset;
    if (!batch_ && is_there(file)) return true;
    if (next_ == 0) {
      write(file, pictures::draw_labels(dataset));
      return true;
    }
    const int64_t step = next_ - 1;
    if (!batch_) batch_.emplace(subject_.training, step);
    if (batch_->samples().empty()) return true;
    if (batch_->advance()) return false;
    write(file, batch_->picture());
    return true;
  }

  const Subject& subject_;
  std::atomic<bool> is_abandoned_ = false;
  int64_t next_ = 0;  // next picture: 0 shows the labels, then batches
  std::optional<pictures::BatchPicture> batch_;
};

RunPictures::RunPictures(Subject subject) : subject_(std::move(subject)) {}

RunPictures::~RunPictures() {
  if (job_) job_->abandon();
}

void RunPictures::begin() {
  if (job_ || subject_.training.dataset == nullptr) return;
  job_ = std::make_shared<StartJob>(subject_);
  background_.start(job_);
}

void RunPictures::note(const validation::ValidationResult& result,
                       const std::string& title, bool is_best) {
  if (!is_best && noted_ && noted_->is_best) return;
  noted_ = Noted{{subject_.validation.dataset->class_names(), result.curves,
                  result.confusions},
                 result.found,
                 title,
                 is_best};
}

void RunPictures::finish() {
  background_.finish();
  const fs::path csv = subject_.folder / run_files::kResults;
  if (is_there(csv)) {
    draw_or_say(subject_.say, run_files::kResultsPicture, [&] {
      if (const auto picture = pictures::draw_results(csv)) {
        write(subject_.folder / run_files::kResultsPicture, *picture);
      }
    });
  }
  if (!noted_) return;
  if (!noted_->is_best &&
      is_there(subject_.folder / run_files::kCurvePicture)) {
    return;
  }
  draw_validation();
  draw_batches();
  noted_.reset();
}

void RunPictures::say_what_is_lost() const {
  if (noted_ || is_there(subject_.folder / run_files::kCurvePicture)) return;
  subject_.say(
      "the last validation's pictures are lost with the process that was to "
      "draw them; headroom val draws them again");
}

void RunPictures::draw_validation() {
  draw_or_say(subject_.say, "curves", [&] {
    for (const pictures::NamedPicture& one :
         pictures::draw_curves(noted_->figures, noted_->title)) {
      write(subject_.folder / one.file, one.pixels);
    }
  });
  const std::string name = "confusion_matrix.png";
  if (noted_->figures.class_names.size() > pictures::kMostMatrixClasses) {
    subject_.say(cat(name,
                     " is not drawn: ", noted_->figures.class_names.size(),
                     " classes, but a picture takes at most ",
                     pictures::kMostMatrixClasses));
    return;
  }
  draw_or_say(subject_.say, name, [&] {
    write(subject_.folder / name,
          pictures::draw_confusion_matrix(noted_->figures, noted_->title));
  });
}

void RunPictures::draw_batches() {
  for (int64_t i = 0; i < pictures::kPicturedBatches; ++i) {
    const std::string stem = cat(run_files::kValidationBatchPrefix, i);
    draw_or_say(subject_.say, stem + "_labels.jpg", [&] {
      pictures::BatchPicture labels(subject_.validation, i);
      if (labels.samples().empty()) return;
      while (labels.advance()) {
      }
      write(subject_.folder / (stem + "_labels.jpg"), labels.picture());
    });
    draw_or_say(subject_.say, stem + "_pred.jpg", [&] {
      pictures::BatchPicture found(subject_.validation, i);
      if (found.samples().empty()) return;
      for (const int64_t sample : found.samples()) {
        const auto image =
            std::find_if(noted_->found.begin(), noted_->found.end(),
                         [&](const validation::ImageFindings& one) {
                           return one.sample == sample;
                         });
        std::vector<metrics::Detection> boxes;
        if (image != noted_->found.end()) {
          const auto last = std::find_if(
              image->detections.begin(), image->detections.end(),
              [](const metrics::Detection& one) {
                return one.confidence <= metrics::kConfusionConfidence;
              });
          boxes.assign(image->detections.begin(), last);
        }
        found.advance(boxes);
      }
      write(subject_.folder / (stem + "_pred.jpg"), found.picture());
    });
  }
}

}  // namespace headroom::run
