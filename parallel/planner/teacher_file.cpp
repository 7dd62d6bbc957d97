#include "parallel/planner/teacher_file.h"

#include <xxhash.h>

#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "configs/layers/model_table_text.h"
#include "parallel/base/check.h"
#include "parallel/planner/model_layers.h"

namespace headroom::planner {
namespace {

// As parallel/base/file_digest.h has it.
std::string digest_of(const std::string& file) {
  const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state(
      XXH3_createState(), XXH3_freeState);
  XXH3_128bits_reset(state.get());
  std::ifstream in(file, std::ios::binary);
  std::vector<char> part(1 << 20);
  while (in.read(part.data(), static_cast<std::streamsize>(part.size())) ||
         in.gcount() > 0) {
    XXH3_128bits_update(state.get(), part.data(),
                        static_cast<size_t>(in.gcount()));
  }
  const XXH128_hash_t hash = XXH3_128bits_digest(state.get());
  char hex[33];
  std::snprintf(hex, sizeof hex, "%016llx%016llx",
                static_cast<unsigned long long>(hash.high64),
                static_cast<unsigned long long>(hash.low64));
  return hex;
}

}  // namespace

void describe_teacher(configs::RunConfig& config) {
  if (config.teacher.empty()) return;
  if (!std::ifstream(config.teacher)) {
    throw Error("teacher", "there is no file " + config.teacher,
                "give the teacher's weights: --teacher FILE");
  }
  const auto metadata = metadata_of_weights(config.teacher);
  const layers::ModelTable table =
      layers::table_of_weights(metadata, config.teacher);
  if (metadata.contains("table")) {
    throw Error("teacher",
                config.teacher + " holds " + table.name +
                    ", which is none of the shipped models",
                "give a teacher of a shipped model, yolov5n to yolov5x6");
  }
  config.teacher_model = metadata.at("model");
  config.teacher_digest = digest_of(config.teacher);
}

}  // namespace headroom::planner
