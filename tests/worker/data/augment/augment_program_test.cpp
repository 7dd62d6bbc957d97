#include "worker/data/augment/augment_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <atomic>
#include <cerrno>
#include <cmath>
#include <opencv2/core.hpp>
#include <thread>

#include "parallel/base/text.h"
#include "tests/support/refusal.h"
#include "tests/worker/data/data_files.h"

namespace headroom::augment {
namespace {

using ::testing::HasSubstr;
using Boxes = std::vector<labels::NormalizedBox>;

constexpr SampleId kSample{.seed = 7, .epoch = 3, .sample = 17};

class AugmentProgramTest : public ::testing::Test {
 protected:
  AugmentProgram program(
      const std::string& command,
      std::chrono::seconds patience = std::chrono::seconds(20)) const {
    return AugmentProgram({.command = command,
                           .num_classes = 3,
                           .most_boxes = 4,
                           .patience = patience},
                          [this] { return is_stopped_.load(); });
  }
  // The command that runs this script.
  std::string script(const std::string& text) const {
    return "sh " + folder_.write("program.sh", text).string();
  }
  // Passes a sample with one box through the program.
  void change(AugmentProgram& program) {
    pixels_ = test_picture(40, 50, 1);
    boxes_ = {{2, 0.5, 0.5, 0.2, 0.4}};
    program.change(kSample, pixels_, boxes_);
  }
  std::string refusal(
      const std::string& command,
      std::chrono::seconds patience = std::chrono::seconds(20)) {
    AugmentProgram one = program(command, patience);
    return testing::refusal_of([&] { change(one); }, ExitCode::kData);
  }
  // The refusal of a program that answers with the header as `edit`, a command
  // of sed, makes it, with these bytes for its boxes, and with the pixels.
  std::string refusal_of_answer(const std::string& edit,
                                const std::string& boxes) {
    return refusal(script("read -r header\necho \"$header\" | sed '" + edit +
                          "'\nhead -c 40 >/dev/null\nprintf '" + boxes +
                          "'\ncat\n"));
  }
  // Numbers of a box as bytes for printf.
  static std::string row(const std::vector<double>& numbers) {
    std::string text;
    for (const double number : numbers) {
      const auto* const bytes = reinterpret_cast<const uint8_t*>(&number);
      for (size_t i = 0; i < sizeof number; ++i) {
        const int byte = bytes[i];
        text += cat("\\", byte / 64, byte / 8 % 8, byte % 8);
      }
    }
    return text;
  }

  TemporaryFolder folder_;
  cv::Mat pixels_;
  Boxes boxes_;
  std::atomic<bool> is_stopped_ = false;
};

// cat returns each byte as soon as it has come, before the sample is complete.
TEST_F(AugmentProgramTest, ASampleMayComeBackWhileItIsSent) {
  AugmentProgram cat = program("cat");
  for (const int type : {CV_8UC3, CV_16UC(5)}) {
    cv::Mat sent(900, 1000, type);
    cv::randu(sent, 0, 65536);
    const Boxes boxes = {{2, 0.5, 0.25, 0.125, 0.5},
                         {0, 0.75, 0.5, 0.25, 0.25}};
    cv::Mat pixels = sent.clone();
    Boxes returned = boxes;
    cat.change(kSample, pixels, returned);
    EXPECT_TRUE(same_pixels(pixels, sent));
    EXPECT_EQ(returned, boxes);
    returned.clear();
    cat.change(kSample, pixels, returned);
    EXPECT_TRUE(same_pixels(pixels, sent));
    EXPECT_TRUE(returned.empty());
  }
}

TEST_F(AugmentProgramTest, TheHeaderNamesTheSampleAndItsForm) {
  EXPECT_THAT(
      refusal(script("read -r header; echo \"$header\" >&2; exit 1")),
      HasSubstr(R"({"seed":7,"epoch":3,"index":17,"height":40,"width":50,)"
                R"("channels":3,"dtype":"uint8","boxes":1})"));
}

TEST_F(AugmentProgramTest, BoxesAreClippedAndThoseWithoutAreaAreDropped) {
  AugmentProgram one =
      program(script("read -r header\necho \"$header\" | sed 's/:1}/:3}/'\n"
                     "head -c 40 >/dev/null\nprintf '" +
                     row({1, -10, 10, 25, 30}) + row({0, 60, 0, 70, 10}) +
                     row({2, 5, 5, 5, 9}) + "'\ncat\n"));
  change(one);
  ASSERT_EQ(boxes_.size(), 1u);
  EXPECT_EQ(boxes_[0], (labels::NormalizedBox{1, 0.25, 0.5, 0.5, 0.5}));
}

TEST_F(AugmentProgramTest, WrongAnswersAreRefusedByWhatIsWrong) {
  const std::string good = row({1, 2, 3, 4, 5});
  EXPECT_EQ(refusal(script("echo hello")),
            "[augment] --augment-program 'sh " +
                (folder_.path() / "program.sh").string() +
                "' wrote 'hello' instead of a sample's header (sample 17 of "
                "epoch 3): standard output is for samples: print to standard "
                "error, in Python with file=sys.stderr");
  EXPECT_THAT(refusal("cat /dev/zero"), HasSubstr("instead of a sample's"));
  EXPECT_THAT(refusal("yes"), HasSubstr("wrote 'y' instead of a sample's"));
  EXPECT_THAT(refusal_of_answer("s/:1}/:5}/", ""),
              HasSubstr("returned 5 boxes, and memory is planned for at most 4 "
                        "in a sample, from the labels of the data set"));
  EXPECT_THAT(refusal_of_answer("s/:1}/:1e18}/", ""),
              HasSubstr(R"(answered "boxes": 1e+18 to 1)"));
  EXPECT_THAT(refusal_of_answer("s/:1}/:-1}/", ""),
              HasSubstr(R"(answered "boxes": -1 to 1)"));
  EXPECT_THAT(refusal_of_answer("s/:50,/:51,/", good),
              HasSubstr(R"(answered "width": 51 to 50)"));
  EXPECT_THAT(refusal_of_answer("s/uint8/uint16/", good),
              HasSubstr(R"(answered "dtype": "uint16" to "uint8")"));
  EXPECT_THAT(refusal_of_answer("s/.index.:17,//", good),
              HasSubstr(R"(answered "index": null to 17)"));
  for (const std::vector<double>& box : {std::vector<double>{3, 2, 3, 4, 5},
                                         {-1, 2, 3, 4, 5},
                                         {0.5, 2, 3, 4, 5},
                                         {NAN, 2, 3, 4, 5},
                                         {1, 2, NAN, 4, 5},
                                         {1, 2, 3, INFINITY, 5},
                                         {1, -INFINITY, 3, INFINITY, 5},
                                         {1, 4, 3, 2, 5},
                                         {1, 2, 5, 4, 3}}) {
    const std::string shown = joined(
        box, " ", [](double number) { return significant_text(number, 6); });
    EXPECT_THAT(refusal_of_answer("", row(box)),
                HasSubstr("returned the box " + shown +
                          " (sample 17 of epoch 3): a box is class x1 y1 x2 y2 "
                          "in pixels, with a class below 3, x1 <= x2 and y1 <= "
                          "y2"));
  }
}

// What is left of an answer comes before the next one.
TEST_F(AugmentProgramTest, MoreThanTheHeaderAnnouncesIsRefusedAtTheNextSample) {
  AugmentProgram one =
      program(script("while read -r header; do echo \"$header\" | sed "
                     "'s/:1}/:0}/'; head -c 6040; done"));
  change(one);
  EXPECT_THAT(testing::refusal_of([&] { change(one); }, ExitCode::kData),
              HasSubstr("instead of a sample's header"));
}

TEST_F(AugmentProgramTest, AnAnswerToAnUnreadSampleIsRefused) {
  pixels_ = cv::Mat(2000, 2000, CV_8UC3, cv::Scalar());
  AugmentProgram one = program(
      script("read -r header; echo \"$header\"; cat /dev/zero | head -c "
             "12000000; sleep 30"));
  EXPECT_THAT(testing::refusal_of([&] { one.change(kSample, pixels_, boxes_); },
                                  ExitCode::kData),
              HasSubstr("answered before it had read the sample"));
}

TEST_F(AugmentProgramTest, AnEndIsExplainedByTheLastLineOfStandardError) {
  EXPECT_EQ(refusal(script("echo one >&2; echo two >&2; exit 3")),
            "[augment] --augment-program 'sh " +
                (folder_.path() / "program.sh").string() +
                "' ended: sh failed with code 3: two (sample 17 of epoch 3): "
                "its standard error is in the run's logs folder; correct it");
  EXPECT_THAT(refusal(script("kill -9 $$")),
              HasSubstr("ended: sh was ended by signal 9 (sample"));
  EXPECT_THAT(refusal("true"), HasSubstr("ended: it closed its output"));
  EXPECT_THAT(refusal("no-such-program a"),
              HasSubstr("no-such-program cannot be started: No such file"));
  EXPECT_THAT(refusal(script("head -c 1000; exit 1")),
              HasSubstr("failed with code 1"));
  EXPECT_THAT(refusal(script("yes | head -n 100000 >&2; exit 1")),
              HasSubstr("failed with code 1: y ("));
}

TEST_F(AugmentProgramTest, AProgramThatIsLateIsRefused) {
  const std::chrono::seconds second(1);
  for (const char* const text :
       {"sleep 30", "exec <&-; sleep 30", "head -c 1000; sleep 30",
        "while sleep 0.2; do printf x; done"}) {
    SCOPED_TRACE(text);
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_THAT(refusal(script(text), second),
                HasSubstr("did not return the sample within 1 s"));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 10 * second);
  }
}

TEST_F(AugmentProgramTest, AStoppedLoaderDoesNotWaitForIt) {
  const auto begin = std::chrono::steady_clock::now();
  std::thread stop([this] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    is_stopped_ = true;
  });
  EXPECT_NE(refusal(script("sleep 30")), "accepted");
  stop.join();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
}

TEST_F(AugmentProgramTest, IsStartedAnewAfterAFailure) {
  const auto started = folder_.path() / "started";
  AugmentProgram one = program(
      script("if [ -e " + started.string() + " ]; then exec cat; fi; touch " +
             started.string() + "; head -c 100; exit 1"));
  EXPECT_NE(testing::refusal_of([&] { change(one); }, ExitCode::kData),
            "accepted");
  change(one);
  EXPECT_TRUE(same_pixels(pixels_, test_picture(40, 50, 1)));
}

TEST_F(AugmentProgramTest, HasNoOtherProgramsPipeAndLeavesNoProcess) {
  const std::string list = script("echo $(ls /proc/self/fd) >&2; exit 1");
  const std::string alone = refusal(list);
  EXPECT_THAT(alone, HasSubstr("failed with code 1: 0 1 "));
  {
    AugmentProgram other = program("cat");
    change(other);
    EXPECT_EQ(refusal(list), alone);
  }
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

}  // namespace
}  // namespace headroom::augment
