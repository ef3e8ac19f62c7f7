// Kernels: their registration, their launches, and functions of tests in their place.
#include <cstring>

#include "state.h"

using namespace fake_cuda;

namespace {
struct Configuration {
  dim3 grid, block;
  size_t shared;
  cudaStream_t stream;
};
thread_local std::vector<Configuration> configurations;

const char* name_of(const void* kernel) {
  auto found = state().kernel_names.find(kernel);
  return found == state().kernel_names.end() ? "unknown kernel" : found->second;
}

// A kernel's copies of its arguments, and what runs on them.
Work work_of(const char* name, dim3 grid, dim3 block, void** arguments) {
  State& s = state();
  for (const KernelFunction& entry : s.kernel_functions) {
    if (!std::strstr(name, entry.name_part.c_str())) continue;
    auto copies = std::make_shared<std::vector<std::vector<char>>>();
    for (size_t i = 0; i < entry.sizes.size(); ++i) {
      auto* bytes = static_cast<const char*>(arguments[i]);
      copies->emplace_back(bytes, bytes + entry.sizes[i]);
    }
    return [copies, grid, block, function = entry.function, user = entry.user] {
      std::vector<void*> pointers;
      for (auto& copy : *copies) pointers.push_back(copy.data());
      const uint32_t grid_sizes[] = {grid.x, grid.y, grid.z};
      const uint32_t block_sizes[] = {block.x, block.y, block.z};
      function(pointers.data(), grid_sizes, block_sizes, user);
    };
  }
  return {};
}

cudaError_t launch(const void* kernel, dim3 grid, dim3 block, void** arguments,
                   cudaStream_t stream) {
  // As on the device; a launch of no threads is an error in PyTorch too.
  if (!grid.x || !grid.y || !grid.z || !block.x || !block.y || !block.z ||
      uint64_t{block.x} * block.y * block.z > 1024 || grid.y > 65535 || grid.z > 65535)
    return result(cudaErrorInvalidConfiguration);
  const char* name;
  Work work;
  {
    std::lock_guard guard(state().lock);
    name = name_of(kernel);
    work = work_of(name, grid, block, arguments);
  }
  return enqueue_kernel(stream, name, std::move(work));
}

cudaError_t occupancy(int* blocks, int threads) {
  *blocks = threads > 0 ? std::max(1, 2048 / threads) : 1;
  return cudaSuccess;
}
}  // namespace

FAKE_EXPORT void** __cudaRegisterFatBinary(void*) {
  static void* handle = nullptr;
  return &handle;
}
FAKE_EXPORT void __cudaRegisterFatBinaryEnd(void**) {}
FAKE_EXPORT void __cudaUnregisterFatBinary(void**) {}
FAKE_EXPORT void __cudaRegisterFunction(void**, const char* host, char*, const char* name, int,
                                        uint3*, uint3*, dim3*, dim3*, int*) {
  std::lock_guard guard(state().lock);
  state().kernel_names[host] = name;
}
FAKE_EXPORT void __cudaRegisterVar(void**, char* host, char*, const char* name, int, size_t bytes,
                                   int, int) {
  std::lock_guard guard(state().lock);
  state().variables[host] = {name, bytes};
}

FAKE_EXPORT unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared,
                                                 cudaStream_t stream) {
  configurations.push_back({grid, block, shared, stream});
  return 0;
}
FAKE_EXPORT cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared,
                                                   void* stream) {
  if (configurations.empty()) return result(cudaErrorInvalidConfiguration);
  Configuration top = configurations.back();
  configurations.pop_back();
  *grid = top.grid;
  *block = top.block;
  *shared = top.shared;
  *static_cast<cudaStream_t*>(stream) = top.stream;
  return cudaSuccess;
}

// A kernel's handle is the address of its host function.
FAKE_EXPORT cudaError_t __cudaGetKernel(cudaKernel_t* out, const void* function) {
  *out = static_cast<cudaKernel_t>(const_cast<void*>(function));
  return cudaSuccess;
}
FAKE_EXPORT cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block,
                                           void** arguments, size_t, cudaStream_t stream) {
  return launch(kernel, grid, block, arguments, stream);
}
FAKE_EXPORT cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block,
                                         void** arguments, size_t, cudaStream_t stream) {
  return launch(function, grid, block, arguments, stream);
}
FAKE_EXPORT cudaError_t cudaLaunchCooperativeKernel(const void* function, dim3 grid, dim3 block,
                                                    void** arguments, size_t, cudaStream_t stream) {
  return launch(function, grid, block, arguments, stream);
}
FAKE_EXPORT cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* function,
                                            void** arguments) {
  return launch(function, config->gridDim, config->blockDim, arguments, config->stream);
}

FAKE_EXPORT cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  return enqueue(stream, FAKE_CUDA_HOST, "host function", [=] { function(data); });
}
FAKE_EXPORT cudaError_t cudaStreamAddCallback(cudaStream_t handle, cudaStreamCallback_t function,
                                              void* data, unsigned) {
  {
    std::lock_guard guard(state().lock);
    Stream* stream = find_stream(handle);
    if (stream && stream->capture) {
      invalidate(*stream->capture);
      return result(cudaErrorStreamCaptureUnsupported);
    }
  }
  return enqueue(handle, FAKE_CUDA_HOST, "callback", [=] { function(handle, cudaSuccess, data); });
}

FAKE_EXPORT cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* out, const void*) {
  std::memset(out, 0, sizeof *out);
  out->binaryVersion = out->ptxVersion = 90;
  out->maxThreadsPerBlock = 1024;
  out->numRegs = 32;
  out->maxDynamicSharedSizeBytes = 48 << 10;
  return cudaSuccess;
}
FAKE_EXPORT cudaError_t cudaFuncGetName(const char** name, const void* function) {
  std::lock_guard guard(state().lock);
  *name = name_of(function);
  return cudaSuccess;
}
FAKE_EXPORT cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*,
                                                                      int threads, size_t) {
  return occupancy(blocks, threads);
}
FAKE_EXPORT cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks,
                                                                               const void*,
                                                                               int threads, size_t,
                                                                               unsigned) {
  return occupancy(blocks, threads);
}

FAKE_EXPORT cudaError_t cudaGetSymbolAddress(void** out, const void* symbol) {
  State& s = state();
  std::lock_guard guard(s.lock);
  void*& memory = s.variable_memory[symbol];
  // Lives as long as the process, as device code does.
  if (!memory) memory = std::calloc(1, std::max<size_t>(s.variables[symbol].second, 64));
  *out = memory;
  return cudaSuccess;
}
FAKE_EXPORT cudaError_t cudaMemcpyToSymbol(const void* symbol, const void* from, size_t bytes,
                                           size_t offset, cudaMemcpyKind) {
  void* memory;
  cudaGetSymbolAddress(&memory, symbol);
  std::memcpy(static_cast<char*>(memory) + offset, from, bytes);
  return cudaSuccess;
}
