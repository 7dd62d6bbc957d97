#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/repo/include_rules.h"

namespace headroom {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> forbidden(const std::string& path,
                                   const std::string& line) {
  return forbidden_includes({{path, {line}}});
}

TEST(IncludeDirection, TheProjectKeepsTheRules) {
  const auto files = project_files();
  ASSERT_GT(files.size(), 50u);
  EXPECT_THAT(forbidden_includes(files), IsEmpty());
}

TEST(IncludeDirection, NoFileIncludesTorchWithGrpcOrSpdlog) {
  EXPECT_THAT(meetings_of_torch_and_others(project_files()), IsEmpty());
}

TEST(IncludeDirection, UpwardIncludesAreFound) {
  EXPECT_THAT(
      forbidden("parallel/plan/x.h", "#include \"configs/run_config.h\""),
      ElementsAre("parallel/plan/x.h:1: configs/run_config.h: parallel/plan "
                  "may not include configs"));
  for (const auto& [path, header] :
       std::vector<std::pair<std::string, std::string>>{
           {"configs/x.cpp", "\"parallel/predict/label_bound.h\""},
           {"configs/x.cpp", "<yaml-cpp/yaml.h>"},
           {"configs/x.h", "<ATen/core/Tensor.h>"},
           {"parallel/base/x.cpp", "\"parallel/plan/layout.h\""},
           {"parallel/plan/x.cpp", "<unistd.h>"},
           {"parallel/data_parallel/x.h", "\"worker/model/layer_graph.h\""},
           {"parallel/collectives/x.h", "\"parallel/data_parallel/y.h\""},
           {"worker/model/x.h", "\"parallel/plan/plan.h\""},
           {"worker/loss/x.cpp", "\"worker/step/trainer.h\""},
           {"worker/step/x.cpp", "\"coordinator/run/quorum.h\""},
           {"worker/step/x.cpp", "\"worker/run/training_run.h\""},
           {"worker/run/x.cpp", "\"worker/tools/tool_command.h\""},
           {"parallel/planner/x.cpp", "\"proto/convert.h\""},
           {"worker/main.cpp", "\"worker/model/layer_graph.h\""},
           {"worker/run/x.cpp", "<grpcpp/grpcpp.h>"},
           {"coordinator/run/x.cpp", "\"worker/step/trainer.h\""},
           {"coordinator/run/x.cpp", "<ATen/core/Tensor.h>"},
           {"deploy/cli/x.cpp", "<torch/types.h>"},
           {"deploy/cli/x.cpp", "\"worker/checkpoint/checkpoint.h\""},
           {"proto/x.cpp", "\"coordinator/run/quorum.h\""},
           {"coordinator/run/x.cpp", "\"quorum.h\""},
           {"coordinator/run/x.cpp", "<boost/asio.hpp>"},
           {"parallel/x.h", "<torch/torch.h>"},
           {"tests/parallel/plan/x.cpp", "\"configs/run_config.h\""},
           {"tests/parallel/plan/x.cpp", "\"tests/support/run_ranks.h\""},
           {"tests/parallel/plan/x.cpp", "\"tests/parallel/planets/y.h\""},
           {"newcomer/x.cpp", "<vector>"}}) {
    EXPECT_EQ(forbidden(path, "#include " + header).size(), 1u)
        << path << " " << header;
  }
}

TEST(IncludeDirection, DownwardIncludesAreNot) {
  for (const auto& [path, header] :
       std::vector<std::pair<std::string, std::string>>{
           {"configs/x.cpp", "\"parallel/base/check.h\""},
           {"configs/yaml/yaml_tree.cpp", "<yaml-cpp/parser.h>"},
           {"worker/step/x.cpp", "\"worker/model/layer_graph.h\""},
           {"worker/control/coordinator_client.cpp", "<grpcpp/grpcpp.h>"},
           {"deploy/cli/x.cpp", "\"coordinator/service/server.h\""},
           {"tests/x.cpp", "\"worker/step/trainer.h\""},
           {"tests/parallel/plan/x.cpp", "\"tests/parallel/plan/y/z.h\""},
           {"parallel/plan/x.h", "<vector>"}}) {
    EXPECT_THAT(forbidden(path, "#include " + header), IsEmpty());
  }
}

TEST(IncludeDirection, RoomsMakeNoCircle) {
  EXPECT_THAT(circles_of_rooms(project_files()), IsEmpty());
  const std::vector<SourceFile> files = {{"a/x.h", {"#include \"b/y.h\""}},
                                         {"b/y.h", {"#include <vector>"}},
                                         {"b/z.cpp", {"#include \"c/w.h\""}},
                                         {"c/w.h", {"#include \"a/x.h\""}}};
  EXPECT_THAT(circles_of_rooms(files), ElementsAre("a -> b -> c -> a"));
}

TEST(IncludeDirection, ForbiddenPairsAreFoundThroughHeaders) {
  const std::vector<SourceFile> files = {
      {"worker/a.h", {"#include <ATen/core/Tensor.h>"}},
      {"worker/b.h", {"#include \"worker/a.h\""}},
      {"worker/c.cpp",
       {"#include \"proto/plan.pb.h\"", "#include \"worker/b.h\""}},
      {"worker/d.cpp", {"#include \"proto/plan.pb.h\""}}};
  EXPECT_THAT(meetings_of_torch_and_others(files),
              ElementsAre("worker/c.cpp sees both torch and grpc"));
}

}  // namespace
}  // namespace headroom
