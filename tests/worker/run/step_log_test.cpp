#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <new>
#include <nlohmann/json.hpp>
#include <set>

#include "parallel/base/check.h"
#include "tests/support/descriptor_limit.h"
#include "tests/support/refusal.h"
#include "tests/support/temporary_folder.h"
#include "worker/run/results.h"
#include "worker/run/run_recorder.h"

namespace headroom::run {
namespace {

TEST(StepLog, AFileThatCannotBeReadIsNotCut) {
  const testing::TemporaryFolder folder;
  const std::string lines = "{\"step\":0}\n{\"step\":1}\n{\"step\":2}\n";
  const auto file = folder.write("steps.jsonl", lines);
  {
    const DescriptorLimit limit(/*more=*/0);
    EXPECT_THROW(StepLog(file, 3), Error);
  }
  EXPECT_EQ(folder.read("steps.jsonl"), lines);
  const StepLog log(file, 2);
  EXPECT_EQ(folder.read("steps.jsonl"), lines.substr(0, 22));
}

// In a folder of another user, or a copied one, a link may lead to any file.
TEST(StepLog, ALinkIsRefusedAndItsTargetKept) {
  const testing::TemporaryFolder folder;
  const std::string lines = "{\"step\":0}\n{\"step\":1}\n";
  folder.write("other.jsonl", lines);
  const auto file = folder.path() / "steps.jsonl";
  std::filesystem::create_symlink("other.jsonl", file);
  EXPECT_EQ(testing::refusal_of([&] { StepLog(file, 1); }, ExitCode::kResource),
            "[run] cannot read " + file.string() +
                " (it is a symbolic link, which is not followed here): check "
                "its disk and its permissions, or move it away");
  EXPECT_EQ(folder.read("other.jsonl"), lines);
  std::filesystem::remove(file);
  std::filesystem::create_symlink("none", file);
  EXPECT_THROW(StepLog(file, 0), Error);
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "none"));
}

StepRecord record_of(int64_t step, int64_t batch, int64_t ranks) {
  StepRecord record;
  record.step = step;
  record.epoch = 999;
  record.generation = 12;
  record.seconds = record.images_per_second = 0.1 + 0.2;
  record.positions = {118'287 - batch, 118'287};
  record.order = sampling::Permutation(~uint64_t{0}, 999, 118'287);
  record.seed = ~uint64_t{0};
  record.lists_samples = batch <= kMostListedSamples;
  record.epoch_samples = 118'287;
  step::StepResult& result = record.result;
  result.loss = -1.1 / 3e100;
  result.terms.fill(result.loss);
  result.gradient_norm = *(result.loss_scale = 1.0 / 3);
  result.settings.lr = {1.1 / 3, 2.2 / 3, 4.4 / 3};
  result.lowered_scale = true;
  const std::vector<int64_t> bytes(static_cast<size_t>(ranks),
                                   int64_t{1} << 43);
  result.measured_peak_bytes = result.predicted_peak_bytes = result.live_bytes =
      bytes;
  return record;
}

TEST(StepLine, OfALargeBatchHasAtMost2KB) {
  const nlohmann::json large =
      nlohmann::json::parse(to_json_line(record_of(1'000'000, 32'768, 4096)));
  EXPECT_LE(large.dump().size(), 2000u);
  EXPECT_EQ(large.at("samples"), nlohmann::json({{"seed", ~uint64_t{0}},
                                                 {"epoch", 999},
                                                 {"begin", 118'287 - 32'768},
                                                 {"end", 118'287}}));
  const StepRecord small = record_of(0, 256, 8);
  const nlohmann::json line = nlohmann::json::parse(to_json_line(small));
  EXPECT_EQ(line.at("samples").get<std::vector<int64_t>>(),
            sampling::samples_at(small.order, small.positions));
  EXPECT_EQ(line.at("memory").size(), 8u);
  EXPECT_FALSE(line.contains("ranks"));
}

TEST(StepLine, NamesTheLossesOfTheHead) {
  StepRecord record = record_of(0, 16, 2);
  record.result.terms = {1, 2, 3};
  EXPECT_THAT(to_json_line(record),
              ::testing::HasSubstr("\"box\":1.0,\"obj\":2.0,\"cls\":3.0,"));
  record.has_anchors = false;
  EXPECT_THAT(to_json_line(record),
              ::testing::HasSubstr("\"box\":1.0,\"cls\":2.0,\"dfl\":3.0,"));
}

TEST(Results, ColumnsAndEventsNameTheLossesOfTheHead) {
  const testing::TemporaryFolder folder;
  EpochRecord record;
  record.has_anchors = false;
  record.losses = {1, 2, 3};
  record.validation.emplace().losses = {4, 5, 6};
  Results(folder.path(), 0, /*has_anchors=*/false).write(record);
  EXPECT_EQ(folder.read("results.csv"),
            "epoch,train/box_loss,train/cls_loss,train/dfl_loss,"
            "metrics/precision,metrics/recall,metrics/mAP_0.5,"
            "metrics/mAP_0.5:0.95,val/box_loss,val/cls_loss,val/dfl_loss,"
            "x/lr0,x/lr1,x/lr2\n0,1,2,3,0,0,0,0,4,5,6,0,0,0\n");
  EXPECT_EQ(describe_training(record, 3),
            "epoch 1/3  box 1.000  cls 2.000  dfl 3.000");
  EXPECT_THAT(training_event_json(record, 3),
              ::testing::HasSubstr("\"box\":1.0,\"cls\":2.0,\"dfl\":3.0,"));
  EXPECT_THAT(
      to_event_json(record),
      ::testing::HasSubstr("\"val_box\":4.0,\"val_cls\":5.0,\"val_dfl\":6.0,"));
}

TEST(StepLine, OfManyRanksEachComesAgain) {
  std::multiset<int> ranks;
  for (int64_t step = 100; step < 105; ++step) {
    const auto line =
        nlohmann::json::parse(to_json_line(record_of(step, 1, 20)));
    EXPECT_EQ(line.at("ranks"), 20);
    for (const auto& rank : line.at("memory")) {
      ranks.insert(rank.at("rank").get<int>());
    }
  }
  EXPECT_EQ(ranks.size(), 40u);
  for (int rank = 0; rank < 20; ++rank) EXPECT_EQ(ranks.count(rank), 2u);
}

TEST(StepLog, LinesAreInOrderAndAllThereAfterItsEnd) {
  const testing::TemporaryFolder folder;
  const std::filesystem::path file = folder.path() / "steps.jsonl";
  std::string expected;
  {
    StepLog log(file, 0);
    for (int64_t step = 0; step < 200; ++step) {
      log.write(record_of(step, 16, 2));
      expected += to_json_line(record_of(step, 16, 2)) + "\n";
      if (step != 99) continue;
      EXPECT_TRUE(log.settle());
      EXPECT_EQ(folder.read("steps.jsonl"), expected);
    }
  }
  EXPECT_EQ(folder.read("steps.jsonl"), expected);
}

TEST(StepLog, LinesThatCannotBeWrittenWait) {
  const testing::TemporaryFolder folder;
  const std::filesystem::path file = folder.path() / "a" / "steps.jsonl";
  std::filesystem::create_directory(file.parent_path());
  StepLog log(file, 0);
  log.write(record_of(0, 16, 1));
  EXPECT_TRUE(log.settle());
  std::filesystem::rename(file.parent_path(), folder.path() / "b");
  log.write(record_of(1, 16, 1));
  log.write(record_of(2, 16, 1));
  EXPECT_FALSE(log.settle());
  EXPECT_FALSE(log.write_waiting());
  std::filesystem::rename(folder.path() / "b", file.parent_path());
  log.write(record_of(3, 16, 1));
  EXPECT_TRUE(log.settle());
  std::string expected;
  for (int64_t step = 0; step < 4; ++step) {
    expected += to_json_line(record_of(step, 16, 1)) + "\n";
  }
  EXPECT_EQ(folder.read("a/steps.jsonl"), expected);
}

TEST(StepLog, LinesForWhichThereIsNoMemoryWaitInOrder) {
  const testing::TemporaryFolder folder;
  const std::filesystem::path file = folder.path() / "steps.jsonl";
  StepLog log(file, 0);
  std::atomic<bool> has_memory = false;
  StepRecord record = record_of(0, 16, 1);
  record.order = [&, order = record.order](int64_t position) {
    if (!has_memory) throw std::bad_alloc();
    return order(position);
  };
  log.write(record);
  EXPECT_FALSE(log.settle());
  log.write(record_of(1, 16, 1));
  EXPECT_FALSE(log.settle());
  EXPECT_FALSE(log.write_waiting());
  EXPECT_EQ(folder.read("steps.jsonl"), "");
  has_memory = true;
  EXPECT_TRUE(log.write_waiting());
  EXPECT_TRUE(log.settle());
  EXPECT_EQ(folder.read("steps.jsonl"),
            to_json_line(record_of(0, 16, 1)) + "\n" +
                to_json_line(record_of(1, 16, 1)) + "\n");
}

TEST(Results, ALinkIsRefusedAndItsTargetKept) {
  const testing::TemporaryFolder folder;
  const std::string rows = "epoch,a\n0,1\n1,2\n";
  folder.write("other.csv", rows);
  const auto file = folder.path() / "results.csv";
  std::filesystem::create_symlink("other.csv", file);
  EXPECT_EQ(testing::refusal_of([&] { Results(folder.path(), 1, true); },
                                ExitCode::kResource),
            "[run] cannot read " + file.string() +
                " (it is a symbolic link, which is not followed here): its "
                "rows would be lost: check its disk and its permissions, or "
                "move it away");
  EXPECT_EQ(folder.read("other.csv"), rows);
  EXPECT_TRUE(std::filesystem::is_symlink(file));
}

}  // namespace
}  // namespace headroom::run
