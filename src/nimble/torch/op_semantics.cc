#include "nimble/torch/op_semantics.h"

#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

namespace nimble {
namespace {

using Names = std::unordered_set<std::string_view>;

// Writes that a schema does not declare. `condition`: the boolean argument that must be true.
struct HiddenWrite {
  std::string_view op;
  std::string_view argument;
  std::string_view condition;
};
constexpr HiddenWrite kHiddenWrites[] = {
    {"aten::native_batch_norm", "running_mean", "training"},
    {"aten::native_batch_norm", "running_var", "training"},
    {"aten::native_batch_norm.out", "running_mean", "training"},
    {"aten::native_batch_norm.out", "running_var", "training"},
    {"aten::cudnn_batch_norm", "running_mean", "training"},
    {"aten::cudnn_batch_norm", "running_var", "training"},
    {"aten::miopen_batch_norm", "running_mean", "training"},
    {"aten::miopen_batch_norm", "running_var", "training"},
    {"aten::batch_norm_update_stats", "running_mean", ""},
    {"aten::batch_norm_update_stats", "running_var", ""},
    {"aten::batch_norm_gather_stats", "running_mean", ""},
    {"aten::batch_norm_gather_stats", "running_var", ""},
    {"aten::batch_norm_gather_stats_with_counts", "running_mean", ""},
    {"aten::batch_norm_gather_stats_with_counts", "running_var", ""},
};

// In-place ops that do not look at what was there.
const Names kPureOverwrites = {
    "aten::copy_",      "aten::fill_.Scalar",     "aten::fill_.Tensor",      "aten::zero_",
    "aten::normal_",    "aten::uniform_",         "aten::random_",           "aten::random_.from",
    "aten::random_.to", "aten::bernoulli_.float", "aten::bernoulli_.Tensor", "aten::exponential_",
    "aten::geometric_", "aten::log_normal_",      "aten::cauchy_",
};

const Names kAllocations = {
    "aten::empty.memory_format", "aten::empty_strided",     "aten::empty_like",
    "aten::new_empty",           "aten::new_empty_strided", "aten::empty_permuted",
};

// Ops whose tensor argument only lends its shape and dtype.
const Names kShapeOnly = {
    "aten::zeros_like",   "aten::ones_like",
    "aten::full_like",    "aten::rand_like",
    "aten::randn_like",   "aten::new_zeros",
    "aten::new_ones",     "aten::new_full",
    "aten::randint_like", "aten::randint_like.low_dtype",
};

// Composite ops whose own code reads tensor values behind the recorder's back.
const Names kCompositesThatReadValues = {
    "aten::tensor_split.tensor_indices_or_sections",
    "aten::_pad_packed_sequence",
    "aten::lstm.data",
    "aten::gru.data",
    "aten::rnn_tanh.data",
    "aten::rnn_relu.data",
    "aten::ctc_loss.Tensor",
};

// Composite by registration, but their CPU code computes by itself if no gradient is needed.
const Names kLeafComposites = {
    "aten::max_pool1d",  "aten::quantile",           "aten::quantile.scalar",
    "aten::nanquantile", "aten::nanquantile.scalar",
};

// Shape-dependent by their tags, but on constants that are part of the call.
const Names kShapesFromConstants = {"aten::_ctc_loss"};

// Ops that run, but whose results have a shape or layout made from values.
const Names kValueDependentShapes = {
    "aten::_pack_padded_sequence",
    "torchvision::nms",
    "aten::_ctc_loss.Tensor",
};

// Results that are numbers, but come from shapes, not from data.
const Names kMetadataQueries = {
    "aten::size",
    "aten::size.int",
    "aten::stride",
    "aten::stride.int",
    "aten::numel",
    "aten::dim",
    "aten::is_same_size",
    "aten::storage_offset",
    "aten::sym_size",
    "aten::sym_size.int",
    "aten::sym_stride",
    "aten::sym_stride.int",
    "aten::sym_numel",
    "aten::sym_storage_offset",
    "aten::is_pinned",
    "aten::is_contiguous",
    "aten::is_contiguous.memory_format",
    "aten::sym_is_contiguous",
    "aten::is_set_to",
    "aten::_has_compatible_shallow_copy_type",
    "aten::_nested_tensor_size",
    "aten::is_non_overlapping_and_dense",
    "aten::is_strides_like_format",
    "aten::_is_zerotensor",
    "aten::_fused_sdp_choice",
    "prim::device",
    "prim::layout",
    "aten::_use_cudnn_ctc_loss",
    "aten::result_type.Tensor",
    "aten::result_type.Scalar",
    "aten::can_cast",
    "aten::promote_types",
    "aten::is_complex",
    "aten::is_floating_point",
    "aten::is_signed",
    "aten::is_conj",
    "aten::is_neg",
    "aten::is_inference",
    "aten::_version",
    "aten::is_leaf",
    "aten::output_nr",
    "aten::_debug_has_internal_overlap",
    "aten::get_device",
    "aten::retains_grad",
};

bool returns_numbers(const c10::FunctionSchema& schema) {
  for (const c10::Argument& result : schema.returns()) {
    const c10::TypePtr& type = result.type();
    const bool tensors = type->isSubtypeOf(*c10::TensorType::get()) ||
                         type->isSubtypeOf(*c10::ListType::ofTensors());
    if (!tensors) return true;
  }
  return false;
}

bool has_tensor_argument(const c10::FunctionSchema& schema) {
  return std::any_of(schema.arguments().begin(), schema.arguments().end(), [](const auto& arg) {
    return arg.type()->str().find("Tensor") != std::string::npos;
  });
}

std::string refusal_by_schema(const c10::OperatorHandle& op, const std::string& name,
                              bool composite) {
  if (kCompositesThatReadValues.contains(name))
    return "it reads the values of a tensor to decide what to do";
  if (composite) return "";
  if (kValueDependentShapes.contains(name)) return "the shape of its result depends on values";
  if (kMetadataQueries.contains(name)) return "";
  if (op.hasTag(at::Tag::data_dependent_output)) return "it reads a value back into the program";
  if (returns_numbers(op.schema()) && has_tensor_argument(op.schema()))
    return "it returns a number computed from tensors to the program";
  return "";
}

ArgumentEffect effect_by_schema(const c10::Argument& argument, const std::string& name) {
  const bool writes = argument.alias_info() && argument.alias_info()->isWrite();
  if (!writes) return kShapeOnly.contains(name) ? ArgumentEffect::kIgnore : ArgumentEffect::kRead;
  const bool overwrites = argument.is_out() || kPureOverwrites.contains(name);
  return overwrites ? ArgumentEffect::kOverwrite : ArgumentEffect::kUpdate;
}

OpSemantics describe(const c10::OperatorHandle& op) {
  OpSemantics semantics;
  const std::string name = c10::toString(op.operator_name());
  semantics.is_composite =
      op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) &&
      !op.hasKernelForDispatchKey(c10::DispatchKey::CPU) && !kLeafComposites.contains(name);
  semantics.is_composite_in_training = kLeafComposites.contains(name);
  semantics.has_autocast_kernel = op.hasKernelForDispatchKey(c10::DispatchKey::AutocastCPU);
  semantics.is_one_op_on_cuda = op.hasKernelForDispatchKey(c10::DispatchKey::CUDA);
  semantics.only_allocates = kAllocations.contains(name);
  semantics.only_changes_metadata = op.hasTag(at::Tag::inplace_view);
  semantics.draws_random_numbers = op.hasTag(at::Tag::nondeterministic_seeded);
  semantics.refusal = refusal_by_schema(op, name, semantics.is_composite);
  for (const c10::Argument& argument : op.schema().arguments())
    semantics.effects.push_back(effect_by_schema(argument, name));
  return semantics;
}

// Whether a tensor that selects elements by value is among the indices.
bool has_mask(const c10::IValue& indices) {
  if (!indices.isList()) return false;
  for (const c10::IValue& index : indices.toListRef()) {
    if (!index.isTensor() || !index.toTensor().defined()) continue;
    const at::ScalarType type = index.toTensor().scalar_type();
    if (type == at::kBool || type == at::kByte) return true;
  }
  return false;
}

}  // namespace

bool has_absolute_offset(const c10::OperatorHandle& op,
                         c10::ArrayRef<const c10::IValue> arguments) {
  if (!op.schema().name().starts_with("aten::as_strided")) return false;
  const auto offset = op.schema().argumentIndexWithName("storage_offset");
  return offset && !arguments[*offset].isNone();
}

bool is_autocast(const c10::OperatorHandle& op, c10::DeviceType device) {
  const c10::DispatchKey key =
      device == at::kCUDA ? c10::DispatchKey::AutocastCUDA : c10::DispatchKey::AutocastCPU;
  return !c10::impl::tls_local_dispatch_key_set().excluded_.has(key) &&
         op.hasKernelForDispatchKey(key);
}

const OpSemantics& semantics_of(const c10::OperatorHandle& op) {
  static std::mutex mutex;
  static auto& cache = *new std::unordered_map<c10::OperatorName, OpSemantics>();
  std::lock_guard lock(mutex);
  auto found = cache.find(op.operator_name());
  if (found == cache.end()) found = cache.emplace(op.operator_name(), describe(op)).first;
  return found->second;
}

std::vector<ArgumentEffect> effects_of_call(const c10::OperatorHandle& op,
                                            c10::ArrayRef<const c10::IValue> arguments) {
  std::vector<ArgumentEffect> effects = semantics_of(op).effects;
  const std::string name = c10::toString(op.operator_name());
  for (const HiddenWrite& write : kHiddenWrites) {
    if (write.op != name) continue;
    const c10::FunctionSchema& schema = op.schema();
    if (!write.condition.empty()) {
      const auto condition = schema.argumentIndexWithName(write.condition);
      if (condition && !arguments[*condition].toBool()) continue;
    }
    if (const auto index = schema.argumentIndexWithName(write.argument))
      effects[*index] = ArgumentEffect::kUpdate;
  }
  return effects;
}

std::string refusal_of_call(const c10::OperatorHandle& op,
                            c10::ArrayRef<const c10::IValue> arguments) {
  const OpSemantics& semantics = semantics_of(op);
  if (!semantics.refusal.empty()) return semantics.refusal;
  if (semantics.is_composite || !op.hasTag(at::Tag::dynamic_output_shape)) return "";
  const std::string name = c10::toString(op.operator_name());
  if (name == "aten::index.Tensor" || name == "aten::_index.Tensor")
    return has_mask(arguments[1]) ? "a boolean mask selects by value how many elements there are"
                                  : "";
  if (kShapesFromConstants.contains(name)) return "";
  if (const auto size = op.schema().argumentIndexWithName("output_size");
      size && !arguments[*size].isNone())
    return "";
  return "the shape of its result depends on values";
}

}  // namespace nimble
