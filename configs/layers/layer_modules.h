// layer_modules: turns a line of the model table into the program of its layer,
// for every module except Detect, whose output is not one map (table_layer.h
// checks it).
//
// deploy/guide/own_models.md lists the modules and their arguments; the
// functions in layer_modules.cpp say what each module computes.
//
// Pruned tables add inner widths to some of these arguments (layer_widths.h).
//
// Errors: Error with the table's file:line:column for an unknown module, wrong
// arguments, maps that do not fit together.
#pragma once

#include <cstdint>
#include <vector>

#include "configs/layers/layer_program.h"
#include "configs/layers/layer_widths.h"
#include "configs/layers/model_table.h"

namespace headroom::layers {

// The program of table.layers[index]. REQUIRES: that layer is not Detect.
LayerProgram layer_program(const ModelTable& table, size_t index,
                           const std::vector<MapShape>& inputs,
                           int64_t num_classes);

// The channels of the convolutions inside table.layers[index].
LayerWidths layer_widths(const ModelTable& table, size_t index,
                         const std::vector<MapShape>& inputs,
                         int64_t num_classes);

}  // namespace headroom::layers
