#include "worker/pytorch_file/pytorch_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "tests/support/error_text.h"
#include "tests/support/temporary_folder.h"
#include "tests/worker/pytorch_file/archive_maker.h"

namespace headroom::pytorch_file {
namespace {

using testing::TemporaryFolder;

using namespace pickled;  // the instructions
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class PytorchFileTest : public ::testing::Test {
 protected:
  // A checkpoint with this pickle and one storage of four floats.
  static std::vector<ArchiveEntry> entries_of(const std::string& value) {
    return {{"best/data.pkl", whole(value)},
            {"best/byteorder", "little"},
            {"best/data/0", std::string(16, '\x01')}};
  }
  std::string complaint_of(const std::vector<ArchiveEntry>& entries) const {
    return complaint_of_bytes(make_archive(entries));
  }
  std::string complaint_of_bytes(const std::string& bytes) const {
    return error_text([&] { PytorchFile(folder_.write("file.pt", bytes)); });
  }
  // A valid checkpoint, for tests with a fault elsewhere.
  static std::string sound_checkpoint() {
    return checkpoint(module("Model", {text("w"), floats(0, {4}, {1})}, {}));
  }
  static std::string checkpoint(const std::string& model) {
    return dict(
        {text("epoch"), integer(7), text("ema"), "N", text("model"), model});
  }
  static std::string floats(int32_t offset, const std::vector<int32_t>& sizes,
                            const std::vector<int32_t>& strides) {
    return tensor("FloatStorage", "0", 4, offset, sizes, strides);
  }

  const TemporaryFolder folder_;
};

TEST_F(PytorchFileTest, ModulesBecomeNamedTensors) {
  const std::string inner =
      module("Conv", {text("weight"), floats(0, {2, 2}, {2, 1})}, {});
  const std::string model =
      module("Model", {text("scale"), floats(3, {}, {})}, {text("0"), inner});
  PytorchFile file(
      folder_.write("file.pt", make_archive(entries_of(checkpoint(model)))));
  ASSERT_EQ(file.tensors().size(), 2u);
  EXPECT_EQ(file.tensors()[0].name, "scale");
  EXPECT_EQ(file.tensors()[0].offset, 3);
  EXPECT_EQ(file.tensors()[1].name, "0.weight");
  EXPECT_THAT(file.tensors()[1].sizes, ElementsAre(2, 2));
  EXPECT_EQ(file.part(), "model");
  EXPECT_EQ(file.epoch(), 7);
  EXPECT_EQ(file.read_storage("best/data/0"), std::string(16, '\x01'));
}

TEST_F(PytorchFileTest, AFileSaysWhatItHolds) {
  struct Case {
    const char *package, *type, *yaml_file, *scale, *says;
  };
  const std::vector<Case> cases = {
      {"ultralytics.nn.tasks", "DetectionModel", "yolo11n.yaml", "n",
       "YOLO11n (detection)"},
      {"ultralytics.nn.tasks", "DetectionModel", "cfg/yolo26.yaml", "x",
       "YOLO26x (detection)"},
      {"ultralytics.nn.tasks", "SegmentationModel", "yolov8-seg.yaml", "s",
       "YOLOv8s-seg (segmentation)"},
      {"ultralytics.nn.tasks", "PoseModel", "yolo11m-pose.yaml", "m",
       "YOLO11m-pose (pose)"},
      {"ultralytics.nn.tasks", "ClassificationModel", "yolov8n-cls.yaml", "n",
       "YOLOv8n-cls (classification)"},
      {"ultralytics.nn.tasks", "OBBModel", "yolo11n-obb.yaml", "n",
       "YOLO11n-obb (oriented boxes)"}};
  const std::string weight = dict({text("w"), floats(0, {4}, {1})});
  for (const Case& each : cases) {
    const std::string model =
        object(global(each.package, each.type),
               dict({text("_parameters"), weight, text("yaml"),
                     dict({text("yaml_file"), text(each.yaml_file),
                           text("scale"), text(each.scale)})}));
    const PytorchFile file(
        folder_.write("file.pt", make_archive(entries_of(checkpoint(model)))));
    EXPECT_EQ(file.network(), each.says);
    EXPECT_EQ(file.model(), "");
  }
  // YOLOv5 stores the name of the file together with the table.
  const std::string older =
      object(global("models.yolo", "SegmentationModel"),
             dict({text("_parameters"), weight, text("yaml_file"),
                   text("yolov5s-seg.yaml"), text("yaml"), dict({})}));
  EXPECT_EQ(
      PytorchFile(
          folder_.write("file.pt", make_archive(entries_of(checkpoint(older)))))
          .network(),
      "YOLOv5s-seg (segmentation)");
  const std::string own = object(
      global("models.yolo", "DetectionModel"),
      dict({text("_parameters"), weight, text("yaml_file"), text("my.yaml")}));
  for (const std::string& value : {checkpoint(own), sound_checkpoint()}) {
    EXPECT_EQ(
        PytorchFile(folder_.write("file.pt", make_archive(entries_of(value))))
            .network(),
        "");
  }
}

TEST_F(PytorchFileTest, ABareStateDictIsTakenAsItIs) {
  PytorchFile file(folder_.write(
      "file.pt", make_archive(entries_of(dict(
                     {text("model.0.conv.weight"), floats(0, {4}, {1})})))));
  EXPECT_EQ(file.tensors().at(0).name, "model.0.conv.weight");
  EXPECT_EQ(file.part(), "");
}

TEST_F(PytorchFileTest, EveryCallThatIsNotInTheListIsRefusedByName) {
  for (const auto& [module_name, name] :
       std::vector<std::pair<std::string, std::string>>{
           {"os", "system"},
           {"posix", "system"},
           {"builtins", "eval"},
           {"__builtin__", "getattr"},
           {"subprocess", "Popen"},
           {"torch.hub", "load"},
           {"torch._utils", "_rebuild_tensor_v2.__globals__"},
           {"runpy", "_run_code"}}) {
    const std::string value =
        call(global(module_name, name), tuple({text("echo x")}));
    EXPECT_THAT(complaint_of(entries_of(value)),
                HasSubstr("it calls " + module_name + " " + name +
                          ", which weights have no use for"));
  }
}

// The reader keeps an object of any class as a record, and never calls its
// __setstate__.
TEST_F(PytorchFileTest, ObjectsOfAnyClassAreInert) {
  const std::string odd = object(global("os", "environ"), dict({}));
  const std::string model =
      module("Model", {text("w"), floats(0, {4}, {1}), text("odd"), odd}, {});
  EXPECT_EQ(complaint_of(entries_of(checkpoint(model))), "");
}

TEST_F(PytorchFileTest, TensorsThatReachBeyondTheirStorageAreRefused) {
  for (const std::string& tensor_value :
       {floats(0, {5}, {1}), floats(1, {4}, {1}), floats(0, {2}, {4}),
        floats(0, {2147483647, 2147483647, 2147483647}, {1, 1, 1}),
        floats(0, {5}, {0}), floats(-1, {1}, {1}), floats(0, {-1}, {1}),
        floats(2, {2}, {-1})}) {
    const std::string model = module("Model", {text("w"), tensor_value}, {});
    EXPECT_THAT(complaint_of(entries_of(checkpoint(model))),
                HasSubstr("tensor w reaches beyond its storage"));
  }
}

TEST_F(PytorchFileTest, TensorsTogetherAreNoMoreThanTheFile) {
  std::vector<std::string> parameters;
  for (int i = 0; i < 2000; ++i) {
    parameters.push_back(text("w" + std::to_string(i)));
    // The memo repeats the same tensor: 9 bytes of the pickle claim 4 KiB.
    parameters.push_back(
        i == 0 ? tensor("FloatStorage", "0", 1024, 0, {1024}, {1}) + "q\x05"
               : "h\x05");
  }
  auto entries = entries_of(checkpoint(module("Model", parameters, {})));
  entries[2].bytes.assign(4096, '\0');
  EXPECT_THAT(complaint_of(entries),
              HasSubstr("its tensors claim more bytes than the file has"));
}

TEST_F(PytorchFileTest, SharedModulesWithoutEndAreRefused) {
  // Each level holds the level below twice.
  std::string level = module("M", {}, {}) + "q\x01";
  for (int i = 2; i < 40; ++i) {
    level = module("M", {},
                   {text("a"), level, text("b"),
                    std::string("h") + static_cast<char>(i - 1)}) +
            "q" + static_cast<char>(i);
  }
  EXPECT_THAT(complaint_of(entries_of(checkpoint(level))),
              HasSubstr("share each other without end"));
}

TEST_F(PytorchFileTest, AModuleThatContainsItselfIsRefused) {
  const std::string loop =
      global("m", "M") + ")\x81q\x01" +
      dict({text("_modules"), dict({text("a"), "h\x01"})}) + "b";
  EXPECT_THAT(complaint_of(entries_of(checkpoint(loop))),
              HasSubstr("nest without end"));
}

TEST_F(PytorchFileTest, ListsAreNotCopiedWithoutEnd) {
  std::string value = "](";
  for (int i = 0; i < 10000; ++i) value += "N";
  value += "eq\x01";
  for (int i = 0; i < 1000; ++i) {
    value += call(global("builtins", "list"), "h\x01\x85");
  }
  EXPECT_THAT(complaint_of(entries_of(value)), HasSubstr("without end"));
}

TEST_F(PytorchFileTest, OddArchivesAreRefusedByName) {
  using Entries = std::vector<ArchiveEntry>;
  const Entries good = entries_of(sound_checkpoint());
  ASSERT_EQ(complaint_of(good), "");
  const auto named = [](const char* name) {
    return [name](Entries& all) { all.push_back({name, "*"}); };
  };
  const std::vector<std::pair<std::function<void(Entries&)>, const char*>>
      cases = {
          {named("../../etc/cron.d/x"), "leads upwards"},
          {named("/etc/passwd"), "is an absolute path"},
          {named("C:/x"), "is an absolute path"},
          {named("best/a\\b"), "has a backslash"},
          {named("best/data.pkl"), "is there twice"},
          {named("best/constants.pkl"), "TorchScript"},
          {[](Entries& all) { all[2].method = 8; }, "is compressed"},
          // These entries have 16 stored bytes and claim more.
          {[](Entries& all) { all[2].claimed_bytes = 1'000'000'000; },
           "is compressed"},
          {[](Entries& all) {
             all[2].claimed_bytes = all[2].claimed_stored_bytes = 1'000'000'000;
           },
           "claims 1000000000 bytes"},
          {[](Entries& all) { all[2].claimed_offset = 0; }, "share bytes"},
          {[](Entries& all) { all[2].flags = 1; }, "is encrypted"},
          {[](Entries& all) { all[1].bytes = "big"; }, "not little-endian"},
          {[](Entries& all) { all.erase(all.begin() + 2); },
           "storage of tensor w is missing"}};
  for (const auto& [change, complaint] : cases) {
    Entries odd = good;
    change(odd);
    EXPECT_THAT(complaint_of(odd), HasSubstr(complaint));
  }
}

TEST_F(PytorchFileTest, OtherFilesAreRefused) {
  EXPECT_THAT(complaint_of_bytes(""), HasSubstr("no zip archive"));
  EXPECT_THAT(complaint_of_bytes(std::string(100, 'x')),
              HasSubstr("no zip archive"));
  EXPECT_THAT(complaint_of_bytes("\x80\x02\x8a\nl\xfc\x9c\x46rest"),
              HasSubstr("the format of PyTorch before 1.6"));
  EXPECT_THAT(complaint_of({{"a/b", "text"}}), HasSubstr("not one of torch"));
  EXPECT_THROW(PytorchFile("/gone.pt"), Error);
  EXPECT_FALSE(is_pytorch_file("/gone.pt"));
}

TEST_F(PytorchFileTest, EveryTruncationIsRefused) {
  const std::string good = make_archive(entries_of(sound_checkpoint()));
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_NE(complaint_of_bytes(good.substr(0, size)), "") << size;
  }
  const std::string pickle = whole(sound_checkpoint());
  for (size_t size = 0; size < pickle.size(); ++size) {
    auto entries = entries_of("");
    entries[0].bytes = pickle.substr(0, size);
    EXPECT_NE(complaint_of(entries), "") << size;
  }
}

}  // namespace
}  // namespace headroom::pytorch_file
