// libcuda.so.1: the few entry points of the driver that PyTorch calls, and nvrtc's kernels.
#include <cuda.h>
#include <dlfcn.h>

#include <set>
#include <string>

#include "state.h"

FAKE_EXPORT int fake_cuda_address_range(uint64_t* start, size_t* bytes, uint64_t address);

#undef cuGetProcAddress
#undef cuMemGetAddressRange

namespace {
int context = 0;  // its address is the context

void* find_entry(const std::string& name) {
  static void* const self = dlopen("libcuda.so.1", RTLD_NOW);
  for (const char* suffix : {"_v3", "_v2", ""})
    if (void* found = dlsym(self, (name + suffix).c_str())) return found;
  return dlsym(self, "fake_cuda_driver_stub");
}
}  // namespace

// Stands for every entry point that is not here.
FAKE_EXPORT CUresult fake_cuda_driver_stub() {
  return CUDA_ERROR_NOT_SUPPORTED;
}

FAKE_EXPORT CUresult cuGetProcAddress_v2(const char* name, void** out, int, cuuint64_t,
                                         CUdriverProcAddressQueryResult* status) {
  *out = find_entry(name);
  if (status) *status = CU_GET_PROC_ADDRESS_SUCCESS;
  return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuInit(unsigned) {
  return CUDA_SUCCESS;
}
FAKE_EXPORT CUresult cuDriverGetVersion(int* version) {
  *version = CUDA_VERSION;
  return CUDA_SUCCESS;
}
FAKE_EXPORT CUresult cuDeviceGetCount(int* count) {
  *count = 1;
  return CUDA_SUCCESS;
}
FAKE_EXPORT CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  *device = ordinal;
  return ordinal == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
FAKE_EXPORT CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice) {
  return CUresult(cudaDeviceGetAttribute(value, cudaDeviceAttr(attribute), 0));
}
FAKE_EXPORT CUresult cuDeviceGetName(char* name, int length, CUdevice) {
  std::snprintf(name, length, "Fake CUDA device");
  return CUDA_SUCCESS;
}
FAKE_EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice, unsigned* flags, int* active) {
  *flags = 0;
  *active = 1;
  return CUDA_SUCCESS;
}
FAKE_EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext* out, CUdevice) {
  *out = reinterpret_cast<CUcontext>(&context);
  return CUDA_SUCCESS;
}
FAKE_EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice) {
  return CUDA_SUCCESS;
}
FAKE_EXPORT CUresult cuCtxGetCurrent(CUcontext* out) {
  *out = reinterpret_cast<CUcontext>(&context);
  return CUDA_SUCCESS;
}
FAKE_EXPORT CUresult cuCtxSetCurrent(CUcontext) {
  return CUDA_SUCCESS;
}
FAKE_EXPORT CUresult cuCtxGetDevice(CUdevice* device) {
  *device = 0;
  return CUDA_SUCCESS;
}
FAKE_EXPORT CUresult cuStreamGetCtx(CUstream, CUcontext* out) {
  return cuCtxGetCurrent(out);
}
FAKE_EXPORT CUresult cuGetErrorString(CUresult error, const char** text) {
  *text = cudaGetErrorString(cudaError_t(error));  // the numbers are the same
  return CUDA_SUCCESS;
}
FAKE_EXPORT CUresult cuGetErrorName(CUresult error, const char** name) {
  *name = cudaGetErrorName(cudaError_t(error));
  return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuMemGetAddressRange_v2(CUdeviceptr* start, size_t* bytes,
                                             CUdeviceptr address) {
  uint64_t found_start;
  size_t found_bytes;
  if (!fake_cuda_address_range(&found_start, &found_bytes, address)) return CUDA_ERROR_NOT_FOUND;
  if (start) *start = found_start;
  if (bytes) *bytes = found_bytes;
  return CUDA_SUCCESS;
}
FAKE_EXPORT CUresult cuPointerGetAttribute(void* out, CUpointer_attribute attribute,
                                           CUdeviceptr address) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      *static_cast<int*>(out) = 0;
      break;
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      *static_cast<void**>(out) = &context;
      break;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      *static_cast<CUdeviceptr*>(out) = address;
      break;
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
  return CUDA_SUCCESS;
}

// Modules that nvrtc compiled: a function is its interned name.
FAKE_EXPORT CUresult cuModuleLoadData(CUmodule* out, const void*) {
  *out = reinterpret_cast<CUmodule>(&context);
  return CUDA_SUCCESS;
}
FAKE_EXPORT CUresult cuModuleLoadDataEx(CUmodule* out, const void* image, unsigned, CUjit_option*,
                                        void**) {
  return cuModuleLoadData(out, image);
}
FAKE_EXPORT CUresult cuModuleUnload(CUmodule) {
  return CUDA_SUCCESS;
}
FAKE_EXPORT CUresult cuModuleGetFunction(CUfunction* out, CUmodule, const char* name) {
  static std::mutex lock;
  static auto& names = *std::make_unique<std::set<std::string>>().release();
  std::lock_guard guard(lock);
  *out = reinterpret_cast<CUfunction>(const_cast<char*>(names.insert(name).first->c_str()));
  return CUDA_SUCCESS;
}
FAKE_EXPORT CUresult cuFuncGetAttribute(int* value, CUfunction_attribute, CUfunction) {
  *value = 0;
  return CUDA_SUCCESS;
}
FAKE_EXPORT CUresult cuFuncSetAttribute(CUfunction, CUfunction_attribute, int) {
  return CUDA_SUCCESS;
}
FAKE_EXPORT CUresult cuFuncSetCacheConfig(CUfunction, CUfunc_cache) {
  return CUDA_SUCCESS;
}
FAKE_EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction, int,
                                                                 size_t) {
  *blocks = 2;
  return CUDA_SUCCESS;
}
FAKE_EXPORT CUresult cuLaunchKernel(CUfunction function, unsigned, unsigned, unsigned, unsigned,
                                    unsigned, unsigned, unsigned, CUstream stream, void**, void**) {
  return CUresult(
      fake_cuda_library_call(stream, reinterpret_cast<const char*>(function), nullptr, 0));
}
FAKE_EXPORT CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned, unsigned, unsigned,
                                               unsigned, unsigned, unsigned, unsigned,
                                               CUstream stream, void**) {
  return CUresult(
      fake_cuda_library_call(stream, reinterpret_cast<const char*>(function), nullptr, 0));
}
