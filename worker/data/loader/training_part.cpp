#include "worker/data/loader/training_part.h"

#include "configs/yaml/scalar.h"
#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "worker/data/sampling/sampler.h"

namespace headroom::loader {

void take_fraction(const configs::RunConfig& config, labels::Dataset& dataset) {
  if (config.fraction == 1) return;
  const int64_t all = dataset.size();
  dataset.keep(sampling::chosen_part(config.seed, config.fraction, all));
  if (dataset.num_labels() > 0) return;
  throw Error("data",
              cat("--fraction ", yaml::exact_text(config.fraction), " takes ",
                  dataset.size(), " of ", counted(all, "image"),
                  ", and they have no box"),
              "take a larger part, or another --seed", ExitCode::kData);
}

}  // namespace headroom::loader
