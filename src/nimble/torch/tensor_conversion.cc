#include "nimble/torch/tensor_conversion.h"

#include <c10/core/ScalarType.h>

#include "nimble/base/error.h"
#include "nimble/torch/cuda.h"

namespace nimble {
namespace {

const c10::DispatchKeySet kCpuKeys({c10::DispatchKey::CPU, c10::DispatchKey::AutogradCPU,
                                    c10::DispatchKey::ADInplaceOrView,
                                    c10::DispatchKey::AutocastCPU, c10::DispatchKey::Conjugate,
                                    c10::DispatchKey::Negative});
const c10::DispatchKeySet kCudaKeys({c10::DispatchKey::CUDA, c10::DispatchKey::AutogradCUDA,
                                     c10::DispatchKey::AutocastCUDA});
const c10::DispatchKeySet kPlainKeys = cuda_is_built() ? kCpuKeys | kCudaKeys : kCpuKeys;

// As Python writes it: float32, not Float.
std::string name_of(at::ScalarType type) {
  return std::string(c10::getDtypeNames(type).first);
}

}  // namespace

TensorDesc describe(const at::Tensor& tensor) {
  TensorDesc desc;
  desc.dtype = {static_cast<int8_t>(tensor.scalar_type()),
                static_cast<uint8_t>(tensor.element_size()), name_of(tensor.scalar_type())};
  desc.sizes = tensor.sizes().vec();
  desc.strides = tensor.strides().vec();
  desc.offset = tensor.storage_offset();
  desc.conjugate = tensor.is_conj();
  desc.negative = tensor.is_neg();
  desc.wrapped_number = tensor.unsafeGetTensorImpl()->is_wrapped_number();
  return desc;
}

at::Tensor make_tensor(const TensorDesc& desc, c10::Storage storage) {
  const auto type = static_cast<at::ScalarType>(desc.dtype.code);
  const bool on_cuda = storage.device().is_cuda();
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage),
      c10::DispatchKeySet(on_cuda ? c10::DispatchKey::CUDA : c10::DispatchKey::CPU),
      c10::scalarTypeToTypeMeta(type));
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(desc.sizes, desc.strides, desc.offset);
  if (desc.conjugate) impl->_set_conj(true);
  if (desc.negative) impl->_set_neg(true);
  if (desc.wrapped_number) impl->set_wrapped_number(true);
  return tensor;
}

bool is_plain(const at::Tensor& tensor) {
  return (tensor.key_set().raw_repr() & ~kPlainKeys.raw_repr()) == 0;
}

std::string why_not_plain(const at::Tensor& tensor) {
  if (is_plain(tensor)) return "";
  const c10::DispatchKeySet keys = tensor.key_set();
  if (keys.has(c10::DispatchKey::Python)) return "a tensor subclass";
  if (keys.has_any(c10::DispatchKeySet({c10::DispatchKey::FuncTorchBatched,
                                        c10::DispatchKey::FuncTorchGradWrapper,
                                        c10::DispatchKey::Functionalize})))
    return "a tensor inside a functional transform";
  if (tensor.device().is_cuda() && !cuda_is_built())
    return message("a tensor on device ", tensor.device().str(), "; ", why_no_cuda());
  if (!tensor.device().is_cpu() && !tensor.device().is_cuda())
    return message("a tensor on device ", tensor.device().str());
  if (tensor.layout() != at::kStrided) return message("a tensor of layout ", tensor.layout());
  if (tensor.is_quantized()) return "a quantized tensor";
  return message("a tensor with dispatch keys ", c10::toString(keys));
}

at::Tensor copy_with_strides(const at::Tensor& tensor) {
  const TensorDesc desc = describe(tensor);
  if (desc.may_overlap_itself()) return tensor.detach().clone(at::MemoryFormat::Contiguous);
  const at::Tensor memory = bytes_of_storage(tensor.storage())
                                .narrow(0, desc.begin_byte(), desc.end_byte() - desc.begin_byte())
                                .clone();
  TensorDesc moved = desc;
  moved.offset = 0;
  return make_tensor(moved, memory.storage());
}

at::Tensor bytes_of_storage(const c10::Storage& storage) {
  TensorDesc desc;
  desc.dtype = {static_cast<int8_t>(at::kByte), 1, "uint8"};
  desc.sizes = {static_cast<int64_t>(storage.nbytes())};
  desc.strides = {1};
  return make_tensor(desc, storage);
}

}  // namespace nimble
