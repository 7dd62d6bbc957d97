// headroom detect --source -: requests and answers over pipes, good and bad.
// (From Python, beside a detection with files: tests/deploy/detector_test.py.)
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <opencv2/core.hpp>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/worker/data/data_files.h"
#include "tests/worker/tools/tool_run.h"
#include "worker/tools/detect_service.h"

namespace headroom::tools {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kPictureSide = 64;

struct Received {
  ServiceAnswer head;
  std::vector<float> boxes;
  std::string text, pixels;
};

class DetectService : public ::testing::Test {
 protected:
  DetectService() {
    write_weights(weights_, 2, kPictureSide, 0.02);
    image_ = folder_.write("a.bmp", encode_bmp(picture_));
    DetectRequest request;
    request.weights = weights_.string();
    request.nms.confidence_threshold = 0;
    request.nms.max_detections = 5;
    request.resample = "bilinear";
    opened_.emplace(request);
    EXPECT_EQ(::pipe2(in_, O_CLOEXEC), 0);
    EXPECT_EQ(::pipe2(out_, O_CLOEXEC), 0);
    service_ = std::thread([this] {
      try {
        serve_detection(*opened_, in_[0], out_[1]);
      } catch (const Error& error) {
        ending_ = error.what();
      }
      ::close(out_[1]);
    });
    ready_ = receive();
  }
  ~DetectService() override { end(); }

  // Closes the pipe of requests, and waits until the service has ended.
  void end() {
    if (!service_.joinable()) return;
    ::close(in_[1]);
    service_.join();
    ::close(in_[0]);
    ::close(out_[0]);
  }
  void send_bytes(const void* bytes, size_t size) const {
    EXPECT_EQ(::write(in_[1], bytes, size), static_cast<ssize_t>(size));
  }
  Received ask(ServiceRequest request, const std::string& payload) const {
    request.payload = payload.size();
    send_bytes(&request, sizeof request);
    send_bytes(payload.data(), payload.size());
    return receive();
  }
  Received ask_of_path(RequestKind kind, const std::string& path) const {
    return ask({.kind = kind, .number = 1}, path);
  }
  // Announces the test's picture in a request that `change` may alter, and
  // returns the answer.
  template <typename Change>
  Received ask_of_pixels(const Change& change) const {
    ServiceRequest request = {.height = kPictureSide,
                              .width = kPictureSide,
                              .channels = 3,
                              .bits = 8};
    change(request);
    return ask(request, pixels());
  }
  std::string pixels() const {
    return {reinterpret_cast<const char*>(picture_.data),
            picture_.total() * picture_.elemSize()};
  }
  Received receive() const {
    Received got;
    read(&got.head, sizeof got.head);
    got.boxes.resize(got.head.boxes * 6);
    read(got.boxes.data(), got.boxes.size() * sizeof(float));
    got.text.resize(got.head.text);
    read(got.text.data(), got.text.size());
    got.pixels.resize(got.head.pixels);
    read(got.pixels.data(), got.pixels.size());
    return got;
  }
  void read(void* bytes, size_t size) const {
    auto* to = static_cast<char*>(bytes);
    for (size_t done = 0; done < size;) {
      const ssize_t got = ::read(out_[0], to + done, size - done);
      ASSERT_GT(got, 0) << "the service has ended";
      done += static_cast<size_t>(got);
    }
  }

  TemporaryFolder folder_;
  const fs::path weights_ = folder_.path() / "w.safetensors";
  cv::Mat picture_ = test_picture(kPictureSide, kPictureSide, 1);
  fs::path image_;
  std::optional<OpenedDetector> opened_;
  int in_[2], out_[2];
  Received ready_;
  std::string ending_;

 private:
  std::thread service_;
};

TEST_F(DetectService, DescribesTheModelBeforeTheFirstRequest) {
  EXPECT_EQ(ready_.head.kind, AnswerKind::kReady);
  const auto facts = nlohmann::json::parse(ready_.text);
  EXPECT_EQ(facts.at("names").size(), 2u);
  EXPECT_EQ(facts.at("categories"), nlohmann::json({0, 1}));
  EXPECT_EQ(facts.at("height"), kPictureSide);
  EXPECT_EQ(facts.at("channels"), 3);
}

TEST_F(DetectService, PixelsAndTheirFileHaveTheSameBoxes) {
  const Received of_pixels = ask_of_pixels([](ServiceRequest&) {});
  const Received of_file = ask_of_path(RequestKind::kFile, image_.string());
  ASSERT_EQ(of_pixels.head.kind, AnswerKind::kBoxes) << of_pixels.text;
  ASSERT_EQ(of_file.head.kind, AnswerKind::kBoxes) << of_file.text;
  EXPECT_EQ(of_pixels.head.boxes, 5u);
  EXPECT_EQ(of_pixels.boxes, of_file.boxes);
  EXPECT_EQ(of_file.head.height, static_cast<uint32_t>(kPictureSide));
  const std::vector<metrics::Detection> known =
      opened_->detector().detect(picture_);
  ASSERT_EQ(known.size(), 5u);
  EXPECT_EQ(of_file.boxes[0], known[0].box.x1);
  EXPECT_EQ(of_file.boxes[4], known[0].confidence);
  EXPECT_EQ(of_file.boxes[5], static_cast<float>(known[0].class_index));
}

TEST_F(DetectService, ListsASourceAndWhatIsLeftOut) {
  folder_.write("note.jpg", "");
  const Received got = ask_of_path(RequestKind::kList, folder_.path().string());
  EXPECT_EQ(got.head.kind, AnswerKind::kSources) << got.text;
  EXPECT_THAT(got.text, HasSubstr("i" + image_.string() + std::string(1, 0)));
}

TEST_F(DetectService, ABadRequestIsAnsweredAndTheNextOneServed) {
  const Received good = ask_of_pixels([](ServiceRequest&) {});
  const auto check = [&](const Received& got, const std::string& why) {
    EXPECT_EQ(got.head.kind, AnswerKind::kRefused);
    EXPECT_THAT(got.text, HasSubstr(why));
    EXPECT_EQ(ask_of_pixels([](ServiceRequest&) {}).boxes, good.boxes) << why;
  };
  check(ask_of_pixels([](auto& one) { one.channels = 4; }),
        "the model's pictures have 3 channels, but this one has 4");
  check(ask_of_pixels([](auto& one) { one.bits = 16; }),
        "samples have 8 bits, but the picture has 16");
  check(ask_of_pixels([](auto& one) { one.height = 0; }),
        "a picture of 0 x 64 pixels: it may have 1 to");
  // 2^64 pixels and more: the product must not wrap around.
  check(ask_of_pixels([](auto& one) { one.height = one.width = UINT32_MAX; }),
        "a picture of 4294967295 x 4294967295 pixels");
  check(ask_of_pixels([](auto& one) { one.height = kPictureSide + 1; }),
        "the picture has 12480 bytes, but 12288 were announced");
  check(ask_of_path(RequestKind::kFile, ""), "a path has 1 to 65536 bytes");
  check(ask_of_path(RequestKind::kFile,
                    std::string(50'000, 'a') + std::string(50'000, 'b')),
        "but this one has 100000");
  check(ask_of_path(RequestKind::kFile, std::string(5000, 'a')), "aaa");
  check(ask_of_path(RequestKind::kList, std::string(5000, 'a')), "aaa");
  check(ask_of_path(RequestKind::kFile, std::string("a\0b", 3)), "zero byte");
  check(ask_of_path(RequestKind::kFile, weights_.string()), weights_.string());
  check(ask_of_path(RequestKind::kList, "/nowhere/at all"),
        "there is nothing at /nowhere/at all");
  check(ask({.kind = RequestKind::kFrame, .number = 0}, "clip.avi"),
        "frames of a video count from 1");
  check(ask({.kind = static_cast<RequestKind>(9)}, "a"),
        "there is no request of kind 9");
}

TEST_F(DetectService, EndsWithThePipeAlsoInTheMiddleOfARequest) {
  const ServiceRequest request = {.height = kPictureSide,
                                  .width = kPictureSide,
                                  .channels = 3,
                                  .bits = 8,
                                  .payload = kPictureSide * kPictureSide * 3};
  send_bytes(&request, sizeof request);
  send_bytes(picture_.data, 100);
  end();
  EXPECT_EQ(ending_, "");
}

TEST_F(DetectService, WhatIsNoRequestEndsIt) {
  const std::string text = "GET / HTTP/1.1\r\nHost: this is no request\r\n\r\n";
  send_bytes(text.data(), text.size());
  end();
  EXPECT_THAT(ending_,
              HasSubstr("what arrives on standard input is no request"));
}

// If the service answered, the client would blame the picture for the fault.
TEST_F(DetectService, AFailureOfTheNetworkEndsIt) {
  *opened_->weights().model->state().front().tensor = at::zeros({1});
  const ServiceRequest request = {.kind = RequestKind::kFile,
                                  .payload = image_.string().size()};
  send_bytes(&request, sizeof request);
  send_bytes(image_.c_str(), request.payload);
  end();
  EXPECT_THAT(ending_, AllOf(HasSubstr("[detect] the network cannot look at a "
                                       "picture: "),
                             Not(HasSubstr("\n"))));
}

// The service writes no files, so flags about files would have no effect.
TEST(DetectServiceFlags, ThoseAboutFilesAreRefused) {
  const int pipe = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  const int kept = ::dup(STDIN_FILENO);
  ::dup2(pipe, STDIN_FILENO);
  for (const std::string flag :
       {"--save-txt", "--save-json", "--save-crop", "--nosave", "--resume",
        "--hide-conf", "--vid-stride=2"}) {
    const ToolResult said = result_of(find_tool_command("detect"),
                                      {"detect", "--weights=w.safetensors",
                                       "--source=-", "--output=out", flag});
    EXPECT_EQ(said.code, static_cast<int>(ExitCode::kRequest));
    EXPECT_EQ(said.err, "[detect] " + flag.substr(0, flag.find('=')) +
                            " means nothing with --source -, which only sends "
                            "boxes: leave it out");
  }
  ::dup2(kept, STDIN_FILENO);
  ::close(kept);
  ::close(pipe);
}

}  // namespace
}  // namespace headroom::tools
