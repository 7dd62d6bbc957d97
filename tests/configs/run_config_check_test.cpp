#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "configs/options.h"
#include "configs/run_config.h"
#include "parallel/plan/layout.h"
#include "tests/support/refusal.h"

namespace headroom::configs {
namespace {

using ::testing::HasSubstr;

RunConfig good_config() {
  RunConfig config;
  config.data = "data.yaml";
  return config;
}

std::string refusal(const std::function<void(RunConfig&)>& change) {
  RunConfig config = good_config();
  change(config);
  return testing::refusal_of([&] {
    check_run_config(config);
    check_run_sources(config);
  });
}

TEST(CheckRunConfig, AcceptsGoodRuns) {
  check_run_config(good_config());
  RunConfig config = good_config();
  config.processes = 2;
  config.layout = plan::parse_layout("data=2");
  config.device = "cpu";
  config.hyp.fl_gamma = 1.5;
  config.hyp.perspective = 0.0005;
  config.hyp.degrees = 10;
  config.hyp.shear = 2;
  config.label_smoothing = 0.1;
  check_run_config(config);
  config.processes = 0;
  check_run_config(config);
  config.optimizer = OptimizerKind::kAdamW;
  config.zero_stage = 3;
  for (const char* policy : {"auto", "keep", "lean", "recompute", "offload"}) {
    config.activations = policy;
    check_run_config(config);
  }
  config.layout = plan::parse_layout("data=2,pipeline=3,spatial=4");
  check_run_config(config);
  RunConfig synthetic;
  synthetic.synthetic_input = true;
  check_run_sources(synthetic);
  RunConfig resumed;
  resumed.resume = "latest";
  check_run_sources(resumed);
}

TEST(CheckRunConfig, EveryRangeHasTwoEnds) {
  for (const Option& option : run_options()) {
    if (is_text(option)) continue;
    const bool whole =
        std::holds_alternative<int64_t RunConfig::*>(option.member);
    for (const double bound : {option.range.low, option.range.high}) {
      if (std::abs(bound) == kUnbounded) continue;
      const double beyond = bound + (bound == option.range.low ? -1 : 1);
      if (option.key == "global_batch_size" && beyond == -1) continue;
      const std::string text = refusal([&](RunConfig& config) {
        ASSERT_TRUE(
            set_from_text(config, option,
                          whole ? std::to_string(static_cast<int64_t>(beyond))
                                : std::to_string(beyond)));
      });
      EXPECT_EQ(text.rfind("[config] " + shown_name(option) + " is ", 0), 0u)
          << text;
      EXPECT_THAT(text, HasSubstr("the default is "));
    }
  }
}

struct Refused {
  void (*change)(RunConfig&);
  std::string text;  // the message after "[config] "
};

// `change` makes a valid configuration invalid; the refusal has this text.
class RefusedConfig : public ::testing::TestWithParam<Refused> {};

TEST_P(RefusedConfig, InOneLineWithTheRemedy) {
  EXPECT_EQ(refusal(GetParam().change), "[config] " + GetParam().text);
}

const Refused kRanges[] = {
    {[](RunConfig& c) { c.epochs = 0; },
     "epochs is 0, but must be at least 1 (epochs): the default is 100"},
    {[](RunConfig& c) { c.hyp.mosaic = 1.5; },
     "hyp.mosaic is 1.5, but must be at most 1 (probability): the default is "
     "1"},
    {[](RunConfig& c) { c.processes = -1; },
     "processes is -1, but must be at least 0 (processes): the default is 0"},
    {[](RunConfig& c) { c.image_width = 32; },
     "image_width (--img) is 32, but must be at least 64 (pixels): the default "
     "is 640"},
    {[](RunConfig& c) { c.keep_checkpoints = 1; },
     "keep_checkpoints is 1, but must be at least 2 (checkpoints): the default "
     "is 2"},
    {[](RunConfig& c) { c.global_batch_size = 2'000'000; },
     "global_batch_size (--batch) is 2000000, but must be at most 1000000 "
     "(images): the default is 16, and -1 asks for the most that fits"},
    {[](RunConfig& c) { c.global_batch_size = 0; },
     "global_batch_size (--batch) is 0, but must be at least 1 (images): the "
     "default is 16, and -1 asks for the most that fits"},
    {[](RunConfig& c) { c.zero_stage = 4; },
     "zero_stage (--zero) is 4, but must be at most 3: the default is 0"},
    {[](RunConfig& c) { c.activations = "drop"; },
     "activations is 'drop': use auto, keep, lean, recompute or offload"},
    {[](RunConfig& c) { c.task = "speed"; },
     "task is 'speed': use train, val or test"},
};
INSTANTIATE_TEST_SUITE_P(Ranges, RefusedConfig, ::testing::ValuesIn(kRanges));

const Refused kSources[] = {
    {[](RunConfig& c) { c.data = ""; },
     "there is no data set: give --data DATA.YAML "
     "(configs/data/own_images.yaml explains its lines)"},
    {[](RunConfig& c) { c.command = "val"; },
     "headroom val has no weights to judge: give --weights FILE, for example "
     "runs/train/exp/weights/best.safetensors"},
    {[](RunConfig& c) { c.anchors = "10,13 16; 30,61"; },
     "anchors is '10,13 16; 30,61', which is no list of width,height in "
     "pixels, the same number for each level: write them as '10,13 16,30 "
     "33,23; 30,61 62,45 59,119; ...'"},
    {[](RunConfig& c) {
       c.hyp.anchors = 3.4;
       c.noautoanchor = true;
     },
     "hyp.anchors is 3.4 and asks for anchors found from the boxes, but "
     "--noautoanchor keeps the model's: leave it out, or add --set "
     "hyp.anchors=0"},
    {[](RunConfig& c) {
       c.hyp.anchors = 3;
       c.synthetic_input = true;
     },
     "hyp.anchors is 3 and asks for anchors found from the boxes, but "
     "--synthetic-input has no data set: add --set hyp.anchors=0"},
};
INSTANTIATE_TEST_SUITE_P(Sources, RefusedConfig, ::testing::ValuesIn(kSources));

void ask_for_the_largest_batch(RunConfig& c) {
  c.global_batch_size = kLargestBatch;
}

const Refused kLargestBatches[] = {
    {ask_for_the_largest_batch,
     "--batch -1 asks for the largest batch that fits, but nothing says in "
     "what: give --memory-limit, for example --memory-limit 8GiB"},
    {[](RunConfig& c) {
       ask_for_the_largest_batch(c);
       c.memory_limit = 1 << 30;
       c.micro_batch_size = 4;
     },
     "--batch -1 asks for the largest batch that fits in one piece, but "
     "--micro-batch 4 cuts it, and then any batch fits: leave one of the two "
     "out"},
    {[](RunConfig& c) {
       ask_for_the_largest_batch(c);
       c.command = "val";
     },
     "--batch -1 asks for the largest batch that fits, which is for training: "
     "give the number of images, for example --batch 16"},
};
INSTANTIATE_TEST_SUITE_P(LargestBatch, RefusedConfig,
                         ::testing::ValuesIn(kLargestBatches));

const Refused kSamples[] = {
    {[](RunConfig& c) { c.image_weights = c.rect = true; },
     "--image-weights draws images in any order, but --rect has batches of "
     "like shape: leave one of the two out"},
    {[](RunConfig& c) { c.image_weights = c.synthetic_input = true; },
     "--image-weights weighs images by their labels, but --synthetic-input has "
     "no data set: leave one of the two out"},
    {[](RunConfig& c) {
       c.augment_program = "cat";
       c.synthetic_input = true;
     },
     "--augment-program changes samples of a data set, but --synthetic-input "
     "has none: leave one of the two out"},
    {[](RunConfig& c) { c.random_crop = c.rect = true; },
     "--random-crop makes samples of one size, but --rect has a shape for each "
     "batch: leave one of the two out"},
    {[](RunConfig& c) { c.random_crop = c.synthetic_input = true; },
     "--random-crop is about large images, and those of --synthetic-input are "
     "as large as the network's: leave one of the two out"},
    {[](RunConfig& c) { c.multi_scale = c.rect = true; },
     "--multi-scale gives each batch a size of its own, and --rect one of its "
     "images' shape: leave one of the two out"},
    {[](RunConfig& c) { c.multi_scale = c.synthetic_input = true; },
     "--multi-scale gives each batch a size of its own, but the images of "
     "--synthetic-input have one: leave one of the two out"},
    {[](RunConfig& c) { c.save_conf = true; },
     "--save-conf adds confidences to files that are not written: add "
     "--save-txt, or leave it out"},
    {[](RunConfig& c) {
       c.close_mosaic = 3;
       c.rect = true;
     },
     "--close-mosaic 3 ends mosaics, but --rect has none: leave one of the two "
     "out"},
};
INSTANTIATE_TEST_SUITE_P(Samples, RefusedConfig, ::testing::ValuesIn(kSamples));

void tile(RunConfig& c) {
  c.command = "val";
  c.weights = "w.safetensors";
  c.tile_height = c.tile_width = 640;
}

const Refused kTiles[] = {
    {[](RunConfig& c) {
       tile(c);
       c.command = "train";
     },
     "--tile 640 640 is for headroom val and headroom detect: to train on "
     "tiles, cut them once: headroom tile"},
    {[](RunConfig& c) {
       tile(c);
       c.clip_boxes = false;
     },
     "--tile 640 640 joins boxes that are cut at the image's edge: leave "
     "clip_boxes out"},
    {[](RunConfig& c) {
       tile(c);
       c.tile_width = 0;
     },
     "--tile 640 0 has a side of 0 pixels: give both sides, for example --tile "
     "640"},
    {[](RunConfig& c) {
       tile(c);
       c.precision = Precision::kFp64;
     },
     "--tile 640 640 computes in float32, as headroom detect does: leave "
     "--precision out"},
    {[](RunConfig& c) {
       tile(c);
       c.device = "0";
     },
     "--tile 640 640 looks at tiles on the CPU, but --device is 0: use "
     "--device cpu, or leave --tile out"},
    {[](RunConfig& c) {
       tile(c);
       c.tile_height = c.tile_width = 0;
       c.tile_overlap = 0.5;
     },
     "--tile-overlap 0.5 is about tiles, and there are none: add --tile "
     "PIXELS, or leave it out"},
};
INSTANTIATE_TEST_SUITE_P(Tiles, RefusedConfig, ::testing::ValuesIn(kTiles));

const Refused kDevices[] = {
    {[](RunConfig& c) {
       c.device = "cpu";
       c.cuda_graphs = true;
     },
     "--cuda-graphs captures one network's steps of one shape on a card, but "
     "--device is cpu: leave one of the two out"},
    {[](RunConfig& c) {
       c.device = "0";
       c.cuda_graphs = c.multi_scale = true;
     },
     "--cuda-graphs captures one network's steps of one shape on a card, but "
     "--multi-scale changes it: leave one of the two out"},
    {[](RunConfig& c) {
       c.device = "cpu";
       c.tf32 = true;
     },
     "--tf32 rounds a card's products of float32, but --device is cpu: leave "
     "it out"},
    {[](RunConfig& c) {
       c.tf32 = true;
       c.device = "0";
       c.precision = Precision::kBf16;
     },
     "--tf32 rounds a card's products of float32, but --precision is bf16: "
     "leave it out"},
    {[](RunConfig& c) { c.augment_on = "gpu"; },
     "--augment-on gpu is no place to render samples: use auto, cpu or device"},
    {[](RunConfig& c) {
       c.device = "cpu";
       c.augment_on = "device";
     },
     "--augment-on device renders samples on a card, but --device is cpu: give "
     "--device 0, or leave it out"},
    {[](RunConfig& c) {
       c.augment_on = "device";
       c.device = "0";
       c.synthetic_input = true;
     },
     "--augment-on device renders samples on a card, but --synthetic-input has "
     "none to render: leave it out"},
    {[](RunConfig& c) {
       c.augment_on = "device";
       c.device = "0";
       c.augment_program = "cat";
     },
     "--augment-on device renders samples on a card, but --augment-program "
     "gets "
     "them on the host: leave one of the two out"},
};
INSTANTIATE_TEST_SUITE_P(Devices, RefusedConfig, ::testing::ValuesIn(kDevices));

TEST(CheckRunConfig, WhatGoesTogetherIsAccepted) {
  using Change = void (*)(RunConfig&);
  int index = 0;
  for (const Change change : {
           Change([](RunConfig& c) {
             c.hyp.anchors = 3.4;
             c.anchors = "10,13 16,30";
           }),
           Change([](RunConfig& c) { c.name = "m\xc3\xb6we 2"; }),
           Change([](RunConfig& c) {
             c.image_weights = c.noval = c.single_cls = true;
           }),
           Change([](RunConfig& c) { c.random_crop = true; }),
           Change(tile),
           // An automatic device may turn out to be a card.
           Change([](RunConfig& c) { c.cuda_graphs = c.tf32 = true; }),
           Change([](RunConfig& c) {
             c.tf32 = c.deterministic = true;
             c.device = "0";
           }),
           Change([](RunConfig& c) {
             c.augment_on = "device";
             c.device = "0";
           }),
           Change([](RunConfig& c) {
             c.device = "0";
             c.inject =
                 "oom@rank=0,step=2,allocation=3;kill@rank=0,step=2;"
                 "ballast@rank=0,step=3,bytes=4096;nan@rank=0,step=4";
           }),
       }) {
    EXPECT_EQ(refusal(change), "accepted") << index;
    ++index;
  }
}

TEST(ValidationShare, IsAutomaticOnlyWithManyRanks) {
  RunConfig config;
  EXPECT_EQ(validation_share(config, 1), 0);
  EXPECT_EQ(validation_share(config, kManyRanks - 1), 0);
  EXPECT_EQ(validation_share(config, kManyRanks), kShareOfManyRanks);
  config.image_weights = true;
  EXPECT_EQ(validation_share(config, 512), 0);
  config.image_weights = false;
  config.validation_share = 0;
  EXPECT_EQ(validation_share(config, 512), 0);
  config.validation_share = 0.3;
  EXPECT_EQ(validation_share(config, 1), 0.3);
  EXPECT_THAT(refusal([](RunConfig& c) {
                c.image_weights = true;
                c.validation_share = 0.3;
              }),
              ::testing::HasSubstr("--val-share leaves validations out"));
}

TEST(CheckRunConfig, NamesStayInTheirFolder) {
  for (const char* name : {"", ".", "..", "a/b", "/tmp"}) {
    EXPECT_EQ(refusal([&](RunConfig& c) { c.name = name; }),
              "[config] --name '" + std::string(name) +
                  "' is not the name of a folder: give one word; --project "
                  "names the folder above it");
  }
}

TEST(CheckRunConfig, ControlCharactersInNamesAreRefusedAndNotRepeated) {
  for (const char c : {'\n', '\x1b', '\t', '\x7f'}) {
    const std::string text =
        refusal([&](RunConfig& run) { run.name = std::string("ab") + c; });
    EXPECT_EQ(text, "[config] --name has a control character, byte " +
                        std::to_string(static_cast<int>(c)) +
                        " at place 3: give one word of letters and digits");
  }
}

}  // namespace
}  // namespace headroom::configs
