#include "nimble/torch/gpu_work.h"

#include <algorithm>
#include <string_view>

#include "nimble/base/error.h"

namespace nimble {
namespace {

constexpr int64_t kTile = 64;               // rows and columns of a product that one block computes
constexpr int64_t kElementsPerBlock = 512;  // PyTorch's elementwise kernels
constexpr int64_t kRowsPerBlock = 8;        // of a matrix times a vector: one warp each

int64_t divide_up(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

struct Product {
  int64_t batch = 1;  // matrix products beside each other
  int64_t rows = 1;
  int64_t columns = 1;
  double depth = 1;  // terms of a result

  double flops() const { return 2.0 * static_cast<double>(batch * rows * columns) * depth; }
  int64_t blocks() const {
    const int64_t narrow = std::min(rows, columns);
    if (narrow == 1) return batch * divide_up(rows * columns, kRowsPerBlock);
    return batch * divide_up(rows, kTile) * divide_up(columns, kTile);
  }
};

// Reads and writes an op's tensors by their place among its operands.
class OpView {
 public:
  OpView(const Graph& graph, const Op& op) : graph_(graph), op_(op) {}

  bool is(std::initializer_list<std::string_view> names) const {
    std::string_view name = op_.name;
    name.remove_prefix(std::min(name.size(), std::string_view("aten::").size()));
    name = name.substr(0, name.find('.'));
    return std::find(names.begin(), names.end(), name) != names.end();
  }
  const TensorDesc& operand(size_t i) const { return graph_.desc_of(op_.operands.at(i)); }
  const TensorDesc& result() const {
    for (const Operand& operand : op_.operands)
      if (operand.writes) return graph_.desc_of(operand);
    return operand(0);
  }

  double bytes() const {
    double written = 0;
    for (const Operand& operand : op_.operands)
      if (operand.writes) written += bytes_of_elements(operand);
    double read = 0;
    for (const Operand& operand : op_.operands)
      if (operand.reads)
        read +=
            looks_up() ? std::min(written, bytes_of_elements(operand)) : bytes_of_elements(operand);
    return read + written;
  }
  int64_t elements() const {
    int64_t most = result().numel();
    if (looks_up()) return most;
    for (const Operand& operand : op_.operands)
      most = std::max(most, graph_.desc_of(operand).numel());
    return most;
  }

 private:
  // Reads only some rows of a table.
  bool looks_up() const { return is({"embedding", "index", "index_select", "gather"}); }

  // An expanded tensor has fewer bytes than elements.
  double bytes_of_elements(const Operand& operand) const {
    const TensorDesc& desc = graph_.desc_of(operand);
    const int64_t elements = desc.numel() * desc.dtype.bytes;
    const auto memory = static_cast<int64_t>(graph_.memories[operand.memory.index].bytes);
    return static_cast<double>(std::min(elements, memory));
  }

  const Graph& graph_;
  const Op& op_;
};

int64_t product_of(const std::vector<int64_t>& sizes, size_t begin, size_t end) {
  int64_t product = 1;
  for (size_t i = begin; i < end; ++i) product *= sizes[i];
  return product;
}

// Operands: input [N, I, …], weight [O, I / groups, …].
Product convolution(const OpView& op) {
  const auto& input = op.operand(0).sizes;
  const auto& weight = op.operand(1).sizes;
  const auto& output = op.result().sizes;
  const int64_t groups = std::max<int64_t>(1, input[1] / weight[1]);  // transposed: one
  return {.batch = groups,
          .rows = output[0] * product_of(output, 2, output.size()),
          .columns = weight[0] / groups,
          .depth = static_cast<double>(product_of(weight, 1, weight.size()))};
}

// [B,] M x K by K x N, from the first of its operands.
Product matrix_product(const OpView& op, size_t left) {
  const auto& output = op.result().sizes;
  const size_t rank = output.size();
  return {.batch = rank > 2 ? product_of(output, 0, rank - 2) : 1,
          .rows = rank > 1 ? output[rank - 2] : 1,
          .columns = output.back(),
          .depth = static_cast<double>(op.operand(left).sizes.back())};
}

// softmax(q k^T) v: queries [B, H, L, E], keys [B, H, S, E].
Product attention(const OpView& op) {
  const auto& q = op.operand(0).sizes;
  const auto& k = op.operand(1).sizes;
  const auto& v = op.operand(2).sizes;
  return {.batch = q[0] * q[1],
          .rows = q[2],
          .columns = v[3],
          .depth = static_cast<double>(k[2] * (q[3] + v[3])) / static_cast<double>(v[3])};
}

GpuTask task_of(double flops, double bytes, int64_t blocks) {
  return {flops, bytes, static_cast<uint32_t>(std::clamp<int64_t>(blocks, 1, UINT32_MAX))};
}

GpuTask estimate(const Graph& graph, const Op& recorded) {
  const OpView op(graph, recorded);
  const auto of_product = [&](const Product& product) {
    return task_of(product.flops(), op.bytes(), product.blocks());
  };
  // An op that is given one tensor twice has it as one operand: then it counts as elementwise.
  const size_t operands = recorded.operands.size();
  // A kernel of its own: a thread for each result.
  if (op.is({"convolution", "_convolution", "cudnn_convolution_relu",
             "cudnn_convolution_add_relu"}) &&
      operands >= 3) {
    const Product product = convolution(op);
    if (product.columns > 1) return of_product(product);
    return task_of(product.flops(), op.bytes(), divide_up(op.result().numel(), kElementsPerBlock));
  }
  if (op.is({"addmm", "baddbmm", "addbmm", "addmv"}) && operands >= 3)
    return of_product(matrix_product(op, 1));
  if (op.is({"mm", "bmm", "mv", "linear"}) && operands >= 2)
    return of_product(matrix_product(op, 0));
  if (op.is({"_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention",
             "_scaled_dot_product_attention_math"}) &&
      operands >= 4 && op.operand(0).sizes.size() == 4)
    return of_product(attention(op));
  return task_of(static_cast<double>(op.elements()), op.bytes(),
                 divide_up(op.elements(), kElementsPerBlock));
}

}  // namespace

std::vector<bool> ops_that_compute(const Graph& recorded) {
  // GPUs do 10 to 20 operations in single precision in the time of a byte.
  constexpr double kFlopsPerByte = 10;
  std::vector<bool> computes;
  for (const GpuTask& work : estimate_gpu_work(recorded))
    computes.push_back(work.flops > kFlopsPerByte * work.bytes);
  return computes;
}

std::vector<GpuTask> estimate_gpu_work(const Graph& recorded) {
  std::vector<GpuTask> tasks;
  for (const Op& op : recorded.ops)
    tasks.push_back(op.operands.empty() ? GpuTask{} : estimate(recorded, op));
  return tasks;
}

}  // namespace nimble
