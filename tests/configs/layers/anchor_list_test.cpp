
#include <gtest/gtest.h>

#include "configs/layers/model_table.h"

namespace headroom::layers {
namespace {

TEST(AnchorListText, IsReadBackExactly) {
  for (const char* const model : {"yolov5n", "yolov5n6"}) {
    const AnchorList anchors = load_model_table(model).anchors;
    EXPECT_EQ(parse_anchor_list(to_text(anchors)), anchors) << model;
  }
  EXPECT_EQ(to_text(load_model_table("yolov5n").anchors),
            "10,13 16,30 33,23; 30,61 62,45 59,119; 116,90 156,198 373,326");
  const AnchorList odd = {{{0.1, 2.0 / 3}}, {{1e-3, 12345.678}}};
  EXPECT_EQ(parse_anchor_list(to_text(odd)), odd);
  EXPECT_EQ(parse_anchor_list(""), AnchorList());
}

TEST(AnchorListText, AnythingElseIsNone) {
  for (const char* const text :
       {" ", ";", "10", "10,13,16", "10,-13", "0,13", "10,13; ", "10,13 x,1",
        "10,13; 16,30 33,23", "nan,1", "10 ,13"}) {
    EXPECT_EQ(parse_anchor_list(text), std::nullopt) << "'" << text << "'";
  }
}

}  // namespace
}  // namespace headroom::layers
