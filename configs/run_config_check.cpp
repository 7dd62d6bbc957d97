// check_run_config: ranges from the table of knobs, then fields against each
// other, then what this version does not do yet.
#include <algorithm>
#include <string>

#include "configs/knobs.h"
#include "configs/run_config.h"
#include "configs/scalar.h"
#include "parallel/base/check.h"
#include "parallel/plan/batch_split.h"
#include "parallel/plan/layout.h"

namespace headroom {
namespace {

[[noreturn]] void refuse_run(const std::string& what,
                             const std::string& remedy) {
  throw Error("config", what, remedy);
}

void check_ranges(const RunConfig& config) {
  for (const Knob& knob : knobs()) {
    if (is_text(knob)) continue;
    const double value = number_of(config, knob);
    if (value >= knob.low && value <= knob.high) continue;
    const std::string bound = value < knob.low
                                  ? "at least " + exact_text(knob.low)
                                  : "at most " + exact_text(knob.high);
    refuse_run(knob.key + " is " + value_text(config, knob) + ", but must be " +
                   bound + (knob.unit.empty() ? "" : " (" + knob.unit + ")"),
               "the default is " + default_text(knob));
  }
}

void check_choices(const RunConfig& config) {
  for (const Knob& knob : knobs()) {
    if (knob.choices.empty()) continue;
    RunConfig copy;
    const std::string value = value_text(config, knob);
    if (set_from_text(copy, knob, value)) continue;
    refuse_run(knob.key + " is '" + value + "'", "use " + type_name(knob));
  }
}

void check_automatic_batch(const RunConfig& config) {
  if (config.global_batch_size != -1) return;
  refuse_run(
      "--batch -1 asks for an automatic batch size, which is not in "
      "this version",
      "give the number of images per step, for example --batch 16");
}

void check_device(const RunConfig& config) {
  if (config.device.empty() || config.device == "cpu") return;
  refuse_run("--device " + config.device + ": this build has no CUDA backend",
             "use --device cpu, or leave it out");
}

void check_not_in_this_version(const RunConfig& config) {
  if (config.optimizer != "SGD") {
    const bool known =
        config.optimizer == "Adam" || config.optimizer == "AdamW";
    refuse_run("--optimizer " + config.optimizer +
                   (known ? " is not in this version" : " is not known"),
               "use --optimizer SGD");
  }
  if (config.hyp.anchors > 0) {
    refuse_run("hyp.anchors is " + exact_text(config.hyp.anchors) +
                   ", but the search for anchors is not in this version",
               "add --set hyp.anchors=0");
  }
  if (config.weights.ends_with(".pt")) {
    refuse_run("--weights " + config.weights +
                   ": pickled PyTorch checkpoints are not read in this version",
               "give a .safetensors file with YOLOv5's tensor names");
  }
}

void check_sources(const RunConfig& config) {
  if (!config.resume.empty()) return;  // the saved run names its sources
  if (config.data.empty() && !config.synthetic_input) {
    refuse_run("there is no data set",
               "give --data DATA.YAML (configs/data/own_images.yaml explains "
               "its lines)");
  }
  if (config.command == "val" && config.weights.empty()) {
    refuse_run("headroom val has no weights to judge",
               "give --weights FILE.safetensors, for example "
               "runs/train/exp/weights/best.safetensors");
  }
}

void check_name(const RunConfig& config) {
  if (config.name.empty() || config.name == "." || config.name == ".." ||
      config.name.find('/') != std::string::npos) {
    refuse_run("--name '" + config.name + "' is not the name of a folder",
               "give one word; --project names the folder above it");
  }
}

void check_split(const RunConfig& config, int num_agents) {
  const ParallelLayout layout = parse_layout(config.layout);
  if (layout.pipeline_parallel_size > 1 || layout.spatial_parallel_size > 1) {
    refuse_run("--layout " + config.layout + " is " + to_string(layout) +
                   ", but this version trains with data parallelism only: the "
                   "axes pipeline and spatial must be 1",
               "use --layout data=" + std::to_string(layout.world_size()));
  }
  const int64_t per_agent = std::max<int64_t>(config.processes, 1);
  const int64_t asked = per_agent * num_agents;
  const bool count_is_given = config.processes > 0 || num_agents > 1;
  if (!config.layout.empty() && count_is_given &&
      layout.world_size() != asked) {
    refuse_run(
        "--layout " + config.layout + " needs " +
            std::to_string(layout.world_size()) + " processes, but there are " +
            std::to_string(asked) +
            (num_agents > 1 ? " (" + std::to_string(num_agents) + " agents x " +
                                  std::to_string(per_agent) + ")"
                            : " (--processes)"),
        num_agents > 1
            ? "change --layout, --processes or the number of "
              "agents"
            : "use --processes " + std::to_string(layout.world_size()) +
                  ", or leave one of the two out");
  }
  const int64_t data_axis =
      config.layout.empty() ? asked : layout.data_parallel_size;
  if (config.command != "train") return;  // validation has no batch to share
  const int64_t batch = config.global_batch_size;
  if (batch < data_axis) {
    refuse_run("global_batch_size " + std::to_string(batch) + " < data axis " +
                   std::to_string(data_axis) +
                   ": a process would have no image",
               "use --batch " + std::to_string(data_axis) +
                   " or more, or fewer processes");
  }
  const int64_t group = config.batch_norm_group_size > 0
                            ? config.batch_norm_group_size
                            : default_batch_norm_group_size(batch);
  if (group > batch) {
    refuse_run(
        "batch_norm_group_size " + std::to_string(group) +
            " > global_batch_size " + std::to_string(batch),
        "use --bn-group " + std::to_string(batch) + " for one group per step");
  }
}

}  // namespace

void check_run_config(const RunConfig& config, int num_agents) {
  HEADROOM_CHECK(num_agents >= 1, std::to_string(num_agents));
  check_automatic_batch(config);
  check_ranges(config);
  check_choices(config);
  check_device(config);
  check_not_in_this_version(config);
  check_sources(config);
  check_name(config);
  check_split(config, num_agents);
}

}  // namespace headroom
