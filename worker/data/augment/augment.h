// augment: turns samples into the network's input, in YOLOv5's order of steps.
//
//   training, mosaic      mosaic -> copy-paste -> random perspective [-> mixup
//                         with a second one] -> pixel changes -> HSV -> flips
//   training, otherwise   letterbox -> random perspective -> pixel changes ->
//                         HSV -> flips
//   validation            letterbox
//
// Images that are not 8-bit colours (ImageSource::has_colours) skip HSV, gray
// and CLAHE. The draws for these are made in any case.
//
// Every draw comes from the sample's own random streams, so the draws depend
// only on the seed, the epoch and the sample (if samples are drawn by weight:
// its place in the epoch). Copy-paste has a separate stream: the number of its
// draws depends on the number of objects, which is known only after loading the
// images.
//
// A sample can be computed in part: only rows `rows` of its height x width
// pixels. They have the same bytes as in the whole sample, and as few rows of
// the images as possible are read. Boxes, geometry and faults are always those
// of the whole sample.
#pragma once

#include <cstdint>
#include <opencv2/core/mat.hpp>
#include <string>
#include <vector>

#include "configs/run_config.h"
#include "worker/data/augment/loaded_image.h"
#include "worker/data/augment/sample_recipe.h"
#include "worker/data/labels/pixel_box.h"
#include "worker/data/sampling/sampler.h"

namespace headroom::augment {

struct NetworkSample {
  cv::Mat pixels;  // [requested rows, width]; owns its memory
  std::vector<labels::NormalizedBox> boxes;
  // The geometry of the source image's letterbox. Not valid after augmentation.
  codecs::ImageSize source;
  double ratio = 1;
  double pad_x = 0, pad_y = 0;
  std::vector<std::string> faults;
};

// A sample whose pixels are not computed yet.
struct PlannedSample {
  NetworkSample sample;  // its pixels are not computed yet
  SampleRecipe recipe;
};

struct SampleId {
  uint64_t seed = 0;
  int64_t epoch = 0;
  int64_t sample = 0;
  // Set if samples are drawn by weight. A sample may then occur several times
  // in an epoch, so its draws depend on its place in the epoch.
  const sampling::WeightedSampler* weights = nullptr;
  int64_t place = 0;

  // The number of the sample's own random stream within the epoch.
  uint64_t stream() const {
    return static_cast<uint64_t>(weights != nullptr ? place : sample);
  }
};

// Makes the random draws and loads the images. With probability hyp.mosaic the
// sample is a mosaic. The mosaic's other samples are drawn from all
// `num_samples` samples, or by weight from the epoch's draws.
PlannedSample plan_mosaic_sample(const SampleId& id, int64_t num_samples,
                                 int64_t height, int64_t width,
                                 codecs::PixelRows rows,
                                 const configs::Hyperparameters& hyp,
                                 ImageSource& images);

// The samples whose images plan_mosaic_sample() loads for `id`.
std::vector<int64_t> samples_of_mosaic(const SampleId& id, int64_t num_samples,
                                       int64_t height, int64_t width,
                                       const configs::Hyperparameters& hyp);

PlannedSample plan_rect_sample(const SampleId& id, int64_t height,
                               int64_t width, codecs::PixelRows rows,
                               const configs::Hyperparameters& hyp,
                               ImageSource& images);

PlannedSample plan_validation_sample(int64_t sample, int64_t height,
                                     int64_t width, codecs::PixelRows rows,
                                     ImageSource& images);

// Returns the sample with its pixels computed.
NetworkSample with_pixels(PlannedSample planned);

// These functions plan a sample and compute its pixels in one call.
NetworkSample make_mosaic_sample(const SampleId& id, int64_t num_samples,
                                 int64_t height, int64_t width,
                                 codecs::PixelRows rows,
                                 const configs::Hyperparameters& hyp,
                                 ImageSource& images);

NetworkSample make_rect_sample(const SampleId& id, int64_t height,
                               int64_t width, codecs::PixelRows rows,
                               const configs::Hyperparameters& hyp,
                               ImageSource& images);

NetworkSample make_validation_sample(int64_t sample, int64_t height,
                                     int64_t width, codecs::PixelRows rows,
                                     ImageSource& images);

}  // namespace headroom::augment
