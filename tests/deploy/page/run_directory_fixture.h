// The run directory of a run of two processes, created without training.
#pragma once

#include <filesystem>
#include <string>

#include "configs/run_config.h"
#include "parallel/plan/plan_json.h"
#include "parallel/planner/model_layers.h"
#include "parallel/planner/planner.h"
#include "tests/support/temporary_folder.h"

namespace headroom::page {

inline configs::RunConfig small_config() {
  configs::RunConfig config;
  config.cfg = "yolov5n";
  config.image_height = config.image_width = 64;
  config.global_batch_size = 16;
  config.epochs = 2;
  config.processes = 2;
  config.threads = 1;
  config.synthetic_input = true;
  return config;
}

inline plan::Plan small_plan(const configs::RunConfig& config, int size = 2) {
  return planner::plan_or_throw(config, size, planner::model_layers(config));
}

// A line of steps.jsonl without its end.
inline std::string step_line(int64_t step, double box = 0.5) {
  const std::string number = std::to_string(step);
  return "{\"step\":" + number + ",\"epoch\":" + std::to_string(step / 3) +
         ",\"generation\":1,\"loss\":1.5,\"box\":" + std::to_string(box) +
         ",\"obj\":0.25,\"cls\":0.125,\"grad_norm\":" + number +
         ".5,\"lr\":[0.01,0.02,0.1],\"samples\":[5,1,2],\"epoch_samples\":48,"
         "\"images_per_second\":100,\"seconds\":0.1,\"memory\":["
         "{\"rank\":0,\"predicted_peak_bytes\":2000,"
         "\"measured_peak_bytes\":1900,\"live_bytes\":10},"
         "{\"rank\":1,\"predicted_peak_bytes\":null,"
         "\"measured_peak_bytes\":1800,\"live_bytes\":10}]}";
}

// The files of a finished run of six steps.
class RunDirectory {
 public:
  RunDirectory() {
    const configs::RunConfig config = small_config();
    root_.write("exp/run.yaml", configs::to_yaml(config));
    root_.write("exp/plan.json", plan::plan_to_json(small_plan(config)));
    std::string steps;
    for (int64_t step = 0; step < 6; ++step) steps += step_line(step) + "\n";
    root_.write("exp/steps.jsonl", steps);
    root_.write("exp/results.csv",
                "epoch,train/box_loss,metrics/mAP_0.5,metrics/mAP_0.5:0.95\n"
                "0,0.11,0.4,0.2\n1,0.1,0.5,0.3\n");
    root_.write(
        "exp/events.jsonl",
        "{\"event\":\"generation\",\"step\":0,\"rank\":-1,\"reason\":\"all "
        "joined\",\"workers\":[{\"rank\":0,\"worker_id\":\"vm-1-0\","
        "\"hostname\":\"vm\"},{\"rank\":1,\"worker_id\":\"vm-1-1\","
        "\"hostname\":\"vm\"}],\"time\":\"2026-11-21T08:23:00.500Z\"}\n"
        "{\"event\":\"run_over\",\"step\":6,\"rank\":-1,\"reason\":\"2 "
        "epochs\",\"exit_code\":0,\"state\":\"finished\","
        "\"time\":\"2026-11-21T08:24:00.000Z\"}\n");
    root_.write("exp/summary.json",
                "{\"per_class\":[{\"name\":\"</script><b>\",\"precision\":0.5,"
                "\"recall\":0.5,\"map50\":0.5,\"map\":0.3}]}");
    root_.write("exp/checkpoints/step-6/MANIFEST.json", "{}");
    root_.write("exp/val_batch0_pred.jpg", std::string(3000, 'j'));
    root_.write("exp/results.png", "png");
  }

  std::filesystem::path path() const { return root_.path() / "exp"; }
  std::filesystem::path parent() const { return root_.path(); }
  void write(const std::string& name, const std::string& text) const {
    root_.write("exp/" + name, text);
  }
  void append(const std::string& name, const std::string& text) const {
    std::ofstream(path() / name, std::ios::app) << text;
  }

 private:
  testing::TemporaryFolder root_;
};

}  // namespace headroom::page
