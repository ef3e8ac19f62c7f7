#include "nimble/kernels/chain_program.h"

#include <optional>
#include <utility>

namespace nimble {
namespace {

using Form = ChainLoop::Form;

bool may_clamp(const ChainLoop& loop) {
  if (loop.form != Form::kStep) return loop.form != Form::kMove;
  switch (loop.step.op) {
    case ChainOp::kAdd:
    case ChainOp::kSub:
    case ChainOp::kMul:
    case ChainOp::kMulAdd:
    case ChainOp::kAddScalar:
    case ChainOp::kMulScalar:
      return true;
    default:
      return false;
  }
}

bool is_clamp(const ChainStep& step) {
  return step.op == ChainOp::kActivation && (step.activation.kind == ActivationKind::kRelu ||
                                             step.activation.kind == ActivationKind::kClamp);
}

class Joiner {
 public:
  explicit Joiner(const Chain& chain) : chain_(chain) {
    const size_t registers = static_cast<size_t>(chain.inputs) + chain.steps.size();
    uses_.resize(registers);
    loops_.resize(registers);
    for (size_t i = 0; i < chain.steps.size(); ++i) {
      ChainLoop& loop = loops_[static_cast<size_t>(chain.inputs) + i].emplace();
      loop.step = chain.steps[i];
      for (int value : reads_of(loop).registers)
        if (value >= 0) ++uses_[static_cast<size_t>(value)];
    }
    for (int value : chain.outputs) ++uses_[static_cast<size_t>(value)];
  }

  std::vector<ChainProgramLoop> run() {
    drop_unused();
    for (size_t i = static_cast<size_t>(chain_.inputs); i < loops_.size(); ++i)
      if (loops_[i]) join_behind_others(*loops_[i]);
    std::vector<ChainProgramLoop> program;
    for (size_t i = 0; i < loops_.size(); ++i)
      if (loops_[i]) program.push_back({*loops_[i], static_cast<int>(i)});
    return program;
  }

 private:
  void drop_unused() {
    for (size_t i = loops_.size(); i-- > static_cast<size_t>(chain_.inputs);) {
      if (uses_[i] != 0) continue;
      for (int value : reads_of(*loops_[i]).registers)
        if (value >= 0) --uses_[static_cast<size_t>(value)];
      loops_[i].reset();
    }
  }

  // The loop that makes a register, if it may become part of the register's only reader.
  ChainLoop* joinable(int value) {
    auto& loop = loops_[static_cast<size_t>(value)];
    return loop && uses_[static_cast<size_t>(value)] == 1 && !loop->clamps ? &*loop : nullptr;
  }
  ChainLoop* joinable(int value, ChainOp op) {
    ChainLoop* loop = joinable(value);
    return loop && loop->form == Form::kStep && loop->step.op == op ? loop : nullptr;
  }

  void replace(int joined, ChainLoop& loop, const ChainLoop& by) {
    loop = by;
    loops_[static_cast<size_t>(joined)].reset();
  }

  void join_behind_others(ChainLoop& loop) {
    const ChainStep step = loop.step;
    if (is_clamp(step)) {
      ChainLoop* producer = joinable(step.x);
      if (!producer || !may_clamp(*producer)) return;
      ChainLoop joined = *producer;
      joined.clamps = true;
      if (step.activation.kind == ActivationKind::kRelu) {
        joined.low = 0;
      } else {
        joined.low = step.activation.a;
        joined.high = step.activation.b;
      }
      replace(step.x, loop, joined);
    } else if (step.op == ChainOp::kAddScalar) {
      ChainLoop* producer = joinable(step.x, ChainOp::kMulScalar);
      if (!producer) return;
      ChainLoop joined = *producer;
      joined.form = Form::kAffine;
      joined.addend = step.value;
      replace(step.x, loop, joined);
    } else if (step.op == ChainOp::kAdd) {
      if (!join_with_operand(loop, ChainOp::kMul, Form::kMulThenAdd))
        join_with_operand(loop, ChainOp::kAdd, Form::kAddThenAdd);
    } else if (step.op == ChainOp::kMul) {
      join_with_operand(loop, ChainOp::kSub, Form::kSubThenMul);
    }
  }

  // A step of two operands in either order, one of which such an op makes.
  bool join_with_operand(ChainLoop& loop, ChainOp op, Form form) {
    const ChainStep step = loop.step;
    if (step.x == step.y) return false;
    for (const auto& [value, other] : {std::pair{step.x, step.y}, std::pair{step.y, step.x}}) {
      ChainLoop* producer = joinable(value, op);
      if (!producer) continue;
      ChainLoop joined = *producer;
      joined.form = form;
      joined.step.z = other;
      replace(value, loop, joined);
      return true;
    }
    return false;
  }

  const Chain& chain_;
  std::vector<int> uses_;                        // by register
  std::vector<std::optional<ChainLoop>> loops_;  // by the register it makes
};

}  // namespace

std::vector<ChainProgramLoop> chain_program(const Chain& chain) {
  return Joiner(chain).run();
}

ChainReads reads_of(const ChainLoop& loop) {
  const ChainStep& step = loop.step;
  switch (loop.form) {
    case Form::kMove:
    case Form::kAffine:
      return {{step.x, -1, -1}};
    case Form::kMulThenAdd:
    case Form::kAddThenAdd:
    case Form::kSubThenMul:
      return {{step.x, step.y, step.z}};
    case Form::kStep:
      break;
  }
  const int count = register_count(step.op);
  return {{step.x, count > 1 ? step.y : -1, count > 2 ? step.z : -1}};
}

}  // namespace nimble
