#pragma once

#include <ATen/ATen.h>

#include <optional>
#include <string>
#include <vector>

#include "nimble/graph/graph.h"
#include "nimble/torch/instance.h"
#include "nimble/torch/plan.h"

// How far a plan is from the framework's, part by part.
//
// A program may amplify rounding: after a few layers any two runs of it are far apart, and a small
// fault of a kernel cannot be told from chance. So both plans run side by side, one task at a time.
// Wherever the follower has made a value that the recorded program has as well, the two are
// compared, and the follower goes on with the leader's:
//
//     leader      a ───────► b ───────► c ───────► d
//                 │ copied   │          ·          │
//     follower    a ─► (b) ≟ b ─► (c and d fused) ≟ d
//
// What is compared has come from equal values by one op, or by the few that were fused. Nothing has
// been amplified: a small fault shows, and chaos does not.
namespace nimble {

// A value of the recorded graph that a rewritten graph makes, too.
struct SharedValue {
  ValueId value;        // of the recorded graph
  MemoryId memory;      // of the rewritten one
  TaskId made_by;       // of the rewritten one: then all of it is there
  bool is_ours = true;  // made by kernels of ours; else by the framework's
  std::string name;     // of the op, for people
};

// `order`: of the rewritten graph's tasks, on one thread. A value that is made long before or after
// its turn in the recorded program is left out where all that would have to be kept meanwhile is
// more than so many bytes.
std::vector<SharedValue> shared_values(const Graph& recorded, const Graph& rewritten,
                                       const std::vector<TaskId>& order, size_t most_bytes_kept);
// The same values in the recorded graph itself.
std::vector<SharedValue> as_recorded(const std::vector<SharedValue>& values, const Graph& recorded);

// A plan to be run, on inputs that nobody else has. No two write the same memory.
struct Side {
  const Plan& plan;
  Instance& instance;
  const std::vector<TaskId>& order;
  std::vector<at::Tensor> inputs;
};

// Of numbers: the largest of the leader's, and by how much the two differ at most.
struct Deviation {
  double size = 0;
  double difference = 0;
};

// First of `values`, as the follower has them; then of the outputs and of what was written, where
// the size is that of the change. `before`: what the leader was to write. With a `rounding` the
// follower goes on with values that are rounded differently, in one of several variants.
std::vector<Deviation> run_side_by_side(const Side& leader, const Side& follower,
                                        const std::vector<SharedValue>& values,
                                        const std::vector<at::Tensor>& before,
                                        std::optional<int> rounding = {});

// What was found side by side. A deviation is no fault if it is within the tolerance, or if the
// framework's own kernels move as far when they are given the same values rounded differently: what
// cancels out is nothing but rounding.
class PartsJudged {
 public:
  // `tolerances` by deviation, relative to its size.
  PartsJudged(std::vector<Deviation> found, std::vector<double> tolerances);

  // Of the framework, beside itself with another rounding.
  void add_rounded(const std::vector<Deviation>& deviations);
  // The one that is furthest off of those that nothing explains; none if there are no such.
  std::optional<size_t> worst() const;
  // Relative to its size.
  double error(size_t i) const { return found_[i].difference / found_[i].size; }
  double moved(size_t i) const { return moved_[i] / found_[i].size; }
  double tolerance(size_t i) const { return tolerances_[i]; }

 private:
  std::vector<Deviation> found_;
  std::vector<double> tolerances_;
  std::vector<double> moved_;
};

}  // namespace nimble
