#include "nimble/passes/mean_by_rows.h"

#include "nimble/passes/test_networks.h"

namespace nimble::testing {
namespace {

using MeanByRows = PassTest;

// mean of all pixels -> average of each row, mean of the rows
TEST_F(MeanByRows, LargeImages) {
  NetworkWriter w;
  const Tensor x = w.input({2, 64, 40, 30});
  w.output(w.op(Reduce{.kind = Reduce::Kind::kMean, .dims = {-1, 2}}, {x}, {2, 64, 1, 1}));
  run(w, mean_by_rows);
  EXPECT_EQ(ops(), "adaptive average pool, mean");
}

TEST_F(MeanByRows, NotSmallOnesOtherDimsOrSums) {
  NetworkWriter w;
  const auto mean = Reduce::Kind::kMean;
  w.output(w.op(Reduce{mean, {2, 3}}, {w.input({1, 8, 5, 5})}, {1, 8, 1, 1}));
  w.output(w.op(Reduce{mean, {1, 2}}, {w.input({2, 64, 40, 30})}, {2, 1, 1, 30}));
  w.output(w.op(Reduce{mean, {2, 3}}, {w.input({2, 4096, 1, 30})}, {2, 4096, 1, 1}));
  w.output(w.op(Reduce{.dims = {2, 3}}, {w.input({2, 64, 40, 30})}, {2, 64, 1, 1}));
  run(w, mean_by_rows);
  EXPECT_EQ(ops(), "mean, mean, mean, sum");
}

}  // namespace
}  // namespace nimble::testing
