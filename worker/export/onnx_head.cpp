#include "worker/export/onnx_head.h"

#include <numeric>

#include "parallel/base/head_fields.h"
#include "parallel/base/text.h"

namespace headroom::exporter {
namespace {

using Attributes = std::vector<std::pair<std::string, OnnxNode::Attribute>>;

Attributes axis(int64_t value) { return {{"axis", value}}; }
Attributes permutation(std::vector<int64_t> order) {
  return {{"perm", std::move(order)}};
}
constexpr int64_t kToFloat = 1;

using Size = std::variant<int64_t, std::string>;
Size size_or(int64_t size, const std::string& word) {
  return size > 0 ? Size(size) : Size(word);
}

class Head {
 public:
  Head(OnnxGraph& graph, const OnnxHeadOptions& options)
      : graph_(graph),
        options_(options),
        fields_(kFirstClass + options.num_classes) {}

  void add_raw(const OnnxLevel& level, size_t index) {
    const auto anchors = static_cast<int64_t>(level.anchors.size());
    const std::string shape =
        options_.height > 0
            ? graph_.integers(
                  {0, anchors, fields_, rows_of(level), columns_of(level)})
            : graph_.add("Concat",
                         {graph_.integers({0, anchors, fields_}),
                          height_and_width(level.map)},
                         axis(0));
    const std::string map = graph_.add(
        "Transpose", {as_float(graph_.add("Reshape", {level.map, shape}))},
        permutation({0, 1, 3, 4, 2}));
    name_output(map, level_name(index),
                {size_or(options_.batch, "batch"), anchors,
                 size_or(rows_of(level), cat("rows_", index)),
                 size_or(columns_of(level), cat("columns_", index)), fields_});
  }

  // `channels`: of the map. `index`: of the head.
  void add_raw_map(const OnnxLevel& level, const std::string& map,
                   int64_t channels, size_t index) {
    name_output(as_float(map), level_name(index),
                {size_or(options_.batch, "batch"), channels,
                 size_or(rows_of(level), cat("rows_", index)),
                 size_or(columns_of(level), cat("columns_", index))});
  }

  // Returns the level's boxes [N, anchors * H * W, fields].
  std::string decoded(const OnnxLevel& level) {
    const auto anchors = static_cast<int64_t>(level.anchors.size());
    const std::string cells = graph_.add(
        "Transpose",
        {graph_.add("Reshape",
                    {level.map, graph_.integers({0, anchors, fields_, -1})})},
        permutation({0, 1, 3, 2}));
    const std::string scores = graph_.add("Sigmoid", {as_float(cells)});
    const auto parts = graph_.add_many(
        "Split", {scores, graph_.integers({2, 2, fields_ - 4})}, 3, axis(3));
    const std::string two = graph_.floats({2}, {1});
    const std::string centre = graph_.add(
        "Mul",
        {graph_.add("Add", {graph_.add("Mul", {parts[0], two}), grid(level)}),
         graph_.floats({static_cast<float>(level.stride)}, {1})});
    const std::string root = graph_.add("Mul", {parts[1], two});
    std::vector<float> sizes;
    for (const auto& [w, h] : level.anchors) {
      sizes.push_back(static_cast<float>(w));
      sizes.push_back(static_cast<float>(h));
    }
    const std::string size =
        graph_.add("Mul", {graph_.add("Mul", {root, root}),
                           graph_.floats(sizes, {1, anchors, 1, 2})});
    return graph_.add("Reshape",
                      {graph_.add("Concat", {centre, size, parts[2]}, axis(3)),
                       graph_.integers({0, -1, fields_})});
  }

  // Returns the boxes [N, 4 + classes, H * W] of a level without anchors, as
  // model::PlaceHead decodes them.
  std::string decoded_places(const OnnxLevel& level) {
    const std::string logits = graph_.add(
        "Transpose",
        {graph_.add("Reshape",
                    {as_float(level.map),
                     graph_.integers({0, kBoxSides, kDistanceBins, -1})})},
        permutation({0, 2, 1, 3}));
    std::vector<float> bins(kDistanceBins);
    std::iota(bins.begin(), bins.end(), 0.0F);
    const std::string sides = graph_.add(
        "Reshape",
        {graph_.add("Conv", {graph_.add("Softmax", {logits}, axis(1)),
                             graph_.floats(bins, {1, kDistanceBins, 1, 1})}),
         graph_.integers({0, kBoxSides, -1})});
    const auto parts =
        graph_.add_many("Split", {sides, graph_.integers({2, 2})}, 2, axis(1));
    const std::string& low = parts[0];
    const std::string& high = parts[1];
    const std::string stride =
        graph_.floats({static_cast<float>(level.stride)}, {1});
    const std::string shift = graph_.add(
        "Mul", {graph_.add("Sub", {high, low}), graph_.floats({0.5F}, {1})});
    const std::string centre = graph_.add(
        "Mul", {graph_.add("Add", {shift, place_grid(level)}), stride});
    const std::string size =
        graph_.add("Mul", {graph_.add("Add", {low, high}), stride});
    const std::string scores = graph_.add(
        "Sigmoid",
        {graph_.add("Reshape",
                    {as_float(level.classes),
                     graph_.integers({0, options_.num_classes, -1})})});
    return graph_.add("Concat", {centre, size, scores}, axis(1));
  }

  void add_decoded_places(const std::string& boxes, int64_t num_rows) {
    name_output(boxes, "output0",
                {size_or(options_.batch, "batch"),
                 kBoxFields + options_.num_classes, size_or(num_rows, "rows")});
  }

  // From the boxes of all levels without anchors.
  void add_place_detections(const std::string& boxes) {
    const auto parts = graph_.add_many(
        "Split",
        {graph_.add("Transpose", {boxes}, permutation({0, 2, 1})),
         graph_.integers({2, 2, options_.num_classes})},
        3, axis(2));
    add_best(parts[0], parts[1], parts[2]);
  }

  void add_decoded(const std::string& boxes, int64_t num_rows) {
    name_output(
        boxes, "output0",
        {size_or(options_.batch, "batch"), size_or(num_rows, "rows"), fields_});
  }

  void add_detections(const std::string& boxes) {
    const auto parts = graph_.add_many(
        "Split", {boxes, graph_.integers({2, 2, 1, options_.num_classes})}, 4,
        axis(2));
    add_best(parts[0], parts[1], graph_.add("Mul", {parts[2], parts[3]}));
  }

  // As in headroom detect (worker/metrics/nms.h without multi_label): a row has
  // the class of its greatest score, and classes do not suppress each other.
  // `centre` and `size` are [N, rows, 2], `products` [N, rows, classes].
  void add_best(const std::string& centre, const std::string& size,
                const std::string& products) {
    // Scores of all classes but the best become 0, below any threshold.
    const std::string best = graph_.add(
        "ArgMax", {products}, {{"axis", int64_t{2}}, {"keepdims", int64_t{0}}});
    const std::string is_best =
        graph_.add("OneHot", {best, graph_.integer(options_.num_classes),
                              graph_.floats({0, 1}, {2})});
    const std::string scores =
        graph_.add("Transpose", {graph_.add("Mul", {products, is_best})},
                   permutation({0, 2, 1}));  // [N, classes, rows]
    const std::string half =
        graph_.add("Mul", {size, graph_.floats({0.5F}, {1})});
    const std::string corners = graph_.add(
        "Concat",
        {graph_.add("Sub", {centre, half}), graph_.add("Add", {centre, half})},
        axis(2));
    const std::string kept =
        graph_.add("NonMaxSuppression",
                   {corners, scores, graph_.integers({options_.most_per_class}),
                    graph_.floats({options_.iou_threshold}, {1}),
                    graph_.floats({options_.confidence_threshold}, {1})});
    // The rows of `kept` are image, class, row.
    const auto indices = graph_.add_many(
        "Split", {kept, graph_.integers({1, 1, 1})}, 3, axis(1));
    const std::string box = graph_.add(
        "GatherND",
        {corners, graph_.add("Concat", {indices[0], indices[2]}, axis(1))});
    const std::string score = graph_.add(
        "Unsqueeze",
        {graph_.add("GatherND", {scores, kept}), graph_.integers({1})});
    name_output(graph_.add("Concat",
                           {cast_to_float(indices[0]), box, score,
                            cast_to_float(indices[1])},
                           axis(1)),
                "detections", {std::string("found"), int64_t{7}});
  }

  int64_t rows_of(const OnnxLevel& level) const {
    return options_.height / level.stride;
  }
  int64_t columns_of(const OnnxLevel& level) const {
    return options_.width / level.stride;
  }

 private:
  std::string cast_to_float(const std::string& value) {
    return graph_.add("Cast", {value}, {{"to", kToFloat}});
  }
  std::string as_float(const std::string& value) {
    return options_.is_half ? cast_to_float(value) : value;
  }
  std::string height_and_width(const std::string& map) {
    return graph_.add("Slice", {graph_.add("Shape", {map}),
                                graph_.integers({2}), graph_.integers({4})});
  }

  static std::string level_name(size_t index) { return cat("level", index); }

  // Each cell's column and row plus 0.5: [1, 2, H * W].
  std::string place_grid(const OnnxLevel& level) {
    if (options_.height == 0) {
      return coordinates(level, /*offset=*/0.5F, {1, 1, -1}, /*axis=*/1);
    }
    const int64_t rows = rows_of(level), columns = columns_of(level);
    std::vector<float> places;
    for (const bool is_row : {false, true}) {
      for (int64_t y = 0; y < rows; ++y) {
        for (int64_t x = 0; x < columns; ++x) {
          places.push_back(static_cast<float>(is_row ? y : x) + 0.5F);
        }
      }
    }
    return graph_.floats(places, {1, 2, rows * columns});
  }

  // Each cell's column and row minus 0.5: [1, 1, H * W, 2].
  std::string grid(const OnnxLevel& level) {
    if (options_.height > 0) {
      const int64_t rows = rows_of(level), columns = columns_of(level);
      std::vector<float> cells;
      for (int64_t y = 0; y < rows; ++y) {
        for (int64_t x = 0; x < columns; ++x) {
          cells.push_back(static_cast<float>(x) - 0.5F);
          cells.push_back(static_cast<float>(y) - 0.5F);
        }
      }
      return graph_.floats(cells, {1, 1, rows * columns, 2});
    }
    return coordinates(level, /*offset=*/-0.5F, {1, 1, -1, 1}, /*axis=*/3);
  }

  // Each cell's column and row plus `offset`, when the network runs: two values
  // of this shape, joined at `joined_at`.
  std::string coordinates(const OnnxLevel& level, float offset,
                          const std::vector<int64_t>& flat, int64_t joined_at) {
    const std::string shape = height_and_width(level.map);
    const auto along = [&](int64_t which, std::vector<int64_t> as) {
      const std::string size =
          graph_.add("Gather", {shape, graph_.integer(which)}, axis(0));
      const std::string places =
          graph_.add("Range", {graph_.integer(0), size, graph_.integer(1)});
      const std::string centred = graph_.add(
          "Add", {cast_to_float(places), graph_.floats({offset}, {1})});
      const std::string plane = graph_.add(
          "Expand",
          {graph_.add("Reshape", {centred, graph_.integers(as)}), shape});
      return graph_.add("Reshape", {plane, graph_.integers(flat)});
    };
    const std::string columns = along(1, {1, -1});
    const std::string rows = along(0, {-1, 1});
    return graph_.add("Concat", {columns, rows}, axis(joined_at));
  }

  void name_output(const std::string& value, const std::string& name,
                   std::vector<Size> dims) {
    graph_.nodes.push_back({"Identity", {value}, {name}, {}});
    graph_.outputs.push_back({name, OnnxType::kFloat, std::move(dims)});
  }

  OnnxGraph& graph_;
  const OnnxHeadOptions& options_;
  int64_t fields_;
};

void add_place_head(Head& head, OnnxGraph& graph,
                    const std::vector<OnnxLevel>& levels,
                    const OnnxHeadOptions& options) {
  if (options.output == OnnxOutput::kRaw) {
    size_t index = 0;
    for (const OnnxLevel& level : levels) {
      head.add_raw_map(level, level.map, kBoxSides * kDistanceBins, index++);
    }
    for (const OnnxLevel& level : levels) {
      head.add_raw_map(level, level.classes, options.num_classes, index++);
    }
    return;
  }
  std::vector<std::string> parts;
  int64_t num_rows = 0;
  for (const OnnxLevel& level : levels) {
    parts.push_back(head.decoded_places(level));
    num_rows += head.rows_of(level) * head.columns_of(level);
  }
  const std::string boxes = graph.add("Concat", parts, axis(2));
  if (options.output == OnnxOutput::kDecoded) {
    head.add_decoded_places(boxes, num_rows);
  } else {
    head.add_place_detections(boxes);
  }
}

}  // namespace

void add_head(OnnxGraph& graph, const std::vector<OnnxLevel>& levels,
              const OnnxHeadOptions& options) {
  Head head(graph, options);
  if (levels.front().anchors.empty()) {
    add_place_head(head, graph, levels, options);
    return;
  }
  if (options.output == OnnxOutput::kRaw) {
    for (size_t i = 0; i < levels.size(); ++i) head.add_raw(levels[i], i);
    return;
  }
  std::vector<std::string> parts;
  int64_t num_rows = 0;
  for (const OnnxLevel& level : levels) {
    parts.push_back(head.decoded(level));
    num_rows += static_cast<int64_t>(level.anchors.size()) *
                head.rows_of(level) * head.columns_of(level);
  }
  const std::string boxes = graph.add("Concat", parts, axis(1));
  if (options.output == OnnxOutput::kDecoded) {
    head.add_decoded(boxes, num_rows);
  } else {
    head.add_detections(boxes);
  }
}

}  // namespace headroom::exporter
