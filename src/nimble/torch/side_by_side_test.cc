// Programs that amplify rounding, right kernels and faulty ones.
#include "nimble/torch/side_by_side.h"

#include <gtest/gtest.h>

#include <functional>

#include "nimble/kernels/selection.h"
#include "nimble/schedule/build.h"
#include "nimble/torch/native_plan.h"
#include "nimble/torch/rounding.h"
#include "nimble/torch/tensor_conversion.h"
#include "nimble/torch/weights.h"

namespace nimble {
namespace {

using Tensors = std::vector<at::Tensor>;

// A step of training by hand: linear layers, each with a batch norm over a batch of three, which
// amplifies rounding, and a relu. Adagrad's first step is the sign of a gradient.
struct Amplifying {
  static constexpr int kLayers = 24;
  static constexpr int kBatch = 3;
  Tensors weights;
  at::Tensor x;
  double eps = 1e-5;  // of the batch norms
  double scale = 1;   // of each product

  explicit Amplifying(int seed) {
    at::manual_seed(seed);
    for (int i = 0; i < kLayers; ++i) weights.push_back(at::randn({16, 16}));
    x = at::randn({kBatch, 16});
  }

  // Each layer's result and the gradient of its weight; the weights are updated.
  Tensors operator()(const Tensors& in) const {
    Tensors inputs, products, means, inverses, results;
    at::Tensor h = in[0];
    for (const at::Tensor& weight : weights) {
      inputs.push_back(h);
      products.push_back(at::mm(h, weight).mul(scale).view({kBatch, 16, 1, 1}));
      const auto [normal, mean, inverse] = at::native_batch_norm(
          products.back(), {}, {}, {}, {}, /*training=*/true, /*momentum=*/0.1, eps);
      means.push_back(mean);
      inverses.push_back(inverse);
      results.push_back(at::relu(normal));
      h = results.back().view({kBatch, 16});
    }
    at::Tensor gradient = results.back() * 0.01;
    Tensors out = {h.sum()};
    for (size_t i = weights.size(); i-- > 0;) {
      gradient = at::threshold_backward(gradient, results[i], 0);
      gradient = std::get<0>(at::native_batch_norm_backward(gradient, products[i], {}, {}, {},
                                                            means[i], inverses[i], /*train=*/true,
                                                            eps, {true, false, false}));
      gradient = gradient.view({kBatch, 16});
      const at::Tensor of_weight = at::mm(inputs[i].t(), gradient);
      gradient = at::mm(gradient, weights[i].t()).view({kBatch, 16, 1, 1});
      weights[i].sub_(of_weight / of_weight.mul(of_weight).sqrt().add(1e-10), 1e-3);
      out.push_back(of_weight);
    }
    return out;
  }
};

// A kernel whose results are not quite right.
class Faulty : public Kernel {
 public:
  using Fault = std::function<void(at::Tensor&)>;
  Faulty(KernelPtr right, std::vector<std::pair<size_t, TensorDesc>> results, Fault fault)
      : right_(std::move(right)), results_(std::move(results)), fault_(std::move(fault)) {}
  std::string name() const override { return "faulty"; }
  Work work() const override { return right_->work(); }
  size_t scratch_bytes(const Part& part) const override { return right_->scratch_bytes(part); }
  size_t packed_bytes() const override { return right_->packed_bytes(); }
  void pack(void* const* operands, std::byte* packed) const override {
    right_->pack(operands, packed);
  }
  void run(const KernelArguments& arguments) const override {
    right_->run(arguments);
    for (const auto& [operand, desc] : results_) {
      at::Tensor result = at::from_blob(arguments.operands[operand], desc.sizes, desc.strides,
                                        at::TensorOptions().dtype(at::kFloat));
      fault_(result);
    }
  }

 private:
  KernelPtr right_;
  std::vector<std::pair<size_t, TensorDesc>> results_;
  Fault fault_;
};

// The framework's plan of one program and ours of another, which is to be the same.
struct Pair {
  Recording recording;
  std::vector<ResultPolicy> policies;
  Plan framework;
  NativePlan native;
  std::vector<TaskId> recorded_order;

  Pair(const Amplifying& program, const Amplifying& ours)
      : recording(record_calls(program, {program.x})),
        policies(best_policies(recording)),
        framework(std::make_shared<Recording>(on_copies(recording)), policies),
        native(make_native_plan(
            Plan(std::make_shared<Recording>(record_calls(ours, {ours.x})), policies), {})),
        recorded_order(order(framework.graph)) {}

  static std::vector<TaskId> order(const Graph& graph) {
    std::vector<TaskId> tasks;
    for (size_t i = 0; i < graph.ops.size(); ++i) tasks.push_back(TaskId(i));
    return tasks;
  }
  static PlannedSchedule planned(const Plan& plan) {
    const std::vector<double> no_costs(plan.graph.ops.size(), 1.0);
    return {build_schedule(plan.graph, single_stream(plan.graph), no_costs, plan.adopted), 1};
  }

  // `x` as of both programs. Restores what our plan writes.
  PartsJudged judge(const at::Tensor& x) {
    const Plan& ours = *native.plan;
    const std::vector<TaskId> our_order = order(ours.graph);
    const auto values = shared_values(framework.graph, ours.graph, our_order, SIZE_MAX);
    EXPECT_GT(values.size(), 3u * Amplifying::kLayers);
    Tensors before, kept;
    for (const at::Tensor& t : written_tensors(recording, {x})) before.push_back(t.clone());
    const PlannedSchedule schedule = planned(framework);
    Weights weights(ours, {});
    Instance follower(ours, planned(ours), false);
    follower.use(weights.current()->image);
    const auto side_by_side = [&](const Plan& plan, Instance& instance, const auto& tasks,
                                  const auto& shared, std::optional<int> rounding) {
      const Plan again(std::make_shared<Recording>(on_copies(recording)), policies);
      Instance leading(again, schedule, false);
      return run_side_by_side({again, leading, recorded_order, {x.clone()}},
                              {plan, instance, tasks, {x.clone()}}, shared, before, rounding);
    };
    std::vector<Deviation> found = side_by_side(ours, follower, our_order, values, {});
    PartsJudged judged(found, std::vector<double>(found.size(), 1e-5));
    const Tensors now = written_tensors(native.plan->recording, {x});
    for (size_t i = 0; i < now.size(); ++i) now[i].copy_(before[i]);
    for (int variant = 0; variant < 4 && judged.worst(); ++variant) {
      const Plan rounded(std::make_shared<Recording>(on_rounded_copies(recording, variant)),
                         policies);
      Instance instance(rounded, schedule, false);
      judged.add_rounded(side_by_side(rounded, instance, recorded_order,
                                      as_recorded(values, framework.graph), variant));
    }
    return judged;
  }

  // All ops that this kernel of ours runs.
  void break_kernel(size_t kernel, const Faulty::Fault& fault) {
    KernelPtr& chosen = native.plan->kernels[kernel].kernel;
    for (const Op& op : native.plan->graph.ops) {
      if (op.kernel != KernelId(kernel)) continue;
      std::vector<std::pair<size_t, TensorDesc>> results;
      for (size_t i = 0; i < op.operands.size(); ++i) {
        const TensorDesc& desc = native.plan->graph.desc_of(op.operands[i]);
        const bool is_scratch =
            i + 1 == op.operands.size() && chosen->scratch_bytes(chosen->work().whole()) > 0;
        if (op.operands[i].writes && !is_scratch && desc.dtype.bytes == 4)
          results.emplace_back(i, desc);
      }
      chosen = std::make_shared<Faulty>(chosen, results, fault);
      return;
    }
  }
};

double distance_of_free_runs(const Amplifying& program) {
  const Recording recording = record_calls(program, {program.x});
  const auto policies = best_policies(recording);
  Tensors results[2];
  for (int i : {0, 1}) {
    auto copy =
        std::make_shared<Recording>(i == 0 ? on_copies(recording) : on_rounded_copies(recording));
    const Plan plan(copy, policies);
    Instance instance(plan, Pair::planned(plan), false);
    for (const at::Tensor& t : instance.run({program.x})) results[i].push_back(t.clone());
  }
  const at::Tensor& last = results[0].back();
  return ((results[1].back() - last).abs().max() / last.abs().max()).item<double>();
}

class SideBySide : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Seeds, SideBySide, testing::Values(0, 1, 2, 3, 4));

TEST_P(SideBySide, RightKernelsAreRightHoweverMuchTheProgramAmplifies) {
  const at::NoGradGuard no_grad;
  const Amplifying program(GetParam());
  Pair pair(program, program);
  const PartsJudged judged = pair.judge(program.x);
  EXPECT_FALSE(judged.worst()) << judged.error(*judged.worst());
}

TEST(SideBySide, NothingCouldBeSaidOfTheWholeOfThisProgram) {
  const at::NoGradGuard no_grad;
  double most = 0;
  for (int seed : {0, 1, 2, 3, 4}) most = std::max(most, distance_of_free_runs(Amplifying(seed)));
  EXPECT_GT(most, 0.01);
}

TEST(SideBySide, EveryKernelThatIsOffByTwoThousandthsIsFound) {
  const at::NoGradGuard no_grad;
  const Amplifying program(0);
  const size_t kernels = Pair(program, program).native.plan->kernels.size();
  ASSERT_GT(kernels, 3u);
  for (size_t i = 0; i < kernels; ++i) {
    Pair pair(program, program);
    pair.break_kernel(i, [](at::Tensor& result) { result.mul_(1 + 2e-3); });
    EXPECT_TRUE(pair.judge(program.x).worst()) << pair.native.plan->kernels[i].kernel->name();
  }
}

TEST(SideBySide, AProductWithoutItsLastColumnIsFound) {
  const at::NoGradGuard no_grad;
  const Amplifying program(0);
  Pair pair(program, program);
  size_t products = 0;
  for (const Op& op : pair.native.plan->graph.ops) {
    if (!op.attributes || !std::holds_alternative<MatMul>(*op.attributes)) continue;
    Pair broken(program, program);
    if (products++ == 4) break;
    broken.break_kernel(op.kernel.index, [](at::Tensor& result) { result.select(-1, -1).zero_(); });
    EXPECT_TRUE(broken.judge(program.x).worst());
  }
  EXPECT_GT(products, 0u);
}

TEST(SideBySide, AWrongEpsilonIsFound) {
  const at::NoGradGuard no_grad;
  const Amplifying program(0);
  Amplifying other = program;
  other.eps = 1e-3;
  Pair pair(program, other);
  EXPECT_TRUE(pair.judge(program.x).worst());
}

TEST(SideBySide, AFaultOfOnePartIsNotPassedOnToTheNext) {
  const at::NoGradGuard no_grad;
  const Amplifying program(0);
  Amplifying other = program;
  other.scale = 1 + 2e-3;  // which the batch norm behind it takes away
  Pair pair(program, other);
  EXPECT_NEAR(pair.judge(program.x).error(*pair.judge(program.x).worst()), 2e-3, 1e-4);
}

TEST(PartsJudged, WhatCancelsOutMayMoveAsTheFrameworksOwn) {
  const std::vector<Deviation> found = {{1, 1e-5}, {1e-9, 1e-9}, {1, 2e-3}};
  PartsJudged judged(found, {1e-4, 1e-4, 1e-4});
  EXPECT_EQ(judged.worst(), 1u);
  judged.add_rounded({{1, 1e-7}, {1e-9, 2e-9}, {1, 1e-6}});
  EXPECT_EQ(judged.worst(), 2u) << "this one does not cancel out";
  EXPECT_NEAR(judged.moved(2), 1e-6, 1e-9);
}

TEST(PartsJudged, WhatIsNotANumberIsAFault) {
  const double infinite = std::numeric_limits<double>::infinity();
  PartsJudged judged({{1, infinite}, {0, 0}}, {1e-4, 1e-4});
  judged.add_rounded({{1, 0}, {0, 0}});
  EXPECT_EQ(judged.worst(), 0u);
}

}  // namespace
}  // namespace nimble
