// A number that was once used keeps its name and type forever, because an old
// program reads the messages of a new one by number.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "proto/coordinator.pb.h"

namespace headroom::wire {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FileDescriptor;

std::string fields_of(const Descriptor& message) {
  std::string text;
  for (int i = 0; i < message.field_count(); ++i) {
    const auto& field = *message.field(i);
    text += (i == 0 ? "" : " ") + std::to_string(field.number()) + ":" +
            field.name();
  }
  return text;
}

TEST(FieldNumbers, AreNeverReused) {
  const std::map<std::string, std::string> frozen = {
      {"Stamp", "1:generation 2:run_digest"},
      {"RegisterRequest",
       "1:version 2:node_id 3:hostname 4:launcher_rank 5:worker_ids"},
      {"WatchRequest", "1:version 2:node_id 3:worker_id 4:advertise_host"},
      {"Assignment",
       "1:stamp 2:action 3:rank 4:local_rank 5:world_size "
       "7:run_config_yaml 8:run_directory 9:resume_checkpoint 10:reason "
       "11:local_world_size"},
      {"HeartbeatRequest", "1:stamp 2:node_id 3:worker_id 4:progress"},
      {"HeartbeatResponse",
       "1:stop_requested 2:run_over 3:exit_code 4:reason 5:lost_worker_ids"},
      {"LookupRequest", "1:stamp 2:key 3:timeout_ms"},
      {"ReportFailureRequest",
       "1:stamp 2:worker_id 3:exit_code 4:message 5:committed_steps "
       "7:holds_a_part 8:checkpoint_steps 9:kind 10:can_go_on "
       "11:recorded_epochs"},
      {"ReportExitRequest",
       "1:stamp 2:node_id 3:worker_id 4:exit_code 5:last_words"},
      {"FinishRequest",
       "1:stamp 2:exit_code 3:reason 4:result_json 5:step 6:worker_id"},
  };
  const FileDescriptor& file = *wire::Assignment::descriptor()->file();
  for (const auto& [name, fields] : frozen) {
    const Descriptor* message = file.FindMessageTypeByName(name);
    ASSERT_NE(message, nullptr) << name;
    const std::string now = fields_of(*message);
    EXPECT_EQ(now.substr(0, fields.size()), fields)
        << name << ": add new fields with new numbers at the end";
  }
}

TEST(FieldNumbers, EveryRequestOfAGenerationCarriesItsStamp) {
  const FileDescriptor& file = *wire::Assignment::descriptor()->file();
  // These messages are sent before a run is known, or by a command.
  const std::map<std::string, bool> without = {
      {"RegisterRequest", true},  {"WatchRequest", true},
      {"GetStatusRequest", true}, {"StreamEventsRequest", true},
      {"DrainRequest", true},     {"StopRequest", true}};
  const auto& service = *file.service(0);
  for (int i = 0; i < service.method_count(); ++i) {
    const Descriptor& request = *service.method(i)->input_type();
    EXPECT_EQ(request.FindFieldByName("stamp") == nullptr,
              without.contains(request.name()))
        << request.name();
  }
}

}  // namespace
}  // namespace headroom::wire
