// Tests how a worker chooses its card, and how it detects that the card failed.
#include "worker/run/card_fault.h"

#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "parallel/base/check.h"
#include "tests/support/test_device/streams.h"
#include "tests/support/test_device/test_device_api.h"
#include "worker/step/fault_injection.h"
#include "worker/step/weight_check.h"

namespace headroom::run {
namespace {

using ::testing::HasSubstr;
using Kind = CardFault::Kind;
using Phase = configs::Fault::Phase;

CardFault fault_of(int index, const CardRecord& record) {
  try {
    usable_card(test_device_api(), index, record);
  } catch (const CardUnusable& error) {
    return error.fault();
  }
  ADD_FAILURE() << "the card is taken";
  return {};
}

TEST(CardChoice, TheCardOfItsPlaceOrThePredecessorsByUuid) {
  devices::DeviceApi& api = test_device_api();
  EXPECT_EQ(usable_card(api, 1, {}), 1);
  EXPECT_EQ(usable_card(api, 1, {.uuid = "GPU-test-3"}), 3);
  EXPECT_EQ(usable_card(api, 1, {.left_out = {"GPU-test-0"}}), 1);
}

TEST(CardChoice, ACardThatIsLeftOutOrGoneIsNotTaken) {
  const CardFault left_out = fault_of(1, {.left_out = {"GPU-test-1"}});
  EXPECT_EQ(left_out.kind, Kind::kLeftOut);
  EXPECT_EQ(left_out.card.bus_address, "0000:02:00.0");
  const CardFault gone = fault_of(1, {.uuid = "GPU-test-7"});
  EXPECT_EQ(gone.kind, Kind::kGone);
  EXPECT_EQ(gone.card.uuid, "GPU-test-7");
  EXPECT_EQ(gone.words, "the driver lists 4 cards, and not this one");
  EXPECT_EQ(fault_of(9, {.was_listed = true}).kind, Kind::kGone);
}

std::optional<CardFault> fault_behind(const std::exception_ptr& failure,
                                      int index) {
  const devices::ComputeDevice device = test_compute_device(index);
  return card_fault_behind(failure, device,
                           card_of(device.api()->describe(index)));
}

TEST(CardFaults, OtherFailuresAreNoFaultOfTheCard) {
  EXPECT_FALSE(
      fault_behind(std::make_exception_ptr(CommunicationError("gone")), 0));
  EXPECT_FALSE(fault_behind(std::make_exception_ptr(CheckFailure("x")), 0));
  // A full card is no fault.
  EXPECT_FALSE(fault_behind(std::make_exception_ptr(c10::AcceleratorError(
                                {__func__, __FILE__, 1}, 2, "out of memory")),
                            0));
}

// On the CPU there is no card to leave out, so that its process may return.
TEST(CardFaults, ARankThatIsOutvotedHasAWrongCard) {
  const auto difference = [](int rank) {
    return std::make_exception_ptr(step::WeightsDiffer(
        {.wrong = {1}, .undecided = {}, .reason = "rank 1"}, rank, 6));
  };
  const auto fault = fault_behind(difference(1), 2);
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->kind, Kind::kWrong);
  EXPECT_EQ(fault->card.uuid, "GPU-test-2");
  EXPECT_EQ(fault->words, "after 6 steps rank 1");
  EXPECT_FALSE(fault_behind(difference(0), 2));
  const auto of_cpu =
      card_fault_behind(difference(1), devices::ComputeDevice(), {});
  ASSERT_TRUE(of_cpu);
  EXPECT_EQ(of_cpu->kind, Kind::kFailed);
  EXPECT_EQ(to_string(of_cpu->card), "CPU");
}

TEST(CardFaults, AnErrorOfACallIsOneInItsFirstLine) {
  const auto fault = fault_behind(
      std::make_exception_ptr(c10::AcceleratorError(
          {__func__, __FILE__, 1}, 46, "CUDA error: busy\nCompile with")),
      0);
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->words, "CUDA error: busy");
}

// The card's error is found whatever error the process reports first, even if
// NCCL blames a peer.
TEST(CardFaults, AnInjectedErrorStaysAndIsFoundBehindAnyFailure) {
  const devices::ComputeDevice device = test_compute_device(2);
  step::FaultInjection faults(
      configs::parse_faults("device_error@rank=0,step=3,phase=backward"),
      device, 0);
  at::Tensor tensor = at::zeros({4}, device.options(at::kFloat));
  faults.strike(Phase::kForward, 3);
  faults.strike(Phase::kBackward, 2);
  TestStreams::instance().finish_device(2);
  EXPECT_FALSE(device.api()->failure(2));
  faults.strike(Phase::kBackward, 3);
  tensor.add_(1);
  for (int i = 0; i < 2; ++i) {
    EXPECT_THROW(TestStreams::instance().finish_device(2),
                 c10::AcceleratorError);
  }
  const auto fault =
      fault_behind(std::make_exception_ptr(CommunicationError("a peer")), 2);
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->kind, Kind::kFailed);
  EXPECT_EQ(to_string(fault->card), "test device (GPU-test-2, 0000:03:00.0)");
  EXPECT_THAT(fault->words, HasSubstr("unspecified launch failure"));
  // Other cards work.
  EXPECT_FALSE(device.api()->failure(1));
}

TEST(CardFaults, ASuccessorSkipsInjectedErrorsOfEarlierSteps) {
  const devices::ComputeDevice device = test_compute_device(3);
  step::FaultInjection faults(
      configs::parse_faults("device_error@rank=0,step=3"), device, 0,
      /*first_step=*/3);
  faults.strike(Phase::kForward, 3);
  TestStreams::instance().finish_device(3);
  EXPECT_FALSE(device.api()->failure(3));
}

TEST(CardFaults, AreRefusedWhereThereIsNoCardOrNoNccl) {
  const auto inject = [](const std::string& text,
                         const devices::ComputeDevice& device) {
    step::FaultInjection(configs::parse_faults(text), device, 1);
  };
  EXPECT_THROW(inject("device_error@rank=0,step=3", {}), Error);
  EXPECT_THROW(inject("device_error@rank=0,step=3,phase=collective",
                      test_compute_device(0)),
               Error);
  EXPECT_NO_THROW(inject("device_error@rank=0,step=3", test_compute_device(0)));
}

}  // namespace
}  // namespace headroom::run
