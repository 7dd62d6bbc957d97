#include "tests/worker/loss/loss_cases.h"

#include <utility>

#include "tests/support/parity.h"

namespace headroom::loss {
namespace {

const nlohmann::json& loss_json() {
  static const nlohmann::json json = load_parity_json("loss.json");
  return json;
}

std::vector<LevelGrid> family_grids(const std::string& family) {
  static const nlohmann::json architecture =
      load_parity_json("architecture.json");
  const nlohmann::json& model = architecture[family == "P5" ? "n" : "n6"];
  std::vector<LevelGrid> grids;
  for (const nlohmann::json& size : loss_json()["grids"][family]) {
    const double stride = model["strides"][grids.size()];
    LevelGrid grid{size[0], size[1], {}};
    for (const nlohmann::json& anchor : model["anchors_px"][grids.size()])
      grid.anchors.emplace_back(anchor[0].get<double>() / stride,
                                anchor[1].get<double>() / stride);
    grids.push_back(std::move(grid));
  }
  return grids;
}

}  // namespace

std::vector<LabelRow> to_labels(const at::Tensor& rows) {
  const at::Tensor values = rows.to(at::kDouble).contiguous();
  const auto row = values.accessor<double, 2>();
  std::vector<LabelRow> labels;
  for (int64_t i = 0; i < rows.size(0); ++i)
    labels.push_back({static_cast<int64_t>(row[i][0]),
                      static_cast<int64_t>(row[i][1]), row[i][2], row[i][3],
                      row[i][4], row[i][5]});
  return labels;
}

LossGains to_gains(const nlohmann::json& hyp_used, const std::string& family,
                   int64_t num_classes) {
  LossGains gains = scale_gains({}, family == "P5" ? 3 : 4, num_classes, 640,
                                hyp_used["label_smoothing"]);
  gains.box = hyp_used["box"];
  gains.obj = hyp_used["obj"];
  gains.cls = hyp_used["cls"];
  gains.cls_pos_weight = hyp_used["cls_pw"];
  gains.obj_pos_weight = hyp_used["obj_pw"];
  gains.focal_gamma = hyp_used["fl_gamma"];
  return gains;
}

GlobalCounts count_all(int64_t images,
                       const std::vector<LevelTargets>& targets) {
  GlobalCounts counts;
  counts.images = images;
  for (const LevelTargets& level : targets)
    counts.matches.push_back(level.size());
  return counts;
}

HeadCase head_case(const std::string& name, at::ScalarType scalar_type) {
  static const weights::Safetensors tensors =
      load_parity_tensors("loss.safetensors");
  const nlohmann::json& figures = loss_json()["head_cases"][name];
  const std::string family = figures["family"];
  const int64_t num_classes = figures["nc"];
  const int64_t batch = figures["batch"];

  HeadCase result;
  result.labels =
      to_labels(tensors.at("labels." + figures["labels"].get<std::string>()));
  result.grids = family_grids(family);
  for (size_t i = 0; i < result.grids.size(); ++i) {
    const std::string tag = "loss/" + family + "/nc" +
                            std::to_string(num_classes) + "/p" +
                            std::to_string(i);
    at::Tensor head = rule_values(tag, {batch, 3, result.grids[i].height,
                                        result.grids[i].width, 5 + num_classes})
                          .mul_(2)
                          .to(scalar_type);
    result.heads.push_back(head.requires_grad_(true));
  }
  const nlohmann::json& hyp = figures["hyp_used"];
  result.targets =
      assign_targets(result.labels, result.grids, hyp["anchor_t"], scalar_type);
  result.counts = count_all(batch, result.targets);
  result.gains = to_gains(hyp, family, num_classes);
  return result;
}

std::vector<std::string> head_case_names() {
  std::vector<std::string> names;
  for (const auto& [name, figures] : loss_json()["head_cases"].items())
    if (figures.is_object()) names.push_back(name);
  return names;
}

}  // namespace headroom::loss
