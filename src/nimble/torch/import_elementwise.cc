#include "nimble/torch/import_elementwise.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "nimble/passes/chain_steps.h"
#include "nimble/torch/import_table.h"

namespace nimble {
namespace {

// What stands in an expression: a number, or a register of the chain.
struct Term {
  std::optional<double> number;
  int reg = 0;
};

Term number(double value) {
  return {value, 0};
}

// The chain for one element of a call on lists, or for a call on tensors (`element` -1).
class Expression {
 public:
  Expression(CallReader& call, int32_t element)
      : call_(call), element_(element), result_(call.result_of(element)) {}

  // An argument: a tensor, a number, or a live one, which is a tensor of one element to a chain.
  // Whatever does not fit makes the whole expression invalid.
  Term argument(size_t position) {
    if (auto live = call_.live_of(position, element_)) {
      ++live_numbers_;
      return tensor(std::move(*live));
    }
    if (auto operand = call_.tensor_of(position, element_)) return tensor(std::move(*operand));
    if (const auto value = call_.number_of(position, element_)) return number(*value);
    return invalid();
  }
  Term argument_or(size_t position, double otherwise) {
    return call_.has(position) ? argument(position) : number(otherwise);
  }
  Term invalid() {
    is_valid_ = false;
    return number(0);
  }

  Term apply(ChainOp op, Term x) { return push(chain_step(op, as_register(x))); }
  Term apply(ChainOp op, Term x, Term y) {
    return push(chain_step(op, as_register(x), as_register(y)));
  }
  Term with_number(ChainOp op, Term x, double value) {
    return push(scalar_step(op, as_register(x), static_cast<float>(value)));
  }

  Term add(Term x, Term y) {
    if (x.number && y.number) return number(*x.number + *y.number);
    if (x.number) std::swap(x, y);
    return y.number ? with_number(ChainOp::kAddScalar, x, *y.number) : apply(ChainOp::kAdd, x, y);
  }
  Term subtract(Term x, Term y) {
    if (y.number) return add(x, number(-*y.number));
    return x.number ? with_number(ChainOp::kRsubScalar, y, *x.number) : apply(ChainOp::kSub, x, y);
  }
  Term multiply(Term x, Term y) {
    if (x.number && y.number) return number(*x.number * *y.number);
    if (x.number) std::swap(x, y);
    if (y.number == 1.0) return x;
    return y.number ? with_number(ChainOp::kMulScalar, x, *y.number) : apply(ChainOp::kMul, x, y);
  }
  Term divide(Term x, Term y) {
    if (x.number && !y.number) return with_number(ChainOp::kRdivScalar, y, *x.number);
    if (!y.number) return apply(ChainOp::kDiv, x, y);
    const auto inverse = 1.0f / static_cast<float>(*y.number);
    return std::isnormal(inverse) ? multiply(x, number(inverse)) : invalid();
  }
  // x * y + z
  Term multiply_add(Term x, Term y, Term z) {
    if (x.number || y.number || z.number) return add(multiply(x, y), z);
    return push(chain_step(ChainOp::kMulAdd, x.reg, y.reg, z.reg));
  }
  Term lerp(Term x, Term y, Term weight) {
    if (!weight.number)
      return push(chain_step(ChainOp::kLerp, as_register(x), as_register(y), weight.reg));
    ChainStep step = chain_step(ChainOp::kLerpScalar, as_register(x), as_register(y));
    step.value = static_cast<float>(*weight.number);
    return push(step);
  }

  // Makes `term` the result. False if anything did not fit; then nothing may be emitted.
  bool finish(Term term) {
    if (!is_valid_ || term.number || live_numbers_ != expected_live_numbers()) return false;
    if (!is_step(term.reg)) term = with_number(ChainOp::kMulScalar, term, 1);  // x + 0 * y
    const int inputs = static_cast<int>(inputs_.size());
    const auto resolved = [&](int r) { return is_step(r) ? inputs + step_index(r) : r; };
    for (ChainStep& step : steps_) {
      const int count = register_count(step.op);
      step.x = resolved(step.x);
      if (count > 1) step.y = resolved(step.y);
      if (count > 2) step.z = resolved(step.z);
    }
    chain_ = Chain{inputs, std::move(steps_), {resolved(term.reg)}};
    return true;
  }
  void emit() { call_.emit_result_of(element_, chain_, inputs_, *result_); }

 private:
  // While it is not known how many inputs there will be, steps have numbers of their own.
  static int step_register(size_t step) { return -2 - static_cast<int>(step); }
  static bool is_step(int r) { return r <= -2; }
  static int step_index(int r) { return -2 - r; }

  // Of an element that has one of a list's numbers: that one, and those for all elements.
  size_t expected_live_numbers() const { return call_.live_numbers_of(element_); }

  Term tensor(TensorRef operand) {
    if (!result_ || result_->dtype.code != operand.desc.dtype.code) return invalid();
    const auto desc = expanded(operand.desc, result_->sizes);
    if (!desc) return invalid();
    operand.desc = *desc;
    inputs_.push_back(std::move(operand));
    return {std::nullopt, static_cast<int>(inputs_.size()) - 1};
  }

  int as_register(Term term) {
    if (term.number) is_valid_ = false;
    return term.reg;
  }

  Term push(const ChainStep& step) {
    steps_.push_back(step);
    return {std::nullopt, step_register(steps_.size() - 1)};
  }

  CallReader& call_;
  const int32_t element_;
  const std::optional<TensorDesc> result_;
  bool is_valid_ = true;
  size_t live_numbers_ = 0;
  std::vector<TensorRef> inputs_;
  std::vector<ChainStep> steps_;
  Chain chain_;
};

// The ops, in terms of their arguments.

template <ChainOp kOp>
Term unary(Expression& e) {
  return e.apply(kOp, e.argument(0));
}
template <ChainOp kOp>
Term binary(Expression& e) {
  return e.apply(kOp, e.argument(0), e.argument(1));
}

Term sum(Expression& e) {  // self, other, alpha
  return e.add(e.argument(0), e.multiply(e.argument_or(2, 1), e.argument(1)));
}
Term difference(Expression& e) {
  const Term alpha = e.argument_or(2, 1);
  if (alpha.number == 1.0) return e.subtract(e.argument(0), e.argument(1));
  return e.subtract(e.argument(0), e.multiply(alpha, e.argument(1)));
}
Term reversed_difference(Expression& e) {  // self, other, alpha: other - alpha * self
  return e.subtract(e.argument(1), e.multiply(e.argument_or(2, 1), e.argument(0)));
}
Term product(Expression& e) {
  return e.multiply(e.argument(0), e.argument(1));
}
Term quotient(Expression& e) {
  return e.divide(e.argument(0), e.argument(1));
}
Term power(Expression& e) {
  const Term base = e.argument(0);
  const Term exponent = e.argument(1);
  if (exponent.number == 2.0) return e.apply(ChainOp::kSquare, base);
  return exponent.number ? e.with_number(ChainOp::kPowScalar, base, *exponent.number)
                         : e.apply(ChainOp::kPow, base, exponent);
}
Term interpolation(Expression& e) {  // self, end, weight
  return e.lerp(e.argument(0), e.argument(1), e.argument(2));
}
Term sum_with_product(Expression& e) {  // self, tensor1, tensor2, value
  return e.multiply_add(e.multiply(e.argument_or(3, 1), e.argument(1)), e.argument(2),
                        e.argument(0));
}
Term sum_with_quotient(Expression& e) {  // self, tensor1, tensor2, value
  return e.add(e.argument(0),
               e.divide(e.multiply(e.argument_or(3, 1), e.argument(1)), e.argument(2)));
}

struct Known {
  Term (*write)(Expression&);
  bool on_two = false;  // tensors or numbers
};

// By the op's name, without what says in which form it is.
const std::unordered_map<std::string_view, Known>& known_ops() {
  static const std::unordered_map<std::string_view, Known> table = {
      {"add", {sum, true}},
      {"sub", {difference, true}},
      {"rsub", {reversed_difference, true}},
      {"mul", {product, true}},
      {"div", {quotient, true}},
      {"pow", {power, true}},
      {"maximum", {binary<ChainOp::kMaximum>, true}},
      {"minimum", {binary<ChainOp::kMinimum>, true}},
      {"lerp", {interpolation, true}},
      {"addcmul", {sum_with_product, true}},
      {"addcdiv", {sum_with_quotient, true}},
      {"neg", {unary<ChainOp::kNeg>}},
      {"abs", {unary<ChainOp::kAbs>}},
      {"reciprocal", {unary<ChainOp::kReciprocal>}},
      {"exp", {unary<ChainOp::kExp>}},
      {"log", {unary<ChainOp::kLog>}},
      {"sqrt", {unary<ChainOp::kSqrt>}},
      {"rsqrt", {unary<ChainOp::kRsqrt>}},
      {"erf", {unary<ChainOp::kErf>}},
      {"sin", {unary<ChainOp::kSin>}},
      {"cos", {unary<ChainOp::kCos>}},
  };
  return table;
}

// "aten::_foreach_add_.List" -> on lists, "add", "List".
struct OpName {
  std::string_view base;
  std::string_view overload;
  bool on_lists = false;

  explicit OpName(std::string_view name) : base(name) {
    constexpr std::string_view kNamespace = "aten::";
    constexpr std::string_view kOnLists = "_foreach_";
    if (base.starts_with(kNamespace)) base.remove_prefix(kNamespace.size());
    on_lists = base.starts_with(kOnLists);
    if (on_lists) base.remove_prefix(kOnLists.size());
    if (const size_t dot = base.find('.'); dot != std::string_view::npos) {
      overload = base.substr(dot + 1);
      base = base.substr(0, dot);
    }
    if (base.ends_with('_')) base.remove_suffix(1);
  }

  // Others have arguments of another meaning (div.Tensor_mode).
  bool is_known_form(bool on_two) const {
    if (!on_two) return overload.empty() || overload == "out";
    for (std::string_view form :
         {"", "out", "Tensor", "Scalar", "List", "ScalarList", "Tensor_Scalar", "Tensor_Tensor"})
      if (overload == form) return true;
    return false;
  }
};

}  // namespace

bool import_elementwise(const std::string& name, CallReader& call) {
  const OpName op(name);
  const auto known = known_ops().find(op.base);
  if (known == known_ops().end() || !op.is_known_form(known->second.on_two)) return false;
  const auto elements = static_cast<int32_t>(call.elements());
  if (op.on_lists != (elements > 0)) return false;
  std::vector<Expression> expressions;
  for (int32_t i = op.on_lists ? 0 : -1; i < elements; ++i) {
    Expression& expression = expressions.emplace_back(call, i);
    if (!expression.finish(known->second.write(expression))) return false;
  }
  for (Expression& expression : expressions) expression.emit();
  return true;
}

}  // namespace nimble
