// Teacher: a trained network from which a smaller network learns (--teacher;
// loss/distillation.h). It runs in evaluation mode, without gradients, on the
// images of each micro-batch, so its heads do not depend on the layout.
//
// Every rank has the whole teacher under every ZeRO stage. The planner refuses
// pipelines and split images.
//
// Ownership: owns its weights. Threads: the training thread. Errors: open() and
// check() throw Error (exit 2). open() throws if the run is not on the CPU, if
// the file has changed since the run began, or if its value range differs from
// the run's. check() throws if classes, bands, strides or anchors differ from
// the student's.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "configs/run_config.h"
#include "parallel/devices/compute_device.h"
#include "worker/model/layer_graph.h"

namespace headroom::step {

class Teacher {
 public:
  explicit Teacher(std::unique_ptr<model::LayerGraph> model);

  // REQUIRES: a teacher in `config`.
  static std::unique_ptr<Teacher> open(const configs::RunConfig& config,
                                       const devices::ComputeDevice& device);

  // Throws Error if the teacher cannot teach `student`. Both need the same
  // number of classes and of bands, and the same levels with the same anchors.
  // Anchors are a part of the weights, so load the student's weights first.
  void check(const model::LayerGraph& student) const;

  std::vector<at::Tensor> heads(const at::Tensor& images);

 private:
  std::unique_ptr<model::LayerGraph> model_;
};

}  // namespace headroom::step
