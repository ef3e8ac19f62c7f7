#include "nimble/passes/distribute_over_concatenation.h"

#include "nimble/passes/fold_constants.h"
#include "nimble/passes/test_networks.h"

namespace nimble::testing {
namespace {

using DistributeOverConcatenation = PassTest;

// relu(concatenation(a, b)) -> concatenation(relu(a), relu(b))
TEST_F(DistributeOverConcatenation, AnActivation) {
  NetworkWriter w;
  const Tensor x = w.input({1, 3, 4, 4});
  const Tensor y = w.relu(w.concatenation({w.convolution(x, 2, 1), x}));
  w.output(w.pool(y, w.pool3x3(Pool::Kind::kMax)));
  run(w, distribute_over_concatenation);
  EXPECT_EQ(graph.ops.size(), 4u);  // two of five channels are not half

  NetworkWriter other;
  const Tensor z = other.input({1, 3, 4, 4});
  other.output(other.relu(other.concatenation({other.convolution(z, 3, 1), z})));
  run(other, distribute_over_concatenation);
  EXPECT_EQ(ops(), "convolution, relu, relu, concatenation");
}

TEST_F(DistributeOverConcatenation, ABatchNormByItsChannels) {
  NetworkWriter w;
  const Tensor x = w.input({2, 3, 4, 4});
  const Tensor a = w.convolution(x, 2, 1);
  const Tensor b = w.convolution(x, 5, 1);
  w.output(w.batch_norm(w.concatenation({a, b})));
  run(w, [](Graph& graph) {
    fold_constants(graph);
    distribute_over_concatenation(graph);
  });
  EXPECT_EQ(ops(), "convolution, convolution, muladd, muladd, concatenation");
}

TEST_F(DistributeOverConcatenation, NotIfOthersReadIt) {
  NetworkWriter w;
  const Tensor x = w.input({1, 3, 4, 4});
  const Tensor a = w.convolution(x, 2, 1);
  const Tensor both = w.concatenation({a, w.convolution(x, 3, 1)});
  w.output(w.relu(both));
  w.output(w.pool(both, w.pool3x3(Pool::Kind::kMax)));
  run(w, distribute_over_concatenation);
  EXPECT_EQ(ops(), "convolution, convolution, concatenation, relu, max pool 3x3");
}

// As in DenseNet: each layer has a batch norm of its own on all that came before.
TEST_F(DistributeOverConcatenation, NotIfOthersReadItsParts) {
  NetworkWriter w;
  const Tensor x = w.input({1, 3, 4, 4});
  const Tensor a = w.convolution(x, 3, 1);
  const Tensor b = w.convolution(w.relu(w.concatenation({x, a})), 3, 1);
  w.output(w.activation(w.concatenation({x, a, b}), {ActivationKind::kSigmoid}));
  run(w, distribute_over_concatenation);
  EXPECT_EQ(ops(), "convolution, concatenation, relu, convolution, concatenation, sigmoid");
}

}  // namespace
}  // namespace nimble::testing
