// A C++ program without Python: records, replays, refuses.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <thread>

#include "nimble/base/error.h"
#include "nimble/graph/validate.h"
#include "nimble/torch/engine.h"
#include "nimble/torch/inspection.h"
#include "nimble/torch/nimble.h"

namespace nimble {
namespace {

using Tensors = std::vector<at::Tensor>;

// Four convolutions side by side, then a sum.
struct Branches {
  Tensors weights;
  Branches() {
    for (int i = 0; i < 4; ++i) weights.push_back(at::randn({8, 8, 3, 3}));
  }
  Tensors operator()(const Tensors& in) const {
    Tensors parts;
    for (const at::Tensor& w : weights) parts.push_back(at::relu(at::conv2d(in[0], w)));
    return {at::cat(parts, 1).sum({2, 3})};
  }
};

Options streams(int n) {
  Options options;
  options.streams = n;
  return options;
}

TEST(Record, OneStreamOfFrameworkOpsEqualsEagerBitForBitOnNewValues) {
  const at::NoGradGuard no_grad;
  const Branches program;
  Options options = streams(1);
  options.native_kernels = false;
  const Recorded recorded = record(program, {at::randn({1, 8, 16, 16})}, options);
  const at::Tensor x = at::randn({1, 8, 16, 16});
  EXPECT_TRUE(at::equal(recorded({x})[0], program({x})[0]));
}

TEST(Record, OurKernelsAgreeWithEagerOnNewValues) {
  const at::NoGradGuard no_grad;
  const Branches program;
  const Recorded recorded = record(program, {at::randn({1, 8, 16, 16})}, streams(1));
  const at::Tensor x = at::randn({1, 8, 16, 16});
  EXPECT_TRUE(at::allclose(recorded({x})[0], program({x})[0], 1e-4, 1e-5));
}

TEST(Record, ManyStreamsAgreeAndAreProven) {
  const at::NoGradGuard no_grad;
  const Branches program;
  for (int n : {2, 3, 5}) {
    const Recorded recorded = record(program, {at::randn({1, 8, 16, 16})}, streams(n));
    const at::Tensor x = at::randn({1, 8, 16, 16});
    EXPECT_TRUE(at::allclose(recorded({x})[0], program({x})[0], 1e-4, 1e-4));
    EXPECT_TRUE(verify(recorded.engine()).empty());
    EXPECT_TRUE(validate_graph(recorded.engine().plan().graph).empty());
  }
}

TEST(Record, OutputsStayValidUnlessBorrowed) {
  auto twice = [](const Tensors& in) { return Tensors{in[0] * 2}; };
  const at::Tensor one = at::ones({3});
  const Recorded fresh = record(twice, {one});
  const at::Tensor first = fresh({one})[0];
  fresh({one * 5});
  EXPECT_TRUE(at::equal(first, one * 2));
  Options options;
  options.borrowed_outputs = true;
  const Recorded borrowed = record(twice, {one}, options);
  const at::Tensor lent = borrowed({one})[0];
  borrowed({one * 5});
  EXPECT_TRUE(at::equal(lent, one * 10));
}

TEST(Record, WritesTheCallersInput) {
  auto add_one = [](const Tensors& in) { return Tensors{in[0].add_(1)}; };
  const Recorded recorded = record(add_one, {at::zeros({4})});
  const at::Tensor x = at::full({4}, 7.0);
  const Tensors out = recorded({x});
  EXPECT_TRUE(at::equal(x, at::full({4}, 8.0)));
  EXPECT_EQ(out[0].data_ptr(), x.data_ptr());
}

TEST(Record, LeavesWhatExistsAsItWasAndUpdatesItAtEveryReplay) {
  at::Tensor counter = at::zeros({2});
  auto count = [&](const Tensors& in) { return Tensors{counter.add_(in[0]).clone()}; };
  const Recorded recorded = record(count, {at::ones({2})});
  EXPECT_TRUE(at::equal(counter, at::zeros({2})));
  recorded({at::full({2}, 3.0)});
  recorded({at::full({2}, 4.0)});
  EXPECT_TRUE(at::equal(counter, at::full({2}, 7.0)));
}

TEST(Record, AccumulatingIntoAConstantStartsAnewAtEveryReplay) {
  auto accumulate = [](const Tensors& in) {
    at::Tensor total = at::empty({2});
    total.mutable_data_ptr<float>()[0] = 10;  // filled by hand: no op
    total.mutable_data_ptr<float>()[1] = 20;
    return Tensors{total.add_(in[0])};
  };
  const Recorded recorded = record(accumulate, {at::ones({2})});
  for (float value : {1.0F, 5.0F, 1.0F})
    EXPECT_TRUE(
        at::equal(recorded({at::full({2}, value)})[0], at::tensor({10 + value, 20 + value})));
}

TEST(Record, RandomNumbersFollowTheSeed) {
  auto noisy = [](const Tensors& in) {
    return Tensors{in[0] + at::rand({8}), at::dropout(in[0], 0.5, true)};
  };
  const at::Tensor x = at::ones({8});
  const Recorded recorded = record(noisy, {x}, streams(2));
  at::manual_seed(5);
  const Tensors expected[] = {noisy({x}), noisy({x})};
  at::manual_seed(5);
  for (const Tensors& e : expected) {
    const Tensors got = recorded({x});
    EXPECT_TRUE(at::equal(got[0], e[0]));
    EXPECT_TRUE(at::equal(got[1], e[1]));
  }
}

TEST(Record, RefusesValuesReadBackNamingTheOp) {
  auto branch = [](const Tensors& in) {
    return Tensors{in[0].sum().item<float>() > 0 ? in[0] : -in[0]};
  };
  try {
    record(branch, {at::ones({2})});
    FAIL() << "not refused";
  } catch (const Refused& refused) {
    EXPECT_NE(std::string(refused.what()).find("_local_scalar_dense"), std::string::npos)
        << refused.what();
  }
}

TEST(Record, RefusesShapesThatDependOnValues) {
  auto select = [](const Tensors& in) { return Tensors{at::nonzero(in[0])}; };
  EXPECT_THROW(record(select, {at::ones({2})}), Refused);
  auto mask = [](const Tensors& in) { return Tensors{in[0].index({in[0] > 0})}; };
  EXPECT_THROW(record(mask, {at::ones({2})}), Refused);
}

TEST(Record, AWrongInputIsAnErrorAndTheNextCallIsRight) {
  auto twice = [](const Tensors& in) { return Tensors{in[0] * 2}; };
  const Recorded recorded = record(twice, {at::ones({3})});
  EXPECT_THROW(recorded({at::ones({4})}), UserError);
  EXPECT_THROW(recorded({at::ones({3}, at::kDouble)}), UserError);
  EXPECT_THROW(recorded({}), UserError);
  EXPECT_TRUE(at::equal(recorded({at::ones({3})})[0], at::full({3}, 2.0)));
}

TEST(Record, AKernelThatThrowsReachesTheCallerAndTheNextCallIsRight) {
  const at::Tensor table = at::randn({4, 2});
  auto look_up = [&](const Tensors& in) {
    return Tensors{at::index_select(table, 0, in[0]), in[0] + 1};
  };
  const at::Tensor good = at::zeros({2}, at::kLong);
  for (int n : {1, 2}) {
    const Recorded recorded = record(look_up, {good}, streams(n));
    EXPECT_THROW(recorded({good + 9}), c10::Error);
    EXPECT_TRUE(at::equal(recorded({good + 3})[0], at::index_select(table, 0, good + 3)));
  }
}

TEST(Record, TenThreadsGetTheirOwnAnswers) {
  const at::NoGradGuard no_grad;
  const Branches program;
  const Recorded recorded = record(program, {at::randn({1, 8, 16, 16})}, streams(2));
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 10; ++t) {
    threads.emplace_back([&] {
      const at::NoGradGuard no_grad;
      for (int i = 0; i < 20; ++i) {
        const at::Tensor x = at::randn({1, 8, 16, 16});
        if (!at::allclose(recorded({x})[0], program({x})[0], 1e-4, 1e-4)) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(Record, ARecordedProgramCannotRecord) {
  auto nested = [](const Tensors& in) {
    return record([](const Tensors& x) { return x; }, in)(in);
  };
  EXPECT_THROW(record(nested, {at::ones({2})}), UserError);
}

}  // namespace
}  // namespace nimble
