#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "nimble/graph/graph.h"
#include "nimble/graph/relink.h"
#include "nimble/schedule/random_dag.h"

// Networks as the scheduler gets them for tests: ops on images, split into parts by rows.

namespace nimble::testing {

// Channels of an image that lies in memory pixel by pixel.
struct Image {
  MemoryId memory;
  int64_t height = 1;
  int64_t width = 1;
  int64_t channels = 1;       // of this image
  int64_t first_channel = 0;  // in memory
  int64_t pixel_channels = 1;

  Image slice(int64_t first, int64_t count) const {
    Image sliced = *this;
    sliced.first_channel += first;
    sliced.channels = count;
    return sliced;
  }
};

struct NetworkOp {
  std::vector<Image> inputs;
  Image output;
  int64_t halo = 0;  // rows of the input that a row of the output needs above and below
  size_t parts = 1;
  double cost_ns = 0;  // of all parts
};

class NetworkWriter {
 public:
  static constexpr int64_t kElementBytes = 4;

  Image image(int64_t height, int64_t width, int64_t channels, Role role = Role::kIntermediate) {
    graph_.memories.push_back(
        {.bytes = static_cast<size_t>(height * width * channels * kElementBytes),
         .role = role,
         .buffer = BufferId(graph_.memories.size())});
    return {MemoryId(graph_.memories.size() - 1), height, width, channels, 0, channels};
  }

  void add(const std::string& name, const NetworkOp& op) {
    const int64_t rows = op.output.height;
    const auto parts = static_cast<int64_t>(
        std::clamp<size_t>(op.parts, 1, static_cast<size_t>(std::max<int64_t>(rows, 1))));
    for (int64_t p = 0; p < parts; ++p) {
      const int64_t begin = rows * p / parts;
      const int64_t end = rows * (p + 1) / parts;
      Op& part = graph_.ops.emplace_back();
      part.name = name;
      part.group = groups_;
      if (parts > 1) part.part = Part{begin, end, 0, 1};
      for (const Image& input : op.inputs) {
        // Strided or pooled: a row of the output stands for several of the input.
        const int64_t first = begin * input.height / rows - op.halo;
        const int64_t last = (end * input.height + rows - 1) / rows + op.halo;
        part.operands.push_back(operand(input, first, last, true));
      }
      part.operands.push_back(operand(op.output, begin, end, false));
      costs_.push_back(op.cost_ns * static_cast<double>(end - begin) / static_cast<double>(rows));
    }
    ++groups_;
  }

  Graph finish(const Image& result) {
    graph_.memories[result.memory.index].is_output = true;
    graph_.outputs.push_back({result.memory, view_of(result)});
    relink(graph_);
    return std::move(graph_);
  }

  const std::vector<double>& costs() const { return costs_; }

 private:
  ViewId view_of(const Image& image) {
    TensorDesc desc;
    desc.dtype = {.code = 6, .bytes = kElementBytes, .name = "float32"};
    desc.sizes = {1, image.channels, image.height, image.width};
    desc.strides = {image.height * image.width * image.pixel_channels, 1,
                    image.width * image.pixel_channels, image.pixel_channels};
    desc.offset = image.first_channel;
    graph_.views.push_back({graph_.memories[image.memory.index].buffer, std::move(desc)});
    return ViewId(graph_.views.size() - 1);
  }

  Operand operand(const Image& image, int64_t first_row, int64_t last_row, bool reads) {
    const int64_t row = image.width * image.pixel_channels * kElementBytes;
    const int64_t before = std::max<int64_t>(first_row, 0) * row;
    const int64_t behind = std::max<int64_t>(image.height - last_row, 0) * row;
    Operand made{{}, {}, image.memory, view_of(image), reads, !reads};
    ByteSet bytes = graph_.bytes_touched(made);
    bytes.begin += before;
    bytes.end -= behind;
    made.part_bytes = bytes;
    return made;
  }

  Graph graph_;
  std::vector<double> costs_;
  uint32_t groups_ = 0;
};

struct RandomNetwork {
  Graph graph;
  std::vector<double> costs;
};

// Cells of separable convolutions, pools and sums whose results are channels of one image, each
// cell on the two before it. Ops take 5 to 500 us; parts about `part_ns`.
inline RandomNetwork random_network(std::mt19937& rng, size_t cells, double part_ns) {
  NetworkWriter writer;
  int64_t size = 56;
  int64_t channels = 32;
  const auto parts = [&](double cost) { return static_cast<size_t>(cost / part_ns) + 1; };
  const auto random_cost = [&](double pixels) {
    return pixels * (2 + static_cast<double>(rng() % 1000) / 50) + 2000;
  };
  Image previous = writer.image(size, size, channels, Role::kInput);
  Image current = writer.image(size, size, channels);
  writer.add("stem", {{previous}, current, 1, parts(300000), 300000});
  for (size_t cell = 0; cell < cells; ++cell) {
    if (cell > 0 && cell % 3 == 0 && size > 7) {
      size /= 2;
      channels *= 2;
    }
    const Image joined = writer.image(size, size, 4 * channels);
    std::vector<Image> available;
    for (const Image& source : {previous, current}) {
      const Image adjusted = writer.image(size, size, channels);
      const double cost = random_cost(static_cast<double>(size * size));
      writer.add("adjust", {{source}, adjusted, 0, parts(cost), cost});
      available.push_back(adjusted);
    }
    for (int64_t block = 0; block < 4; ++block) {
      std::vector<Image> branches;
      for (int branch = 0; branch < 2; ++branch) {
        Image source = available[rng() % available.size()];
        const size_t steps = random_between(rng, 0, 2);
        for (size_t step = 0; step < steps; ++step) {
          const Image target = writer.image(size, size, channels);
          const double cost = random_cost(static_cast<double>(size * size));
          const auto halo = static_cast<int64_t>(random_between(rng, 0, 3));
          writer.add("separable", {{source}, target, halo, parts(cost), cost});
          source = target;
        }
        branches.push_back(source);
      }
      const Image sum = joined.slice(block * channels, channels);
      const double cost = random_cost(static_cast<double>(size * size)) / 8;
      writer.add("add", {branches, sum, 0, parts(cost), cost});
      available.push_back(sum);
    }
    previous = current;
    current = joined;
  }
  RandomNetwork network;
  network.costs = writer.costs();
  network.graph = writer.finish(current);
  return network;
}

}  // namespace nimble::testing
