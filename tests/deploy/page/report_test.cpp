#include "deploy/page/report.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <opencv2/core.hpp>
#include <opencv2/imgproc.hpp>
#include <set>

#include "parallel/base/check.h"
#include "tests/deploy/page/run_directory_fixture.h"
#include "worker/data/codecs/image_writer.h"

namespace headroom::page {
namespace {

using Json = nlohmann::json;

ReportRequest request_of(const std::filesystem::path& folder) {
  ReportRequest request;
  request.runs = records::runs_of(folder);
  return request;
}

// The data of a report, read as a browser does.
Json data_of(const std::string& report) {
  const std::string begin =
      "<script type=\"application/json\" id=\"report-data\">";
  const size_t at = report.find(begin) + begin.size();
  return Json::parse(report.substr(at, report.find("</script", at) - at));
}

TEST(Report, ItHoldsTheRunWithItsStepsTimelinesAndPictures) {
  const RunDirectory folder;
  const std::string report = report_text(request_of(folder.path()));
  EXPECT_TRUE(report.starts_with("<!doctype html>"));
  const Json data = data_of(report);
  ASSERT_EQ(data["runs"].size(), 1u);
  const Json& run = data["runs"][0];
  EXPECT_EQ(run["run"]["id"], "exp");
  EXPECT_EQ(run["steps"]["total"], 6);
  EXPECT_EQ(run["timelines"].size(), 2u);
  ASSERT_EQ(run["run"]["pictures"].size(), 2u);
  ASSERT_EQ(data["pictures"].size(), 2u);
  for (const Json& picture : data["pictures"]) {
    EXPECT_EQ(picture["run"], 0);
    const std::string url = picture["url"];
    EXPECT_TRUE(url.starts_with("data:image/")) << url;
    if (picture["name"] == "results.png") {
      EXPECT_EQ(url, "data:image/png;base64,cG5n");
    }
  }
  EXPECT_FALSE(run["plan"]["settings"].empty());
}

TEST(Report, NoTextOfARunEndsTheElementThatHoldsIt) {
  const RunDirectory folder;
  folder.append("events.jsonl",
                "{\"event\":\"fault\",\"step\":1,\"reason\":\"</script><!-- "
                "\\u0000\\u001b[31m \\u2028\"}\n");
  const std::string report = report_text(request_of(folder.path()));
  const Json data = data_of(report);
  const Json& run = data["runs"][0]["run"];
  const Json summary = Json::parse(run["summary"].get<std::string>());
  EXPECT_EQ(summary["per_class"][0]["name"], "</script><b>");
  const std::string events = run["events"];
  const size_t newest = events.rfind('\n', events.size() - 2) + 1;
  EXPECT_EQ(Json::parse(events.substr(newest))["reason"],
            std::string("</script><!-- \0\x1b[31m \xe2\x80\xa8", 24));
  // Counts the script elements of the page itself: the data and the scripts.
  size_t ends = 0;
  for (size_t at = report.find("</script"); at != std::string::npos;
       at = report.find("</script", at + 1)) {
    ++ends;
  }
  EXPECT_EQ(ends, 2u);
  for (const char c : report) {
    EXPECT_TRUE(static_cast<unsigned char>(c) >= 0x20 || c == '\n') << int{c};
  }
}

// A square picture of blots, or of noise, which JPEG cannot make small.
std::string square_jpeg(int side, bool is_noise) {
  const int blots = is_noise ? side : side / 24;
  cv::Mat pixels(blots, blots, CV_8UC3);
  cv::randu(pixels, cv::Scalar::all(0), cv::Scalar::all(256));
  cv::resize(pixels, pixels, {side, side});
  return codecs::encode_jpeg(pixels, 95);
}

TEST(Report, PicturesAboveTheirShareAreMadeSmallerAndNoneIsLeftOut) {
  const RunDirectory folder;
  const std::string large = square_jpeg(1200, /*is_noise=*/true);
  ASSERT_GT(large.size(), 1'300'000u);
  for (int i = 0; i < 8; ++i) {
    folder.write("val_batch" + std::to_string(i) + "_labels.jpg", large);
  }
  const std::string report = report_text(request_of(folder.path()));
  EXPECT_LE(report.size(), kMostReportBytes);
  EXPECT_GT(report.size(), kMostReportBytes / 3)
      << "they are not needlessly small";
  const Json data = data_of(report);
  ASSERT_EQ(data["pictures"].size(), 10u);
  for (const Json& picture : data["pictures"]) {
    const std::string name = picture["name"];
    const bool is_large = name.ends_with("_labels.jpg");
    EXPECT_EQ(picture.value("smaller", false), is_large) << name;
    EXPECT_GT(picture["url"].get<std::string>().size(),
              is_large ? 100'000u : 4u);
  }
}

TEST(Report, PicturesThatCannotBeMadeSmallEnoughAreLeftOut) {
  const RunDirectory folder;
  for (int i = 0; i < 5; ++i) {
    folder.write("val_batch" + std::to_string(i) + "_labels.jpg",
                 std::string(2'500'000, 'x'));
  }
  const std::string report = report_text(request_of(folder.path()));
  EXPECT_LE(report.size(), kMostReportBytes);
  const Json data = data_of(report);
  EXPECT_EQ(data["runs"][0]["run"]["pictures"].size(), 7u);
  EXPECT_EQ(data["pictures"].size(), 2u) << "the damaged ones are left out";
}

TEST(Report, OfVeryManyPicturesTheNewestStay) {
  const RunDirectory folder;
  const std::string large = square_jpeg(480, /*is_noise=*/false);
  for (int run = 0; run < 4; ++run) {
    const std::string name = "run" + std::to_string(run);
    for (const char* file : {"run.yaml", "plan.json", "steps.jsonl"}) {
      const auto to = folder.parent() / name / file;
      std::filesystem::create_directories(to.parent_path());
      std::filesystem::copy_file(folder.path() / file, to);
    }
    for (int i = 0; i < 60; ++i) {
      folder.write(
          "../" + name + "/val_batch" + std::to_string(i) + "_pred.jpg", large);
    }
  }
  const std::string report = report_text(request_of(folder.parent()));
  EXPECT_LE(report.size(), kMostReportBytes);
  const Json data = data_of(report);
  EXPECT_GT(data["pictures"].size(), 150u);
  EXPECT_LT(data["pictures"].size(), 242u);
  std::set<int> runs;
  for (const Json& picture : data["pictures"])
    runs.insert(picture["run"].get<int>());
  EXPECT_EQ(runs.size(), 5u) << "every run has some";
}

TEST(Report, ALongRunStaysBelowTheLimit) {
  const RunDirectory folder;
  std::string steps;
  for (int64_t step = 0; step < 50'000; ++step) {
    steps += step_line(step, static_cast<double>(step * 7919 % 1000)) + "\n";
  }
  folder.write("steps.jsonl", steps);
  std::string results = "epoch,train/box_loss\n";
  for (int epoch = 0; epoch < 3000; ++epoch) {
    results += std::to_string(epoch) + ",0.123456\n";
  }
  folder.write("results.csv", results);
  const std::string report = report_text(request_of(folder.path()));
  EXPECT_LE(report.size(), kMostReportBytes);
  EXPECT_EQ(data_of(report)["runs"][0]["steps"]["total"], 50'000);
}

TEST(Report, ManyLargeEventsStayBelowTheLimit) {
  for (const char* letter : {"x", "<"}) {
    const RunDirectory folder;
    std::string detail;
    for (int i = 0; i < 60'000; ++i) detail += letter;
    for (int i = 0; i < 250; ++i) {
      folder.append("events.jsonl",
                    "{\"event\":\"memory\",\"step\":" + std::to_string(i) +
                        ",\"rank\":0,\"reason\":\"r\",\"detail\":[\"" + detail +
                        "\"]}\n");
    }
    const std::string report = report_text(request_of(folder.path()));
    EXPECT_LE(report.size(), kMostReportBytes);
    const std::string events = data_of(report)["runs"][0]["run"]["events"];
    EXPECT_NE(events.find("\"generation\""), std::string::npos);
    if (*letter == '<') continue;
    EXPECT_NE(events.find("\"step\":249,"), std::string::npos);
    EXPECT_NE(events.find("\"step\":240,"), std::string::npos);
  }
}

TEST(WriteReport, AFileThatHeadroomDidNotWriteStays) {
  const headroom::testing::TemporaryFolder folder;
  const RunDirectory run;
  const std::string report = report_text(request_of(run.path()));
  const std::filesystem::path file =
      folder.write("report.html", "<!doctype html>\nmine");
  EXPECT_THROW(require_replaceable(file, "move it"), Error);
  write_report(file, report);
  EXPECT_TRUE(is_report(file));
  EXPECT_EQ(folder.read("report.html"), report);
  require_replaceable(file, "its own");
  require_replaceable(folder.path() / "none", "nothing is there");
}

}  // namespace
}  // namespace headroom::page
