#include "nimble/passes/remove_copies.h"

#include "nimble/passes/test_networks.h"

namespace nimble::testing {
namespace {

class RemoveCopies : public PassTest {
 protected:
  static Tensor copy(NetworkWriter& w, const Tensor& x) { return w.op(Copy{}, {x}, x.desc.sizes); }
};

TEST_F(RemoveCopies, CopiesOfCopiesToo) {
  NetworkWriter w;
  const Tensor x = w.relu(w.input({2, 3}));
  const Tensor again = copy(w, copy(w, x));
  w.output(w.add(w.scaled(again, 2), x));
  run(w, remove_copies);
  EXPECT_EQ(ops(), "relu, mul_scalar, add");
}

TEST_F(RemoveCopies, OfAPartSeenInParts) {
  NetworkWriter w;
  Tensor lower = w.relu(w.input({4, 3}));
  lower.desc.sizes[0] = 2;
  lower.desc.offset = 6;
  Tensor row = copy(w, lower);
  row.desc.sizes[0] = 1;
  row.desc.offset = 3;
  w.output(w.scaled(row, 2));
  run(w, remove_copies);
  EXPECT_EQ(ops(), "relu, mul_scalar");
}

TEST_F(RemoveCopies, NotThoseThatLeaveOrLieElsehow) {
  NetworkWriter w;
  const Tensor x = w.relu(w.input({2, 2}));
  Tensor transposed = x;
  std::swap(transposed.desc.strides[0], transposed.desc.strides[1]);
  w.output(w.scaled(copy(w, transposed), 2));
  w.output(copy(w, x));
  run(w, remove_copies);
  EXPECT_EQ(ops(), "relu, copy, mul_scalar, copy");
}

TEST_F(RemoveCopies, NotOfWhatTheCallerMayChange) {
  NetworkWriter w;
  w.output(w.scaled(copy(w, w.input({2, 2})), 2));
  run(w, remove_copies);
  EXPECT_EQ(ops(), "copy, mul_scalar");
}

}  // namespace
}  // namespace nimble::testing
