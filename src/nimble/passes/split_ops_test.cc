#include "nimble/passes/split_ops.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "nimble/graph/dump.h"
#include "nimble/graph/validate.h"
#include "nimble/kernels/selection.h"
#include "nimble/passes/choose_layout.h"
#include "nimble/passes/place_concatenations.h"
#include "nimble/passes/test_program.h"

namespace nimble {
namespace {

using testing::ProgramWriter;
using testing::Tensor;

// Our best kernel for each op, as if each took the same time.
struct Kernels {
  std::vector<KernelPtr> list;
  SplitOptions options;

  explicit Kernels(Graph& graph, size_t workers, double cost_ns = 1e6) {
    options.workers = workers;
    for (Op& op : graph.ops) {
      if (!op.attributes) continue;
      std::vector<TensorDesc> descs;
      for (const Operand& operand : op.operands) descs.push_back(graph.desc_of(operand));
      const auto candidates = kernel_candidates(*op.attributes, descs);
      const KernelPtr kernel =
          candidates.empty() ? plain_loops(*op.attributes, descs) : candidates.front();
      op.kernel = KernelId(list.size());
      list.push_back(kernel);
      options.kernels.push_back({kernel->work(), cost_ns, [kernel](const Part& part) {
                                   return kernel->scratch_bytes(part);
                                 }});
    }
  }
};

// Runs the kernels in some order and gives all outputs.
class KernelRunner {
 public:
  KernelRunner(const Graph& graph, const Kernels& kernels) : graph_(graph), kernels_(kernels) {
    for (size_t m = 0; m < graph.memories.size(); ++m) {
      std::mt19937 random(static_cast<unsigned>(m));
      const Role role = graph.memories[m].role;
      const size_t floats = graph.memories[m].bytes / 4;
      memories_.emplace_back(floats + 17, std::nanf(""));
      if (role == Role::kIntermediate || role == Role::kFolded) continue;
      for (size_t i = 0; i < floats; ++i)
        at_boundary(MemoryId(m))[i] = static_cast<float>(random() % 1000) / 500 - 1;
    }
  }

  std::vector<std::vector<float>> run(const std::vector<size_t>& order) {
    for (size_t i : order) run(graph_.ops[i]);
    std::vector<std::vector<float>> outputs;
    for (const Port& port : graph_.outputs) {
      const float* begin = at_boundary(port.memory);
      outputs.emplace_back(begin, begin + graph_.memories[port.memory.index].bytes / 4);
    }
    return outputs;
  }

 private:
  // Of 64 bytes: scratch must be.
  float* at_boundary(MemoryId memory) {
    const auto address = reinterpret_cast<uintptr_t>(memories_[memory.index].data());
    return memories_[memory.index].data() + (64 - address % 64) % 64 / sizeof(float);
  }

  void run(const Op& op) {
    const Kernel& kernel = *kernels_.list[op.kernel.index];
    std::vector<void*> pointers;
    for (const Operand& operand : op.operands)
      pointers.push_back(at_boundary(operand.memory) + graph_.desc_of(operand).offset);
    std::vector<std::byte> packed(kernel.packed_bytes() + 64);
    auto address = reinterpret_cast<uintptr_t>(packed.data());
    std::byte* aligned = packed.data() + (64 - address % 64) % 64;
    kernel.pack(pointers.data(), aligned);
    const Part part = op.part.value_or(kernel.work().whole());
    const bool has_scratch = kernel.scratch_bytes(part) > 0;
    kernel.run({pointers.data(), aligned,
                has_scratch ? static_cast<std::byte*>(pointers.back()) : nullptr, part});
  }

  const Graph& graph_;
  const Kernels& kernels_;
  std::vector<std::vector<float>> memories_;
};

std::vector<size_t> random_order(const Graph& graph, std::mt19937& random) {
  std::vector<size_t> missing(graph.ops.size());
  for (const Edge& edge : graph.edges) ++missing[edge.after.index];
  std::vector<size_t> ready;
  for (size_t i = 0; i < missing.size(); ++i)
    if (missing[i] == 0) ready.push_back(i);
  std::vector<size_t> order;
  while (!ready.empty()) {
    std::swap(ready[random() % ready.size()], ready.back());
    order.push_back(ready.back());
    ready.pop_back();
    for (const Edge& edge : graph.edges)
      if (edge.before.index == order.back() && --missing[edge.after.index] == 0)
        ready.push_back(edge.after.index);
  }
  return order;
}

Chain relu() {
  Chain chain;
  chain.inputs = 1;
  ChainStep& step = chain.steps.emplace_back();
  step.op = ChainOp::kActivation;
  step.x = 0;
  step.activation.kind = ActivationKind::kRelu;
  chain.outputs = {1};
  return chain;
}

Chain add() {
  Chain chain;
  chain.inputs = 2;
  ChainStep& step = chain.steps.emplace_back();
  step.x = 0;
  step.y = 1;
  chain.outputs = {2};
  return chain;
}

Tensor convolve(ProgramWriter& w, const Tensor& x, int64_t channels, int64_t kernel = 3,
                int64_t stride = 1, int64_t groups = 1) {
  const auto& sizes = x.desc.sizes;
  const int64_t padding = kernel / 2;
  const Convolution convolution{
      .stride = {stride, stride}, .padding = {padding, padding}, .groups = groups};
  const auto out = [&](int64_t size) { return (size + 2 * padding - kernel) / stride + 1; };
  return w.op(convolution, {x, w.constant({channels, sizes[1] / groups, kernel, kernel})},
              {sizes[0], channels, out(sizes[2]), out(sizes[3])});
}

Graph split(Graph graph, const Kernels& kernels, std::vector<double>* costs = nullptr) {
  const std::vector<double> result = split_ops(graph, kernels.options);
  EXPECT_EQ(result.size(), graph.ops.size());
  EXPECT_EQ(validate_graph(graph), std::vector<std::string>()) << dump_text(graph);
  if (costs) *costs = result;
  return graph;
}

size_t parts_of(const Graph& graph, uint32_t group) {
  return static_cast<size_t>(std::count_if(graph.ops.begin(), graph.ops.end(),
                                           [&](const Op& op) { return op.group == group; }));
}

// Whether each element of an op's output is in exactly one part.
void expect_cover(const Graph& graph, const Kernels& kernels) {
  for (size_t i = 0; i < graph.ops.size();) {
    const Op& first = graph.ops[i];
    const Work work = kernels.list[first.kernel.index]->work();
    int64_t covered = 0;
    size_t j = i;
    for (; j < graph.ops.size() && graph.ops[j].group == first.group; ++j) {
      const Part part = graph.ops[j].part.value_or(work.whole());
      EXPECT_EQ(part.row_begin % std::max<int64_t>(work.row_grain, 1), 0);
      EXPECT_EQ(part.column_begin % std::max<int64_t>(work.column_grain, 1), 0);
      EXPECT_LT(part.row_begin, part.row_end);
      covered += (part.row_end - part.row_begin) * (part.column_end - part.column_begin);
      for (size_t k = i; k < j; ++k) {
        const Part other = graph.ops[k].part.value_or(work.whole());
        EXPECT_TRUE(other.row_end <= part.row_begin || other.column_end <= part.column_begin);
        const auto edge = Edge{OpId(k), OpId(j)};
        EXPECT_FALSE(std::binary_search(graph.edges.begin(), graph.edges.end(), edge));
      }
    }
    EXPECT_EQ(covered, work.rows * work.columns);
    i = j;
  }
}

TEST(SplitOps, RowsOfAConvolutionAndTheNextOpBeginsEarly) {
  ProgramWriter w;
  const Tensor x = convolve(w, w.input({1, 3, 32, 32}), 32);
  w.output(w.op(relu(), {convolve(w, x, 32)}, {1, 32, 32, 32}));
  Graph graph = w.finish();
  choose_layout(graph);
  ASSERT_EQ(graph.ops.size(), 4U);  // and the output's copy
  const Kernels kernels(graph, 2);
  std::vector<double> costs;
  graph = split(std::move(graph), kernels, &costs);
  ASSERT_EQ(parts_of(graph, 0), 4U);
  ASSERT_EQ(parts_of(graph, 1), 4U);
  expect_cover(graph, kernels);
  const auto has_edge = [&](size_t a, size_t b) {
    return std::binary_search(graph.edges.begin(), graph.edges.end(), Edge{OpId(a), OpId(b)});
  };
  EXPECT_TRUE(has_edge(0, 4));
  EXPECT_TRUE(has_edge(1, 4));  // its first row
  EXPECT_FALSE(has_edge(2, 4));
  EXPECT_FALSE(has_edge(0, 7));
  EXPECT_DOUBLE_EQ(costs[0], 250000);
}

TEST(SplitOps, ColumnsWhereWeightsAreLarge) {
  ProgramWriter w;
  w.output(convolve(w, w.input({1, 256, 8, 8}), 256));
  Graph graph = w.finish();
  choose_layout(graph);
  const Kernels kernels(graph, 2);
  graph = split(std::move(graph), kernels);
  for (const Op& op : graph.ops) {
    if (!attributes_of<Convolution>(op)) continue;
    ASSERT_TRUE(op.part);
    EXPECT_EQ(op.part->row_end, 8);
    EXPECT_EQ(op.part->column_end - op.part->column_begin, 64);
  }
}

TEST(SplitOps, SmallOpsAndOneWorkerStayWhole) {
  for (auto [workers, cost] : {std::pair<size_t, double>{1, 1e9}, {4, 1.9 * kSmallestPartNs}}) {
    ProgramWriter w;
    w.output(convolve(w, w.input({1, 3, 8, 8}), 32));
    Graph graph = w.finish();
    choose_layout(graph);
    const Kernels kernels(graph, workers, cost);
    std::vector<double> costs;
    graph = split(std::move(graph), kernels, &costs);
    EXPECT_EQ(graph.ops.size(), 2U);
    EXPECT_FALSE(graph.ops[0].part);
    EXPECT_EQ(costs[0], cost);
    EXPECT_EQ(graph.ops[1].group, 1U);
  }
}

TEST(SplitOps, OpsOfTheFrameworkStayWhole) {
  ProgramWriter w;
  w.output(w.framework("aten::unknown", {w.input({4})}, {4}));
  Graph graph = w.finish();
  const Kernels kernels(graph, 2);
  std::vector<double> costs;
  graph = split(std::move(graph), kernels, &costs);
  EXPECT_EQ(graph.ops.size(), 1U);
  EXPECT_EQ(costs, std::vector<double>{0});
}

TEST(SplitOps, ScratchIsThePartsOwn) {
  ProgramWriter w;
  const Tensor x = w.input({4, 8});
  w.output(w.op(relu(), {x}, {4, 8}));
  Graph graph = w.finish();
  SplitOptions options;
  options.workers = 2;
  options.kernels.push_back({{.rows = 4, .row_grain = 1, .columns = 1}, 1e6, [](const Part& part) {
                               return static_cast<size_t>(part.row_end - part.row_begin) * 100;
                             }});
  graph.ops[0].kernel = KernelId(0);
  split_ops(graph, options);
  ASSERT_EQ(graph.ops.size(), 4U);
  for (size_t i = 0; i < 4; ++i) {
    const Operand& scratch = graph.ops[i].operands.back();
    EXPECT_EQ(graph.memories[scratch.memory.index].bytes, 100U);
    EXPECT_TRUE(scratch.writes);
    if (i > 0) {
      EXPECT_NE(scratch.memory, graph.ops[i - 1].operands.back().memory);
    }
  }
  EXPECT_TRUE(graph.edges.empty());
}

// A pool that writes over its input: a part would read what another has written.
TEST(SplitOps, AnOpWhosePartsWouldDisturbEachOtherStaysWhole) {
  ProgramWriter w;
  const Tensor x = w.op(relu(), {w.input({1, 8, 6, 6})}, {1, 8, 6, 6});
  w.output(w.op(Pool{.kernel = {3, 3}, .padding = {1, 1}}, {x}, {1, 8, 6, 6}));
  Graph graph = w.finish();
  graph.outputs[0].memory = x.memory;
  graph.memories[x.memory.index].is_output = true;
  graph.ops[1].operands[1] = writing(x.memory, graph.ops[1].operands[0].view);
  relink(graph);
  SplitOptions options;
  options.workers = 2;
  options.kernels.push_back({{.rows = 6, .row_grain = 1, .columns = 8}, 1e6, nullptr});
  graph.ops[1].kernel = KernelId(0);
  split_ops(graph, options);
  EXPECT_EQ(graph.ops.size(), 2U);
}

TEST(SplitOps, PartsInAnyOrderGiveWhatWholeOpsGive) {
  for (unsigned seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    ProgramWriter w;
    const int64_t batch = random() % 4 == 0 ? 3 : 1;
    const int64_t size = 5 + static_cast<int64_t>(random() % 12);
    std::vector<Tensor> tensors = {convolve(w, w.input({batch, 3, size, size}), 16)};
    for (int i = 0; i < 8; ++i) {
      const Tensor x = tensors[tensors.size() - 1 - random() % std::min<size_t>(tensors.size(), 3)];
      const auto& sizes = x.desc.sizes;
      switch (random() % 7) {
        case 0:
          tensors.push_back(convolve(w, x, 8 + 8 * (random() % 9)));
          break;
        case 1:
          tensors.push_back(convolve(w, x, 8 + 8 * (random() % 9), 1, 1 + random() % 2));
          break;
        case 2:
          tensors.push_back(convolve(w, x, sizes[1], 3, 1 + random() % 2, sizes[1]));
          break;
        case 3:
          tensors.push_back(w.op(relu(), {x}, sizes));
          break;
        case 4:
          tensors.push_back(w.op(add(), {x, convolve(w, x, sizes[1])}, sizes));
          break;
        case 5: {
          const Tensor y = convolve(w, x, 24, 1);
          std::vector<int64_t> both = sizes;
          both[1] += 24;
          tensors.push_back(w.op(Concatenation{1}, {x, y}, both));
          break;
        }
        default: {  // channels as features of tokens
          Tensor rows = x;
          const int64_t pixels = sizes[2] * sizes[3];
          rows.desc.sizes = {batch, pixels, sizes[1]};
          rows.desc.strides = {pixels * sizes[1], 1, pixels};
          const Tensor product = w.op(MatMul{.constant_b = true},
                                      {rows, w.constant({1, sizes[1], 40})}, {batch, pixels, 40});
          w.output(w.op(Softmax{}, {product}, {batch, pixels, 40}));
        }
      }
    }
    w.output(tensors.back());
    Graph graph = w.finish();
    choose_layout(graph);
    place_concatenations(graph);
    const Kernels kernels(graph, 2 + random() % 3);
    const Graph whole = [&] {
      Kernels one = kernels;
      one.options.workers = 1;
      return split(graph, one);
    }();
    std::vector<size_t> in_order(whole.ops.size());
    for (size_t i = 0; i < in_order.size(); ++i) in_order[i] = i;
    const auto expected = KernelRunner(whole, kernels).run(in_order);
    const Graph divided = split(graph, kernels);
    expect_cover(divided, kernels);
    EXPECT_GT(divided.ops.size(), whole.ops.size());
    for (int round = 0; round < 3; ++round) {
      const auto actual = KernelRunner(divided, kernels).run(random_order(divided, random));
      for (size_t i = 0; i < expected.size(); ++i)
        ASSERT_EQ(std::memcmp(actual[i].data(), expected[i].data(), expected[i].size() * 4), 0);
    }
  }
}

}  // namespace
}  // namespace nimble
