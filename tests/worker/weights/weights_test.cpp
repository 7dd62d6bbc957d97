// Weights are saved and loaded under YOLOv5's names.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "configs/layers/model_table.h"
#include "tests/support/error_text.h"
#include "tests/support/parity.h"
#include "tests/support/temporary_folder.h"
#include "worker/weights/open_weights.h"
#include "worker/weights/recognised_network.h"
#include "worker/weights/safetensors.h"
#include "worker/weights/weights.h"
#include "worker/weights/weights_file.h"

namespace headroom::weights {
namespace {

using testing::TemporaryFolder;

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;

class WeightsTest : public ::testing::Test {
 protected:
  std::filesystem::path path(const std::string& name) const {
    return folder_.path() / name;
  }

  const TemporaryFolder folder_;
};

model::LayerGraph nano(int64_t num_classes, at::ScalarType type,
                       uint64_t seed) {
  return model::LayerGraph(layers::load_model_table("yolov5n"), num_classes,
                           type, seed);
}

bool same_state(model::LayerGraph& a, model::LayerGraph& b) {
  const model::NamedTensors left = a.state();
  const model::NamedTensors right = b.state();
  for (std::size_t i = 0; i < left.size(); ++i)
    if (!at::equal(left[i].tensor->to(at::kDouble),
                   right[i].tensor->to(at::kDouble)))
      return false;
  return true;
}

std::string complaint_of(const std::filesystem::path& path,
                         model::LayerGraph& graph, const LoadOptions& options) {
  return error_text([&] { load_weights(path, graph, options); });
}

TEST_F(WeightsTest, ComeBackInBothPrecisions) {
  model::LayerGraph saved = nano(3, at::kFloat, 1);
  save_weights(path("w"), saved.state(), {{"names", "a,b,c"}});
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    model::LayerGraph loaded = nano(3, type, 2);
    EXPECT_FALSE(same_state(saved, loaded));
    const LoadReport report = load_weights(path("w"), loaded, {});
    EXPECT_TRUE(same_state(saved, loaded));
    EXPECT_EQ(report.transferred, 349);
    EXPECT_EQ(report.total, 349);
    EXPECT_EQ(report.metadata.at("names"), "a,b,c");
    for (const model::NamedTensor& entry : loaded.state())
      EXPECT_EQ(entry.tensor->requires_grad(), entry.is_parameter());
  }
}

TEST_F(WeightsTest, TransferTakesFittingTensors) {
  model::LayerGraph saved = nano(80, at::kFloat, 1);
  save_weights(path("w"), saved.state(), {});
  model::LayerGraph other = nano(3, at::kFloat, 2);
  const LoadReport report =
      load_weights(path("w"), other, {LoadMode::kTransfer, false});
  EXPECT_EQ(to_string(report, "w"),
            "transferred 343 of 349 tensors from w; layer 24 (Detect): 80 "
            "classes -> 3, started anew");
  EXPECT_THAT(report.skipped, ::testing::ElementsAre(
                                  "model.24.m.0.weight", "model.24.m.0.bias",
                                  "model.24.m.1.weight", "model.24.m.1.bias",
                                  "model.24.m.2.weight", "model.24.m.2.bias"));
  model::LayerGraph own_anchors = nano(3, at::kFloat, 2);
  const LoadReport with_own =
      load_weights(path("w"), own_anchors, {LoadMode::kTransfer, true});
  EXPECT_EQ(to_string(with_own, "w"),
            "transferred 342 of 349 tensors from w; layer 24 (Detect): 80 "
            "classes -> 3, started anew; anchors: the run's own");
}

TEST_F(WeightsTest, AnotherSizeIsReportedByLayer) {
  model::LayerGraph small(layers::load_model_table("yolov5s"), 3, at::kFloat,
                          1);
  save_weights(path("w"), small.state(), {});
  model::LayerGraph other = nano(3, at::kFloat, 2);
  const LoadReport report =
      load_weights(path("w"), other, {LoadMode::kTransfer, false});
  EXPECT_THAT(to_string(report, "w"),
              AllOf(HasSubstr("; layer 0: model.0.conv.weight is [32, 3, 6, 6] "
                              "there and [16, 3, 6, 6] here and 4 more, "
                              "layer 1: "),
                    EndsWith(" more layers")));
}

// The head's row of one field, for each level and anchor, as one tensor.
at::Tensor rows_of(model::LayerGraph& graph, int64_t field) {
  std::vector<at::Tensor> rows;
  for (const model::NamedTensor& entry : graph.state()) {
    if (entry.layer != 24 || !entry.is_parameter()) continue;
    rows.push_back(entry.tensor->detach()
                       .unflatten(0, {3, 5 + graph.num_classes()})
                       .select(1, field)
                       .flatten());
  }
  return at::cat(rows);
}

class ClassesByName : public WeightsTest {
 protected:
  // Loads a file with classes `there` into a model with classes `here`.
  LoadReport load(const std::vector<std::string>& there,
                  const std::vector<std::string>& here) {
    saved_ = std::make_unique<model::LayerGraph>(
        layers::load_model_table("yolov5n"), std::ssize(there), at::kFloat, 1);
    save_weights(path("w"), saved_->state(),
                 {{"names", nlohmann::json(there).dump()}});
    const auto fresh = [&] {
      return std::make_unique<model::LayerGraph>(
          layers::load_model_table("yolov5n"), std::ssize(here), at::kFloat, 2);
    };
    loaded_ = fresh();
    fresh_ = fresh();
    return load_weights(path("w"), *loaded_,
                        {.mode = LoadMode::kTransfer, .class_names = here});
  }
  // Whether the model's field has the values of the file's field `from`.
  bool is_taken(int64_t field, int64_t from) {
    return at::equal(rows_of(*loaded_, field), rows_of(*saved_, from));
  }
  bool is_fresh(int64_t field) {
    return at::equal(rows_of(*loaded_, field), rows_of(*fresh_, field));
  }

  std::unique_ptr<model::LayerGraph> saved_, loaded_, fresh_;
};

TEST_F(ClassesByName, AnotherOrderMovesTheRows) {
  const LoadReport report = load({"cat", "dog", "cow"}, {"dog", "cow", "cat"});
  EXPECT_EQ(to_string(report, "w"),
            "transferred 349 of 349 tensors from w; layer 24 (Detect): 3 "
            "classes in another order, moved by name");
  for (int64_t field = 0; field < 5; ++field) {
    EXPECT_TRUE(is_taken(field, field)) << field;
  }
  EXPECT_TRUE(is_taken(5, 6));
  EXPECT_TRUE(is_taken(6, 7));
  EXPECT_TRUE(is_taken(7, 5));
}

TEST_F(ClassesByName, SharedClassesAreTakenAndOthersStartAnew) {
  const LoadReport report =
      load({"person", "car", "bus", "cat"}, {"boat", "cat", "car"});
  EXPECT_EQ(to_string(report, "w"),
            "transferred 349 of 349 tensors from w; layer 24 (Detect): 4 "
            "classes -> 3, by name: 'cat', 'car'; started anew: 'boat'");
  EXPECT_TRUE(is_taken(4, 4));
  EXPECT_TRUE(is_fresh(5));
  EXPECT_FALSE(is_taken(5, 5));
  EXPECT_TRUE(is_taken(6, 8));
  EXPECT_TRUE(is_taken(7, 6));
}

TEST_F(ClassesByName, WithoutASharedNameTheNumberOfClassesDecides) {
  EXPECT_EQ(to_string(load({"a", "b"}, {"c", "d"}), "w"),
            "transferred 349 of 349 tensors from w");
  EXPECT_TRUE(is_taken(5, 5));
  EXPECT_EQ(load({"a", "b"}, {"c", "d", "e"}).transferred, 343);
  EXPECT_TRUE(is_fresh(0));
}

TEST_F(ClassesByName, NamesThatAreThereTwiceNameNoRow) {
  EXPECT_EQ(load({"a", "a", "b"}, {"b", "a", "c"}).transferred, 349);
  EXPECT_TRUE(is_taken(5, 5));
}

TEST_F(WeightsTest, LoadedAnchorsAreTheModels) {
  model::LayerGraph saved = nano(3, at::kFloat, 1);
  for (const model::NamedTensor& entry : saved.state())
    if (entry.name == "model.24.anchors") entry.tensor->mul_(2);
  save_weights(path("w"), saved.state(), {});
  model::LayerGraph loaded = nano(3, at::kFloat, 1);
  EXPECT_EQ(loaded.levels()[0].anchors[0], std::make_pair(10.0, 13.0));
  load_weights(path("w"), loaded, {LoadMode::kTransfer, false});
  EXPECT_EQ(loaded.levels()[0].anchors[0], std::make_pair(20.0, 26.0));
}

TEST_F(WeightsTest, StrictRefusesAnythingElseAndChangesNothing) {
  model::LayerGraph graph = nano(3, at::kFloat, 2);
  model::LayerGraph untouched = nano(3, at::kFloat, 2);
  model::LayerGraph saved = nano(80, at::kFloat, 1);
  save_weights(path("shape"), saved.state(), {});
  const std::string shape = complaint_of(path("shape"), graph, {});
  EXPECT_THAT(shape, HasSubstr("model.24.m.0.weight"));
  EXPECT_THAT(shape, HasSubstr("[255, 64, 1, 1]"));
  EXPECT_THAT(shape, HasSubstr("[24, 64, 1, 1]"));

  model::LayerGraph same = nano(3, at::kFloat, 1);
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  for (const model::NamedTensor& entry : same.state())
    tensors.emplace_back(entry.name, *entry.tensor);
  tensors.emplace_back("model.24.anchor_grid", *same.state().front().tensor);
  write_safetensors(path("extra"), tensors, {});
  EXPECT_THAT(complaint_of(path("extra"), graph, {}),
              HasSubstr("no tensor model.24.anchor_grid"));

  tensors.erase(tensors.end() - 2, tensors.end());
  write_safetensors(path("fewer"), tensors, {});
  EXPECT_THAT(complaint_of(path("fewer"), graph, {}),
              HasSubstr("there is no tensor model.24.m.2.bias"));

  write_safetensors(path("foreign"),
                    {{"x", same.batch_norms()[0].running_mean->clone()}}, {});
  EXPECT_THAT(
      complaint_of(path("foreign"), graph, {LoadMode::kTransfer, false}),
      HasSubstr("none of its 1 tensors fits"));
  EXPECT_TRUE(same_state(graph, untouched));
}

TEST_F(WeightsTest, HalfPrecisionFilesLoad) {
  model::LayerGraph saved = nano(3, at::kFloat, 1);
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  for (const model::NamedTensor& entry : saved.state())
    tensors.emplace_back(entry.name, entry.tensor->is_floating_point()
                                         ? entry.tensor->detach().to(at::kHalf)
                                         : *entry.tensor);
  write_safetensors(path("half"), tensors, {});
  model::LayerGraph loaded = nano(3, at::kFloat, 2);
  EXPECT_EQ(load_weights(path("half"), loaded, {}).transferred, 349);
  EXPECT_TRUE(at::equal(
      *loaded.state()[0].tensor,
      saved.state()[0].tensor->detach().to(at::kHalf).to(at::kFloat)));
}

// Without this check, a model of seven gigabytes would be built before the
// file's sizes are compared.
TEST_F(WeightsTest, ATableThatNeedsMoreThanTheFileHoldsIsRefused) {
  model::LayerGraph graph = nano(2, at::kFloat, 1);
  layers::ModelTable table = layers::load_model_table("yolov5n");
  table.activation = layers::kRelu;  // not shipped, so the file has it
  save_weights(path("sound.safetensors"), graph.state(),
               layers::model_metadata("own.yaml", table));
  EXPECT_EQ(open_weights(path("sound.safetensors"), "").class_names.size(), 2U);
  table.width_multiple = 8;
  save_weights(path("wide.safetensors"), graph.state(),
               layers::model_metadata("own.yaml", table));
  EXPECT_THAT(error_text([&] { open_weights(path("wide.safetensors"), ""); }),
              ::testing::MatchesRegex(
                  ".*wide.safetensors holds 17[0-9]* numbers, but own has "
                  "1[0-9]* parameters: name its model: --cfg"));
}

TEST_F(WeightsTest, ATrainedModelOfTheReferenceLoads) {
  if (!parity_present()) GTEST_SKIP() << kParityMissing;
  model::LayerGraph graph = nano(3, at::kFloat, 0);
  const auto file = parity_path("weights/bccd_v5n.safetensors");
  const LoadReport report = load_weights(file, graph, {});
  EXPECT_EQ(report.transferred, 349);
  EXPECT_EQ(report.total, 349);
  const Safetensors stored = read_safetensors(file);
  for (const model::NamedTensor& entry : graph.state())
    EXPECT_TRUE(at::equal(
        *entry.tensor, stored.at(entry.name).to(entry.tensor->scalar_type())))
        << entry.name;
}

// YOLOv5's own checkpoint is read as its safetensors are, to the bit.
TEST_F(WeightsTest, ACheckpointOfTheReferenceIsItsSafetensors) {
  if (!parity_present()) GTEST_SKIP() << kParityMissing;
  const auto checkpoint = parity_path("weights/bccd_v5n.pt");
  const Safetensors read = read_weights_file(checkpoint);
  const Safetensors expected =
      load_parity_tensors("weights/bccd_v5n.safetensors");
  ASSERT_EQ(read.tensors.size(), expected.tensors.size());
  for (const auto& [name, tensor] : expected.tensors) {
    EXPECT_EQ(read.at(name).scalar_type(), tensor.scalar_type()) << name;
    EXPECT_TRUE(at::equal(read.at(name), tensor)) << name;
  }
  EXPECT_EQ(read.metadata.at("model"), "yolov5n");
  EXPECT_EQ(read.metadata.at("names"), R"(["RBC","WBC","Platelets"])");

  model::LayerGraph same = nano(3, at::kFloat, 0);
  EXPECT_EQ(load_weights(checkpoint, same, {}).transferred, 349);
  // A model of another number of classes gets all tensors but the head's.
  model::LayerGraph other = nano(80, at::kFloat, 0);
  const LoadReport report =
      load_weights(checkpoint, other, {LoadMode::kTransfer, false});
  EXPECT_EQ(report.transferred, 343);
  EXPECT_THAT(to_string(report, "bccd_v5n.pt"),
              HasSubstr("transferred 343 of 349 tensors from bccd_v5n.pt; "
                        "layer 24 (Detect): 3 classes -> 80, started anew"));
}

// --- Heads without anchors

model::LayerGraph yolov8n(int64_t num_classes, uint64_t seed) {
  return model::LayerGraph(layers::load_model_table("yolov8n"), num_classes,
                           at::kFloat, seed);
}

TEST_F(WeightsTest, ANetworkWithoutAnchorsIsRecognisedByItsShapes) {
  if (!parity_present()) GTEST_SKIP() << kParityMissing;
  int recognised = 0;
  const nlohmann::json networks = load_parity_json("u/architecture.json");
  for (const auto& [name, made] : networks.items()) {
    TensorShapes shapes;
    for (const nlohmann::json& entry : made["state"]) {
      shapes[entry[0]] = entry[1].get<std::vector<int64_t>>();
    }
    const auto network = recognise_network(shapes);
    ASSERT_TRUE(network) << name;
    if (name.starts_with("11") || name.starts_with("26")) {
      EXPECT_EQ(network->description,
                "YOLO" + name.substr(0, 2) + " (detection)")
          << name;
      EXPECT_FALSE(network->table);
      continue;
    }
    // "v8n" is yolov8n, "v5un" is yolov5nu, "v5u6n" is yolov5n6u.
    const std::string letter = name.substr(name.size() - 1);
    const std::string family = name.substr(0, name.size() - 1);
    ASSERT_TRUE(network->table) << name;
    EXPECT_EQ(network->table->name, family == "v8" ? "yolov8" + letter
                                    : family == "v5u"
                                        ? "yolov5" + letter + "u"
                                        : "yolov5" + letter + "6u");
    ++recognised;
    shapes["model.22.cv4.0.2.weight"] = {32, 16, 1, 1};
    shapes["model.22.proto.cv1.conv.weight"] = {64, 64, 3, 3};
    if (family == "v8") {
      EXPECT_EQ(recognise_network(shapes)->description,
                "YOLOv8 (segmentation)");
    }
  }
  EXPECT_EQ(recognised, 15);
  model::LayerGraph with_anchors = nano(3, at::kFloat, 1);
  TensorShapes shapes;
  for (const model::NamedTensor& entry : with_anchors.state()) {
    shapes[entry.name] = entry.tensor->sizes().vec();
  }
  EXPECT_FALSE(recognise_network(shapes));
}

TEST_F(WeightsTest, LayersOfTheirOwnAreNotTakenForTheFamilys) {
  model::LayerGraph model = yolov8n(3, 1);
  TensorShapes shapes;
  for (const model::NamedTensor& entry : model.state()) {
    shapes[entry.name] = entry.tensor->sizes().vec();
  }
  EXPECT_EQ(recognise_network(shapes)->table->name, "yolov8n");
  shapes["model.8.m.1.cv1.conv.weight"] = {128, 128, 3, 3};
  EXPECT_FALSE(recognise_network(shapes)->table);
  EXPECT_EQ(recognise_network(shapes)->description,
            "YOLOv8 (detection) with layers of its own");
}

TEST_F(WeightsTest, ACheckpointWithoutAnchorsGoesThereAndBack) {
  const auto checkpoint = parity_path("u/weights/bccd_slim8.pt");
  if (!std::filesystem::exists(checkpoint)) {
    GTEST_SKIP() << "no ../shared/parity/u/weights/bccd_slim8.pt";
  }
  const OpenedWeights opened = open_weights(checkpoint, "");
  EXPECT_EQ(opened.class_names,
            (std::vector<std::string>{"RBC", "WBC", "Platelets"}));
  EXPECT_EQ(opened.metadata.at("model"), "yolov8-own");
  const nlohmann::json measured =
      load_parity_json("u/weights/bccd_slim8_metrics.json")["tensors"];
  EXPECT_EQ(opened.model->state().size(), 355u);
  int compared = 0;
  for (const model::NamedTensor& entry : opened.model->state()) {
    if (!measured.contains(entry.name)) continue;
    ++compared;
    const nlohmann::json& figures = measured[entry.name];
    EXPECT_EQ(entry.tensor->sizes().vec(),
              figures[0].get<std::vector<int64_t>>());
    EXPECT_NEAR(entry.tensor->to(at::kDouble).sum().item<double>(),
                figures[1].get<double>(), 1e-6 * figures[2].get<double>())
        << entry.name;
  }
  EXPECT_GT(compared, 250);

  auto metadata = opened.metadata;
  metadata["format"] = "headroom-weights";
  save_weights(path("own.safetensors"), opened.model->state(), metadata);
  const OpenedWeights again = open_weights(path("own.safetensors"), "");
  EXPECT_TRUE(same_state(*opened.model, *again.model));
  EXPECT_EQ(again.class_names, opened.class_names);
  EXPECT_EQ(again.metadata.at("table"), opened.metadata.at("table"));
}

TEST_F(WeightsTest, TransferToAnotherNumberOfClassesWithoutAnchors) {
  model::LayerGraph saved = yolov8n(80, 1);
  save_weights(path("w"), saved.state(), {});
  // The branches of classes are 80 channels wide there and 64 here.
  model::LayerGraph other = yolov8n(3, 2);
  EXPECT_EQ(
      to_string(load_weights(path("w"), other, {LoadMode::kTransfer, false}),
                "w"),
      "transferred 319 of 355 tensors from w; layer 22 (Detect): 80 "
      "classes -> 3, started anew");
  EXPECT_THAT(complaint_of(path("w"), other, {}), HasSubstr("model.22.cv3"));
}

// The head's row of one class, for each level, as one tensor.
at::Tensor class_rows_of(model::LayerGraph& graph, int64_t class_index) {
  std::vector<at::Tensor> rows;
  for (const model::NamedTensor& entry : graph.state()) {
    if (entry.name.find("22.cv3.") == std::string::npos) continue;
    if (entry.name.ends_with(".2.weight") || entry.name.ends_with(".2.bias")) {
      rows.push_back(entry.tensor->detach().select(0, class_index).flatten());
    }
  }
  return at::cat(rows);
}

TEST_F(WeightsTest, ClassesMoveByNameWithoutAnchors) {
  model::LayerGraph saved = yolov8n(4, 1), loaded = yolov8n(3, 2),
                    fresh = yolov8n(3, 2), wide = yolov8n(90, 2);
  save_weights(path("w"), saved.state(),
               {{"names", R"(["person","car","bus","cat"])"}});
  const LoadReport report = load_weights(
      path("w"), loaded,
      {.mode = LoadMode::kTransfer, .class_names = {"boat", "cat", "car"}});
  EXPECT_EQ(to_string(report, "w"),
            "transferred 355 of 355 tensors from w; layer 22 (Detect): 4 "
            "classes -> 3, by name: 'cat', 'car'; started anew: 'boat'");
  EXPECT_TRUE(at::equal(class_rows_of(loaded, 0), class_rows_of(fresh, 0)));
  EXPECT_TRUE(at::equal(class_rows_of(loaded, 1), class_rows_of(saved, 3)));
  EXPECT_TRUE(at::equal(class_rows_of(loaded, 2), class_rows_of(saved, 1)));
  // A wider branch starts anew, and so do the rows that read it.
  std::vector<std::string> names(90, "x");
  for (size_t i = 0; i < names.size(); ++i) names[i] += std::to_string(i);
  names.front() = "car";
  EXPECT_EQ(load_weights(path("w"), wide,
                         {.mode = LoadMode::kTransfer, .class_names = names})
                .transferred,
            319);
}

TEST(WeightsClasses, OtherNamesAreReported) {
  const std::vector<std::string> names = {"cat", "dog", "cow"};
  const auto note = [&](const std::vector<std::string>& of_data) {
    return class_name_note(names, of_data, "w.pt", "d.yaml");
  };
  EXPECT_EQ(note(names), "");
  EXPECT_EQ(note({"cat", "dog"}), "") << "refused elsewhere";
  EXPECT_EQ(class_name_note({}, names, "w.pt", "d.yaml"), "");
  EXPECT_EQ(note({"cat", "cow", "dog"}),
            "class 1 is 'cow' in d.yaml, but 'dog' in w.pt: classes are "
            "compared by number, and these are the same names in another "
            "order");
  EXPECT_EQ(note({"cat", "dog", "horse"}),
            "class 2 is 'horse' in d.yaml, but 'cow' in w.pt: classes are "
            "compared by number, whatever their names");
  EXPECT_EQ(class_names_of({{"names", R"(["a","b"])"}}),
            (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(class_names_of({{"names", "{damaged"}}).empty());
}

}  // namespace
}  // namespace headroom::weights
