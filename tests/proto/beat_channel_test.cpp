#include "proto/beat_channel.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <thread>

#include "proto/beat_answer.h"

namespace headroom::wire {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

Beat beat_of(uint64_t generation) {
  Beat beat;
  beat.generation = generation;
  return beat;
}

TEST(BeatChannel, RecordsComeWholeAndInOrder) {
  auto [agent, worker] = BeatChannel::make_pair();
  EXPECT_FALSE(agent.receive<Beat>({}));
  for (const uint64_t generation : {1, 2}) {
    EXPECT_TRUE(worker.send(beat_of(generation)));
  }
  for (const uint64_t generation : {1, 2}) {
    const auto beat = agent.receive<Beat>(seconds(1));
    ASSERT_TRUE(beat);
    EXPECT_EQ(beat->generation, generation);
  }
  EXPECT_FALSE(agent.receive<Beat>({}));
  EXPECT_TRUE(agent.is_open());
}

TEST(BeatAnswer, ALongRefusalIsCutBetweenCharacters) {
  std::string text;
  while (text.size() < 1000) text += "\u20ac";  // three bytes
  const BeatAnswer answer =
      answer_to(beat_of(1), grpc::Status(grpc::StatusCode::ABORTED, text), {});
  EXPECT_EQ(std::string(answer.refusal), text.substr(0, 396) + "...");
}

TEST(BeatChannel, ASlowReaderIsNotWaitedFor) {
  auto [agent, worker] = BeatChannel::make_pair();
  int sent = 0;
  while (worker.send(beat_of(1)) && sent < 100'000) ++sent;
  EXPECT_GT(sent, 20) << "five seconds of beats";
  EXPECT_LT(sent, 100'000);
  EXPECT_TRUE(worker.is_open()) << "it may read again";
  while (agent.receive<Beat>({})) {
  }
  EXPECT_TRUE(worker.send(beat_of(1)));
}

TEST(BeatChannel, TheEndOfOneIsSeenByTheOther) {
  auto [agent, worker] = BeatChannel::make_pair();
  agent = BeatChannel();
  EXPECT_FALSE(worker.receive<BeatAnswer>(seconds(1)));
  EXPECT_FALSE(worker.is_open());
  EXPECT_FALSE(worker.send(beat_of(1)));
}

TEST(BeatChannel, ClosingTheSocketEndsAWait) {
  auto [agent, worker] = BeatChannel::make_pair();
  std::thread other([&ends = worker] {
    std::this_thread::sleep_for(milliseconds(50));
    ends.hang_up();
  });
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_FALSE(worker.receive<BeatAnswer>(seconds(10)));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(5));
  other.join();
}

TEST(BeatChannel, OnlyAnAgentsSocketIsTakenFromTheEnvironment) {
  unsetenv(kBeatChannelVariable);
  EXPECT_FALSE(BeatChannel::from_environment().is_open());
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  for (const std::string& number :
       {std::to_string(pipe_ends[0]), std::string("12345"), std::string("x")}) {
    setenv(kBeatChannelVariable, number.c_str(), 1);
    EXPECT_FALSE(BeatChannel::from_environment().is_open()) << number;
    EXPECT_EQ(getenv(kBeatChannelVariable), nullptr);
  }
  auto [agent, worker] = BeatChannel::make_pair();
  setenv(kBeatChannelVariable, std::to_string(dup(worker.fd())).c_str(), 1);
  BeatChannel taken = BeatChannel::from_environment();
  EXPECT_TRUE(taken.send(beat_of(3)));
  EXPECT_EQ(agent.receive<Beat>(seconds(1))->generation, 3u);
  close(pipe_ends[0]);
  close(pipe_ends[1]);
}

}  // namespace
}  // namespace headroom::wire
