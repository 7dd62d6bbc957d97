#include "worker/validation/network_score.h"

#include <cstdio>
#include <utility>

#include "parallel/base/check.h"
#include "parallel/base/units.h"
#include "worker/data/loader/loader.h"
#include "worker/step/device_prefetcher.h"
#include "worker/step/run_inputs.h"

namespace headroom::validation {

configs::RunConfig val_config(const ImagesToScore& images) {
  configs::RunConfig config;
  config.command = "val";
  config.data = images.data;
  config.weights = images.weights;
  config.cfg = images.cfg;
  config.image_height = images.height;
  config.image_width = images.width;
  config.global_batch_size = images.batch;
  return config;
}

ValidationResult score_network(model::LayerGraph& model,
                               const ImagesToScore& images, HeadsOf heads_of) {
  const configs::RunConfig config = val_config(images);
  const step::RunInputs inputs = step::read_inputs(config);
  if (inputs.num_classes() != model.num_classes()) {
    throw Error("data",
                images.data + " has " + std::to_string(inputs.num_classes()) +
                    " classes, but the model " +
                    std::to_string(model.num_classes()),
                "give the data set that the weights were trained on");
  }
  loader::LoaderOptions options = step::loader_options(config, model);
  options.mode = loader::LoaderMode::kValidation;
  options.dataset = &*inputs.validation;
  options.global_batch_size = options.micro_batch_size =
      config.global_batch_size;
  loader::Loader loader(options);
  if (!heads_of) {
    heads_of = [&model](const loader::Batch& batch) {
      return model.forward(step::network_input(batch.images, at::kFloat),
                           model::StepContext());
    };
  }
  return validate_heads(model, heads_of, loader,
                        options_of(config, loss_gains(config, model, options),
                                   inputs.class_names));
}

std::string describe(const ValidationResult& scores) {
  char text[96];
  std::snprintf(text, sizeof text, "mAP50 %.4f, mAP %.4f on %s", scores.map50,
                scores.map, counted(scores.images, "image").c_str());
  return text;
}

}  // namespace headroom::validation
