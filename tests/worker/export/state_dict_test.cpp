#include "worker/export/state_dict.h"

#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "configs/layers/model_table.h"
#include "tests/support/error_text.h"
#include "tests/support/temporary_folder.h"
#include "worker/export/export_weights.h"
#include "worker/model/layer_graph.h"
#include "worker/pytorch_file/zip_archive.h"
#include "worker/weights/open_weights.h"
#include "worker/weights/weights.h"
#include "worker/weights/weights_file.h"

namespace headroom::exporter {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::TemporaryFolder;

class StateDictTest : public ::testing::Test {
 protected:
  StateDictTest()
      : model_(layers::load_model_table("yolov5n"), 3, at::kFloat, 1) {}

  const TemporaryFolder folder_;
  model::LayerGraph model_;
};

TEST_F(StateDictTest, ComesBackBitByBit) {
  const std::filesystem::path file = folder_.path() / "w.pt";
  write_state_dict(file, model_.state());
  const weights::Safetensors read = weights::read_weights_file(file);
  EXPECT_EQ(read.tensors.size(), model_.state().size());
  for (const model::NamedTensor& entry : model_.state()) {
    EXPECT_TRUE(at::equal(read.at(entry.name), *entry.tensor)) << entry.name;
    EXPECT_EQ(read.at(entry.name).scalar_type(), entry.tensor->scalar_type());
  }
  // Each tensor is written alone, not with all of its storage.
  EXPECT_LT(std::filesystem::file_size(file), 9'000'000u);
}

// torch.load(weights_only=True) accepts only these names in the pickle.
TEST_F(StateDictTest, NamesOnlyWhatPytorchLoadsAsWeights) {
  const std::filesystem::path file = folder_.path() / "w.pt";
  write_state_dict(file, model_.state());
  pytorch_file::ZipArchive archive(file);
  const std::string pickle = archive.read("archive/data.pkl");
  EXPECT_THAT(pickle, HasSubstr("ctorch._utils\n_rebuild_tensor_v2\n"));
  EXPECT_THAT(pickle, HasSubstr("ctorch\nFloatStorage\n"));
  EXPECT_THAT(pickle, HasSubstr("ctorch\nLongStorage\n"));
  EXPECT_THAT(pickle, HasSubstr("ccollections\nOrderedDict\n"));
  EXPECT_THAT(pickle, Not(HasSubstr("torch.jit")));
}

TEST_F(StateDictTest, AFullDiskIsAnErrorAndLeavesNothing) {
  std::signal(SIGXFSZ, SIG_IGN);
  struct rlimit before {};
  ::getrlimit(RLIMIT_FSIZE, &before);
  for (const rlim_t room : {0, 1000, 1'000'000}) {
    struct rlimit small = before;
    small.rlim_cur = room;
    ::setrlimit(RLIMIT_FSIZE, &small);
    const std::string text = error_text(
        [&] { write_state_dict(folder_.path() / "w.pt", model_.state()); },
        ExitCode::kResource);
    ::setrlimit(RLIMIT_FSIZE, &before);
    EXPECT_THAT(text, HasSubstr("w.pt cannot be written"));
    EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
  }
}

TEST_F(StateDictTest, OnlyAnEarlierExportIsReplaced) {
  const std::filesystem::path weights = folder_.path() / "best.safetensors";
  weights::save_weights(weights, model_.state(), {{"model", "yolov5n"}});
  ExportRequest request;
  request.weights = weights;
  request.include = {"pt"};
  export_weights(request);
  EXPECT_EQ(export_weights(request).size(), 1u);
  folder_.write("best.pt", "PK\3\4 mine, which names headroom");
  EXPECT_THAT(error_text([&] { export_weights(request); }, ExitCode::kRequest),
              HasSubstr("best.pt is there, and was not written by headroom"));
}

TEST_F(StateDictTest, ExportWritesItForWeightsOfAnyFormat) {
  const std::filesystem::path weights = folder_.path() / "best.safetensors";
  weights::save_weights(weights, model_.state(), {{"model", "yolov5n"}});
  ExportRequest request;
  request.weights = weights;
  request.include = {"pt"};
  const std::string file = folder_.path() / "best.pt";
  EXPECT_THAT(
      export_weights(request),
      ElementsAre(file + ": state dict of PyTorch, 349 tensors; it names "
                         "neither its model (yolov5n) nor its classes"));
  const weights::OpenedWeights opened = weights::open_weights(file, "yolov5n");
  const model::NamedTensors back = opened.model->state();
  const model::NamedTensors expected = model_.state();
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_TRUE(at::equal(*back[i].tensor, *expected[i].tensor))
        << expected[i].name;
  }
}

}  // namespace
}  // namespace headroom::exporter
