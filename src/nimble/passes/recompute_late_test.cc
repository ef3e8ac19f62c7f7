#include "nimble/passes/recompute_late.h"

#include "nimble/passes/test_networks.h"
#include "nimble/passes/tuning.h"

namespace nimble::testing {
namespace {

class RecomputeLate : public PassTest {
 protected:
  // relu(x) is read by two pools with much or little work in between, and x behind the second.
  void write(bool much, bool image_is_read_behind) {
    NetworkWriter w;
    const Tensor x = w.input({1, 3, 4, 4});
    const Tensor made = w.relu(x);
    w.output(w.pool(made, w.pool3x3(Pool::Kind::kMax)));
    w.output(w.scaled(w.input({much ? kForgottenBytes / 4 + 1 : 8}), 2));
    w.output(w.pool(made, w.pool3x3(Pool::Kind::kAverage)));
    if (image_is_read_behind) w.output(w.scaled(x, 3));
    run(w, recompute_late);
  }
};

TEST_F(RecomputeLate, WhatIsReadAgainMuchLater) {
  write(true, true);
  EXPECT_EQ(ops(), "relu, max pool 3x3, mul_scalar, relu, average pool 3x3, mul_scalar");
}

TEST_F(RecomputeLate, NotWhatIsReadAgainSoon) {
  write(false, true);
  EXPECT_EQ(ops(), "relu, max pool 3x3, mul_scalar, average pool 3x3, mul_scalar");
}

// Then that would have to be kept in its place.
TEST_F(RecomputeLate, NotFromAnImageThatIsNotReadBehind) {
  write(true, false);
  EXPECT_EQ(ops(), "relu, max pool 3x3, mul_scalar, average pool 3x3");
}

}  // namespace
}  // namespace nimble::testing
