// augment: from samples to what the network sees, in YOLOv5's order.
//
//   training, mosaic      mosaic -> copy-paste -> random perspective [-> mixup
//                         with a second one] -> pixel changes -> HSV -> flips
//   training, otherwise   letterbox -> random perspective -> pixel changes ->
//                         HSV -> flips
//   validation            letterbox
//
// Images without colours of 8 bits (ImageSource::has_colours) have no HSV, gray
// and CLAHE; their draws are made all the same.
//
// Every draw comes from the sample's own streams (seed, epoch, sample; where
// samples are drawn by weight, its place in the epoch), so the result depends
// on nothing else. Copy-paste has a stream of its own: it draws as often as
// there are objects, which is known only once images are loaded.
//
// A sample can be made in part: `rows` of its height x width pixels are made,
// the bytes that the whole one has there, from as few rows of the image as they
// need. Boxes, geometry and faults are those of the whole.
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
  cv::Mat pixels;  // rows x width as asked for; not shared
  std::vector<labels::NormalizedBox> boxes;
  // Letterbox of the source image; of no meaning after augmentation.
  codecs::ImageSize source;
  double ratio = 1;
  double pad_x = 0, pad_y = 0;
  std::vector<std::string> faults;
};

// A sample whose pixels are still to be made.
struct PlannedSample {
  NetworkSample sample;  // its pixels are missing
  SampleRecipe recipe;
};

struct SampleId {
  uint64_t seed = 0;
  int64_t epoch = 0;
  int64_t sample = 0;
  // Set where samples are drawn by weight: a sample may then come again in an
  // epoch, and its place in the epoch gives it its own draws.
  const sampling::WeightedSampler* weights = nullptr;
  int64_t place = 0;

  // The epoch's random streams that are its own.
  uint64_t stream() const {
    return static_cast<uint64_t>(weights != nullptr ? place : sample);
  }
};

// Makes the draws and loads the images. Mosaic with probability hyp.mosaic;
// partners are any of `num_samples`, by weight any of the epoch's draws.
PlannedSample plan_mosaic_sample(const SampleId& id, int64_t num_samples,
                                 int64_t height, int64_t width,
                                 codecs::PixelRows rows,
                                 const configs::Hyperparameters& hyp,
                                 ImageSource& images);

// The samples whose images that loads.
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

// Makes the pixels.
NetworkSample with_pixels(PlannedSample planned);

// Plan and make a sample in one call.
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
